// Puts the panes, the details and the drawer together.
import { Pane } from "./draw.js";
import { callDetail, compileText, differenceTable, overview, egraphDetail, kernelTable, memoryPlot, nodeDetail, rooflinePlot, timeline } from "./panels.js";
import { treeOf } from "./tree.js";
import { colourOf, count, heat, time, within } from "./words.js";

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const { graph, plans, egraphs = [] } = data;
const FIRST_EGRAPH = plans.length; // a side beyond the plans is an e-graph
const SOURCES = ["parameter", "constant"];
let plan = plans.length ? 0 : null; // whose tables are in the drawer
let tab = null;
const order = { by: plans[0]?.calls.some((call) => call.time) ? "took" : "flops", up: false };

function graphTree() {
  const parameters = $("parameters").checked;
  return treeOf(graph.nodes, (node) => {
    if (node.hidden || (!parameters && SOURCES.includes(node.op))) return null;
    const label = node.name ? `${node.op} ${node.name}` : node.op;
    return { label, sub: node.shape, colour: colourOf(node.op, node.inputs.length) };
  });
}

function planTree(shown) {
  const whole = shown.calls.reduce((sum, call) => sum + (call.time ?? 0), 0);
  return treeOf(shown.calls, (call) => {
    if (call.constant && !$("parameters").checked) return null;
    const kernel = shown.kernels[call.kernel], took = call.time ?? 0;
    const sub = [took ? time(took) : count(kernel.flops, "flop"), within(call.module)].filter(Boolean).join(" · ");
    return { label: kernel.name, sub, took, colour: whole ? heat(took / whole) : "#e7edf5" };
  });
}

/** Classes are groups of equal expressions; what the plan takes has a colour. */
function egraphTree(shown) {
  const tree = treeOf(shown.nodes, (node) => ({ label: node.label, colour: node.chosen ? "#ffd8a8" : undefined }), false);
  for (const child of tree.root.children) child.open = true;
  return tree;
}

const treeFor = (side) => side === -1 ? graphTree()
  : side < FIRST_EGRAPH ? planTree(plans[side]) : egraphTree(egraphs[side - FIRST_EGRAPH]);

// ---- two panes, each of which shows the graph or a plan

const panes = [];

function makePane(host, first) {
  const bar = host.appendChild(document.createElement("div"));
  bar.className = "bar";
  const names = [...(graph ? ["graph"] : []), ...plans.map((each) => each.name),
    ...egraphs.map((each) => `e-graph of region ${each.regions[0]}${each.regions.length > 1 ? ` (${each.regions.length} alike)` : ""}`)];
  bar.innerHTML = `<select aria-label="shown">${names.map((name, n) =>
    `<option value="${graph ? n - 1 : n}">${name}</option>`).join("")}</select>
    <button data-act="fit">fit</button><button data-act="open">open all</button>
    <button data-act="close">fold all</button>`;
  const pane = new Pane(host, (item) => selected(pane, item));
  const chosen = bar.querySelector("select");
  pane.display = (number) => {
    chosen.value = number;
    pane.side = number === -1 ? "graph" : number;
    pane.show(treeFor(number));
  };
  chosen.onchange = () => pane.display(Number(chosen.value));
  const acts = { fit: () => pane.fit(), open: () => pane.toggleAll(true), close: () => pane.toggleAll(false) };
  bar.onclick = (event) => acts[event.target.dataset.act]?.();
  pane.display(first);
  panes.push(pane);
}

makePane($("left"), graph && plans.length < 2 ? -1 : 0); // two plans stand beside each other
if (plans.length > (graph ? 0 : 1)) makePane($("right"), plans.length - 1);
$("parameters").onchange = () => panes.forEach((p) => p.display(p.side === "graph" ? -1 : p.side));

// ---- selecting: the other pane marks what belongs to it

function selected(pane, item) {
  if (!item) {
    $("detail").innerHTML = about();
    panes.forEach((each) => each.mark([]));
    return;
  }
  show(pane.side, item.number);
}

