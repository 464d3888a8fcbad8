//! The laws of joining, a twin that keeps items and their slices, and places that do not change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::hash::ItemHasher;
use crate::words;

const BLOCKS: u64 = 4;
const PROBES: u32 = 6;
const SLICES: u32 = 3;

/// A ring and its bits.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    ring: SliceRing,
    bits: Blocked,
}

impl Held {
    fn new(own: u64) -> Self {
        let ring = SliceRing::new(BLOCKS, PROBES, SLICES).unwrap();
        let bits = Blocked::with_shape(ring.block_shape()).unwrap();
        let mut held = Self { ring, bits };
        held.advance(own);
        held
    }

    fn advance(&mut self, own: u64) {
        self.ring.advance(&mut self.bits, own);
    }

    fn insert(&mut self, number: u64, item: u16) -> Option<Insertion> {
        self.ring.insert(&mut self.bits, number, hash(item))
    }

    /// Whether the other one could be joined, and was.
    fn join(&mut self, other: &Self) -> bool {
        let theirs = other.ring.newest();
        if self.ring.follow(&mut self.bits, theirs).is_err() {
            return false;
        }
        self.ring.merge_part(&mut self.bits, theirs, &other.bits).unwrap();
        true
    }

    /// What a join decides: clocks may differ.
    fn content(&self) -> (u64, Vec<u64>) {
        (self.ring.newest(), self.bits.words().to_vec())
    }

    fn has(&self, item: u16) -> bool {
        self.ring.contains(&self.bits, self.ring.own(), hash(item))
    }
}

fn hash(item: u16) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&item.to_le_bytes())
}

/// The slow twin: for each slice the probes that were put into it, for ever.
#[derive(Clone, Default)]
struct Twin {
    slices: BTreeMap<u64, BTreeSet<(u64, u32)>>,
    own: u64,
    newest: u64,
}

fn probe(item: u16) -> (u64, u32) {
    let hash = hash(item);
    // Of few blocks: ⌊hi · 4 / 2^64⌋.
    (hash.hi() >> 62, (hash.lo() >> 32) as u32)
}

impl Twin {
    fn advance(&mut self, own: u64) {
        self.own = self.own.max(own);
        self.newest = self.newest.max(self.own);
        let oldest = self.newest.saturating_sub(u64::from(SLICES) + 1);
        self.slices.retain(|number, _| *number >= oldest);
    }

    fn insert(&mut self, number: u64, item: u16) {
        let oldest = self.newest.saturating_sub(u64::from(SLICES) + 1);
        if (oldest..=self.newest).contains(&number) {
            self.slices.entry(number).or_default().insert(probe(item));
        }
    }

    fn join(&mut self, other: &Self) {
        if other.newest <= self.own + 1 {
            self.newest = self.newest.max(other.newest);
            for (number, probes) in &other.slices {
                self.slices.entry(*number).or_default().extend(probes);
            }
            self.advance(self.own);
        }
    }

    /// Of each slice that the ring holds, the filter of what is in it, at its place.
    fn bits(&self) -> Vec<u64> {
        let places = u64::from(SLICES) + 2;
        let whole = Blocked::new(HashRange::WHOLE, BLOCKS * places, PROBES);
        let mut whole = whole.unwrap();
        for (number, probes) in &self.slices {
            for (block, seed) in probes {
                whole.insert_probe(number % places * BLOCKS + block, *seed);
            }
        }
        whole.words().to_vec()
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Tick(usize, u64),
    Insert(usize, u64, u16),
    Join(usize, usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0_usize..3, 0_u64..3).prop_map(|(at, by)| Act::Tick(at, by)),
        (0_usize..3, 0_u64..7, any::<u16>())
            .prop_map(|(at, back, item)| Act::Insert(at, back, item)),
        (0_usize..3, 0_usize..3).prop_map(|(to, from)| Act::Join(to, from)),
    ];
    vec(act, 0..60)
}

#[test]
fn an_item_is_there_for_its_slices_and_one_and_no_longer() {
    let mut held = Held::new(100);
    assert_eq!(held.insert(100, 1), Some(Insertion::New));
    assert_eq!(held.insert(100, 1), Some(Insertion::Present));
    for own in 100..=103 {
        held.advance(own);
        assert!(held.has(1), "{own}");
        assert_eq!(held.ring.newest_with(&held.bits, own, hash(1)), Some(100));
    }
    // Nobody has told the ring, and then somebody does; its bits are gone one slice later.
    assert!(!held.ring.contains(&held.bits, 104, hash(1)));
    held.advance(104);
    assert!(!held.has(1) && words::count_ones(held.bits.words()) > 0);
    held.advance(105);
    assert_eq!(words::count_ones(held.bits.words()), 0);
}

