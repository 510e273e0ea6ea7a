// Places for what is seen. Every open group is laid out by itself: what is inside has its own
// drawing, and edges that cross a border end at the group. Layouts are kept until a group changes.
import dagre from "@dagrejs/dagre";
import { Group } from "./tree.js";

const HEAD = 24, PAD = 14, LINE = 16;
const MANY = 600; // children beyond which a plain grid of rows replaces the layered drawing
const context = document.createElement("canvas").getContext("2d");
context.font = "12px system-ui, sans-serif";
const widths = new Map();

function width(text) {
  if (!widths.has(text)) widths.set(text, context.measureText(text).width);
  return widths.get(text);
}

function sizeOf(child) {
  if (child instanceof Group && child.open) return layOut(child);
  const lines = [child instanceof Group ? `+ ${child.label}` : child.label, child.sub ?? (child.items ? `${child.items} inside` : "")];
  return { width: Math.max(46, ...lines.map(width)) + 20, height: lines[1] ? 2 * LINE + 8 : 26 };
}

/** Sizes and places inside an open group; `group.layout` = { width, height, boxes, lines }. */
export function layOut(group) {
  if (group.layout) return group.layout;
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26, marginx: PAD, marginy: PAD,
    ranker: group.children.length > 150 ? "longest-path" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  const keys = new Map(group.children.map((child, n) => [child, String(n)]));
  for (const [child, key] of keys) graph.setNode(key, { ...sizeOf(child) });
  for (const [from, to] of group.edges) graph.setEdge(keys.get(from), keys.get(to));
  const head = group.parent ? HEAD : 0;
  if (group.children.length > MANY) return (group.layout = grid(group, graph, keys, head));
  dagre.layout(graph);
  const boxes = [...keys].map(([child, key]) => {
    const { x, y, width, height } = graph.node(key);
    return { child, x: x - width / 2, y: y - height / 2 + head, width, height };
  });
  const lines = graph.edges().map((edge) => {
    const points = graph.edge(edge).points.map(({ x, y }) => [x, y + head]);
    return { points, from: group.children[edge.v], to: group.children[edge.w] };
  });
  const { width: w, height: h } = graph.graph();
  const least = group.parent ? width(group.label) + 60 : 0;
  return (group.layout = { width: Math.max(w, least), height: h + head, boxes, lines });
}

/** Rows in program order: for groups that nobody has divided. */
function grid(group, graph, keys, head) {
  const boxes = [], wide = 1800;
  let x = PAD, y = PAD + head, most = 0, right = 0;
  for (const [child, key] of keys) {
    const { width: w, height: h } = graph.node(key);
    if (x + w > wide) [x, y, most] = [PAD, y + most + 26, 0];
    boxes.push({ child, x, y, width: w, height: h });
    [x, most, right] = [x + w + 18, Math.max(most, h), Math.max(right, x + w)];
  }
  const at = new Map(boxes.map((box) => [box.child, box]));
  const lines = group.edges.map(([from, to]) => {
    const [a, b] = [at.get(from), at.get(to)];
    const points = [[a.x + a.width / 2, a.y + a.height], [b.x + b.width / 2, b.y]];
    return { points, from, to };
  });
  return { width: right + PAD, height: y + most + PAD, boxes, lines };
}

/** Each edge belongs to the innermost group that holds both ends, between children of it. */
export function shareEdges(tree) {
  const clear = (group) => {
    group.edges = [];
    group.children.forEach((child, place) => {
      child.place = place;
      if (child instanceof Group) clear(child);
    });
  };
  clear(tree.root);
  const done = new Set();
  for (const [from, to] of tree.edges) {
    const above = chain(from), other = chain(to);
    let depth = 0;
    while (above[depth] === other[depth] && above[depth] instanceof Group) depth += 1;
    const [a, b] = [above[depth], other[depth]], owner = above[depth - 1];
    const key = `${owner.id}|${a.place}|${b.place}`;
    if (a !== b && !done.has(key)) {
      done.add(key);
      owner.edges.push([a, b]);
    }
  }
}

/** The groups around an item, outermost first, then the item. */
function chain(item) {
  const found = [item];
  for (let group = item.parent; group; group = group.parent) found.unshift(group);
  return found;
}

/** A group has opened or closed: what is around it is laid out again. */
export function touched(group) {
  for (let each = group; each; each = each.parent) each.layout = null;
}
