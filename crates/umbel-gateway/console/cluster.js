// The cluster: the hash space from left to right, a row a node, a box a replica.

import { ask, buttons, may } from "./actions.js";
import { element, figures, keyed, panel, say, set, state, table } from "./elements.js";
import { bytes, count } from "./figures.js";

const LEGEND = [
  ["leader", "leader"],
  ["replica", "replica"],
  ["target", "replica to come"],
];

/** A table of more shards is shut at first: to lay it out takes longer than to draw all else. */
const SHARDS_OPEN_MAX = 128;

/** What a node is of a shard; undefined if it has no part in it. */
function part(shard, node) {
  if (shard.leader === node) return "leader";
  if (shard.replicas.includes(node)) return "replica";
  return shard.target.includes(node) ? "target" : undefined;
}

function standing(node) {
  if (node.state === "removed") return ["off", "removed"];
  if (!node.answers) return ["bad", "silent"];
  return node.state === "draining" ? ["warn", "draining"] : ["good", "answers"];
}

/** Free bytes of the disk, marked where inserts are refused for it. */
function drawDisk(cell, { free_bytes: free, is_disk_short: isShort }) {
  state(cell, isShort ? "bad" : free === null ? "off" : "good", isShort ? `${bytes(free)}, no inserts` : bytes(free));
}

function drain({ node, address }, undo) {
  const text = undo ? `Node ${node} takes replicas again.`
    : `All replicas of node ${node} move to other nodes, while it serves. Afterwards it can be stopped or removed. "Take back" undoes it.`;
  ask({
    action: "drain", title: undo ? `Take node ${node} back` : `Drain node ${node}`, text, label: undo ? "Take back" : "Drain",
    typed: undo ? undefined : address, body: (values) => ({ node, undo, ...values }),
  });
}

function remove({ node, address, replica_count: held }) {
  const text = `Node ${node} leaves the cluster for ever: it comes back with an empty data folder and another number only. ` +
    (held ? `It still has ${held} replicas, which are made anew from the others: if it runs, drain it first.` : "It has no replicas any more.");
  ask({ action: "remove", title: `Remove node ${node}`, text, label: "Remove", typed: address, body: (values) => ({ node, ...values }) });
}

function nodeActions(cell, row) {
  const about = `node ${row.node}`;
  const isMember = row.state !== "removed";
  const isDraining = row.state === "draining";
  buttons(cell, [
    isMember && !isDraining && may("drain") && ["Drain", about, () => drain(row, false)],
    isDraining && may("drain") && ["Take back", about, () => drain(row, true)],
    isMember && may("remove") && ["Remove", about, () => remove(row)],
  ].filter(Boolean));
}

function move({ shard, replicas, nodes }) {
  const choice = (node) => [String(node), `node ${node}`];
  const others = nodes.filter((node) => node.state === "live" && !replicas.includes(node.node)).map((node) => node.node);
  if (!others.length) others.push("");
  ask({
    action: "move", title: `Move a replica of shard ${shard}`, label: "Move",
    text: "The replica is copied first, and the old one goes when the new one follows. A leader that moves hands over.",
    fields: [
      { name: "from", label: "From", options: replicas.map(choice) },
      { name: "to", label: "To", options: others.map((node) => (node ? choice(node) : ["", "no other node is live"])) },
    ],
    body: ({ from, to }) => ({ shard, from: Number(from), to: Number(to) }),
  });
}

function nodesTable() {
  return table("Nodes", [
    { title: "Node", text: (row) => String(row.node) },
    { title: "Address", text: (row) => row.address },
    { title: "State", draw: (cell, row) => state(cell, ...standing(row)) },
    { title: "Leads", number: true, text: (row) => count(row.leader_count) },
    { title: "Replicas", number: true, text: (row) => count(row.replica_count) },
    { title: "Meta group", text: (row) => (row.is_meta_leader ? "leader" : row.meta_role) },
    { title: "Disk free", draw: drawDisk },
    { title: "Release", text: (row) => row.version ?? "–" },
    { title: "Actions", draw: nodeActions, shown: () => may("drain") || may("remove") },
  ], (row) => row.node);
}

function shardsTable() {
  return table("Shards", [
    { title: "Shard", text: (row) => String(row.shard) },
    { title: "Hash range", draw: (cell, row) => { cell.className = "code"; say(cell, `${row.first} – ${row.last}`); } },
    { title: "Leader", draw: (cell, row) => state(cell, ...(row.leader ? ["good", `node ${row.leader}`] : ["bad", "none known"])) },
    { title: "Replicas", text: (row) => row.replicas.join(", ") },
    { title: "To come", text: (row) => row.target.filter((node) => !row.replicas.includes(node)).join(", ") || "–" },
    { title: "Filters in memory", number: true, text: (row) => (row.leader ? bytes(row.memory_bytes) : "–") },
    { title: "Entries applied", number: true, text: (row) => (row.leader ? count(row.applied_index) : "–") },
    { title: "Actions", draw: (cell, row) => buttons(cell, row.target.length ? [] : [["Move", `a replica of shard ${row.shard}`, () => move(row)]]), shown: () => may("move") },
  ], (row) => row.shard);
}

