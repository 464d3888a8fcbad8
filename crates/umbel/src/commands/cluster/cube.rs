//! The hypercube in which nodes exchange replicated filters, drawn with the nodes' numbers.
//!
//! A node's place is its rank: its position among the live nodes, sorted by number. Up to eight corners
//! are drawn; more are listed in a table:
//!
//! ```text
//!     7───────8        nodes 1 to 11, of which 9, 10 and 11 are no corners:
//!    /│      /│
//!   5───────6 │        beyond: 9→1 10→2 11→3
//!   │ │     │ │
//!   │ 3─────│─4        across dimension 0 lie 1 and 2, across dimension 1 lie 1 and 3,
//!   │/      │/         across dimension 2 lie 1 and 5
//!   1───────2
//! ```

use crate::printer::{Rows, numbers};
use serde_json::{Value, json};
use umbel_client::StatusResponse;
use umbel_client::proto::{ExchangeStatus, NodeStatus};
use umbel_replicated_engine::hypercube::{Cube, CubeRank, Step};

/// Marks a node that does not answer.
const SILENT_MARK: char = '!';

/// Most corners that a drawing has.
const DRAWN_CORNERS_MAX: u32 = 8;

/// A node and whether it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Corner {
    node: u64,
    is_reachable: bool,
}

/// The live nodes in the order of their ranks.
pub(super) struct CubeView {
    cube: Cube,
    /// By rank.
    nodes: Vec<Corner>,
}

impl CubeView {
    /// The cube of a cluster; None without live nodes, or with more nodes than a cube can have.
    pub(super) fn of(status: &StatusResponse) -> Option<Self> {
        // A draining node takes part until it is removed.
        let is_live = |node: &&NodeStatus| matches!(node.state.as_str(), "live" | "draining");
        let corner =
            |node: &NodeStatus| Corner { node: node.node, is_reachable: node.is_reachable };
        let mut nodes: Vec<Corner> = status.nodes.iter().filter(is_live).map(corner).collect();
        nodes.sort_unstable_by_key(|corner| corner.node);
        Some(Self { cube: Cube::new(nodes.len()).ok()?, nodes })
    }

    /// Number of nodes.
    pub(super) const fn node_count(&self) -> usize {
        self.nodes.len()
    }

    fn label(&self, rank: usize) -> String {
        let Corner { node, is_reachable } = self.nodes[rank];
        if is_reachable { node.to_string() } else { format!("{node}{SILENT_MARK}") }
    }

    /// The node with which the node of this rank exchanges in a step.
    fn partner(&self, rank: usize, step: Step) -> Option<u64> {
        let rank = u32::try_from(rank).expect("a cube has at most 4,096 nodes");
        let pairing = self.cube.pairing(CubeRank(rank), step)?;
        Some(self.nodes[pairing.partner.0 as usize].node)
    }

    /// The partners of a node across each dimension; none if it is no corner.
    fn partners(&self, rank: usize) -> impl Iterator<Item = u64> {
        let dimensions = 0..self.cube.dimension_count();
        dimensions.filter_map(move |dimension| self.partner(rank, Step::Across(dimension)))
    }

    /// The drawing; None for a single node, and for more corners than can be drawn.
    pub(super) fn drawing(&self) -> Option<String> {
        let corner_count = self.cube.corner_count();
        if self.node_count() < 2 || corner_count > DRAWN_CORNERS_MAX {
            return None;
        }
        let labels: Vec<String> = (0..corner_count as usize).map(|rank| self.label(rank)).collect();
        let mut text = canvas(&labels);
        let beyond: Vec<String> = (labels.len()..self.node_count())
            .map(|rank| format!("{}→{}", self.label(rank), self.label(rank - labels.len())))
            .collect();
        if !beyond.is_empty() {
            text += &format!("beyond: {}\n", beyond.join(" "));
        }
        if self.nodes.iter().any(|corner| !corner.is_reachable) {
            text += &format!("{SILENT_MARK} does not answer\n");
        }
        Some(text)
    }

    /// A table with one row per node.
    pub(super) fn rows(&self) -> Rows {
        let heading = &["", "rank", "node", "reachable", "hands to or from", "across dimensions"];
        let mut rows = Rows::new(heading, &[1, 2, 4]);
        if self.node_count() < 2 {
            return rows;
        }
        for (rank, corner) in self.nodes.iter().enumerate() {
            rows.push(vec![
                "cube".to_owned(),
                rank.to_string(),
                corner.node.to_string(),
                if corner.is_reachable { "yes" } else { "no" }.to_owned(),
                self.partner(rank, Step::HandIn).map_or("-".to_owned(), |node| node.to_string()),
                numbers(&self.partners(rank).collect::<Vec<_>>()),
            ]);
        }
        rows
    }

