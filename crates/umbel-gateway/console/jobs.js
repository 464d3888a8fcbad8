// Jobs: which phase each is in, who works, what is in its way, and what came of those that are done.

import { ask, buttons, may } from "./actions.js";
import { bar, element, figures, panel, parts, say, set, state, table } from "./elements.js";
import { bytes, compact, count, date, span } from "./figures.js";
import { repeats } from "./repeats.js";

/** Phases of a job in their order, as its coordinator names them. */
const PHASES = ["starting", "joining", "reading", "sampling", "exchanging", "tallying", "writing", "committing", "adding"];

/** Phases of a worker in their order, as summaries name them. */
const TIMED = ["open", "local", "exchange", "compare", "ask", "output"];

/** Phases are short: those below ten seconds are told in tenths. */
const time = (seconds) => (seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds));

const KINDS = { done: "good", failed: "bad", cancelled: "off" };

/** All phases in a row: those that are over, the one that runs, those to come. */
function drawPhases(cell, { is_active: isActive, state: name, progress }) {
  const at = isActive ? PHASES.indexOf(progress?.phase) : name === "done" ? PHASES.length : -1;
  if (!cell.firstElementChild) {
    cell.append(element("span", { class: "phases", "aria-hidden": "true" }, ...PHASES.map(() => element("i"))), element("span"));
  }
  [...cell.firstElementChild.children].forEach((step, index) => {
    step.className = index < at ? "over" : index === at ? "now" : "";
  });
  say(cell.lastElementChild, isActive ? progress?.phase ?? "its coordinator does not answer" : "");
}

/** What people should know: why it failed, what ended the last attempt, who is away. */
function trouble({ cause, is_resumable: isResumable, progress }) {
  if (cause) return `${cause}${isResumable ? " (can be resumed)" : ""}`;
  const told = [];
  if (progress?.away.length) told.push(`away: node ${progress.away.join(", ")}`);
  if (progress?.trouble) told.push(`last attempt: ${progress.trouble}`);
  return told.join("; ") || "–";
}

/** Cells that all workers which answer have settled. */
function drawSettled(cell, { settled }) {
  const sum = (name) => settled.reduce((all, worker) => all + (worker[name] ?? 0), 0);
  if (sum("cells")) bar(cell, sum("settled_cells") / sum("cells"));
  else cell.replaceChildren("–");
}

/** What was dropped of what was read. */
function drawDropped(cell, { outcome }) {
  if (outcome?.records) bar(cell, (outcome.records - outcome.kept - (outcome.exempt ?? 0)) / outcome.records);
  else cell.replaceChildren("–");
}

function cancel({ job }) {
  ask({
    action: "cancel", title: `Cancel job ${job}`, label: "Cancel the job",
    text: "Its workers end, and their partial outputs go. It cannot be resumed.", body: () => ({ job }),
  });
}

function resume({ job }) {
  ask({
    action: "resume", title: `Resume job ${job}`, label: "Resume",
    text: "Its workers begin where they were, if their inputs are as they were.", body: () => ({ job }),
  });
}

function rowActions(cell, row) {
  buttons(cell, [
    row.state === "running" && may("cancel") && ["Cancel", `job ${row.job}`, () => cancel(row)],
    row.is_resumable && may("resume") && ["Resume", `job ${row.job}`, () => resume(row)],
  ].filter(Boolean));
}

/** A share of the largest as a bar, beside its figure. */
const drawShare = (cell, { share }) => bar(cell, share);