function show(side, number) {
  if (side >= FIRST_EGRAPH) {
    const { notes, nodes } = egraphs[side - FIRST_EGRAPH], { label, path, chosen } = nodes[number];
    $("detail").innerHTML = egraphDetail(notes, label, path[0], chosen, nodes.filter((n) => n.path[0] === path[0]));
    return;
  }
  $("detail").innerHTML = side === "graph" ? nodeDetail(graph, number, callsOf(number))
    : callDetail(plans[side], number, side, graph, egraphs.some((each) => each.regions.includes(plans[side].calls[number].region)));
  $("detail").scrollTop = 0;
  for (const pane of panes) {
    const own = pane.side === side;
    pane.selected = own ? pane.tree.items[number] : null;
    const others = own || pane.side >= FIRST_EGRAPH ? [] : pane.side === "graph" ? plans[side]?.regions[plans[side].calls[number].region] ?? []
      : side === "graph" ? callsOf(number).filter(([p]) => p === pane.side).map(([, n]) => n) : [];
    pane.mark(others.map((n) => pane.tree.items[n]).filter(Boolean));
    if (!own && pane.marked.size) pane.focus([...pane.marked].at(-1), false);
  }
  if (["memory", "timeline"].includes(tab)) drawTabs(); // what the call reads and writes is marked there
}

/** The calls of all plans whose region computes a node. */
function callsOf(number) {
  return plans.flatMap((each, p) => {
    const regions = new Set(each.regions.flatMap((nodes, r) => (nodes.includes(number) ? [r] : [])));
    return each.calls.flatMap((call, n) =>
      regions.has(call.region) ? [[p, n, each.kernels[call.kernel].name]] : []);
  });
}

/** A region's e-graph in the right pane, or the left one where there is one only. */
function showEgraph(region) {
  const number = egraphs.findIndex((each) => each.regions.includes(region));
  if (number >= 0) panes.at(-1).display(FIRST_EGRAPH + number);
}

function goTo(side, number) {
  if (!(side === "graph" ? graph?.nodes : plans[side]?.calls)?.[number]) return; // a link to another page's
  const pane = panes.find((each) => String(each.side) === String(side));
  if (pane?.tree.items[number]) pane.focus(pane.tree.items[number]);
  show(side === "graph" ? side : Number(side), number);
}

$("detail").onclick = ({ target }) => {
  if (target.dataset.number) goTo(target.dataset.side, Number(target.dataset.number));
  if (target.dataset.top) goTo(target.dataset.side, lastCall(Number(target.dataset.side), Number(target.dataset.top)));
  if (target.dataset.egraph) showEgraph(Number(target.dataset.egraph));
  if (!target.dataset.text) return;
  const box = target.closest(".texts");
  const { texts, name } = plans[box.dataset.plan].kernels[box.dataset.kernel], text = texts[target.dataset.text];
  for (const button of box.querySelectorAll("button")) button.classList.toggle("on", button === target);
  const pre = Object.assign(box.querySelector("pre"), { hidden: false, textContent: text });
  pre.scrollTop = pre.scrollHeight * lineOf(text, `${name}(`) / text.split("\n").length; // past what all kernels share
};

const lineOf = (text, word) => text.includes(word) ? text.slice(0, text.indexOf(word)).split("\n").length - 1 : 0;

const about = () => overview(plans, graph);
$("detail").innerHTML = about();

// ---- searching

let hits = [], hit = 0;
$("search").oninput = () => {
  const text = $("search").value.trim().toLowerCase();
  hits = !text ? [] : panes.flatMap((pane) => pane.tree.items.filter(Boolean)
    .filter((item) => words(item).includes(text)).map((item) => ({ pane, item })));
  hit = 0;
  for (const pane of panes) pane.mark(hits.filter((h) => h.pane === pane).map((h) => h.item));
  $("found").textContent = text ? `${hits.length} found` : "";
};
$("search").onkeydown = (event) => {
  if (event.key !== "Enter" || !hits.length) return;
  const { pane, item } = hits[hit % hits.length];
  $("found").textContent = `${(hit % hits.length) + 1} of ${hits.length}`;
  hit += 1;
  pane.focus(item);
  pane.selected = item;
  show(pane.side, item.number);
};

