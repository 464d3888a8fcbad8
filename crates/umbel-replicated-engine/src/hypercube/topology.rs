//! Which nodes exchange with each other in which step: the hypercube.
//!
//! Nodes have ranks 0 to P − 1. The first 2^d of them, where 2^d is the largest power of two up to P,
//! are the corners of a cube of d dimensions. In round i, a corner's partner is the one whose rank
//! differs only in bit i. After d rounds every corner has what each of them had before, because every
//! bit in which two ranks differ has been crossed (Johnsson & Ho 1989, doi:10.1109/12.29465, all-to-all
//! broadcast). Each node beyond the corners sends what it has to a corner first, and receives the result
//! last:
//!
//! ```text
//!        6───────7        P = 11: corners 0 to 7, and 8, 9, 10 beyond
//!       /│      /│
//!      4───────5 │        step    hand-in    8→0  9→1  10→2
//!      │ │     │ │                across 1   0↔1  2↔3  4↔5  6↔7
//!      │ 2─────│─3                across 2   0↔2  1↔3  4↔6  5↔7
//!      │/      │/                 across 4   0↔4  1↔5  2↔6  3↔7
//!      0───────1                  hand-out   0→8  1→9  2→10
//! ```
//!
//! One sweep takes d·2^d messages, plus two for every node beyond. All-to-all exchange would take P·(P −
//! 1).

use std::fmt;

use thiserror::Error;

use crate::limits::CUBE_NODE_COUNT_MAX;

/// A node's position in the cube: its index in the sorted list of the epoch's nodes.
///
/// ```
/// assert_eq!(umbel_replicated_engine::hypercube::CubeRank(5).to_string(), "rank 5");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CubeRank(pub u32);

impl fmt::Display for CubeRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// One step of a sweep. Every node goes through the steps in this order.
///
/// ```
/// use umbel_replicated_engine::hypercube::Step;
///
/// assert_eq!(Step::Across(3).to_string(), "dimension 3");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    // The derived order is that of a sweep, so the variants must stay in this order.
    /// Each node beyond the corners sends what it has to its corner.
    HandIn,
    /// Corners exchange across a dimension, numbered from 0.
    Across(u32),
    /// Each corner sends what it has to its node beyond, if there is one.
    HandOut,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HandIn => f.write_str("hand-in"),
            Self::Across(dimension) => write!(f, "dimension {dimension}"),
            Self::HandOut => f.write_str("hand-out"),
        }
    }
}

/// A node's exchange in one step.
///
/// ```
/// use umbel_replicated_engine::hypercube::{Cube, Pairing, CubeRank, Step};
///
/// let cube = Cube::new(3)?;
/// let hand_in = Pairing { partner: CubeRank(0), sends: true, receives: false };
/// assert_eq!(cube.pairing(CubeRank(2), Step::HandIn), Some(hand_in));
/// # Ok::<(), umbel_replicated_engine::hypercube::CubeSizeOutOfRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pairing {
    /// The rank of the partner.
    pub partner: CubeRank,
    /// Whether this node sends what the partner lacks.
    pub sends: bool,
    /// Whether the partner sends what this node lacks.
    pub receives: bool,
}

/// A cube cannot have this many nodes. Split the cluster, or use a partitioned filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{node_count} nodes in a hypercube, expected 1 to {CUBE_NODE_COUNT_MAX}")]
pub struct CubeSizeOutOfRange {
    /// The requested number.
    pub node_count: usize,
}

/// The cube of a number of nodes.
///
/// ```
/// use umbel_replicated_engine::hypercube::{Cube, CubeRank, Step};
///
/// let cube = Cube::new(8)?;
/// assert_eq!((cube.dimension_count(), cube.message_count()), (3, 24));
/// let partners: Vec<_> = cube.steps().filter_map(|step| cube.pairing(CubeRank(5), step)).collect();
/// assert_eq!(partners.iter().map(|pairing| pairing.partner.0).collect::<Vec<_>>(), [4, 7, 1]);
/// # Ok::<(), umbel_replicated_engine::hypercube::CubeSizeOutOfRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cube {
    /// 1 to [`CUBE_NODE_COUNT_MAX`].
    node_count: u32,
}

impl Cube {
    /// The cube of this many nodes.
    ///
    /// # Errors
    /// If there are no nodes, or more than [`CUBE_NODE_COUNT_MAX`].
    pub fn new(node_count: usize) -> Result<Self, CubeSizeOutOfRange> {
        match u32::try_from(node_count) {
            Ok(count @ 1..=CUBE_NODE_COUNT_MAX) => Ok(Self { node_count: count }),
            _ => Err(CubeSizeOutOfRange { node_count }),
        }
    }

    /// Number of nodes, P.
    #[must_use]
    pub const fn node_count(self) -> u32 {
        self.node_count
    }

    /// Number of dimensions, d = ⌊log2 P⌋.
    #[must_use]
    pub const fn dimension_count(self) -> u32 {
        self.node_count.ilog2()
    }

    /// Number of corners, 2^d.
    #[must_use]
    pub const fn corner_count(self) -> u32 {
        1 << self.dimension_count()
    }

    /// Number of nodes beyond the corners.
    #[must_use]
    pub const fn beyond_count(self) -> u32 {
        self.node_count - self.corner_count()
    }

