// What stands beside and below the drawings: details of what was clicked, tables, plots.
import { bytes, count, escape, heat, LEGEND, time, within } from "./words.js";

const rows = (pairs) => pairs.filter(([, value]) => value !== "" && value != null)
  .map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join("");

const link = (side, number, text) =>
  `<a data-side="${side}" data-number="${number}">${escape(text)}</a>`;

const TOP = 8; // kernels of a plan that are named before one is chosen

/** What there is, before something is chosen: each plan with its costliest kernels, and how to read. */
export function overview(plans, graph) {
  const parts = plans.map((plan, side) => {
    const sizes = Object.entries(plan.sizes).map(([name, size]) => `${escape(name)} = ${size}`).join(", ");
    const whole = plan.calls.reduce((sum, call) => sum + (call.time ?? 0), 0);
    const least = plan.calls.reduce((sum, call) => sum + (call.time ? plan.kernels[call.kernel].least ?? 0 : 0), 0);
    const arena = Math.max(0, ...plan.placed.map((p) => p.offset + p.bytes));
    const top = kernelRows(plan).filter((row) => row.took).sort((a, b) => b.took - a.took).slice(0, TOP);
    return `<h2>${escape(plan.name)}</h2><dl>${rows([
      ["runs on", `${plan.device}, ${plan.threads} thread${plan.threads > 1 ? "s" : ""}`], ["sizes", sizes],
      ["kernels", `${plan.kernels.length} in ${Object.keys(plan.steps).length} calls of a run`],
      ["time", whole ? `${time(whole)}, each kernel timed alone` : "not run yet"],
      ["at least", whole ? `${time(least)} by the roofline` : ""],
      ["memory", plan.peak ? `${bytes(plan.peak)} at the peak, ${bytes(arena)} of it temporaries` : ""],
    ])}</dl>${top.length ? `<table><thead><tr><th>costliest kernels</th><th>calls</th><th>share</th></tr></thead>
      <tbody>${top.map((row) => `<tr data-top="${row.number}" data-side="${side}"><td data-top="${row.number}"
      data-side="${side}">${escape(row.name)}</td><td>${row.calls}</td><td>${percent(row.part)}</td></tr>`).join("")}</tbody></table>` : ""}`;
  });
  const colours = graph ? `<p class="legend">${LEGEND.map(([colour, what]) =>
    `<span><i style="background:${colour}"></i>${what}</span>`).join("")}</p>` : "";
  const warm = plans.length ? `<p class="legend"><span>kernels by their share of the time</span>${[0, 0.02, 0.08, 0.25]
    .map((share) => `<i style="background:${heat(share)}"></i>`).join("")}</p>` : "";
  return `${parts.join("")}<h2>Reading</h2>${colours}${warm}<p class="soft">Click a box for its details; what belongs
    to it is marked in the other pane. Click a group to open it, its head to fold it. Drag to move, wheel to zoom.
    A plan's kernels stand in the order of a run. In an e-graph (the list above a pane) a box around boxes
    holds equal expressions over the axes it names; what the plan takes of them has a colour.</p>`;
}

