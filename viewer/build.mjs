// Bundles src/main.js and puts it, with the style, into the page: node build.mjs OUT.html
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";

const out = process.argv[2] ?? "viewer.html";
const bundled = await build({
  entryPoints: ["src/main.js"], bundle: true, minify: true, write: false, format: "iife",
  target: "es2022", legalComments: "eof",
});
const code = bundled.outputFiles[0].text.replaceAll("</script", "<\\/script");
const [page, style] = await Promise.all(
  ["src/page.html", "src/style.css"].map((path) => readFile(path, "utf8")),
);
await writeFile(out, page.replace("/*STYLE*/", () => style).replace("/*CODE*/", () => code));
