// What stands beside and below the drawings: details of what was clicked, tables, plots.
import { bytes, count, escape, heat, time } from "./words.js";

const rows = (pairs) => pairs.filter(([, value]) => value !== "" && value != null)
  .map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join("");

const link = (side, number, text) =>
  `<a data-side="${side}" data-number="${number}">${escape(text)}</a>`;

/** A node of the graph. calls: [plan number, call number, text] of what computes it. */
export function nodeDetail(graph, number, calls) {
  const node = graph.nodes[number];
  const reads = node.inputs.map((n) => link("graph", n, nodeText(graph, n))).join("<br>");
  const readers = graph.nodes.flatMap((other, n) => (other.inputs.includes(number) ? [n] : []));
  const into = readers.slice(0, 20).map((n) => link("graph", n, nodeText(graph, n))).join("<br>");
  const named = graph.outputs.filter(([n]) => n === number).map(([, name]) => name).join(", ");
  return `<h2>%${number} ${escape(node.op)} ${escape(node.name)}</h2><dl>${rows([
    ["type", escape(node.shape)], ["with", escape(node.attribute)],
    ["module", escape(node.path.join("."))], ["recorded at", escape(node.where)],
    ["output", escape(named)], ["reads", reads], ["read by", into],
    ["computed in", calls.map(([plan, n, text]) => link(plan, n, text)).join("<br>")],
  ])}</dl>`;
}

export function nodeText(graph, number) {
  const node = graph.nodes[number];
  return `%${number} ${node.op} ${node.name || node.attribute.slice(0, 24)} ${node.shape}`;
}

/** A call of a kernel. */
export function callDetail(plan, number, side, graph, egraph) {
  const call = plan.calls[number], kernel = plan.kernels[call.kernel];
  const { least } = kernel;
  const memories = (list) => list.map((m) => {
    const { name, kind, shape, bytes: size } = plan.memories[m];
    return `${escape(name)} <span class="soft">${kind} ${escape(shape)} ${bytes(size)}</span>`;
  }).join("<br>");
  const own = (n) => graph && !graph.nodes[n].hidden && graph.nodes[n].inputs.length;
  const nodes = (plan.regions[call.region] ?? []).filter(own);
  const shown = nodes.slice(0, 40).map((n) => link("graph", n, nodeText(graph, n))).join("<br>");
  const step = plan.steps[call.number];
  return `<h2>${escape(kernel.name)}</h2><dl>${rows([
    ["calls", `${kernel.calls} in a run${call.constant ? ", once for parameters" : ""}`],
    ["step", step], ["time", time(call.time)],
    ["at least", least == null ? "" : `${time(least)} on this machine`],
    ["roofline", share(least, call.time)],
    ["work", `${count(kernel.flops, "flop")}, ${bytes(kernel.bytes)}`],
    ["rate", call.time ? `${count(kernel.bytes / call.time, "B/s")}, `
      + count(kernel.flops / call.time, "flop/s") : ""],
    ["reads", memories(call.reads)], ["writes", memories(call.writes)],
    ["tuning", kernel.notes.filter((line) => !line.startsWith("  then")).map(escape).join("<br>")],
    ["candidates", candidates(kernel.tried ?? [])],
  ])}</dl><div class="texts" data-plan="${side}" data-kernel="${call.kernel}">${
    Object.keys(kernel.texts).map((name) => `<button data-text="${name}">${name}</button>`).join(" ")
  }<pre hidden></pre></div><dl>${rows([
    ["equal expressions", egraph ? `<a data-egraph="${call.region}">the e-graph of its region</a>` : ""],
    [`region ${call.region}`, nodes.length ? `${nodes.length} nodes<br>${shown}` : ""],
  ])}</dl>`;
}

/** What the search has timed in the end: the kernel as it is, and the runners-up. */
function candidates(tried) {
  const most = Math.max(...tried.map((each) => each.seconds));
  const lines = tried.map(({ choices, seconds }) => `<tr class="tried"><td>${time(seconds)}</td>
    <td><span class="meter"><i style="width:${(100 * seconds) / most}%"></i></span></td>
    <td>${escape(choices)}</td></tr>`);
  return lines.length > 1 ? `<table><tbody>${lines.join("")}</tbody></table>` : "";
}

