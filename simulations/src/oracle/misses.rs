//! How often stable filters may miss items, told from the entries of the logs alone: when each item came last, and the
//! sum of what the formula says for all that came again. It knows nothing of cells.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::shard::{Bitmap, InsertPart, ShardCommand, ShardReply};
use umbel_engine::{FilterId, Generation, RequestId};
use umbel_filter::sizing::stable_missed_rate;
use umbel_filter::{BlockShape, HashRange, ItemHash, Kind, Shape, StablePace};

/// Name of the invariant.
pub(crate) const NAME: &str = "misses_are_few";

/// Standard deviations above the formula that are chance: of a million runs none is so far off.
const DEVIATIONS: f64 = 6.0;

/// The stable filters of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardMisses {
    slices: BTreeMap<FilterId, SliceMisses>,
}

/// One slice's.
#[derive(Debug)]
struct SliceMisses {
    shape: BlockShape,
    pace: StablePace,
    generation: Generation,
    /// Number of inserts.
    inserts: u64,
    /// That of the last one of each item.
    last: BTreeMap<ItemHash, u64>,
    /// What the formula says of those that came again, and what was missed of them.
    expected: f64,
    missed: u64,
}

impl SliceMisses {
    fn clear(&mut self) {
        self.inserts = 0;
        self.last.clear();
    }

    /// Counts what a part that was applied missed of its items, which come in; says if that is too much.
    fn insert(&mut self, part: &InsertPart, reply: &Bitmap) -> Option<String> {
        let new: BTreeSet<usize> = reply.iter_ones().collect();
        for (at, hash) in part.proposed.iter_ones().zip(part.hashes.to_vec()) {
            let StablePace { lowered_cells, cell_max } = self.pace;
            if let Some(last) = self.last.insert(hash, self.inserts) {
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

impl ShardMisses {
    /// Follows an entry of a shard of this range, and says what its reply should not have been. `was_answered` tells
    /// requests that had their answer before: they get it again.
    pub(crate) fn follow(
        &mut self,
        range: HashRange,
        command: &ShardCommand,
        reply: &ShardReply,
        mut was_answered: impl FnMut(RequestId) -> bool,
    ) -> Option<String> {
        match (command, reply) {
            (ShardCommand::CreateSlice(spec), ShardReply::Done(Ok(()))) => {
                let shape = spec.shape.shape(range).ok();
                let Some(Shape::Blocks(shape)) = shape else { return None };
                let pace = StablePace::of_number(shape.pace());
                if let Some(pace) = pace.filter(|_| shape.kind() == Kind::Stable) {
                    let (generation, last) = (spec.generation, BTreeMap::new());
                    let (inserts, expected, missed) = (0, 0.0, 0);
                    let empty =
                        SliceMisses { shape, pace, generation, inserts, last, expected, missed };
                    self.slices.entry(spec.filter).or_insert(empty);
                }
                None
            }
            (ShardCommand::DropSlice(filter), _) => {
                self.slices.remove(filter);
                None
            }
            (ShardCommand::ClearSlice { filter, generation }, ShardReply::Done(Ok(()))) => {
                if let Some(slice) = self.slices.get_mut(filter)
                    && *generation > slice.generation
                {
                    slice.generation = *generation;
                    slice.clear();
                }
                None
            }
            (ShardCommand::Insert(parts), ShardReply::Inserted(replies)) => {
                let (mut wrong, mut here) = (None, BTreeSet::new());
                for (part, reply) in parts.iter().zip(replies) {
                    let id = part.request.map(|stamp| stamp.id);
                    let again = id.is_some_and(|id| was_answered(id) || !here.insert(id));
                    let Some(slice) = self.slices.get_mut(&part.filter) else { continue };
                    let (Ok(reply), false) = (reply, again) else { continue };
                    wrong = wrong.or(slice.insert(part, reply));
                }
                wrong
            }
            _ => None,
        }
    }
}
