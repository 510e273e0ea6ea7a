// One pane: a canvas on which a tree is drawn, moved and zoomed. Only what lies in view is drawn;
// what is too small to read has no text.
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { layOut, shareEdges, touched } from "./layout.js";
import { Group, reveal, second, seen } from "./tree.js";

const READABLE = 5; // pixels a line of text must have
const SMALL = 0.4, LARGER = 0.6; // scales: below the first, a drawing begins at the second
const TINY = 3; // pixels below which a box's inside is not drawn

export class Pane {
  /** onSelect(item or null): the user has clicked. */
  constructor(host, onSelect) {
    this.canvas = host.appendChild(document.createElement("canvas"));
    this.context = this.canvas.getContext("2d");
    this.onSelect = onSelect;
    this.transform = zoomIdentity;
    this.marked = new Set();
    this.selected = null;
    this.zoom = zoom().scaleExtent([0.02, 6]).on("zoom", ({ transform, sourceEvent }) => {
      this.transform = transform;
      this.held ||= Boolean(sourceEvent); // the user has moved it
      this.redraw();
    });
    select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (event) => this.clicked(event));
    this.canvas.addEventListener("dblclick", (event) => this.clicked(event, true));
    new ResizeObserver(() => this.resize()).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  show(tree) {
    this.tree = tree;
    this.selected = null;
    this.marked = new Set();
    shareEdges(tree);
    this.held = false;
    this.fit(true);
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: clientWidth * ratio, height: clientHeight * ratio });
    if (!this.held && clientWidth && this.tree) this.fit(true);
    else this.redraw();
  }

  /** The whole drawing; `readable`: where it would be too small to read, its beginning. */
  fit(readable = false) {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    if (!w || !this.tree) return;
    const box = layOut(this.tree.root);
    const first = box.boxes.reduce((a, b) => (b.y < a.y ? b : a), box.boxes[0]);
    const whole = Math.min(h / box.height, w / box.width) * 0.95;
    const cut = readable && whole < SMALL && first;
    const scale = Math.min(1.2, cut ? LARGER : whole);
    const half = w / 2 / scale, wide = cut && 2 * half < box.width;
    const middle = wide ? Math.min(Math.max(first.x + first.width / 2, half), box.width - half) : box.width / 2;
    const top = Math.max(8, (h - box.height * scale) / 2);
    this.move(zoomIdentity.translate(w / 2 - middle * scale, top).scale(scale));
  }

  move(transform) {
    select(this.canvas).call(this.zoom.transform, transform);
  }

  /** Brings an item into the middle; opens what is around it if `open`. */
  focus(item, open = true) {
    this.held = true;
    if (open) {
      reveal(item);
      touched(item.parent);
    }
    const place = this.placeOf(seen(item));
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const scale = Math.max(this.transform.k, 0.8);
    const x = w / 2 - (place.x + place.width / 2) * scale;
    this.move(zoomIdentity.translate(x, h / 2 - (place.y + place.height / 2) * scale).scale(scale));
  }

  placeOf(child) {
    let { x, y, width, height } = layOut(child.parent).boxes[child.place];
    for (let group = child.parent; group.parent; group = group.parent) {
      const box = layOut(group.parent).boxes[group.place];
      x += box.x;
      y += box.y;
    }
    return { x, y, width, height };
  }

  toggle(group, open = !group.open) {
    this.held = true;
    const before = this.placeOf(group);
    group.open = open;
    touched(group);
    const after = this.placeOf(group), { k, x, y } = this.transform;
    const [dx, dy] = [(before.x - after.x) * k, (before.y - after.y) * k]; // it stays under the hand
    this.move(zoomIdentity.translate(x + dx, y + dy).scale(k));
  }

  toggleAll(open) {
    const visit = (group) => {
      if (group.parent) group.open = open;
      group.layout = null;
      for (const child of group.children) if (child instanceof Group) visit(child);
    };
    visit(this.tree.root);
    this.fit();
  }

  mark(items) {
    this.marked = new Set(items);
    this.redraw();
  }

  // ---- the mouse

  clicked(event, twice = false) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, y] = this.transform.invert([event.clientX - left, event.clientY - top]);
    const hit = this.tree ? this.at(this.tree.root, x, y) : null;
    if (hit?.group instanceof Group && (hit.head || twice || !hit.group.open)) {
      if (hit.group.parent) this.toggle(hit.group);
      return;
    }
    this.selected = hit?.item ?? null;
    this.onSelect(this.selected);
    this.redraw();
  }

  /** What lies at a point: { item } or { group, head }. */
  at(group, x, y) {
    for (const box of layOut(group).boxes) {
      const [dx, dy] = [x - box.x, y - box.y];
      if (dx < 0 || dy < 0 || dx > box.width || dy > box.height) continue;
      if (!(box.child instanceof Group)) return { item: box.child };
      if (!box.child.open) return { group: box.child };
      return this.at(box.child, dx, dy) ?? { group: box.child, head: dy < 24 };
    }
    return null;
  }

  // ---- drawing

  redraw() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    const { canvas, context: c, transform: { k, x, y } } = this;
    const ratio = devicePixelRatio || 1;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, canvas.width, canvas.height);
    if (!this.tree) return;
    c.setTransform(k * ratio, 0, 0, k * ratio, x * ratio, y * ratio);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.colours = coloursOf(document.documentElement);
    const view = { x: -x / k, y: -y / k, w: canvas.clientWidth / k, h: canvas.clientHeight / k };
    this.lit = new Set([...this.marked].map(seen));
    this.drawGroup(this.tree.root, view);
  }

  drawGroup(group, view) {
    const { context: c, colours, transform: { k } } = this;
    const { boxes, lines } = layOut(group);
    c.lineWidth = 1.2;
    const chosen = this.selected && seen(this.selected);
    for (const line of lines) {
      const own = line.from === chosen || line.to === chosen;
      c.strokeStyle = own ? colours.accent : colours.edge;
      this.drawLine(line.points, view);
    }
    for (const { child, x, y, width, height } of boxes) {
      if (x > view.x + view.w || y > view.y + view.h) continue;
      if (x + width < view.x || y + height < view.y) continue;
      const isGroup = child instanceof Group;
      const open = isGroup && child.open;
      c.fillStyle = (open ? null : child.colour) ?? (isGroup ? colours.group : colours.panel);
      c.strokeStyle = this.lit.has(child) ? colours.mark : child === chosen ? colours.accent
        : colours.line;
      c.lineWidth = this.lit.has(child) || child === chosen ? 3 : 1;
      c.beginPath();
      c.roundRect(x, y, width, height, isGroup ? 8 : 4);
      c.fill();
      c.stroke();
      if (width * k < TINY) continue;
      if (open) {
        this.text(`− ${child.label}`, x + 10, y + 13, colours.soft);
        c.save();
        c.translate(x, y);
        const inside = { x: view.x - x, y: view.y - y, w: view.w, h: view.h };
        this.drawGroup(child, inside);
        c.restore();
      } else {
        const ink = child.colour ? "#14181d" : colours.front;
        const more = second(child);
        this.text(`${isGroup ? "+ " : ""}${child.label}`, x + 10, y + 13, ink);
        if (more) this.text(more, x + 10, y + 29, child.colour ? "#3c434c" : colours.soft);
      }
    }
  }

  drawLine(points, view) {
    const c = this.context;
    const ys = points.map((p) => p[1]), xs = points.map((p) => p[0]);
    if (Math.min(...xs) > view.x + view.w || Math.max(...xs) < view.x) return;
    if (Math.min(...ys) > view.y + view.h || Math.max(...ys) < view.y) return;
    c.beginPath();
    c.moveTo(...points[0]);
    for (let n = 1; n < points.length - 1; n += 1) {
      const [x, y] = points[n], [a, b] = points[n + 1];
      c.quadraticCurveTo(x, y, (x + a) / 2, (y + b) / 2);
    }
    c.lineTo(...points.at(-1));
    c.stroke();
  }

  text(text, x, y, colour) {
    if (12 * this.transform.k < READABLE) return;
    this.context.fillStyle = colour;
    this.context.fillText(text, x, y);
  }
}

function coloursOf(element) {
  const style = getComputedStyle(element);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["front", "soft", "line", "panel", "group", "accent", "mark"];
  return { ...Object.fromEntries(names.map((name) => [name, of(name)])), edge: of("soft") + "99" };
}
