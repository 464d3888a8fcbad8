//! Group counters of several workers, compared with a map; their frames are delivered in any order that
//! streams allow.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// What one worker knows in the end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Learned {
    groups: Vec<(RecordId, u64)>,
    sizes: BTreeMap<RecordId, (u64, Option<RecordPart>)>,
    is_done: bool,
}

/// How owners answer claims: with sizes, and with the parts of kept records.
#[derive(Clone, Copy, Debug)]
struct Options {
    sizes: bool,
    parts: bool,
}

const SIZES: Options = Options { sizes: true, parts: false };

/// Some parts, of records of different lengths.
fn part_of(record_id: RecordId) -> RecordPart {
    let (chunk, item) = (u64::from(record_id.chunk()), record_id.item());
    RecordPart { record: item / (chunk + 2), part: item % (chunk + 2) + 1 }
}

/// The workers, what each has dropped for which record, and the frames in transit, one queue per pair.
struct World {
    counters: Vec<GroupCounter>,
    dropped: Vec<BTreeMap<RecordId, u64>>,
    streams: Vec<Vec<VecDeque<Vec<u8>>>>,
    learned: Vec<Learned>,
}

impl World {
    /// Each worker has chunks with these numbers of record ids; `drops` are dropping workers and kept records.
    fn new(chunks: &[Vec<u64>], drops: &[(usize, RecordId)], options: Options) -> Self {
        let workers = chunks.len();
        let Options { sizes: sends_sizes, parts: names_parts } = options;
        let chunk_bases = bases(chunks);
        let shape = GroupCountShape { job: 5, attempt: 2, chunk_bases, sends_sizes, names_parts };
        let group_count =
            |me: usize| GroupCounter::new(WorkerId(me as u16), shape.clone()).unwrap();
        let mut dropped = vec![BTreeMap::new(); workers];
        drops.iter().for_each(|(worker, kept)| *dropped[*worker].entry(*kept).or_default() += 1);
        let mut world = Self {
            counters: (0..workers).map(group_count).collect(),
            dropped,
            streams: vec![vec![VecDeque::new(); workers]; workers],
            learned: vec![Learned::default(); workers],
        };
        for (me, record_counts) in chunks.iter().enumerate() {
            world
                .step(me, GroupCountInput::Begin { record_counts: record_counts.clone() })
                .unwrap();
        }
        world
    }

    fn step(&mut self, me: usize, input: GroupCountInput) -> Result<(), ExchangeError> {
        let mut outbox = Outbox::new();
        self.counters[me].step(input, &mut outbox)?;
        for output in outbox.take() {
            match output {
                GroupCountOutput::Send { to, frame } => {
                    self.streams[me][to.index()].push_back(frame);
                }
                GroupCountOutput::Read { owner, range } => {
                    let claims = self.claims(me, range);
                    self.step(me, GroupCountInput::Claims { owner, claims })?;
                }
                GroupCountOutput::Groups(groups) => {
                    self.learned[me].groups.extend(groups.iter().map(|g| (g.kept, g.size)));
                }
                GroupCountOutput::Name(record_ids) => {
                    let parts = record_ids.into_iter().map(part_of).collect();
                    self.step(me, GroupCountInput::Parts(parts))?;
                }
                GroupCountOutput::Sizes { range, sizes, .. } => {
                    let claims = self.claims(me, range);
                    assert_eq!(claims.len(), sizes.len());
                    let learned = |(claim, learned): (Claim, GroupSize)| {
                        (claim.kept, (learned.size, learned.part))
                    };
                    self.learned[me].sizes.extend(claims.into_iter().zip(sizes).map(learned));
                }
                GroupCountOutput::Done => {
                    assert!(!std::mem::replace(&mut self.learned[me].is_done, true));
                }
            }
        }
        Ok(())
    }

    fn claims(&self, me: usize, range: RecordRange) -> Vec<Claim> {
        let claims = self.dropped[me].range(range.start..range.end);
        claims.map(|(&kept, &dropped)| Claim { kept, dropped }).collect()
    }

    /// Pairs that have a frame in transit.
    fn waiting(&self) -> Vec<(usize, usize)> {
        let workers = 0..self.counters.len();
        let pairs = workers.clone().flat_map(|from| workers.clone().map(move |to| (from, to)));
        pairs.filter(|&(from, to)| !self.streams[from][to].is_empty()).collect()
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(bytes) = self.streams[from][to].pop_front() else { return };
        let from = WorkerId(from as u16);
        self.step(to, GroupCountInput::Frame { from, bytes }).unwrap();
    }

    /// Delivers all frames; `dice` chooses the order of the pairs.
    fn run(&mut self, dice: &[usize]) {
        let mut dice = dice.iter().cycle();
        loop {
            let waiting = self.waiting();
            if waiting.is_empty() {
                return;
            }
            let (from, to) = waiting[dice.next().unwrap_or(&0) % waiting.len()];
            self.deliver(from, to);
        }
    }
}