/** An e-node: what it equals, and whether the plan takes it. */
export function egraphDetail(notes, label, name, chosen, equal) {
  const list = equal.map((node) => `${escape(node.label)}${node.chosen ? " <b>taken</b>" : ""}`).join("<br>");
  return `<h2>${escape(label)}</h2><dl>${rows([
    ["taken", chosen ? "by the plan without a search" : "no"], ["in", escape(name)],
    ["equal", list],
  ])}</dl><p class="soft">${escape(notes)}</p>`;
}

function share(least, took) {
  if (least == null || !took) return "";
  const part = Math.min(1, least / took);
  return `${(100 * part).toFixed(0)}%<span class="meter"><i style="width:${100 * part}%"></i></span>`;
}

// ---- the drawer

/** Kernels by their time in a run; `order`: column and direction. */
export function kernelTable(plan, order) {
  const whole = plan.calls.reduce((sum, call) => sum + (call.time ?? 0), 0);
  const lines = plan.kernels.map((kernel, number) => {
    const calls = plan.calls.filter((call) => call.kernel === number);
    const took = calls.reduce((sum, call) => sum + (call.time ?? 0), 0);
    const { least } = kernel;
    const each = took / Math.max(1, kernel.calls);
    return {
      number, name: kernel.name, calls: kernel.calls, took, part: whole ? took / whole : 0,
      flops: kernel.flops, bytes: kernel.bytes, gbps: took ? kernel.bytes / each / 1e9 : 0,
      gflops: took ? kernel.flops / each / 1e9 : 0, roof: took && least ? least / each : 0,
    };
  });
  lines.sort((a, b) => (a[order.by] < b[order.by] ? 1 : -1) * (order.up ? -1 : 1));
  const head = [["name", "kernel"], ["calls", "calls"], ["took", "time"], ["part", "share"],
    ["flops", "flop"], ["bytes", "bytes"], ["gbps", "GB/s"], ["gflops", "Gflop/s"],
    ["roof", "of roofline"]];
  const body = lines.map((line) => `<tr data-kernel="${line.number}"><td>${escape(line.name)}</td>
    <td>${line.calls}</td><td>${time(line.took || null)}</td>
    <td>${line.part ? `${(100 * line.part).toFixed(1)}%<span class="meter"><i style="width:${100 * line.part}%"></i></span>` : ""}</td>
    <td>${count(line.flops)}</td><td>${bytes(line.bytes)}</td>
    <td>${line.gbps ? line.gbps.toFixed(1) : ""}</td><td>${line.gflops ? line.gflops.toFixed(1) : ""}</td>
    <td>${line.roof ? `${(100 * line.roof).toFixed(0)}%` : ""}</td></tr>`).join("");
  return `<table><thead><tr>${head.map(([key, text]) => `<th data-by="${key}">${text}</th>`).join("")}
    </tr></thead><tbody>${body}</tbody></table>`;
}

/** Memory of temporaries: a box from the first to the last step, at its place in the arena. */
export function memoryPlot(plan, width, height) {
  if (!plan.placed.length) return "<p class='soft'>Run the program before viewing it: places depend on sizes.</p>";
  const most = Math.max(...plan.placed.map((p) => p.offset + p.bytes));
  const steps = Math.max(...plan.placed.map((p) => p.last)) + 1;
  const [left, top, right, bottom] = [70, 10, width - 10, height - 24];
  const x = (step) => left + ((right - left) * step) / steps;
  const y = (offset) => bottom - ((bottom - top) * offset) / most;
  const number = new Map(plan.calls.map((call, n) => [plan.steps[call.number], n]));
  const boxes = plan.placed.map((p, n) => {
    const name = plan.memories[p.memory], h = Math.max(1, y(p.offset) - y(p.offset + p.bytes) - 0.5);
    return `<rect data-call="${number.get(p.first)}" x="${x(p.first)}" y="${y(p.offset + p.bytes)}"
      width="${Math.max(1, x(p.last + 1) - x(p.first) - 0.5)}" height="${h}"
      fill="hsl(${(n * 47) % 360} 55% 62%)"><title>${escape(name.name)} ${escape(name.shape)}
${bytes(p.bytes)}, steps ${p.first} to ${p.last}</title></rect>`;
  });
  return `<svg width="${width}" height="${height}"><text x="4" y="${top + 8}">${bytes(most)}</text>
    <text x="4" y="${bottom}">0 B</text><text x="${left}" y="${height - 8}">step 0</text>
    <text x="${right}" y="${height - 8}" text-anchor="end">step ${steps - 1}</text>${boxes.join("")}</svg>`;
}

