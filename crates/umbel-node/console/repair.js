// Comparison and repair: what this node compared, the worst first.

import { element, figures, panel, say, state, table } from "./elements.js";
import { count, date, span } from "./figures.js";

const KINDS = { differ: "bad", failed: "bad", partial: "warn", mended: "warn", equal: "good" };

const replicas = ({ shard, partner }) => (shard === null ? `copies of this node and node ${partner}` : `replicas of shard ${shard}`);

export function create(root) {
  const summary = figures();
  const list = table("Comparisons", [
    { title: "Filter", text: (row) => row.filter },
    { title: "Compares", text: replicas },
    { title: "Outcome", draw: (cell, row) => state(cell, ...(row.last ? [KINDS[row.last.ending], row.last.ending] : ["off", "not yet"])) },
    { title: "When", text: (row) => (row.last ? date(row.last.at_ms) : "–") },
    { title: "Bits lost", number: true, text: (row) => count(row.last?.lost_count) },
    { title: "Bits too many", number: true, text: (row) => count(row.last?.surplus_count) },
    { title: "Why", draw: (cell, row) => { cell.className = "wide"; say(cell, row.last?.why || "–"); } },
  ], (row) => `${row.filter}/${row.shard}/${row.partner}`);
  const none = element("p", { class: "empty" }, "Nothing that this node compares, or that you may read. A node compares the shards that it leads, and its copies of replicated filters.");
  root.append(summary.element, panel("Comparisons of this node", list.element, none,
    element("p", { class: "hint" }, "Bits that were lost are set again. Each node shows its own comparisons since it started; "
      , element("code", {}, "umbel cluster scrub --all"), " compares everything now.")));
  return ({ repair }) => {
    summary.show([
      ["To compare", count(repair.count), "slices and pairs of copies"],
      ["Trouble", count(repair.bad_count), "failed, left out or still differ"],
      ["Mended", count(repair.mended_count), "had lost bits, which are set again"],
      ["Not yet", count(repair.pending_count), "since this node started"],
      ["Each one every", repair.interval_s === null ? "never" : span(repair.interval_s), "unless asked for"],
    ]);
    list.show(repair.rows);
    list.element.hidden = !repair.rows.length;
    none.hidden = repair.rows.length > 0;
  };
}