fn bases(chunks: &[Vec<u64>]) -> Vec<u32> {
    let before = |worker: usize| chunks[..worker].iter().map(Vec::len).sum::<usize>() as u32;
    (0..chunks.len()).map(before).collect()
}

/// What every worker must know, from one map over all drops.
fn expected(chunks: &[Vec<u64>], drops: &[(usize, RecordId)], options: Options) -> Vec<Learned> {
    let mut sizes: BTreeMap<RecordId, u64> = BTreeMap::new();
    drops.iter().for_each(|(_, kept)| *sizes.entry(*kept).or_insert(1) += 1);
    let bases = bases(chunks);
    let learned = |worker: usize| {
        let own = bases[worker]..bases[worker] + chunks[worker].len() as u32;
        let groups = sizes.iter().filter(|(kept, _)| own.contains(&kept.chunk()));
        let foreign = drops.iter().filter(|(_, kept)| !own.contains(&kept.chunk()));
        let claimed = foreign.filter(|(by, _)| (options.sizes || options.parts) && *by == worker);
        let part = |kept: RecordId| options.parts.then(|| part_of(kept));
        Learned {
            groups: groups.map(|(&kept, &size)| (kept, size)).collect(),
            sizes: claimed.map(|(_, kept)| (*kept, (sizes[kept], part(*kept)))).collect(),
            is_done: true,
        }
    };
    (0..chunks.len()).map(learned).collect()
}