function drawRow(row, { node, shards }) {
  const [name, track] = row.children;
  const [kind, word] = standing(node);
  set(row, "data-kind", kind);
  state(name, kind, `node ${node.node}`);
  set(name, "title", word);
  keyed(track, shards.filter((shard) => part(shard, node.node)), (shard) => shard.shard,
    () => element("i"),
    (box, shard) => {
      const is = part(shard, node.node);
      box.className = is;
      box.style.left = `${100 * shard.start}%`;
      box.style.width = `${100 * (shard.end - shard.start)}%`;
      set(box, "title", `shard ${shard.shard}: ${is} on node ${node.node}${kind === "bad" ? ", which is silent" : ""}`);
    });
}

export function create(root) {
  const summary = figures();
  const rows = element("div", { class: "ranges", role: "img" });
  const legend = element("ul", { class: "legend", "aria-hidden": "true" },
    ...LEGEND.map(([kind, word]) => element("li", {}, element("i", { class: kind }), word)),
    element("li", {}, element("span", { class: "mark", "data-kind": "bad" }, "!"), "silent node"));
  const axis = element("p", { class: "axis", "aria-hidden": "true" }, element("span", {}, "0"),
    element("span", {}, "hash of an item"), element("span", {}, "2⁶⁴"));
  const nodes = nodesTable();
  const shards = shardsTable();
  const details = element("details", {}, element("summary", {}, "Ranges, leaders and replicas in figures"), shards.element);
  let rowsOfShards = null;
  const showShards = () => { if (details.open && rowsOfShards) shards.show(rowsOfShards); };
  details.addEventListener("toggle", showShards);
  root.append(summary.element, panel("Hash ranges", legend, rows, axis), panel("Nodes", nodes.element),
    panel("Shards", details));

  return ({ cluster }) => {
    const members = cluster.nodes.filter((node) => node.state !== "removed");
    const answering = members.filter((node) => node.answers);
    const led = cluster.shards.filter((shard) => shard.leader);
    const silent = members.filter((node) => !node.answers).map((node) => node.node);
    const memory = cluster.shards.reduce((sum, shard) => sum + shard.memory_bytes, 0);
    const releases = new Set(members.map((node) => node.version).filter(Boolean));
    const short = members.filter((node) => node.is_disk_short).map((node) => node.node);
    const moving = cluster.shards.filter((shard) => shard.target.length).length;
    summary.show([
      ["Nodes", `${answering.length} of ${members.length}`, silent.length ? `silent: ${silent.join(", ")}` : "answer"],
      ["Shards", `${led.length} of ${cluster.shards.length}`, moving ? `led; ${moving} moving` : "led"],
      ["Replicas", count(cluster.replica_count), "of each shard wanted"],
      ["Filters", count(cluster.filter_count), `${bytes(memory)} at leaders`],
      ["Epoch", count(cluster.epoch), "of the shard map"],
      ["Disks", short.length ? `${short.length} short` : "enough", short.length ? `no inserts: node ${short.join(", ")}` : "for inserts, of nodes that answer"],
      ["Clocks", cluster.clocks_differ ? "differ" : "agree", cluster.clocks_differ ?? "within half a minute, of nodes that tell them"],
      ["Release", releases.size > 1 ? `${releases.size} releases` : [...releases][0] ?? "–", releases.size > 1 ? [...releases].join(", ") : "of nodes that answer"],
    ]);
    set(rows, "aria-label", `Hash ranges of ${cluster.shards.length} shards on ${members.length} nodes, ` +
      `${led.length} with a leader${silent.length ? `; silent: node ${silent.join(", ")}` : ""}. The tables below tell the same.`);
    keyed(rows, members.map((node) => ({ node, shards: cluster.shards })), ({ node }) => node.node,
      () => element("div", { class: "range-row" }, element("span", { class: "name" }), element("div", { class: "track" })), drawRow);
    nodes.show(cluster.nodes.map((node) => ({ ...node, is_meta_leader: node.node === cluster.meta_leader })));
    if (!rowsOfShards) details.open = cluster.shards.length <= SHARDS_OPEN_MAX;
    rowsOfShards = cluster.shards.map((shard) => ({ ...shard, nodes: cluster.nodes }));
    showShards();
  };
}