    /// The steps of a sweep, in order: d, plus two if P is not a power of two.
    pub fn steps(self) -> impl DoubleEndedIterator<Item = Step> + Clone {
        let hands = self.beyond_count() > 0;
        let across = (0..self.dimension_count()).map(Step::Across);
        let hand_in = hands.then_some(Step::HandIn);
        hand_in.into_iter().chain(across).chain(hands.then_some(Step::HandOut))
    }

    /// The next step, or None after the last one of a sweep.
    #[must_use]
    pub fn step_behind(self, step: Step) -> Option<Step> {
        self.steps().find(|&next| next > step)
    }

    /// The exchange of a node in a step, or None if it has none.
    #[must_use]
    pub fn pairing(self, rank: CubeRank, step: Step) -> Option<Pairing> {
        let CubeRank(rank) = rank;
        let corners = self.corner_count();
        if rank >= self.node_count {
            return None;
        }
        let is_corner = rank < corners;
        match step {
            Step::Across(dimension) => {
                (is_corner && dimension < self.dimension_count()).then(|| Pairing {
                    partner: CubeRank(rank ^ (1 << dimension)),
                    sends: true,
                    receives: true,
                })
            }
            Step::HandIn | Step::HandOut if is_corner => {
                let beyond = rank + corners;
                let receives = step == Step::HandIn;
                (beyond < self.node_count).then_some(Pairing {
                    partner: CubeRank(beyond),
                    sends: !receives,
                    receives,
                })
            }
            Step::HandIn | Step::HandOut => {
                let sends = step == Step::HandIn;
                Some(Pairing { partner: CubeRank(rank - corners), sends, receives: !sends })
            }
        }
    }

    /// All partners of a node in a sweep, by ascending rank.
    #[must_use]
    pub fn partners(self, rank: CubeRank) -> Vec<CubeRank> {
        let pairings = self.steps().filter_map(|step| self.pairing(rank, step));
        let mut partners: Vec<CubeRank> = pairings.map(|pairing| pairing.partner).collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }

    /// Number of messages of one sweep, over all nodes: d·2^d, plus two for every node beyond.
    #[must_use]
    pub const fn message_count(self) -> u64 {
        let corners = self.dimension_count() as u64 * self.corner_count() as u64;
        corners + 2 * self.beyond_count() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All numbers of nodes up to this one are tested.
    const EVERY_COUNT: usize = 130;

    fn sizes() -> impl Iterator<Item = Cube> {
        (1..=EVERY_COUNT).chain([255, 256, 1000, 1024, 4095, 4096]).map(|p| Cube::new(p).unwrap())
    }

    #[test]
    fn pairings_are_mutual_and_at_most_one_a_step() {
        for cube in sizes() {
            let mut message_count = 0;
            for step in cube.steps() {
                for rank in (0..cube.node_count()).map(CubeRank) {
                    let Some(pairing) = cube.pairing(rank, step) else { continue };
                    let back = cube.pairing(pairing.partner, step).unwrap();
                    assert_ne!(pairing.partner, rank);
                    assert_eq!(back.partner, rank, "{cube:?} {step} {rank}");
                    assert_eq!((pairing.sends, pairing.receives), (back.receives, back.sends));
                    message_count += u64::from(pairing.sends);
                }
            }
            assert_eq!(message_count, cube.message_count());
        }
    }

    /// Uses sets of ranks instead of filters: after a sweep every node has everything.
    #[test]
    fn one_sweep_spreads_everything_to_everybody() {
        for cube in (1..=EVERY_COUNT).map(|p| Cube::new(p).unwrap()) {
            let count = cube.node_count();
            let mut has: Vec<BTreeSet<u32>> =
                (0..count).map(|rank| BTreeSet::from([rank])).collect();
            for step in cube.steps() {
                let before = has.clone();
                for rank in 0..count {
                    let pairing = cube.pairing(CubeRank(rank), step);
                    if let Some(pairing) = pairing.filter(|pairing| pairing.receives) {
                        has[rank as usize].extend(&before[pairing.partner.0 as usize]);
                    }
                }
            }
            assert!(has.iter().all(|has| has.len() == count as usize), "{cube:?}");
        }
    }

    #[test]
    fn steps_are_as_few_as_the_theory_says() {
        for cube in sizes() {
            let node_count = cube.node_count();
            let expected = if node_count.is_power_of_two() {
                node_count.ilog2()
            } else {
                node_count.ilog2() + 2
            };
            assert_eq!(cube.steps().count(), expected as usize);
            let steps: Vec<Step> = cube.steps().collect();
            assert!(steps.is_sorted());
            for pair in steps.windows(2) {
                assert_eq!(cube.step_behind(pair[0]), Some(pair[1]));
            }
            assert_eq!(steps.last().and_then(|&last| cube.step_behind(last)), None);
        }
    }

    #[test]
    fn nobody_has_more_partners_than_dimensions_and_one() {
        for cube in sizes() {
            for rank in (0..cube.node_count()).map(CubeRank) {
                let partners = cube.partners(rank);
                let most = cube.dimension_count() as usize + 1;
                assert!(partners.len() <= most && partners.is_sorted());
            }
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for node_count in [0, 4097, usize::MAX] {
            assert_eq!(Cube::new(node_count), Err(CubeSizeOutOfRange { node_count }));
        }
        let cube = Cube::new(5).unwrap();
        assert_eq!(cube.pairing(CubeRank(5), Step::HandIn), None);
        assert_eq!(cube.pairing(CubeRank(1), Step::Across(2)), None);
        assert_eq!(cube.pairing(CubeRank(1), Step::HandIn), None);
    }
}