const words = ({ label, sub, row }) =>
  [label, sub, row.where, (row.path ?? []).join(".")].join(" ").toLowerCase();

// ---- the drawer

const room = () => [$("drawer").clientWidth - 30, $("drawer").clientHeight - 24];

const TABS = {
  kernels: () => kernelTable(plans[plan], order),
  timeline: () => timeline(plans[plan], ...room(), panes.find((p) => p.side === plan)?.selected?.row),
  memory: () => memoryPlot(plans[plan], ...room(), panes.find((p) => p.side === plan)?.selected?.row),
  roofline: () => rooflinePlot(plans[plan], ...room()),
  compilation: () => compileText(plans[plan]),
  ...(plans.length > 1 && { difference: () => differenceTable(...(plan ? [plans[0], plans[plan], 0, plan] : [plans[0], plans[1], 0, 1])) }),
};

function drawTabs() {
  if (plan === null) return;
  const chosen = plans.length > 1 ? `<button data-next>${plans[plan].name}</button>` : "";
  $("tabs").innerHTML = chosen + Object.keys(TABS).map((name) =>
    `<button data-tab="${name}" class="${name === tab ? "on" : ""}">${name}</button>`).join("");
  if (tab && !$("drawer").innerHTML) $("drawer").innerHTML = "<p></p>"; // it has a width now
  $("drawer").innerHTML = tab ? TABS[tab]() : "";
}
$("tabs").onclick = ({ target }) => {
  if ("next" in target.dataset) plan = (plan + 1) % plans.length;
  if (target.dataset.tab) tab = tab === target.dataset.tab ? null : target.dataset.tab;
  drawTabs();
};
$("drawer").onclick = ({ target }) => {
  const by = target.dataset.by;
  if (by) Object.assign(order, { up: order.by === by && !order.up, by });
  const { call, side } = target.dataset;
  const kernel = target.closest("tr")?.dataset.kernel;
  if (by) drawTabs();
  else if (call !== undefined) goTo(Number(side ?? plan), Number(call));
  else if (kernel !== undefined) goTo(plan, lastCall(plan, Number(kernel)));
};

const lastCall = (side, kernel) => plans[side].calls.findLastIndex((c) => c.kernel === kernel);

$("tabs").onpointerdown = (event) => { // its bare part is a handle: the drawer grows and shrinks
  if (event.target !== $("tabs") || tab === null) return;
  $("tabs").setPointerCapture(event.pointerId);
  $("tabs").onpointermove = ({ clientY }) => {
    $("drawer").style.height = `${Math.max(80, Math.min(innerHeight - 160, innerHeight - clientY - 20))}px`;
  };
  $("tabs").onpointerup = () => {
    $("tabs").onpointermove = null;
    drawTabs();
  };
};
drawTabs();

const parts = [graph && `${graph.nodes.length} nodes`, ...plans.map((each) =>
  `${each.name}: ${each.kernels.length} kernels, ${Object.keys(each.steps).length} calls${
    each.calls.some((c) => c.time) ? `, ${time(each.calls.reduce((s, c) => s + (c.time ?? 0), 0))}` : ""}`)];
$("summary").textContent = parts.filter(Boolean).join(" · ");

// ---- a link to one thing: page.html#node=12, #call=3, #tab=memory

const asked = new URLSearchParams(location.hash.slice(1));
if (asked.has("tab")) [tab] = [asked.get("tab")], drawTabs();
if (asked.has("node")) goTo("graph", Number(asked.get("node")));
if (asked.has("egraph")) showEgraph(Number(asked.get("egraph")));
if (asked.has("call")) goTo(0, Number(asked.get("call")));
window.luminal = { data, panes }; // for tests and the console
