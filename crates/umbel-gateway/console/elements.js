// Elements of a page. Texts become text alone: names are whoever's.

import { count, percent } from "./figures.js";

/** Makes an element. A property of `style` is set by name, for the policy forbids the attribute. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Makes an element of a drawing. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(made, name, value);
  made.append(...children);
  return made;
}

/** Sets an attribute where it differs, takes it away for null or false. */
export function set(target, name, value) {
  const text = value === true ? "" : value;
  if (text === null || text === undefined || text === false) target.removeAttribute(name);
  else if (target.getAttribute(name) !== String(text)) target.setAttribute(name, text);
}

/** Sets a text where it differs, so that what is selected or focused stays so. */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Makes the children of an element those of a list, each the one that its key had before. */
export function keyed(parent, items, key, make, update) {
  const names = new Set(items.map((item) => String(key(item))));
  const old = new Map();
  // Before others are placed: a child that stays where it is keeps the focus, one that is moved loses it.
  for (const child of [...parent.children]) {
    if (names.has(child.dataset.key)) old.set(child.dataset.key, child);
    else child.remove();
  }
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    const child = old.get(name) ?? make(item);
    child.dataset.key = name;
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
}

/**
 * A table whose rows change in place. A column is { title, text(row) } or { title, draw(cell, row) },
 * with `number` where figures align, and perhaps a note(row) below, or shown(), whether it is there at all;
 * the first one names the row.
 */
export function table(caption, columns, key) {
  const head = columns.map(({ title, number }) =>
    element("th", { scope: "col", class: number && "number" }, title));
  const body = element("tbody");
  const whole = element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head)), body);
  const make = () => element("tr", {}, ...columns.map(({ number, note }, at) =>
    element(at ? "td" : "th", { scope: at ? null : "row", class: number && "number" },
      ...(note ? [element("div"), element("div", { class: "hint" })] : []))));
  const update = (line, row) => columns.forEach(({ text, draw, note, shown }, at) => {
    if (shown) line.children[at].hidden = !shown();
    const cell = note ? line.children[at].firstElementChild : line.children[at];
    if (draw) draw(cell, row);
    else say(cell, text(row));
    if (note) say(cell.nextElementSibling, note(row));
  });
  const scroller = element("div", { class: "scroller", role: "region", "aria-label": caption, tabindex: "0" }, whole);
  const show = (rows) => {
    columns.forEach(({ shown }, at) => { if (shown) whole.tHead.rows[0].cells[at].hidden = !shown(); });
    keyed(body, rows, key, make, update);
  };
  return { element: scroller, show };
}

/** Named figures in a row: [name, value, note]. */
export function figures() {
  const list = element("dl", { class: "figures" });
  const make = () => element("div", {}, element("dt"), element("dd"), element("dd", { class: "hint" }));
  const update = (pair, [name, value, note]) => {
    say(pair.children[0], name);
    say(pair.children[1], value);
    say(pair.children[2], note ?? "");
  };
  return { element: list, show: (pairs) => keyed(list, pairs, ([name]) => name, make, update) };
}

/** A part of a view under a heading. */
export function panel(title, ...children) {
  return element("section", { class: "panel" }, element("h2", {}, title), ...children);
}

/** A share as a bar with its figure; null is not known. */
export function bar(cell, share) {
  if (!cell.firstElementChild) {
    cell.replaceChildren(element("span", { class: "bar", "aria-hidden": "true" }, element("i")), element("span", { class: "share" }));
  }
  const known = Number.isFinite(share);
  cell.firstElementChild.firstElementChild.style.width = `${known ? Math.min(100, 100 * share) : 0}%`;
  set(cell.firstElementChild, "data-full", known && share >= 1);
  say(cell.lastElementChild, percent(known ? share : null));
}

/** Parts of a whole in a row: [name, value, kind], each with its share; those of nothing are left out. */
export function parts(whole, told) {
  const total = told.reduce((sum, [, value]) => sum + (value ?? 0), 0);
  const there = told.filter(([, value]) => value > 0);
  const share = (value) => percent(total ? value / total : null);
  const [strip, legend] = whole.children.length ? whole.children
    : [element("div", { class: "parts", role: "img" }), element("ul", { class: "legend" })];
  if (!whole.children.length) whole.append(strip, legend);
  set(strip, "aria-label", there.map(([name, value]) => `${name}: ${share(value)}`).join(", ") || "nothing");
  keyed(strip, there, ([name]) => name, () => element("i"), (part, [, value, kind]) => {
    part.className = kind;
    part.style.width = `${(100 * value) / total}%`;
  });
  keyed(legend, there, ([name]) => name, () => element("li", {}, element("i"), element("span")), (line, [name, value, kind]) => {
    line.firstElementChild.className = kind;
    say(line.lastElementChild, `${name}: ${count(value)} (${share(value)})`);
  });
}

/** A state: a mark and a word, so that colour is never all. */
export function state(cell, kind, word) {
  const marks = { good: "●", warn: "▲", bad: "!", off: "○" };
  if (!cell.firstElementChild) {
    cell.replaceChildren(element("span", { class: "mark", "aria-hidden": "true" }), element("span"));
  }
  set(cell, "data-kind", kind);
  say(cell.children[0], marks[kind]);
  say(cell.children[1], word);
}