    /// As a JSON array.
    pub(super) fn json(&self) -> Value {
        let place = |(rank, corner): (usize, &Corner)| {
            json!({
                "rank": rank,
                "node": corner.node,
                "hands": self.partner(rank, Step::HandIn),
                "across": self.partners(rank).collect::<Vec<_>>(),
            })
        };
        self.nodes.iter().enumerate().map(place).collect()
    }
}

/// Draws 2, 4 or 8 labels as a line, a square or a cube.
fn canvas(labels: &[String]) -> String {
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    // How far the back face is shifted to the right against the front face, in columns.
    let depth = (widest + 1).max(2);
    let side = 2 * depth + 4;
    let mut canvas = Canvas::default();
    if let [front_left, front_right, back_left, back_right, top @ ..] = labels
        && !top.is_empty()
    {
        canvas.edge(4, depth, side, back_left, back_right);
        canvas.edge(0, depth, side, &top[2], &top[3]);
        for left in [0, side] {
            // The vertical edges of the front face cover the lower edge of the back face.
            canvas.put(1, left + depth / 2, "/");
            canvas.put(5, left + depth / 2, "/");
            (1..4).for_each(|row| canvas.put(row, left + depth, "│"));
            (3..6).for_each(|row| canvas.put(row, left, "│"));
        }
        canvas.edge(2, 0, side, &top[0], &top[1]);
        canvas.edge(6, 0, side, front_left, front_right);
    } else {
        let mut row = 0;
        for pair in labels.chunks_exact(2).rev() {
            canvas.edge(row, 0, side, &pair[0], &pair[1]);
            row += 3;
        }
        for left in if labels.len() == 4 { vec![0, side] } else { Vec::new() } {
            (1..3).for_each(|row| canvas.put(row, left, "│"));
        }
    }
    canvas.text()
}

/// Rows of characters; a later character overwrites an earlier one.
#[derive(Default)]
struct Canvas {
    rows: Vec<Vec<char>>,
}

impl Canvas {
    fn put(&mut self, row: usize, column: usize, text: &str) {
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Vec::new());
        }
        let row = &mut self.rows[row];
        let end = column + text.chars().count();
        if row.len() < end {
            row.resize(end, ' ');
        }
        row.splice(column..end, text.chars());
    }

    /// A horizontal edge with the labels of its two corners.
    fn edge(&mut self, row: usize, column: usize, side: usize, left: &str, right: &str) {
        self.put(row, column, &"─".repeat(side));
        self.put(row, column, left);
        self.put(row, column + side, right);
    }

    fn text(&self) -> String {
        let line = |row: &Vec<char>| format!("{}\n", row.iter().collect::<String>().trim_end());
        self.rows.iter().map(line).collect()
    }
}

/// The exchange statistics of the answering node, as facts.
pub(super) fn exchange_facts(exchange: &ExchangeStatus) -> Vec<(&'static str, String)> {
    let whole = exchange.sweep_count.saturating_sub(exchange.broken_sweep_count);
    vec![
        ("replicated filters", exchange.filter_count.to_string()),
        ("sweep", exchange.sweep.to_string()),
        ("is running", if exchange.is_running { "yes" } else { "no" }.to_owned()),
        ("last sweep, ms", exchange.last_sweep_ms.map_or("-".to_owned(), |ms| ms.to_string())),
        ("sweeps whole", whole.to_string()),
        ("sweeps broken", exchange.broken_sweep_count.to_string()),
        ("bytes sent", exchange.sent_bytes.to_string()),
        ("bytes received", exchange.received_bytes.to_string()),
        ("refused", exchange.refused_count.to_string()),
    ]
}

/// The exchange statistics of the answering node, as a JSON object.
pub(super) fn exchange_json(exchange: &ExchangeStatus) -> Value {
    json!({
        "replicated_filters": exchange.filter_count,
        "sweep": exchange.sweep,
        "running": exchange.is_running,
        "sweeps": exchange.sweep_count,
        "broken_sweeps": exchange.broken_sweep_count,
        "last_sweep_ms": exchange.last_sweep_ms,
        "sent_bytes": exchange.sent_bytes,
        "received_bytes": exchange.received_bytes,
        "refused": exchange.refused_count,
    })
}