/// Chunks of some workers, some of them empty, and drops for some of their records.
fn jobs() -> impl Strategy<Value = (Vec<Vec<u64>>, Vec<(usize, RecordId)>)> {
    let record_counts = prop_oneof![3 => 0u64..6, 1 => Just(70_000u64), 1 => Just(300_000u64)];
    let chunks = proptest::collection::vec(record_counts, 0..4);
    let workers = proptest::collection::vec(chunks, 1..5);
    workers.prop_flat_map(|chunks| {
        let drop = (any::<usize>(), any::<usize>(), any::<u64>());
        let drops = proptest::collection::vec(drop, 0..60);
        (Just(chunks), drops).prop_map(|(chunks, drops)| {
            let all: Vec<u64> = chunks.iter().flatten().copied().collect();
            let record_id = |(by, chunk, item): (usize, usize, u64)| {
                let chunk = chunk % all.len().max(1);
                let record_count = *all.get(chunk)?;
                // Many drops for few records, and for the last records of chunks.
                let item = if item % 3 == 0 { u64::MAX - item % 2 } else { item % 7 };
                (record_count > 0).then(|| {
                    (by % chunks.len(), RecordId::new(chunk as u32, item.min(record_count - 1)))
                })
            };
            let drops = drops.into_iter().filter_map(record_id).collect();
            (chunks, drops)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// For any order of frames, every worker learns its own groups and those that it has claimed, and no
    /// others.
    #[test]
    fn groups_are_those_of_one_map(
        (chunks, drops) in jobs(),
        (sizes, parts) in any::<(bool, bool)>(),
        dice in proptest::collection::vec(any::<usize>(), 1..40),
    ) {
        let options = Options { sizes, parts };
        let mut world = World::new(&chunks, &drops, options);
        world.run(&dice);
        prop_assert_eq!(world.learned, expected(&chunks, &drops, options));
    }

    /// Any frame at any time is either rejected without a change of state, or processed; it never causes a
    /// panic.
    #[test]
    fn any_frame_at_any_time_is_survived(
        (chunks, drops) in jobs(),
        kind in prop::sample::select(&FrameKind::ALL[..]),
        flags in 0u8..2,
        cell in 0u32..3,
        sequence in prop_oneof![Just(0u32), any::<u32>()],
        count in prop_oneof![0u32..4, any::<u32>()],
        covered in 0u32..4,
        payload in proptest::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..24),
        delivered in 0usize..40,
        from in 0u16..6,
        parts in any::<bool>(),
    ) {
        let options = Options { parts, ..SIZES };
        let mut world = World::new(&chunks, &drops, options);
        for _ in 0..delivered {
            if let Some(&(from, to)) = world.waiting().first() {
                world.deliver(from, to);
            }
        }
        let link = FrameLink { job: 5, sender: from, receiver: 0, attempt: 2 };
        let covered = if kind.is_verdict() { covered } else { 0 };
        let frame = Frame { kind, flags, param: 0, cell, sequence, count, covered, payload: &payload };
        let bytes = frame.encode(link);
        let refused = world.step(0, GroupCountInput::Frame { from: WorkerId(from), bytes }).is_err();
        if refused {
            world.run(&[7, 0, 3]);
            prop_assert_eq!(world.learned, expected(&chunks, &drops, options));
        }
    }
}

/// An invented claim with a valid checksum.
fn refusal(claims: &[Claim], sequence: u32) -> String {
    let mut world = World::new(&[vec![10], vec![10]], &[], SIZES);
    let range = RecordRange { start: RecordId::new(0, 0), end: RecordId::new(0, 10) };
    let payload = encode_claims(range, claims).remove(0).0;
    let (kind, count) = (FrameKind::Claims, claims.len() as u32);
    let frame = Frame {
        kind,
        flags: flag::LAST,
        param: 0,
        cell: 0,
        sequence,
        count,
        covered: 0,
        payload: &payload,
    };
    let bytes = frame.encode(FrameLink { job: 5, sender: 1, receiver: 0, attempt: 2 });
    let input = GroupCountInput::Frame { from: WorkerId(1), bytes };
    let error = world.step(0, input).unwrap_err();
    std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string)
}

#[test]
fn claims_on_what_is_not_there_and_beyond_all_numbers_are_refused() {
    let claim = |item, dropped| Claim { kept: RecordId::new(0, item), dropped };
    assert!(refusal(&[claim(10, 1)], 0).contains("`claims` is malformed"));
    assert!(refusal(&[claim(3, u64::MAX)], 0).contains("`claims` is malformed"));
    assert!(refusal(&[claim(3, 1)], 1).contains("`sequence` is 1, expected 0"));
}

#[test]
fn parts_that_were_not_asked_for_are_refused() {
    let drops = [(1, RecordId::new(0, 3)), (1, RecordId::new(0, 8))];
    let part = RecordPart { record: 0, part: 1 };
    let shape = GroupCountShape {
        job: 5,
        attempt: 2,
        chunk_bases: vec![0, 1],
        sends_sizes: false,
        names_parts: true,
    };
    let mut group_count = GroupCounter::new(WorkerId(0), shape).unwrap();
    let mut outbox = Outbox::new();
    let mut refuses = |parts: Vec<RecordPart>| {
        let outcome = group_count.step(GroupCountInput::Parts(parts), &mut outbox);
        matches!(outcome, Err(ExchangeError::Driver { .. }))
    };
    assert!(refuses(vec![]) && refuses(vec![part]));
    let mut world =
        World::new(&[vec![10], vec![10]], &drops, Options { sizes: false, parts: true });
    world.run(&[0]);
    let learned = |item| (RecordId::new(0, item), (2, Some(part_of(RecordId::new(0, item)))));
    assert_eq!(world.learned[1].sizes, BTreeMap::from([learned(3), learned(8)]));
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let shape = |chunk_bases: &[u32]| GroupCountShape {
        job: 0,
        attempt: 0,
        chunk_bases: chunk_bases.to_vec(),
        sends_sizes: false,
        names_parts: false,
    };
    for bases in [&[][..], &[1, 0], &[0, 1 << 24], &[0; 1025]] {
        assert!(shape(bases).validate().is_err(), "{bases:?}");
    }
    assert!(GroupCounter::new(WorkerId(2), shape(&[0, 1])).is_err());
}

/// The planned bits are the sent ones, if records are dropped as the plan assumes.
#[test]
fn measured_bits_are_those_of_the_plan() {
    const RECORDS: u64 = 20_000;
    let workers = 4usize;
    let chunks = vec![vec![RECORDS]; workers];
    let entries = (workers as u64 * RECORDS) as f64;
    for (delta, sends_sizes) in [(0.006, false), (0.042, true), (0.17, true), (0.5, false)] {
        let mut number = 99u64;
        let mut drops = Vec::new();
        let mut kept = std::collections::BTreeSet::new();
        while (kept.len() as f64) < entries * delta / 2.0 {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (by, other) =
                ((number >> 60) as usize % workers, (number >> 50) as usize % workers);
            let record_id = RecordId::new(other as u32, (number >> 20) % RECORDS);
            if by != other && kept.insert(record_id) {
                drops.push((by, record_id));
            }
        }
        let mut world = World::new(&chunks, &drops, Options { sizes: sends_sizes, parts: false });
        world.run(&[1]);
        let kinds = [FrameKind::Claims, FrameKind::Sizes];
        let bits = |group_count: &GroupCounter| {
            kinds.map(|kind| group_count.report().payload_bits(kind)).iter().sum::<u64>()
        };
        let measured = world.counters.iter().map(bits).sum::<u64>() as f64 / entries;
        let planned = group_count_bits_per_entry(delta, workers as u32, sends_sizes, false);
        let ratio = measured / planned;
        assert!((0.95..1.05).contains(&ratio), "{delta}: {measured} measured, {planned} planned");
    }
}
