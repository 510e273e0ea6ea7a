// Places for what is seen. Every open group is laid out by itself: what is inside has its own
// drawing, and edges that cross a border end at the group. Layouts are kept until a group changes.
import dagre from "@dagrejs/dagre";
import { Group, second } from "./tree.js";

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
  const lines = [child instanceof Group ? `+ ${child.label}` : child.label, second(child)];
  return { width: Math.max(46, ...lines.map(width)) + 20, height: lines[1] ? 2 * LINE + 8 : 26 };
}

/** Sizes and places inside an open group; `group.layout` = { width, height, boxes, lines }. */
export function layOut(group) {
  if (group.layout) return group.layout;
  const sizes = group.children.map(sizeOf);
  const edges = group.edges.map(([from, to]) => [from.place, to.place]);
  const key = JSON.stringify([sizes.map(({ width, height }) => [width, height]), edges]);
  if (!known.has(key)) known.set(key, sizes.length > MANY ? grid(sizes, edges) : layered(sizes, edges));
  const plain = known.get(key), head = group.parent ? HEAD : 0;
  const boxes = plain.places.map((place, n) => ({ ...place, y: place.y + head, child: group.children[n] }));
  const lines = plain.lines.map(({ points, edge: [from, to] }) => ({
    points: points.map(([x, y]) => [x, y + head]), from: group.children[from], to: group.children[to],
  }));
  const least = group.parent ? width(group.label) + 60 : 0;
  return (group.layout = { width: Math.max(plain.width, least), height: plain.height + head, boxes, lines });
}

const known = new Map(); // layers of a model have equal insides: laid out once

function layered(sizes, edges) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26, marginx: PAD, marginy: PAD,
    ranker: sizes.length > 150 ? "longest-path" : "network-simplex" });
  sizes.forEach(({ width, height }, n) => graph.setNode(String(n), { width, height }));
  for (const [from, to] of edges) graph.setEdge(String(from), String(to), {});
  dagre.layout(graph);
  const places = sizes.map((_, n) => {
    const { x, y, width, height } = graph.node(String(n));
    return { x: x - width / 2, y: y - height / 2, width, height };
  });
  const lines = edges.map((edge) => {
    const { points } = graph.edge({ v: String(edge[0]), w: String(edge[1]) });
    return { points: points.map(({ x, y }) => [x, y]), edge };
  });
  const { width, height } = graph.graph();
  return { width, height, places, lines };
}

/** Rows in program order: for groups that nobody has divided. */
function grid(sizes, edges) {
  const places = [], wide = 1800;
  let x = PAD, y = PAD, most = 0, right = 0;
  for (const { width, height } of sizes) {
    if (x + width > wide) [x, y, most] = [PAD, y + most + 26, 0];
    places.push({ x, y, width, height });
    [x, most, right] = [x + width + 18, Math.max(most, height), Math.max(right, x + width)];
  }
  const lines = edges.map((edge) => {
    const [a, b] = edge.map((n) => places[n]);
    return { points: [[a.x + a.width / 2, a.y + a.height], [b.x + b.width / 2, b.y]], edge };
  });
  return { width: right + PAD, height: y + most + PAD, places, lines };
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
