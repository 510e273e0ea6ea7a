// Frames a second while a pane is dragged, all groups open: node frames.mjs PAGE.html [PICTURE.png]
// (npm install --no-save puppeteer-core; CHROMIUM=/path/of/a/browser). Presented and dropped frames are
// counted by the browser's compositor, milliseconds of drawing by the page.
import { readFile, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import puppeteer from "puppeteer-core";

const [file, picture] = process.argv.slice(2);
const STEPS = 180;
const TRACED = ["cc", "benchmark", "viz", "devtools.timeline", "disabled-by-default-devtools.timeline.frame"];
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const page = await browser.newPage();
page.on("pageerror", (error) => console.error(error.message));
await page.setViewport({ width: 1600, height: 1000 });
await page.goto(`file://${resolve(file)}`);

for (const [number, scale] of [[0, 0.8], [0, 0.2], [1, 0.8], [1, 0.2]]) {
  const box = await page.evaluate(opened, number, scale);
  if (!box) continue;
  const trace = join(await mkdtemp(join(tmpdir(), "frames-")), "trace.json");
  const center = [box.left + box.width / 2, box.top + box.height / 2];
  await page.mouse.move(...center);
  await page.mouse.down();
  await page.tracing.start({ path: trace, categories: TRACED });
  for (let n = 1; n <= STEPS; n += 1) {
    await page.mouse.move(center[0] + 150 * Math.sin(n / 15), center[1] + 250 * Math.sin(n / 30));
  }
  await page.tracing.stop();
  await page.mouse.up();
  const drawn = await page.evaluate(() => luminal.drawn.splice(0).sort((a, b) => a - b));
  console.log(JSON.stringify({ pane: box.shown, boxes: box.boxes, scale, ...counted(JSON.parse(await readFile(trace))),
    "ms a drawing": [0.5, 0.9, 0.99].map((q) => Number(at(drawn, q).toFixed(1))) }));
}
if (picture) await page.screenshot({ path: picture });
await browser.close();

/** In the page: everything open, the middle of the drawing in the middle, its drawings timed. */
function opened(number, scale) {
  const pane = luminal.panes[number];
  if (!pane) return null;
  pane.toggleAll(true);
  const { left, top, width, height } = pane.canvas.getBoundingClientRect();
  const whole = pane.tree.root.layout;
  const { constructor: Transform } = pane.transform;
  pane.move(new Transform(scale, width / 2 - (whole.width / 2) * scale, height / 2 - (whole.height / 2) * scale));
  luminal.drawn = [];
  const draw = Object.getPrototypeOf(pane).draw;
  pane.draw = () => {
    const start = performance.now();
    draw.call(pane);
    luminal.drawn.push(performance.now() - start);
  };
  return { left, top, width, height, shown: String(pane.side), boxes: pane.tree.root.items };
}

function counted({ traceEvents }) {
  const states = traceEvents.filter((e) => e.name === "PipelineReporter" && e.ph === "b")
    .map((e) => (e.args.chrome_frame_reporter ?? e.args.frame_reporter)?.state);
  const times = traceEvents.filter((e) => e.name === "DrawFrame").map((e) => e.ts).sort((a, b) => a - b);
  const gaps = times.slice(1).map((t, n) => (t - times[n]) / 1000).sort((a, b) => a - b);
  return { "frames a second": Number((1000 * gaps.length / gaps.reduce((a, b) => a + b, 0)).toFixed(1)),
    dropped: states.filter((s) => s === "STATE_DROPPED").length, of: states.length,
    "ms between": [0.5, 0.9, 0.99].map((q) => Number(at(gaps, q).toFixed(1))) };
}

function at(sorted, share) {
  return sorted[Math.floor(share * (sorted.length - 1))] ?? NaN;
}
