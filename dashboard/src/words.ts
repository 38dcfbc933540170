/** Numbers and names in words that a person reads. */

export const NOTHING = "\u2013"; // where a number is not known

export function seconds(value: number): string {
  if (value < 1) return `${Math.max(0, value).toFixed(2)} s`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5_400) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3_600)} h`;
  return `${Math.round(value / 86_400)} days`;
}

export function milliseconds(value: number): string {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0, left = value;
  while (left >= 1_000 && at < units.length - 1) {
    left /= 1_000;
    at += 1;
  }
  return `${at === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)} ${units[at]}`;
}

/** How many, as a person says it: 950, 12.3 thousand, 4.5 million. */
export function tokens(value: number): string {
  const units = ["", " thousand", " million", " billion", " trillion"];
  let at = 0, left = value;
  while (left >= 1_000 && at < units.length - 1) {
    left /= 1_000;
    at += 1;
  }
  return `${at === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)}${units[at]}`;
}

/** Enough of a name to tell it from others at a glance. */
export function short(id: string): string {
  return id.slice(0, 8);
}

export function clock(ts: number): string {
  const moment = new Date(ts * 1_000);
  return [moment.getHours(), moment.getMinutes(), moment.getSeconds()]
    .map((part) => String(part).padStart(2, "0")).join(":");
}

export function nats(value: number | null): string {
  return value === null ? NOTHING : value.toFixed(4);
}

export function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}

/** `1 round`, `2 rounds`. */
export function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

/** With a capital letter and one full stop. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  const capital = (trimmed[0] ?? "").toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
