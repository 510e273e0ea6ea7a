// Numbers and colours as people read them.

export function time(seconds) {
  if (seconds == null) return "";
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}

export function count(value, unit = "") {
  const steps = [["G", 1e9], ["M", 1e6], ["k", 1e3]];
  const [name, step] = steps.find(([, step]) => value >= step) ?? ["", 1];
  const digits = step === 1 ? 0 : value / step < 10 ? 2 : 1;
  return `${(value / step).toFixed(digits)} ${name}${unit}`.trimEnd();
}

export const bytes = (value) => (value == null ? "?" : count(value, "B"));

const KINDS = [
  ["#bfe3c6", ["input", "parameter", "constant"]],
  ["#ffd8a8", ["sum", "max", "min", "prod", "scan"]],
  ["#e5dbff", ["gather", "scatter"]],
  ["#e3e6ea", ["view", "cast"]],
];

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