#[test]
fn a_clock_far_ahead_empties_nobody_elses_ring() {
    let (mut ours, mut ahead) = (Held::new(100), Held::new(1_000));
    ours.insert(100, 1);
    let error = AheadOfClock { theirs: 1_000, own: 100 };
    assert_eq!(ours.ring.follow(&mut ours.bits, 1_000), Err(error));
    assert!(
        error.to_string().starts_with("slice 1000 of time, where the clock here is in slice 100")
    );
    assert!(!ours.join(&ahead) && ours.has(1));
    // It takes nothing of what is long gone for it.
    assert!(ahead.join(&ours) && !ahead.has(1));
    assert_eq!(ours.ring.newest(), 100);
}

#[test]
fn one_slice_ahead_is_followed_and_costs_nothing() {
    let (mut ours, mut ahead) = (Held::new(103), Held::new(104));
    ours.insert(100, 1);
    ahead.insert(104, 2);
    assert!(ours.join(&ahead));
    assert_eq!((ours.ring.own(), ours.ring.newest()), (103, 104));
    // By its own clock it is within the window until slice 103 ends.
    assert!(ours.has(1) && ours.has(2));
    // What came in slice 100 is out of the other's question, and is here for whoever is behind it.
    assert!(ahead.join(&ours) && !ahead.has(1));
    let mut behind = Held::new(103);
    assert!(behind.join(&ahead) && behind.has(1));
}

#[test]
fn late_bits_of_an_old_slice_do_not_come_back() {
    let (mut ours, mut late) = (Held::new(100), Held::new(100));
    late.insert(100, 1);
    ours.advance(105);
    // Slice 105 has the place that 100 had.
    assert!(ours.join(&late));
    assert_eq!(words::count_ones(ours.bits.words()), 0);
    assert_eq!(ours.insert(100, 2), None);
    assert_eq!(ours.insert(106, 2), None);
}

#[test]
fn places_and_numbers_are_for_ever() {
    let held = Held::new(1_234);
    let probe = held.ring.probe_in(1_233, ItemHash::new(0x4000_0000_0000_0000, 9 << 32)).unwrap();
    // 1,233 mod 5 is 3, and a quarter of 4 blocks is 1.
    assert_eq!(probe, BlockProbe { block: 13, seed: 9 });
    assert_eq!(held.ring.number_of(13, 1_234), Some(1_233));
    assert_eq!((held.ring.oldest(), held.ring.own(), held.ring.newest()), (1_230, 1_234, 1_234));
    let restored = SliceRing::new(BLOCKS, PROBES, SLICES).unwrap().at(1_234, 0);
    assert_eq!(restored, held.ring);
    assert!(SliceRing::new(0, 6, 3).is_err() && SliceRing::new(4, 0, 3).is_err());
    assert!(SliceRing::new(u64::MAX / 2, 6, 62).is_err());
}

proptest! {
    #[test]
    fn rings_are_their_slow_twins(acts in acts()) {
        let mut rings = vec![Held::new(50), Held::new(50), Held::new(51)];
        let mut twins = vec![Twin::default(), Twin::default(), Twin::default()];
        for (twin, held) in twins.iter_mut().zip(&rings) {
            twin.advance(held.ring.own());
        }
        for act in acts {
            match act {
                Act::Tick(at, by) => {
                    let own = rings[at].ring.own() + by;
                    rings[at].advance(own);
                    twins[at].advance(own);
                }
                Act::Insert(at, back, item) => {
                    let number = rings[at].ring.newest() + 1 - back;
                    rings[at].insert(number, item);
                    twins[at].insert(number, item);
                }
                Act::Join(to, from) => {
                    let (held, twin) = (rings[from].clone(), twins[from].clone());
                    rings[to].join(&held);
                    twins[to].join(&twin);
                }
            }
            for (held, twin) in rings.iter().zip(&twins) {
                prop_assert_eq!(held.content(), (twin.newest, twin.bits()));
            }
        }
    }

    /// Where no clock refuses.
    #[test]
    fn joins_are_commutative_associative_and_idempotent(
        clocks in [60_u64..64, 60..64, 60..64],
        items in vec((0_usize..3, 0_u64..5, any::<u16>()), 0..40),
    ) {
        let mut rings = clocks.map(Held::new);
        for (at, back, item) in items {
            let number = rings[at].ring.newest() - back;
            rings[at].insert(number, item);
        }
        // Only clocks refuse, and only newest slices decide what comes of a join.
        rings.iter_mut().for_each(|held| held.ring = held.ring_of_late_clock());
        let joined = |left: &Held, right: &Held| {
            let mut left = left.clone();
            assert!(left.join(right));
            left
        };
        let [a, b, c] = &rings;
        prop_assert_eq!(joined(a, b).content(), joined(b, a).content());
        let (left, right) = (joined(&joined(a, b), c), joined(a, &joined(b, c)));
        prop_assert_eq!(left.content(), right.content());
        prop_assert_eq!(joined(&joined(a, b), b).content(), joined(a, b).content());
        prop_assert_eq!(joined(a, a).content(), a.content());
    }
}

impl Held {
    /// The ring with a clock that refuses nobody, and the same newest slice.
    fn ring_of_late_clock(&self) -> SliceRing {
        SliceRing { own: 100, ..self.ring }
    }
}
