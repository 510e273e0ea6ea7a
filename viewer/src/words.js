// Numbers and colours as people read them.

export function time(seconds) {
  if (seconds == null) return "";
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  if (seconds > 0 && seconds < 1e-7) return `${(seconds * 1e9).toFixed(0)} ns`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}

export function count(value, unit = "") {
  const steps = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
  const [name, step] = steps.find(([, step]) => value >= step) ?? ["", 1];
  const digits = step === 1 ? 0 : value / step < 10 ? 2 : 1;
  return `${(value / step).toFixed(digits)} ${name}${unit}`.trimEnd();
}

export const bytes = (value) => (value == null ? "?" : count(value, "B"));

const PHASES = ["backward", "update"];

/** A module without the layer around it: of backward.blocks.3.attention.q_proj, "backward attention.q_proj". */
export function within(module) {
  const words = module.split("."), phase = PHASES.includes(words[0]) ? `${words.shift()} ` : "";
  const rest = words.slice(words.findLastIndex((word) => /^\d+$/.test(word)) + 1);
  return (phase + (rest.length ? rest : words).slice(-2).join(".")).trim();
}

const KINDS = [
  ["#bfe3c6", ["input", "parameter", "constant"]],
  ["#ffd8a8", ["sum", "max", "min", "prod", "scan"]],
  ["#e5dbff", ["gather", "scatter"]],
  ["#e3e6ea", ["view", "cast"]],
];

export const LEGEND = [["#bfe3c6", "inputs"], ["#cfe2ff", "arithmetic"], ["#ffd8a8", "reductions"],
  ["#e5dbff", "gather, scatter"], ["#e3e6ea", "movement"]];

/** By what an operation does: source, reduction, data-dependent access, movement, arithmetic. */
export function colourOf(op, operands) {
  if (operands > 1 && (op === "max" || op === "min")) return "#cfe2ff";
  return KINDS.find(([, ops]) => ops.includes(op))?.[0] ?? "#cfe2ff";
}

/** From pale to warm: a share of the time of a run. */
export function heat(share) {
  const part = Math.min(1, Math.sqrt(share * 4));
  return `hsl(${Math.round(48 - 36 * part)} ${Math.round(60 + 35 * part)}% ${Math.round(90 - 26 * part)}%)`;
}

export function escape(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return String(text).replace(/[&<>"]/g, (mark) => names[mark]);
}