const percent = (part) =>
  `${(100 * part).toFixed(part < 0.1 ? 1 : 0)}%<span class="meter"><i style="width:${100 * part}%"></i></span>`;

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
    const lives = plan.placed.find((p) => p.memory === m);
    const span = lives ? `, steps ${lives.first} to ${lives.last}` : "";
    return `${escape(name)} <span class="soft">${kind} ${escape(shape)} ${bytes(size)}${span}</span>`;
  }).join("<br>");
  const own = (n) => graph && !graph.nodes[n].hidden && graph.nodes[n].inputs.length;
  const nodes = (plan.regions[call.region] ?? []).filter(own);
  const shown = nodes.slice(0, 40).map((n) => link("graph", n, nodeText(graph, n))).join("<br>");
  const step = plan.steps[call.number];
  return `<h2>${escape(kernel.name)}</h2><dl>${rows([
    ["module", escape(call.module)],
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

function kernelRows(plan) {
  const whole = plan.calls.reduce((sum, call) => sum + (call.time ?? 0), 0);
  return plan.kernels.map((kernel, number) => {
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
}

/** Kernels by their time in a run; `order`: column and direction. */
export function kernelTable(plan, order) {
  const lines = kernelRows(plan);
  lines.sort((a, b) => (a[order.by] < b[order.by] ? 1 : -1) * (order.up ? -1 : 1));
  const head = [["name", "kernel"], ["calls", "calls"], ["took", "time"], ["part", "share"],
    ["flops", "flop"], ["bytes", "bytes"], ["gbps", "GB/s"], ["gflops", "Gflop/s"],
    ["roof", "of roofline"]];
  const body = lines.map((line) => `<tr data-kernel="${line.number}"><td>${escape(line.name)}</td>
    <td>${line.calls}</td><td>${time(line.took || null)}</td>
    <td>${line.part ? percent(line.part) : ""}</td>
    <td>${count(line.flops)}</td><td>${bytes(line.bytes)}</td>
    <td>${line.gbps ? line.gbps.toFixed(1) : ""}</td><td>${line.gflops ? line.gflops.toFixed(1) : ""}</td>
    <td>${line.roof ? `${Math.min(100, 100 * line.roof).toFixed(0)}%` : ""}</td></tr>`).join("");
  return `<table><thead><tr>${head.map(([key, text]) => `<th data-by="${key}">${text}</th>`).join("")}
    </tr></thead><tbody>${body}</tbody></table>`;
}

/** One run, thread by thread: a box while a thread is in a kernel. chosen: a call. */
export function timeline(plan, width, height, chosen) {
  if (!plan.trace?.length) return "<p class='soft'>Run the program before viewing it: nothing was traced.</p>";
  const threads = 1 + Math.max(...plan.trace.map(([, thread]) => thread));
  const end = Math.max(...plan.trace.map(([, , start, seconds]) => start + seconds));
  const [left, top, right, bottom] = [70, 6, width - 10, height - 24];
  const x = (seconds) => left + ((right - left) * seconds) / end, row = Math.min(60, (bottom - top) / threads);
  const byStep = new Map(plan.calls.map((call, n) => [plan.steps[call.number], n]));
  const whole = plan.trace.reduce((sum, [, , , seconds]) => sum + seconds, 0);
  const boxes = plan.trace.map(([step, thread, start, seconds]) => {
    const call = plan.calls[byStep.get(step)], kernel = plan.kernels[call.kernel], w = Math.max(0.4, x(seconds) - left - 0.4);
    const mark = call === chosen ? 'stroke="var(--mark)" stroke-width="2.5"' : "";
    return `<rect data-call="${byStep.get(step)}" x="${x(start)}" y="${top + thread * row + 2}" width="${w}" height="${row - 4}"
      fill="${heat((threads * seconds) / whole)}" ${mark}><title>${escape(kernel.name)} ${escape(within(call.module))}
thread ${thread}, ${time(seconds)} from ${time(start)}</title></rect>${w > 7 * kernel.name.length
      ? `<text class="inside" x="${x(start) + 4}" y="${top + (thread + 0.5) * row + 4}">${escape(kernel.name)}</text>` : ""}`;
  }).join("");
  const names = [...Array(threads).keys()].map((n) => `<text x="${left - 8}" y="${top + (n + 0.5) * row + 4}"
    text-anchor="end">thread ${n}</text>`).join("");
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => `<line class="axis" x1="${x(share * end)}" x2="${x(share * end)}" y1="${top}"
    y2="${top + threads * row}"/><text x="${x(share * end)}" y="${top + threads * row + 16}" text-anchor="${
    share === 0 ? "start" : share === 1 ? "end" : "middle"}">${time(share * end)}</text>`).join("");
  return `<svg width="${width}" height="${height}">${ticks}${names}${boxes}</svg>`;
}

/** Memory of temporaries: a box from the first to the last step, at its place in the arena. chosen: a call. */
export function memoryPlot(plan, width, height, chosen) {
  if (!plan.placed.length) {
    return `<p class='soft'>${plan.trace.length ? "Nothing lies in memory between the kernels of a run."
      : "Run the program before viewing it: places depend on sizes."}</p>`;
  }
  const most = Math.max(...plan.placed.map((p) => p.offset + p.bytes));
  const steps = Math.max(...plan.placed.map((p) => p.last)) + 1;
  const [left, top, right, bottom] = [70, 10, width - 10, height - 24];
  const x = (step) => left + ((right - left) * step) / steps;
  const y = (offset) => bottom - ((bottom - top) * offset) / most;
  const number = new Map(plan.calls.map((call, n) => [plan.steps[call.number], n]));
  const touched = new Set([...(chosen?.reads ?? []), ...(chosen?.writes ?? [])]);
  const boxes = plan.placed.map((p, n) => {
    const name = plan.memories[p.memory], h = Math.max(1, y(p.offset) - y(p.offset + p.bytes) - 0.5);
    const fill = touched.has(p.memory) ? "var(--mark)" : `hsl(${190 + ((n * 37) % 90)} 38% ${58 + ((n * 13) % 16)}%)`;
    return `<rect data-call="${number.get(p.first)}" x="${x(p.first)}" y="${y(p.offset + p.bytes)}"
      width="${Math.max(1, x(p.last + 1) - x(p.first) - 0.5)}" height="${h}"
      fill="${fill}"><title>${escape(name.name)} ${escape(name.shape)}
${bytes(p.bytes)}, steps ${p.first} to ${p.last}</title></rect>`;
  });
  const shares = [0, 0.25, 0.5, 0.75, 1];
  const lines = shares.map((share) => `<text x="${left - 8}" y="${y(share * most) + 4}" text-anchor="end">${
    bytes(Math.round(share * most))}</text><line class="axis" x1="${left}" x2="${right}" y1="${y(share * most)}" y2="${y(share * most)}"/>`);
  const ticks = shares.map((share) => `<text x="${x(share * steps)}" y="${height - 6}" text-anchor="${
    share === 0 ? "start" : share === 1 ? "end" : "middle"}">step ${Math.round(share * (steps - 1))}</text>`);
  return `<svg width="${width}" height="${height}">${lines.join("")}${ticks.join("")}${boxes.join("")}</svg>`;
}

