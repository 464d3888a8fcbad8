// Filters: how full each is, how fast it fills, and when it will be full at that rate.

import { bar, element, figures, keyed, panel, say, set, state, table } from "./elements.js";
import { bytes, compact, count, percent, rate, span } from "./figures.js";

/** A rate is told once so many milliseconds were seen: less is chance. */
const SEEN_MS_MIN = 4000;

const fill = (load) => (load && load.position_count ? load.one_count / load.position_count : null);

/** What the page saw of each filter's inserts since it was opened; a filter that is emptied begins anew. */
function rates() {
  const first = new Map();
  return ({ name, generation, load }) => {
    if (!load) return null;
    const now = Date.now();
    const seen = first.get(name);
    if (!seen || seen.generation !== generation || load.new_count < seen.count) {
      first.set(name, { generation, count: load.new_count, at: now });
      return null;
    }
    const ms = now - seen.at;
    return ms < SEEN_MS_MIN ? null : (load.new_count - seen.count) / (ms / 1000);
  };
}

function forecast({ load, capacity }, perSecond) {
  if (!load) return "–";
  if (load.item_count === null || load.item_count >= capacity) return "full";
  if (perSecond === null) return "watching";
  return perSecond > 0 ? `in ${span((capacity - load.item_count) / perSecond)}` : "not filling";
}

/** Above what was planned the rate of false positives rises quickly. */
function drawRate(cell, { load, rate_planned: planned }) {
  if (!load) return cell.replaceChildren("–");
  return state(cell, load.rate_now > planned ? "warn" : "good", rate(load.rate_now));
}

/** A filter without a number of items has all bits set. */
function used(cell, { load, capacity }) {
  bar(cell, load && (load.item_count === null ? 1 : load.item_count / capacity));
}

function filtersTable(open, perSecond) {
  const name = (cell, row) => {
    if (!cell.firstElementChild) {
      const button = element("button", { type: "button", class: "link" });
      button.addEventListener("click", () => open(button.textContent));
      cell.append(button);
    }
    say(cell.firstElementChild, row.name);
    set(cell.firstElementChild, "aria-expanded", String(row.is_open));
  };
  return table("Filters", [
    { title: "Filter", draw: name, note: (row) => `${row.kind ?? "unknown"}${row.is_replicated ? ", replicated" : ""}` },
    { title: "State", draw: (cell, row) => state(cell, row.state === "live" ? "good" : "warn", row.state) },
    { title: "Used", draw: used, note: ({ load, capacity }) => `${compact(load?.item_count)} of ${compact(capacity)} items` },
    { title: "Bits set", number: true, text: (row) => percent(fill(row.load)) },
    { title: "False positives", draw: drawRate, note: (row) => `${rate(row.rate_planned)} planned` },
    { title: "New a second", number: true, text: (row) => compact(perSecond.get(row.name)) },
    { title: "Full", text: (row) => forecast(row, perSecond.get(row.name)) },
    { title: "Memory", number: true, text: (row) => bytes(row.load?.memory_bytes) },
  ], (row) => row.name);
}

/** Slices by shard, or copies by node. */
function detail() {
  const share = (cell, row) => bar(cell, row.position_count ? row.one_count / row.position_count : null);
  const slices = table("Slices of the filter", [
    { title: "Shard", text: (row) => String(row.shard) },
    { title: "Leader", text: (row) => `node ${row.leader}` },
    { title: "Bits set", draw: share },
    { title: "Memory", number: true, text: (row) => bytes(row.memory_bytes) },
  ], (row) => row.shard);
  const copies = table("Copies of the filter", [
    { title: "Node", text: (row) => String(row.node) },
    { title: "State", draw: (cell, row) => state(cell, ...(row.answers ? (row.is_settled ? ["good", "settled"] : ["warn", "catching up"]) : ["bad", "silent"])) },
    { title: "Items", number: true, text: (row) => (row.answers ? count(row.item_count && Math.round(row.item_count)) : "–") },
    { title: "Bits set", number: true, text: (row) => count(row.one_count) },
    { title: "Memory", number: true, text: (row) => bytes(row.memory_bytes) },
  ], (row) => row.node);
  const whole = panel("", slices.element, copies.element);
  whole.hidden = true;
  const show = (opened) => {
    whole.hidden = !opened;
    if (!opened) return;
    say(whole.firstElementChild, opened.name);
    slices.element.hidden = !opened.slices.length;
    copies.element.hidden = !opened.copies.length;
    slices.show(opened.slices);
    copies.show(opened.copies);
  };
  return { element: whole, show };
}

export function create(root, ask) {
  const asked = { prefix: "", after: "", open: "" };
  const before = [];
  const perSecond = new Map();
  const rateOf = rates();
  let last = [];
  const again = (changed) => {
    Object.assign(asked, changed);
    ask(Object.fromEntries(Object.entries(asked).filter(([, text]) => text)));
  };
  const open = (name) => again({ open: asked.open === name ? "" : name });
  const list = filtersTable(open, perSecond);
  const opened = detail();
  const prefix = element("input", { type: "search", id: "prefix", maxlength: "256", autocomplete: "off", spellcheck: "false" });
  prefix.addEventListener("change", () => { before.length = 0; again({ prefix: prefix.value, after: "" }); });
  const back = element("button", { type: "button" }, "Previous");
  const next = element("button", { type: "button" }, "Next");
  back.addEventListener("click", () => again({ after: before.pop() ?? "" }));
  next.addEventListener("click", () => { before.push(asked.after); again({ after: last.at(-1)?.name ?? "" }); });
  const none = element("p", { class: "empty" });
  const pages = element("div", { class: "pages" }, back, next);
  root.append(panel("Filters",
    element("p", { class: "tools" }, element("label", { for: "prefix" }, "Names that begin with"), prefix),
    list.element, none, pages,
    element("p", { class: "hint" }, "New items a second, and when a filter is full at that rate, are from what this page saw since it was opened. Choose a name for its slices or copies.")),
    opened.element);

  return ({ filters }) => {
    last = filters.rows;
    for (const row of last) perSecond.set(row.name, rateOf(row));
    list.show(last.map((row) => ({ ...row, is_open: row.name === asked.open })));
    list.element.hidden = !last.length;
    none.hidden = last.length > 0;
    say(none, asked.prefix || asked.after ? "No filter of such a name that you may see."
      : "No filter yet that you may see. `umbel filter create seen --capacity 10M` makes one.");
    back.disabled = !before.length;
    next.disabled = !filters.has_more;
    pages.hidden = back.disabled && next.disabled;
    opened.show(asked.open && filters.opened);
  };
}
