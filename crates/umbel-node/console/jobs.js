// Jobs: which phase each is in, who works, what is in its way.

import { bar, element, panel, say, state, table } from "./elements.js";
import { date } from "./figures.js";

/** Phases of a job in their order, as its coordinator names them. */
const PHASES = ["starting", "joining", "reading", "sampling", "exchanging", "writing", "committing"];

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
  const parts = [];
  if (progress?.away.length) parts.push(`away: node ${progress.away.join(", ")}`);
  if (progress?.trouble) parts.push(`last attempt: ${progress.trouble}`);
  return parts.join("; ") || "–";
}

function settled(cell, { is_active: isActive, progress }) {
  if (isActive && progress?.cells) bar(cell, progress.settled_cells / progress.cells);
  else cell.replaceChildren("–");
}

export function create(root) {
  const list = table("Jobs", [
    { title: "Job", draw: (cell, row) => { cell.className = "code"; say(cell, row.job); } },
    { title: "Submitted", text: (row) => date(row.submitted_ms) },
    { title: "State", draw: (cell, row) => state(cell, KINDS[row.state] ?? "warn", row.state) },
    { title: "Phase", draw: drawPhases },
    { title: "Attempt", number: true, text: (row) => (row.progress ? String(row.progress.attempt) : "–") },
    { title: "Cells settled", draw: settled },
    { title: "Workers, the coordinator first", text: (row) => row.workers.map((node) => `node ${node}`).join(", ") },
    { title: "Trouble", draw: (cell, row) => { cell.className = "wide"; say(cell, trouble(row)); } },
  ], (row) => row.job);
  const none = element("p", { class: "empty" }, "No job yet. ",
    element("code", {}, "umbel dedup --cluster HOST:PORT FILES"), " submits one to the nodes.");
  root.append(panel("Jobs", list.element, none,
    element("p", { class: "hint" }, "Cells are parts of the hash space that workers exchange; counted are those that the coordinator’s own worker has settled.")));
  return ({ jobs }) => {
    list.show(jobs.rows);
    list.element.hidden = !jobs.rows.length;
    none.hidden = jobs.rows.length > 0;
  };
}
