// Filters: how full each is, how fast it fills, and when it will be full at that rate.

import { ask, buttons, may } from "./actions.js";
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

/** Kinds that go on for ever, and forget what came before. */
const ENDLESS = ["aging", "stable"];

function forecast({ kind, load, capacity }, perSecond) {
  if (!load) return "–";
  if (ENDLESS.includes(kind)) return "never";
  if (load.item_count === null || load.item_count >= capacity) return "full";
  if (perSecond === null) return "watching";
  return perSecond > 0 ? `in ${span((capacity - load.item_count) / perSecond)}` : "not filling";
}

/** Above what was planned the rate of false positives rises quickly; bits that chance does not explain are somebody's. */
function drawRate(cell, { load, rate_planned: planned }) {
  if (!load) return cell.replaceChildren("–");
  if (load.unexplained_ones > 0) return state(cell, "bad", `${rate(load.rate_now)}, chosen items`);
  return state(cell, load.rate_now > planned ? "warn" : "good", rate(load.rate_now));
}

/** A filter without a number of items has all bits set. */
function used(cell, { load, capacity }) {
  bar(cell, load && (load.item_count === null ? 1 : load.item_count / capacity));
}

const KINDS = [["blocked", "blocked: one cache line an item"], ["classic", "classic: least memory that can be changed"], ["scalable", "scalable: grows with the items"], ["redisbloom", "redisbloom: RedisBloom's own bits, with a public hash"],
  ["counting", "counting: items can be removed"], ["cuckoo", "cuckoo: items can be removed, and it can be full"], ["quotient", "quotient: items can be removed, copies are counted, and it grows"], ["partitioned", "partitioned: one part of the block a probe"], ["single-shot", "single-shot: the smallest, mostly for reading"],
  ["aging", "aging: the last items, whatever comes"], ["stable", "stable: what came lately, at a constant rate of errors"]];

function createFilter() {
  ask({
    action: "create", title: "Create a filter", label: "Create",
    text: "It is empty, and takes its memory at once, on as many nodes as replicas are wanted. Who creates it is its owner, whose quota it counts for.",
    fields: [
      { name: "name", label: "Name" },
      { name: "kind", label: "Kind", options: KINDS, value: "blocked" },
      { name: "capacity", label: "Items planned for", type: "number", value: "1000000" },
      { name: "rate", label: "False positives at that number", value: "0.001", hint: "above 0 and below 1, as 0.001" },
      { name: "copies", label: "Lies", options: [["", "in shards over the nodes"], ["replicated", "whole on every node"]] },
    ],
    body: ({ name, kind, capacity, rate, copies }) => ({ name, kind, capacity: Number(capacity), rate: Number(rate), is_replicated: copies === "replicated" }),
  });
}

function clear({ name, filter, generation }) {
  ask({
    action: "clear", title: `Clear ${name}`, label: "Clear", typed: name,
    text: "All of its items are forgotten, on all nodes, and do not come back. Name, shape and rights stay.",
    body: ({ typed }) => ({ name, filter, generation, typed }),
  });
}

function drop({ name, filter }) {
  ask({
    action: "drop", title: `Drop ${name}`, label: "Drop", typed: name,
    text: "The filter and all of its items are gone, on all nodes, and do not come back. A backup brings it back as it was then.",
    body: ({ typed }) => ({ name, filter, typed }),
  });
}

function rowActions(cell, row) {
  buttons(cell, [
    row.may_manage && may("clear") && ["Clear", row.name, () => clear(row)],
    row.may_manage && may("drop") && ["Drop", row.name, () => drop(row)],
  ].filter(Boolean));
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
    { title: "Actions", draw: rowActions, shown: () => may("clear") || may("drop") },
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

export function create(root, reopen) {
  const asked = { prefix: "", after: "", open: "" };
  const before = [];
  const perSecond = new Map();
  const rateOf = rates();
  let last = [];
  const again = (changed) => {
    Object.assign(asked, changed);
    reopen(Object.fromEntries(Object.entries(asked).filter(([, text]) => text)));
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
  const made = element("span");
  const pages = element("div", { class: "pages" }, back, next);
  root.append(panel("Filters",
    element("p", { class: "tools" }, element("label", { for: "prefix" }, "Names that begin with"), prefix, made),
    list.element, none, pages,
    element("p", { class: "hint" }, "New items a second, and when a filter is full at that rate, are from what this page saw since it was opened. Choose a name for its slices or copies.")),
    opened.element);

  return ({ filters }) => {
    // A list comes at once, and its figures a little later: until then those from before stay.
    const known = filters.is_counted ? new Map() : new Map(last.map((row) => [row.filter, row.load]));
    last = filters.rows.map((row) => ({ ...row, load: row.load ?? known.get(row.filter) ?? null }));
    buttons(made, may("create") ? [["Create", "a filter", createFilter]] : []);
    for (const row of last) perSecond.set(row.name, rateOf(row));
    list.show(last.map((row) => ({ ...row, is_open: row.name === asked.open })));
    list.element.hidden = !last.length;
    none.hidden = last.length > 0;
    say(none, asked.prefix || asked.after ? "No filter of such a name that you may see."
      : "No filter yet that you may see. `umbel filter create seen --capacity 10M` makes one.");
    back.disabled = !before.length;
    next.disabled = !filters.has_more;
    pages.hidden = back.disabled && next.disabled;
    if (filters.is_counted) opened.show(asked.open && filters.opened);
  };
}
