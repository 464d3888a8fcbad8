// Figures as people read them. All of a column have one form, so that they align.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

/** What is not known. */
export const NONE = "–";

const known = (value) => value !== null && value !== undefined;

export const count = (value) => (known(value) ? whole.format(value) : NONE);

export const compact = (value) => (known(value) ? short.format(value) : NONE);

export function bytes(value) {
  if (!known(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : whole.format(value)} ${units[unit]}`;
}

export const percent = (share) => (known(share) ? `${(100 * share).toFixed(1)} %` : NONE);

/** A small probability: 0.1 %, 2.3e-6. */
export function rate(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0";
  return value >= 1e-4 ? `${Number((100 * value).toPrecision(2))} %` : value.toExponential(1);
}

/** A time in the largest two units. */
export function span(seconds) {
  if (!known(seconds) || !Number.isFinite(seconds)) return NONE;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  if (seconds > 86400 * 3650) return "over 10 years";
  const at = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  const first = seconds < 1 ? 3 : at;
  let rest = seconds;
  const parts = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const number = Math.floor(rest / size);
    rest -= number * size;
    if (number || !parts.length) parts.push(`${number} ${name}`);
  }
  return parts.join(" ");
}

export const time = (ms) => clock.format(new Date(ms));

export const date = (ms) => (ms ? day.format(new Date(ms)) : NONE);
