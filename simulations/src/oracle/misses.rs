//! How often stable filters may miss items, computed from the log entries alone: when each item was
//! last inserted, and the sum of the expected misses of all repeated items. This model does not use
//! cells.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::shard::{Bitmap, InsertPart, SliceSpec};
use umbel_filter::sizing::stable_missed_rate;
use umbel_filter::{BlockShape, HashRange, ItemHash, Kind, Shape, StablePace};

use super::slice_models::SliceModel;
use crate::counters;

/// Name of the invariant.
pub(crate) const NAME: &str = "misses_are_few";

/// Number of standard deviations above the expected value that still count as chance: not one of a
/// million runs is so far off.
const DEVIATIONS: f64 = 6.0;

/// When each item was last inserted into a slice of a stable filter, and what was missed since.
#[derive(Clone, Debug)]
pub(crate) struct Misses {
    spec: SliceSpec,
    shape: BlockShape,
    pace: StablePace,
    /// Number of inserts.
    inserts: u64,
    /// Number of the last insert of each item.
    last: BTreeMap<ItemHash, u64>,
    /// Expected misses of repeated items, and the actual ones.
    expected: f64,
    missed: u64,
}

impl SliceModel for Misses {
    fn of(spec: &SliceSpec, range: HashRange) -> Option<Self> {
        let Ok(Shape::Blocks(shape)) = spec.shape.shape(range) else { return None };
        let pace = StablePace::of_number(shape.pace()).filter(|_| shape.kind() == Kind::Stable)?;
        let (inserts, expected, missed) = (0, 0.0, 0);
        let (spec, last) = (spec.clone(), BTreeMap::new());
        Some(Self { spec, shape, pace, inserts, last, expected, missed })
    }

    /// With half the cells: what came before is looked at anew.
    fn half(&self, range: HashRange) -> Self {
        Self::of(&self.spec, range).expect("a slice of this shape was made before")
    }

    /// Looked at anew, as after a split.
    fn join(&self, _: &Self, range: HashRange) -> Self {
        self.half(range)
    }

    fn clear(&mut self) {
        self.inserts = 0;
        self.last.clear();
    }

    /// Returns a description if more was missed than possible.
    fn insert(&mut self, part: &InsertPart, reply: &Bitmap) -> Option<String> {
        let new: BTreeSet<usize> = reply.iter_ones().collect();
        for (at, hash) in part.proposed.iter_ones().zip(part.hashes.to_vec()) {
            let StablePace { lowered_cells, cell_max } = self.pace;
            if let Some(last) = self.last.insert(hash, self.inserts) {
                counters::checked(NAME, 1);
                let (probes, cells) = (self.shape.probe_count(), self.shape.position_count());
                let age = self.inserts - last;
                self.expected += stable_missed_rate(probes, lowered_cells, cell_max, cells, age);
                self.missed += u64::from(new.contains(&at));
            }
            self.inserts += 1;
        }
        let most = self.expected + DEVIATIONS * (self.expected.sqrt() + 1.0);
        let (filter, missed) = (part.filter, self.missed);
        let what = || format!("{missed} items of {filter} were missed, expected {most:.1} at most");
        (missed as f64 > most).then(what)
    }
}
