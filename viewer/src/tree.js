// Items (nodes of a graph, calls of a plan) in groups that open and close. Which of them is seen
// where follows from the groups that are open.
import { heat, time } from "./words.js";

export class Group {
  constructor(id, label, parent) {
    Object.assign(this, { id, label, parent, children: [], open: false, items: 0, took: 0, layout: null });
  }
}

/** rows: { path, inputs, ... }; `label(row, number)` gives what is drawn; null hides a row.
 *  fold: equal groups beside each other go into one. */
export function treeOf(rows, label, fold = true) {
  const root = new Group("", "", null);
  root.open = true;
  const groups = new Map([["", root]]);
  const items = rows.map((row, number) => {
    const drawn = label(row, number);
    if (!drawn) return null;
    const parent = groupOf(groups, row.path);
    const item = { ...drawn, number, row, parent };
    parent.children.push(item);
    for (let group = parent; group; group = group.parent) count(group, 1, item.took ?? 0);
    return item;
  });
  collapseSingles(root);
  if (fold) foldEqual(root);
  if (root.took) colour(root, root.took);
  for (let group = root; group.children?.length === 1; group = group.children[0]) {
    if (group.children[0] instanceof Group) group.children[0].open = true;
  }
  return { root, items, edges: edgesOf(rows, items) };
}

function count(group, items, took) {
  group.items += items;
  group.took += took;
}

/** Closed groups are as warm as the kernels in them take long. */
function colour(group, whole) {
  for (const child of group.children) {
    if (!(child instanceof Group)) continue;
    child.colour = heat(child.took / whole);
    colour(child, whole);
  }
}

/** The second line of a box. */
export function second(child) {
  if (child.sub !== undefined || !(child instanceof Group)) return child.sub ?? "";
  return `${child.items} inside${child.took ? ` · ${time(child.took)}` : ""}`;
}

function groupOf(groups, path) {
  let id = "", parent = groups.get("");
  for (const part of path) {
    id += "/" + part;
    if (!groups.has(id)) {
      const group = new Group(id, part, parent);
      parent.children.push(group);
      groups.set(id, group);
    }
    parent = groups.get(id);
  }
  return parent;
}

/** A group of nothing but one group is one group with both names. */
function collapseSingles(group) {
  for (const child of group.children) if (child instanceof Group) collapseSingles(child);
  group.children = group.children.map((child) => {
    if (!(child instanceof Group) || child.children.length !== 1) return child;
    const only = child.children[0];
    if (!(only instanceof Group)) return child;
    only.label = `${child.label}.${only.label}`;
    only.parent = group;
    return only;
  });
}

/** Groups beside each other with equal contents (layers) go into one that says how many. */
function foldEqual(group) {
  for (const child of group.children) if (child instanceof Group) foldEqual(child);
  const runs = new Map();
  for (const child of group.children) {
    if (child instanceof Group) {
      const key = signature(child);
      runs.set(key, [...(runs.get(key) ?? []), child]);
    }
  }
  for (const [, equal] of runs) {
    if (equal.length < 3 || equal.length === group.children.length) continue;
    const [first, last] = [equal[0], equal.at(-1)];
    const label = `${first.label} … ${last.label}   × ${equal.length}`;
    const fold = new Group(`${group.id}/×${first.label}`, label, group);
    fold.children = equal;
    for (const each of equal) {
      each.parent = fold;
      count(fold, each.items, each.took);
    }
    const rest = new Set(equal);
    group.children = group.children.flatMap((c) => (c === first ? [fold] : rest.has(c) ? [] : [c]));
  }
}

function signature(child) {
  if (!(child instanceof Group)) return child.label;
  return `(${child.children.map(signature).join(" ")})`;
}

/** [from, to] pairs of drawn items; a hidden item hands on what it reads. */
function edgesOf(rows, items) {
  const sources = (number, seen = new Set()) => {
    if (items[number]) return [number];
    if (seen.has(number)) return [];
    seen.add(number);
    return rows[number].inputs.flatMap((input) => sources(input, seen));
  };
  return items.flatMap((item, number) => {
    if (!item) return [];
    const from = new Set(rows[number].inputs.flatMap((input) => sources(input)));
    return [...from].map((source) => [items[source], item]);
  });
}

/** What stands for an item: itself, or the outermost closed group around it. */
export function seen(item) {
  let shown = item;
  for (let group = item.parent; group; group = group.parent) if (!group.open) shown = group;
  return shown;
}

/** Opens all groups around an item. */
export function reveal(item) {
  for (let group = item.parent; group; group = group.parent) group.open = true;
}