const powers = (low, high) => [...Array(24).keys()].map((n) => 10 ** (n - 6)).filter((p) => p >= low && p <= high);
const DASHED = 'stroke-dasharray="4 4"';

/** Kernels by flops a byte and flop/s, under what the machine can do. */
export function rooflinePlot(plan, width, height) {
  const timed = plan.calls.flatMap((call, n) => {
    const kernel = plan.kernels[call.kernel];
    return call.time && kernel.flops && kernel.bytes ? [{ n, call, kernel }] : [];
  });
  if (!timed.length) return "<p class='soft'>Run the program before viewing it: nothing was timed.</p>";
  const points = timed.map(({ n, call, kernel }) => ({
    n, kernel, a: kernel.flops / kernel.bytes, f: kernel.flops / call.time, took: call.time,
  }));
  const { fma, read, cache = 0, ...narrow } = plan.rates, best = Math.max(...points.map((p) => p.f));
  const peaks = [["f32", fma], ...Object.entries(narrow)].map(([name, rate]) => [name, rate * 1e9]);
  const shown = peaks.filter(([, rate], n) => n === 0 || (rate > peaks[0][1] && best > 1.15 * peaks[0][1]));
  const [left, top, right, bottom] = [80, 16, width - 20, height - 34];
  const low = Math.min(0.05, ...points.map((p) => p.a)), high = Math.max(200, ...points.map((p) => p.a * 1.5));
  const highest = Math.max(...shown.map(([, rate]) => rate));
  const most = Math.max(best, highest) * 1.6, least = Math.max(most / 1e5, Math.min(...points.map((p) => p.f)) / 2);
  const x = (a) => left + ((right - left) * Math.log(a / low)) / Math.log(high / low);
  const y = (f) => bottom - ((bottom - top) * Math.max(0, Math.log(f / least))) / Math.log(most / least);
  const grid = powers(low, high).map((a) => `<line class="axis" x1="${x(a)}" x2="${x(a)}" y1="${top}" y2="${bottom}"/>
    <text x="${x(a)}" y="${bottom + 14}" text-anchor="middle">${a}</text>`).join("")
    + powers(least, most).map((f) => `<line class="axis" x1="${left}" x2="${right}" y1="${y(f)}" y2="${y(f)}"/>
    <text x="${left - 6}" y="${y(f) + 4}" text-anchor="end">${count(f, "flop/s")}</text>`).join("");
  const slope = (rate, name, dashed) => {
    const start = Math.max(low, least / rate), end = Math.min(high, highest / rate);
    return !rate || start >= end ? "" : `<path d="M${x(start)} ${y(start * rate)} L${x(end)} ${y(end * rate)}" fill="none"
      stroke="currentColor" ${dashed ? DASHED : ""}/>
      <text x="${x(start) + 6}" y="${y(start * rate) + (dashed ? -20 : 15)}">${count(rate, "B/s")} ${name}</text>`;
  };
  const roofs = shown.map(([name, rate], n) => `<line x1="${x(Math.min(high, rate / read / 1e9))}" x2="${right}" y1="${y(rate)}" y2="${y(rate)}"
    stroke="currentColor" ${n ? DASHED : ""}/>`).join("");
  const ceilings = shown.map(([name, rate], n) => `<text class="named" x="${right - 4 - 150 * n}" y="${y(rate) - 4}" text-anchor="end">${
    count(rate, "flop/s")} ${escape(name)}</text>`).join("");
  const whole = points.reduce((sum, p) => sum + p.took, 0);
  const dots = points.map((p) => `<circle data-call="${p.n}" cx="${x(p.a)}" cy="${y(p.f)}"
    r="${3 + 9 * Math.sqrt(p.took / whole)}" fill="${heat(p.took / whole)}" stroke="#666"><title>${
    escape(p.kernel.name)} ${time(p.took)}, ${count(p.f, "flop/s")}</title></circle>`).join("");
  const placed = [];
  for (const p of [...points].sort((a, b) => b.took - a.took)) { // names of the costliest that do not collide
    const at = { name: p.kernel.name, x: x(p.a) + 14, y: y(p.f) + 14 };
    const free = placed.every((q) => q.name !== at.name && (Math.abs(q.y - at.y) > 14 || Math.abs(q.x - at.x) > 130));
    if (free && placed.length < 5) placed.push(at);
  }
  const named = placed.map((at) => `<text class="named" x="${at.x}" y="${at.y}" text-anchor="${at.x > right - 120 ? "end" : "start"}">${
    escape(at.name)}</text>`).join("");
  return `<svg width="${width}" height="${height}">${grid}
    ${slope(cache * 1e9, "of caches", true)}${slope(read * 1e9, "of memory", false)}${roofs}
    <text x="${(left + right) / 2}" y="${height - 4}" text-anchor="middle">flop for each byte</text>${dots}${ceilings}${named}</svg>`;
}