/** Of the job that is opened: workers while it runs, pictures of what came of it when it is done. */
function detail() {
  const workers = table("Workers of the job", [
    { title: "Worker", text: (row) => `node ${row.node}` },
    { title: "Cells settled", draw: (cell, row) => (row.cells ? bar(cell, row.settled_cells / row.cells) : cell.replaceChildren(row.answers ? "none yet" : "does not answer")) },
  ], (row) => row.node);
  const summary = figures();
  const counted = repeats();
  const records = element("div");
  const phases = table("Time by phase", [
    { title: "Phase", text: (row) => row.name },
    { title: "Time", number: true, text: (row) => time(row.value) },
    { title: "Of all", draw: drawShare },
  ], (row) => row.name);
  const bits = table("Bits an item, by kind of frame", [
    { title: "Frames", text: (row) => row.name },
    { title: "Bits an item", number: true, text: (row) => row.value.toFixed(3) },
    { title: "Of all", draw: drawShare },
  ], (row) => row.name);
  const pictures = element("div", { class: "pictures" }, element("h3", {}, "Records"), records, summary.element,
    counted.element, element("h3", {}, "Time by phase"), phases.element, element("h3", {}, "What travelled, in bits an item"), bits.element);
  const none = element("p", { class: "empty" });
  const whole = panel("", workers.element, pictures, none);
  whole.hidden = true;
  const shares = (told) => {
    const total = told.reduce((sum, [, value]) => sum + value, 0);
    return told.map(([name, value]) => ({ name, value, share: total ? value / total : null }));
  };
  const draw = (outcome) => {
    parts(records, [
      ["kept", outcome.kept, "kept"], ["kept without comparing", outcome.exempt, "kept"], ["repeated", outcome.dropped_input, "repeated"],
      ["known before", outcome.dropped_reference, "known"], ["without a key", outcome.dropped_missing_key, "other"], ["bad", outcome.bad, "other"],
    ]);
    summary.show([
      ["Read", compact(outcome.records), "records"],
      ["Groups", compact(outcome.group_count), outcome.group_largest === null ? "not counted" : `largest: ${count(outcome.group_largest)} records`],
      ["Travelled", bytes(outcome.network_bytes), "between workers"],
      ["Took", outcome.wall_s === null ? "–" : time(outcome.wall_s), outcome.level ? `exactness: ${outcome.level}` : ""],
    ]);
    const inOrder = [...outcome.phases].sort(([one], [other]) => TIMED.indexOf(one) - TIMED.indexOf(other));
    phases.show(shares(inOrder));
    bits.show(shares(outcome.bits_per_item).filter((row) => row.value > 0));
  };
  const show = (row, told) => {
    whole.hidden = !row;
    if (!row) return;
    say(whole.firstElementChild, `Job ${row.job}`);
    workers.element.hidden = !row.settled.length;
    workers.show(row.settled);
    pictures.hidden = !row.outcome;
    if (row.outcome) draw(row.outcome);
    counted.show(told?.job === row.job ? told.repeats : null, row.workers);
    none.hidden = Boolean(row.outcome) || row.settled.length > 0;
    say(none, row.state === "done" ? "Its summary tells no numbers." : trouble(row));
  };
  return { element: whole, show };
}

export function create(root, reopen) {
  let opened = "";
  let told = null;
  let rows = [];
  const list = table("Jobs", [
    { title: "Job", draw: drawName },
    { title: "Submitted", text: (row) => date(row.submitted_ms) },
    { title: "State", draw: (cell, row) => state(cell, KINDS[row.state] ?? "warn", row.state) },
    { title: "Phase", draw: drawPhases },
    { title: "Attempt", number: true, text: (row) => (row.progress ? String(row.progress.attempt) : "–") },
    { title: "Cells settled", draw: drawSettled },
    { title: "Dropped", draw: drawDropped },
    { title: "Workers, the coordinator first", text: (row) => row.workers.map((node) => `node ${node}`).join(", ") },
    { title: "Trouble", draw: (cell, row) => { cell.className = "wide"; say(cell, trouble(row)); } },
    { title: "Actions", draw: rowActions, shown: () => rows.some((row) => (row.state === "running" && may("cancel")) || (row.is_resumable && may("resume"))) },
  ], (row) => row.job);
  const chosen = detail();
  const show = () => {
    list.show(rows);
    chosen.show(rows.find((row) => row.job === opened), told);
  };
  function drawName(cell, row) {
    if (!cell.firstElementChild) {
      const button = element("button", { type: "button", class: "link code" });
      button.addEventListener("click", () => {
        opened = opened === button.textContent ? "" : button.textContent;
        show();
        reopen(opened ? { open: opened } : {});
      });
      cell.append(button);
    }
    say(cell.firstElementChild, row.job);
    set(cell.firstElementChild, "aria-expanded", String(row.job === opened));
  }
  const none = element("p", { class: "empty" }, "No job yet. ",
    element("code", {}, "umbel dedup --cluster HOST:PORT FILES"), " submits one to the nodes.");
  root.append(panel("Jobs", list.element, none,
    element("p", { class: "hint" }, "Cells are parts of the hash space that workers exchange. Choose a job for its workers, or for pictures of what came of it.")),
    chosen.element);
  return ({ jobs }) => {
    rows = jobs.rows;
    told = jobs.opened;
    show();
    list.element.hidden = !rows.length;
    none.hidden = rows.length > 0;
  };
}
