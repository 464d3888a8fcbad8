//! Copies for tests, and exchanges between them.

use std::ops::Deref;

use umbel_codec::frames;
use umbel_filter::{
    Blocked, Contains, HashFunction, HashRange, ItemHasher, SingleShotShape, StoredSingleShot,
};

use super::*;
use crate::hypercube::delta::{Delta, DeltaContent, DeltaError, DeltaQuestion};
use crate::hypercube::topology::{Cube, CubeRank};

pub(super) const KINDS: [Kind; 2] = [Kind::Blocked, Kind::SingleShot];

pub(super) const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

pub(super) fn empty(kind: Kind) -> AnyFilter {
    match kind {
        Kind::Blocked => AnyFilter::Blocked(Blocked::new(HashRange::WHOLE, 50, 6).unwrap()),
        _ => {
            let shape = SingleShotShape::new(HashRange::WHOLE, 100_000).unwrap();
            AnyFilter::SingleShot(StoredSingleShot::new(shape))
        }
    }
}

pub(super) fn options(node: u64, log_entries: usize) -> ReplicaOptions {
    ReplicaOptions {
        node: NodeId(node),
        filter: FilterId(12),
        generation: Generation(1),
        log: node,
        key: KEY,
        log_bytes_max: log_entries * ENTRY_BYTES,
        payload_bytes_max: 1 << 10,
    }
}

pub(super) fn copy(node: u64, kind: Kind, log_entries: usize) -> Replica {
    Replica::new(options(node, log_entries), empty(kind)).unwrap()
}

pub(super) fn hashes(items: std::ops::Range<u64>) -> Vec<ItemHash> {
    items.map(|item| ItemHasher::Xxh3 { seed: 7 }.hash(&item.to_le_bytes())).collect()
}

/// Inserts absent items, as a node does.
pub(super) fn insert(copy: &mut Replica, items: std::ops::Range<u64>) -> Vec<ItemHash> {
    let mut absent = hashes(items);
    absent.retain(|hash| !copy.filter().contains(*hash));
    copy.insert(&absent, &mut Vec::new()).unwrap();
    absent
}

/// A filter with these items.
pub(super) fn filter_of(kind: Kind, items: std::ops::Range<u64>) -> AnyFilter {
    let mut filter = empty(kind);
    filter.insert_batch(&hashes(items), &mut Vec::new()).unwrap();
    filter
}

/// A delta and its frames, as they are sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) delta: Delta,
    pub(super) frames: Vec<Vec<u8>>,
}

impl Sent {
    /// The same with another delta.
    pub(super) fn with(&self, change: impl FnOnce(&mut Delta)) -> Self {
        let mut other = self.clone();
        change(&mut other.delta);
        other
    }
}

impl Deref for Sent {
    type Target = Delta;

    fn deref(&self) -> &Delta {
        &self.delta
    }
}

impl Replica {
    /// The answer to a partner's question, with its frames, as a node sends them.
    pub(super) fn answer(
        &mut self,
        from: NodeId,
        question: &DeltaQuestion,
    ) -> Result<Sent, DeltaError> {
        let DeltaReply { delta, changes } = self.reply(from, question)?;
        let frames = match changes {
            Some(changes) => changes.into_frames(),
            None => {
                let ReplicaOptions { key, payload_bytes_max, .. } = self.options;
                frames(&self.filter, key, payload_bytes_max).map(Result::unwrap).collect()
            }
        };
        Ok(Sent { delta, frames })
    }

    /// Merges the answer to the last question, as a node does.
    pub(super) fn merge(&mut self, from: NodeId, sent: &Sent) -> Result<u64, DeltaError> {
        let Sent { delta, frames } = sent;
        match delta.content {
            DeltaContent::Changes => {
                self.check_answer(from, delta)?;
                let (reader, mut changes) = (self.reader(), ReadChanges::default());
                for frame in frames {
                    reader.read(from, frame, &mut changes)?;
                }
                self.merge_changes(from, delta, changes)
            }
            DeltaContent::Whole => {
                self.begin_whole(from, delta)?;
                let mut new_bit_count = 0;
                for frame in frames {
                    new_bit_count += self.merge_whole_frame(from, delta, frame)?;
                }
                self.end_whole(from, delta, new_bit_count)
            }
        }
    }
}

/// The cost of exchanges.
#[derive(Default)]
pub(super) struct Cost {
    pub(super) deltas: u64,
    pub(super) wholes: u64,
    pub(super) bytes: u64,
}

impl Cost {
    fn count(&mut self, delta: &Sent) {
        self.deltas += 1;
        self.wholes += u64::from(delta.content == DeltaContent::Whole);
        self.bytes += delta.frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }
}

/// The answer of one copy to another.
pub(super) fn answer(copies: &mut [Replica], from: usize, to: usize) -> Sent {
    let (answering, asking) = (copies[from].options().node, copies[to].options().node);
    let question = copies[to].ask(answering);
    copies[from].answer(asking, &question).unwrap()
}

/// One sweep, with all copies in lock step.
pub(super) fn sweep(copies: &mut [Replica]) -> Cost {
    let cube = Cube::new(copies.len()).unwrap();
    let mut cost = Cost::default();
    copies.iter_mut().for_each(Replica::begin_sweep);
    for step in cube.steps() {
        let mut answers = Vec::new();
        for to in 0..copies.len() {
            let pairing = cube.pairing(CubeRank(to as u32), step);
            if let Some(pairing) = pairing.filter(|pairing| pairing.receives) {
                let from = pairing.partner.0 as usize;
                answers.push((from, to, answer(copies, from, to)));
            }
        }
        for (from, to, delta) in answers {
            cost.count(&delta);
            let from = copies[from].options().node;
            copies[to].merge(from, &delta).unwrap();
        }
    }
    cost
}

pub(super) fn copies(count: usize, kind: Kind, log_entries: usize) -> Vec<Replica> {
    let mut copies: Vec<Replica> =
        (1..=count as u64).map(|node| copy(node, kind, log_entries)).collect();
    let cube = Cube::new(count).unwrap();
    for (rank, copy) in copies.iter_mut().enumerate() {
        let partners = cube.partners(CubeRank(rank as u32));
        copy.set_partners(
            &partners.iter().map(|rank| NodeId(rank.0 as u64 + 1)).collect::<Vec<_>>(),
        );
    }
    copies
}

pub(super) fn assert_equal_to(copies: &[Replica], expected: &AnyFilter) {
    for copy in copies {
        assert!(copy.filter() == expected, "{} differs", copy.options().node);
    }
}