/** How the plan came about: stages, sizes, what the search has found, what regions became. */
export function compileText(plan) {
  const whole = Object.values(plan.stages).reduce((a, b) => a + b, 0);
  const lines = Object.entries(plan.stages).map(([name, took]) => `<tr><td>${escape(name)}</td>
    <td>${time(took)}</td><td>${((100 * took) / whole).toFixed(0)}%</td></tr>`).join("");
  const sizes = Object.entries(plan.sizes).map(([name, size]) => `${name} = ${size}`).join(", ");
  return `<p>${plan.device}, ${plan.threads} threads${sizes ? `; ${escape(sizes)}` : ""}</p>
    <div class="beside"><table><tbody>${lines}</tbody></table><div>
    ${plan.search.length ? `<pre>${plan.search.map(escape).join("\n")}</pre>` : ""}
    <p class="soft">Plans of the distinct regions: what is stored, and for what modelled cost</p>
    <pre>${plan.choices.map(escape).join("\n\n")}</pre></div></div>`;
}

/** What regions became in two plans, those first whose time differs most. */
export function differenceTable(one, other, first, second) {
  const sum = (calls) => calls.reduce((all, { call }) => all + (call.time ?? 0), 0);
  const byRegion = (plan) => {
    const found = new Map();
    plan.calls.forEach((call, n) => {
      if (call.constant) return;
      const nodes = (plan.regions[call.region] ?? []).join(" ");
      found.set(nodes, [...(found.get(nodes) ?? []), { call, n, name: plan.kernels[call.kernel].name }]);
    });
    return found;
  };
  const [mine, its] = [byRegion(one), byRegion(other)];
  const rows = [...new Set([...mine.keys(), ...its.keys()])].map((nodes) => {
    const [a, b] = [mine.get(nodes) ?? [], its.get(nodes) ?? []];
    return { a, b, before: sum(a), after: sum(b), module: (a[0] ?? b[0]).call.module };
  }).sort((x, y) => Math.abs(y.before - y.after) - Math.abs(x.before - x.after));
  const [before, after] = [0, 1].map((n) => rows.reduce((all, row) => all + (n ? row.after : row.before), 0));
  const names = (calls, side) => calls.map(({ name, n }) =>
    `<a data-call="${n}" data-side="${side}">${escape(name)}</a>`).join(", ");
  const body = rows.map((row) => `<tr><td>${escape(row.module || "of no module")}</td><td>${names(row.a, first)}</td>
    <td>${time(row.before || null)}</td><td>${names(row.b, second)}</td><td>${time(row.after || null)}</td>
    <td>${row.before && row.after ? (row.before / row.after).toFixed(2) : ""}</td></tr>`).join("");
  const head = ["of the module", escape(one.name), "time", escape(other.name), "time", "times as fast"];
  return `<p class="soft">${time(before)} and ${time(after)} in all: ${(before / after).toFixed(2)} times as fast. A row is a
    region of the graph, with the kernels that compute it.</p>
    <table class="wrapped"><thead><tr>${head.map((text) => `<th>${text}</th>`).join("")}</tr></thead><tbody>${body}</tbody></table>`;
}
