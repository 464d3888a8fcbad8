// Repeats of a job: in which files they stood, which files or directories they repeat, and how often the same stood.

import { bar, element, keyed, say, set, shape, table } from "./elements.js";
import { compact, count } from "./figures.js";

/** Side of a square of the matrix in pixels. */
const SIDE = 20;

/** Pairs that are told in figures, those with the most repeats. */
const PAIRS_MAX = 50;

const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);

/** A drawing of squares, the darker the more: a shade for each power of two. Rows and columns have numbers. */
function matrix(dropped) {
  const steps = (number) => Math.floor(Math.log2(number)) + 1;
  const there = dropped.flat().filter((number) => number > 0).map(steps);
  const [least, most] = [Math.min(...there), Math.max(...there)];
  const side = dropped.length * SIDE;
  const label = (x, y, at) => shape("text", { x, y }, String(at + 1));
  const squares = dropped.flatMap((row, y) => row.map((number, x) => number > 0 && shape("rect", {
    class: "square", x: (x + 1) * SIDE + 1, y: (y + 1) * SIDE + 1, width: SIDE - 2, height: SIDE - 2,
    "fill-opacity": (0.15 + (0.85 * (steps(number) - least + 1)) / (most - least + 1)).toFixed(2),
  }, shape("title", {}, `${count(number)} in ${y + 1}, of ${x + 1}`)))).filter(Boolean);
  const names = dropped.flatMap((_, at) => [label((at + 1.5) * SIDE, SIDE - 6, at), label(SIDE / 2, (at + 1.7) * SIDE, at)]);
  return shape("svg", { viewBox: `0 0 ${side + SIDE} ${side + SIDE}`, width: side + SIDE, height: side + SIDE, "aria-hidden": "true" },
    shape("rect", { class: "ground", x: SIDE, y: SIDE, width: side, height: side }), ...squares, ...names);
}

/** Everything of it, to be shown of a job that is done: show(repeats, workers), where repeats may still be on its way. */
export function repeats() {
  let nodes = [];
  const named = ({ name, worker }) => (worker === null ? name : `node ${nodes[worker] ?? "?"}: ${name}`);
  const share = (cell, { part, whole }) => bar(cell, whole ? part / whole : null);
  const files = table("Files with the most repeats", [
    { title: "File", text: (row) => row.name },
    { title: "Items", number: true, text: (row) => count(row.whole) },
    { title: "Repeat their own file", number: true, text: (row) => count(row.within) },
    { title: "Repeat another file", number: true, text: (row) => count(row.of_others) },
    { title: "Repeats", draw: share },
  ], (row) => row.key);
  const drawing = element("div", { class: "matrix", role: "img" });
  const units = element("ol", { class: "units" });
  const pairs = table("Pairs with the most repeats", [
    { title: "Repeats in", text: (row) => row.name },
    { title: "One of these was kept in", text: (row) => row.kept },
    { title: "Repeats", number: true, text: (row) => count(row.number) },
  ], (row) => row.key);
  const classes = table("Groups by size", [
    { title: "Stood", text: ([from, to]) => `${count(from)} to ${count(to)} times` },
    { title: "Groups", number: true, text: (row) => count(row[2]) },
    { title: "Repeats", number: true, text: (row) => count(row[3] - row[2]) },
    { title: "Of all repeats", draw: (cell, row) => bar(cell, row.all ? (row[3] - row[2]) / row.all : null) },
  ], (row) => row[0]);
  const examples = table("The largest groups", [
    { title: "Kept in", text: named },
    { title: "Record", number: true, text: (row) => count(row.record) + (row.part === null ? "" : `, part ${row.part}`) },
    { title: "Stood, times", number: true, text: (row) => count(row.size) },
  ], (row) => row.key);
  const part = (title, ...children) => element("section", {}, element("h3", {}, title), ...children);
  const hint = element("p", { class: "hint" });
  const parts = [part("Repeats by file", files.element), part("What repeats what", hint, element("div", { class: "overlap" }, drawing, units),
    element("details", {}, element("summary", {}, "Pairs in figures"), pairs.element)), part("How often the same stood", classes.element, examples.element)];
  const none = element("p", { class: "hint" });

  function showFiles({ rows, others, all, count: whole }) {
    const row = (name, key, told) => ({ ...told, name, key, whole: told.items, part: told.within + told.of_others });
    const shown = rows.filter((file) => file.within + file.of_others > 0).map((file, at) => row(named(file), at, file));
    if (whole > rows.length) shown.push(row(`${compact(whole - rows.length)} other files`, "others", others));
    files.show([...shown, row("All files", "all", all)]);
  }

  function showOverlap({ by, units: told, others, dropped }) {
    const names = told.map(named).concat(others ? [`${count(others)} other ${by === "file" ? "files" : "directories"}`] : []);
    const most = dropped.flatMap((row, y) => row.map((number, x) => ({ key: `${y}-${x}`, name: names[y], kept: names[x], number })))
      .filter(({ number }) => number > 0).sort((one, other) => other.number - one.number);
    say(hint, `Row by row: how many items of a ${by} repeat one that was kept in the ${by} of the column. The darker the more: each shade is twice as many.`);
    drawing.replaceChildren(matrix(dropped));
    set(drawing, "aria-label", `What repeats what: ${names.length} by ${names.length}, ${count(sum(dropped.flat()))} repeats. The table below tells the same.`);
    keyed(units, names.map((name, at) => ({ name, at })), ({ at }) => at, () => element("li"), (line, { name }) => say(line, name));
    pairs.show(most.slice(0, PAIRS_MAX));
  }

  const show = (told, workers) => {
    nodes = workers;
    const isThere = [told?.files, told?.overlap?.dropped.length > 1 && told.overlap.dropped.flat().some(Boolean), told?.classes?.length];
    parts.forEach((whole, at) => { whole.hidden = !isThere[at]; });
    if (isThere[0]) showFiles(told.files);
    if (isThere[1]) showOverlap(told.overlap);
    if (isThere[2]) {
      const all = sum(told.classes.map((row) => row[3] - row[2]));
      classes.show(told.classes.map((row) => Object.assign([...row], { all })));
      examples.show((told.examples ?? []).map((row, key) => ({ ...row, key })));
    }
    none.hidden = !told || Boolean(told.files && told.classes);
    say(none, "Where repeats stood is counted for jobs that are submitted with --report; how often the same stood also with --groups or --duplicates.");
  };
  return { element: element("div", {}, ...parts, none), show };
}
