// Comparison and repair: what the nodes compared, the worst first.

import { ask, buttons, may } from "./actions.js";
import { element, figures, panel, say, state, table } from "./elements.js";
import { count, date, span } from "./figures.js";

const KINDS = { differ: "bad", failed: "bad", partial: "warn", mended: "warn", equal: "good" };

const replicas = ({ shard, node, partner }) => (shard === null ? `copies of node ${node} and node ${partner}` : `replicas of shard ${shard}`);

function compare(filter) {
  ask({
    action: "compare", title: filter ? `Compare ${filter}` : "Compare everything", label: "Compare now",
    text: `All replicas and copies of ${filter || "every filter"} are compared bit by bit, and what one has lost is set again. Large filters take minutes: the rows show each as it ends, and to close this window ends the rest.`,
    body: () => ({ filter }),
  });
}

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
    { title: "Told by", text: (row) => `node ${row.node}` },
    { title: "Actions", draw: (cell, row) => buttons(cell, [["Compare", row.filter, () => compare(row.filter)]]), shown: () => may("compare") },
  ], (row) => `${row.node}/${row.filter}/${row.shard}/${row.partner}`);
  const tools = element("p", { class: "tools" });
  const none = element("p", { class: "empty" }, "Nothing to compare, or that you may read. Nodes compare the shards that they lead, and their copies of replicated filters.");
  root.append(summary.element, panel("Comparisons", tools, list.element, none,
    element("p", { class: "hint" }, "Bits that were lost are set again. Each node tells its own comparisons since it started; "
      , element("code", {}, "umbel cluster scrub --all"), " compares everything now.")));
  return ({ repair }) => {
    summary.show([
      ["To compare", count(repair.count), "slices and pairs of copies"],
      ["Trouble", count(repair.bad_count), "failed, left out or still differ"],
      ["Mended", count(repair.mended_count), "had lost bits, which are set again"],
      ["Not yet", count(repair.pending_count), "since their nodes started"],
      ["Each one every", repair.interval_s === null ? "never" : span(repair.interval_s), "unless asked for"],
      ["Silent", count(repair.silent.length), repair.silent.length ? `nodes that do not tell: ${repair.silent.join(", ")}` : "all nodes tell theirs"],
    ]);
    buttons(tools, may("compare") ? [["Compare now", "everything", () => compare("")]] : []);
    tools.hidden = !may("compare");
    list.show(repair.rows);
    list.element.hidden = !repair.rows.length;
    none.hidden = repair.rows.length > 0;
  };
}