/** Kernels by flops a byte and flop/s, under what the machine can do. */
export function rooflinePlot(plan, width, height) {
  const timed = plan.calls.flatMap((call, n) => {
    const kernel = plan.kernels[call.kernel];
    return call.time && kernel.flops ? [{ n, call, kernel }] : [];
  });
  if (!timed.length) return "<p class='soft'>Run the program before viewing it: nothing was timed.</p>";
  const [peak, read] = [plan.rates.fma * 1e9, plan.rates.read * 1e9];
  const points = timed.map(({ n, call, kernel }) => ({
    n, kernel, a: kernel.flops / kernel.bytes, f: kernel.flops / call.time, took: call.time,
  }));
  const [left, top, right, bottom] = [80, 12, width - 20, height - 30];
  const low = Math.min(0.05, ...points.map((p) => p.a)), high = Math.max(200, ...points.map((p) => p.a));
  const least = Math.min(...points.map((p) => p.f)) / 2, most = peak * 1.6;
  const x = (a) => left + ((right - left) * Math.log(a / low)) / Math.log(high / low);
  const y = (f) => bottom - ((bottom - top) * Math.log(f / least)) / Math.log(most / least);
  const knee = peak / read;
  const whole = points.reduce((sum, p) => sum + p.took, 0);
  const dots = points.map((p) => `<circle data-call="${p.n}" cx="${x(p.a)}" cy="${y(p.f)}"
    r="${3 + 9 * Math.sqrt(p.took / whole)}" fill="${heat(p.took / whole)}" stroke="#666"><title>${
    escape(p.kernel.name)} ${time(p.took)}, ${count(p.f, "flop/s")}</title></circle>`).join("");
  const start = Math.max(low, least / read);
  return `<svg width="${width}" height="${height}">
    <path d="M${x(start)} ${y(start * read)} L${x(knee)} ${y(peak)} L${right} ${y(peak)}" fill="none"
      stroke="currentColor"/>
    <line class="axis" x1="${left}" x2="${right}" y1="${bottom}" y2="${bottom}"/>
    <line class="axis" x1="${left}" x2="${left}" y1="${top}" y2="${bottom}"/>
    <text x="4" y="${y(peak) + 4}">${count(peak, "flop/s")}</text>
    <text x="${x(start) + 8}" y="${y(start * read) - 14}">${count(read, "B/s")} of memory</text>
    <text x="${right}" y="${height - 10}" text-anchor="end">flop a byte: ${low.toPrecision(2)} to ${high.toPrecision(2)}</text>
    ${dots}</svg>`;
}

/** How the plan came about: stages, sizes, what the search has found, what regions became. */
export function compileText(plan) {
  const whole = Object.values(plan.stages).reduce((a, b) => a + b, 0);
  const lines = Object.entries(plan.stages).map(([name, took]) => `<tr><td>${escape(name)}</td>
    <td>${time(took)}</td><td>${((100 * took) / whole).toFixed(0)}%</td></tr>`).join("");
  const sizes = Object.entries(plan.sizes).map(([name, size]) => `${name} = ${size}`).join(", ");
  return `<p>${plan.device}, ${plan.threads} threads${sizes ? `; ${escape(sizes)}` : ""}</p>
    <table style="width:320px"><tbody>${lines}</tbody></table>
    ${plan.search.length ? `<pre>${plan.search.map(escape).join("\n")}</pre>` : ""}
    <p class="soft">Plans of the distinct regions: what is stored, and for what modelled cost</p>
    <pre>${plan.choices.map(escape).join("\n\n")}</pre>`;
}
