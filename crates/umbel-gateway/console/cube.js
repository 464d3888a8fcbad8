// The hypercube of replicated filters: a corner a node, an edge a pair that exchanges.

import { element, figures, panel, set, shape, state, table } from "./elements.js";
import { bytes, compact, count, span } from "./figures.js";

/** Above so many nodes a drawing says less than its table. */
const NODES_DRAWN_MAX = 16;

/** Where a step along each dimension leads in the drawing: right, up, back, and to a second cube. */
const STEPS = [[210, 0], [0, -150], [88, -62], [400, 24]];
const BEYOND = [-104, 72];

/** Where a rank stands: corners by the bits of their rank, nodes beyond beside their corner. */
function places(total) {
  const dimensions = Math.floor(Math.log2(Math.max(total, 1)));
  const corners = 2 ** dimensions;
  const place = (rank) => {
    const sum = [0, 0];
    for (let bit = 0; bit < dimensions; bit += 1) {
      if (rank % corners >> bit & 1) STEPS[bit].forEach((way, axis) => { sum[axis] += way; });
    }
    return rank < corners ? sum : [sum[0] + BEYOND[0], sum[1] + BEYOND[1]];
  };
  return Array.from({ length: total }, (_, rank) => place(rank));
}

function drawing(nodes, edges) {
  const at = places(nodes.length);
  const of = new Map(nodes.map((node) => [node.node, { ...node, at: at[node.rank] }]));
  const xs = at.map(([x]) => x);
  const ys = at.map(([, y]) => y);
  const [left, top] = [Math.min(...xs) - 50, Math.min(...ys) - 40];
  const size = [Math.max(...xs) - left + 50, Math.max(...ys) - top + 40];
  const drawn = shape("svg", { viewBox: [left, top, ...size].join(" "), width: size[0], height: size[1], "aria-hidden": "true" });
  for (const edge of edges) {
    const [a, b] = [of.get(edge.node).at, of.get(edge.partner).at];
    const lag = (edge.partner_lacks ?? 0) + (edge.node_lacks ?? 0);
    drawn.append(shape("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: lag ? "edge behind" : "edge" }));
    if (lag) {
      drawn.append(shape("text", { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 - 6, class: "lag" }, compact(lag)));
    }
  }
  for (const { node, answers, sweeps, at: [x, y] } of of.values()) {
    const kind = !answers ? "corner bad" : sweeps?.is_running ? "corner running" : "corner";
    drawn.append(shape("circle", { cx: x, cy: y, r: 21, class: kind }),
      shape("text", { x, y: y + 5, class: "corner-name" }, answers ? String(node) : `${node} !`));
  }
  return drawn;
}

function standing({ answers, sweeps }) {
  if (!answers) return ["bad", "silent"];
  return sweeps?.is_running ? ["good", "sweeps"] : ["good", "rests"];
}

/** The steps that sweeping nodes are in; they seldom differ by more than one. */
function step(nodes) {
  const running = new Set(nodes.map((node) => node.step).filter(Boolean));
  return [...running].join(", ") || "none runs";
}

const lack = (value) => (value === null ? "–" : count(value));

export function create(root) {
  const summary = figures();
  const picture = element("div", { class: "cube", role: "img" });
  const legend = element("p", { class: "hint" }, "Lines are pairs that exchange; a dashed one has a number of changes that one side lacks. A filled corner sweeps, one with ! is silent.");
  const nodes = table("Nodes of the cube", [
    { title: "Node", text: (row) => String(row.node) },
    { title: "Rank", number: true, text: (row) => String(row.rank) },
    { title: "State", draw: (cell, row) => state(cell, ...standing(row)) },
    { title: "Sweep", number: true, text: (row) => count(row.sweeps?.sweep) },
    { title: "Step", text: (row) => row.step ?? "–" },
    { title: "Sweeps", number: true, text: (row) => count(row.sweeps?.sweep_count) },
    { title: "Broken", number: true, text: (row) => count(row.sweeps?.broken_sweep_count) },
    { title: "Last took", number: true, text: (row) => (row.sweeps?.last_sweep_ms == null ? "–" : `${count(row.sweeps.last_sweep_ms)} ms`) },
  ], (row) => row.node);
  const pairs = table("Pairs that exchange", [
    { title: "Pair", text: (row) => `${row.node} – ${row.partner}` },
    { title: "Step", text: (row) => row.step },
    { title: "The first lacks", number: true, text: (row) => lack(row.node_lacks) },
    { title: "The second lacks", number: true, text: (row) => lack(row.partner_lacks) },
  ], (row) => `${row.node}-${row.partner}`);
  const filters = table("Replicated filters", [
    { title: "Filter", text: (row) => row.name },
    { title: "Settled copies", number: true, text: (row) => `${row.settled_count} of ${row.copy_count}` },
    { title: "Largest lag", number: true, text: (row) => count(row.lag_max) },
    { title: "Converged in", number: true, text: (row) => (row.convergence_ms === null ? "–" : row.convergence_ms < 1000 ? `${row.convergence_ms} ms` : span(row.convergence_ms / 1000)) },
    { title: "Sent", number: true, text: (row) => bytes(row.sent_bytes) },
    { title: "Received", number: true, text: (row) => bytes(row.received_bytes) },
    { title: "Refused", number: true, text: (row) => count(row.refused_count) },
  ], (row) => row.name);
  const none = element("p", { class: "empty" }, "No replicated filter that you may read. ",
    element("code", {}, "umbel filter create seen --capacity 1M --replicated"), " makes one, with a copy on every node.");
  root.append(summary.element, panel("Hypercube", legend, picture, nodes.element, element("details", {}, element("summary", {}, "Pairs in figures"), pairs.element)),
    panel("Replicated filters", filters.element, none));

  return ({ cube }) => {
    const own = cube.own_sweeps;
    const lag = cube.edges.reduce((sum, edge) => sum + (edge.node_lacks ?? 0) + (edge.partner_lacks ?? 0), 0);
    summary.show([
      ["Nodes", count(cube.nodes.length), `dimensions: ${Math.floor(Math.log2(Math.max(cube.nodes.length, 1)))}`],
      ["Sweep", count(own.sweep), own.is_running ? "runs on this node" : "was this node’s last"],
      ["Step", step(cube.nodes), `of ${count(cube.step_count)} in a sweep`],
      ["Broken", `${count(own.broken_sweep_count)} of ${count(own.sweep_count)}`, "sweeps since this node started"],
      ["Lag", compact(lag), "changes, over all pairs"],
      ["Filters", count(cube.filter_count), "replicated"],
    ]);
    picture.hidden = cube.nodes.length < 2 || cube.nodes.length > NODES_DRAWN_MAX;
    legend.hidden = picture.hidden;
    if (!picture.hidden) picture.replaceChildren(drawing(cube.nodes, cube.edges));
    set(picture, "aria-label", `Hypercube of ${cube.nodes.length} nodes and ${cube.edges.length} pairs that exchange. The tables below tell the same.`);
    nodes.show(cube.nodes);
    pairs.show(cube.edges);
    filters.show(cube.filters);
    filters.element.hidden = !cube.filters.length;
    none.hidden = cube.filters.length > 0;
  };
}
