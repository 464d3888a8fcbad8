//! Tallies of several workers whose frames are delivered in any order that streams allow, against a map.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// What one worker is told in the end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Told {
    groups: Vec<(Place, u64)>,
    sizes: BTreeMap<Place, (u64, Option<RecordPart>)>,
    is_done: bool,
}

/// What the workers tell: sizes to those who have dropped records, and which part each kept one is.
#[derive(Clone, Copy, Debug)]
struct Tells {
    sizes: bool,
    parts: bool,
}

const SIZES: Tells = Tells { sizes: true, parts: false };

/// Some parts, of records of different lengths.
fn part_of(place: Place) -> RecordPart {
    let (chunk, item) = (u64::from(place.chunk()), place.item());
    RecordPart { record: item / (chunk + 2), part: item % (chunk + 2) + 1 }
}

/// Workers, what each has dropped for which record, and the frames on their way, a queue a pair.
struct World {
    tallies: Vec<Tally>,
    dropped: Vec<BTreeMap<Place, u64>>,
    streams: Vec<Vec<VecDeque<Vec<u8>>>>,
    told: Vec<Told>,
}

impl World {
    /// Each worker has chunks of so many places; `drops` are dropping workers and kept places.
    fn new(chunks: &[Vec<u64>], drops: &[(usize, Place)], tells: Tells) -> Self {
        let workers = chunks.len();
        let Tells { sizes: tells_sizes, parts: names_parts } = tells;
        let chunk_bases = bases(chunks);
        let shape = TallyShape { job: 5, attempt: 2, chunk_bases, tells_sizes, names_parts };
        let tally = |me: usize| Tally::new(WorkerId(me as u16), shape.clone()).unwrap();
        let mut dropped = vec![BTreeMap::new(); workers];
        drops.iter().for_each(|(worker, kept)| *dropped[*worker].entry(*kept).or_default() += 1);
        let mut world = Self {
            tallies: (0..workers).map(tally).collect(),
            dropped,
            streams: vec![vec![VecDeque::new(); workers]; workers],
            told: vec![Told::default(); workers],
        };
        for (me, places) in chunks.iter().enumerate() {
            world.step(me, TallyInput::Begin { places: places.clone() }).unwrap();
        }
        world
    }

    fn step(&mut self, me: usize, input: TallyInput) -> Result<(), ExchangeError> {
        let mut outbox = Outbox::new();
        self.tallies[me].step(input, &mut outbox)?;
        for output in outbox.take() {
            match output {
                TallyOutput::Send { to, frame } => self.streams[me][to.index()].push_back(frame),
                TallyOutput::Read { keeper, range } => {
                    let claims = self.claims(me, range);
                    self.step(me, TallyInput::Claims { keeper, claims })?;
                }
                TallyOutput::Groups(groups) => {
                    self.told[me].groups.extend(groups.iter().map(|g| (g.kept, g.size)));
                }
                TallyOutput::Name(places) => {
                    let parts = places.into_iter().map(part_of).collect();
                    self.step(me, TallyInput::Parts(parts))?;
                }
                TallyOutput::Sizes { range, sizes, .. } => {
                    let claims = self.claims(me, range);
                    assert_eq!(claims.len(), sizes.len());
                    let told =
                        |(claim, told): (Claim, GroupSize)| (claim.kept, (told.size, told.part));
                    self.told[me].sizes.extend(claims.into_iter().zip(sizes).map(told));
                }
                TallyOutput::Done => assert!(!std::mem::replace(&mut self.told[me].is_done, true)),
            }
        }
        Ok(())
    }

    fn claims(&self, me: usize, range: PlaceRange) -> Vec<Claim> {
        let claims = self.dropped[me].range(range.start..range.end);
        claims.map(|(&kept, &dropped)| Claim { kept, dropped }).collect()
    }

    /// Pairs that have a frame on its way.
    fn waiting(&self) -> Vec<(usize, usize)> {
        let workers = 0..self.tallies.len();
        let pairs = workers.clone().flat_map(|from| workers.clone().map(move |to| (from, to)));
        pairs.filter(|&(from, to)| !self.streams[from][to].is_empty()).collect()
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(bytes) = self.streams[from][to].pop_front() else { return };
        let from = WorkerId(from as u16);
        self.step(to, TallyInput::Frame { from, bytes }).unwrap();
    }

    /// Delivers everything, the pairs in an order that the numbers choose.
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

/// What every worker must be told, by one map over all.
fn expected(chunks: &[Vec<u64>], drops: &[(usize, Place)], tells: Tells) -> Vec<Told> {
    let mut sizes: BTreeMap<Place, u64> = BTreeMap::new();
    drops.iter().for_each(|(_, kept)| *sizes.entry(*kept).or_insert(1) += 1);
    let bases = bases(chunks);
    let told = |worker: usize| {
        let own = bases[worker]..bases[worker] + chunks[worker].len() as u32;
        let groups = sizes.iter().filter(|(kept, _)| own.contains(&kept.chunk()));
        let foreign = drops.iter().filter(|(_, kept)| !own.contains(&kept.chunk()));
        let claimed = foreign.filter(|(by, _)| (tells.sizes || tells.parts) && *by == worker);
        let part = |kept: Place| tells.parts.then(|| part_of(kept));
        Told {
            groups: groups.map(|(&kept, &size)| (kept, size)).collect(),
            sizes: claimed.map(|(_, kept)| (*kept, (sizes[kept], part(*kept)))).collect(),
            is_done: true,
        }
    };
    (0..chunks.len()).map(told).collect()
}

/// Chunks of some workers, some of them empty, and records dropped for some of their places.
fn jobs() -> impl Strategy<Value = (Vec<Vec<u64>>, Vec<(usize, Place)>)> {
    let places = prop_oneof![3 => 0u64..6, 1 => Just(70_000u64), 1 => Just(300_000u64)];
    let chunks = proptest::collection::vec(places, 0..4);
    let workers = proptest::collection::vec(chunks, 1..5);
    workers.prop_flat_map(|chunks| {
        let drop = (any::<usize>(), any::<usize>(), any::<u64>());
        let drops = proptest::collection::vec(drop, 0..60);
        (Just(chunks), drops).prop_map(|(chunks, drops)| {
            let all: Vec<u64> = chunks.iter().flatten().copied().collect();
            let place = |(by, chunk, item): (usize, usize, u64)| {
                let chunk = chunk % all.len().max(1);
                let places = *all.get(chunk)?;
                // Many of them on few places, and on the last ones of chunks.
                let item = if item % 3 == 0 { u64::MAX - item % 2 } else { item % 7 };
                (places > 0)
                    .then(|| (by % chunks.len(), Place::new(chunk as u32, item.min(places - 1))))
            };
            let drops = drops.into_iter().filter_map(place).collect();
            (chunks, drops)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever the order of frames, every worker hears of its groups and of those that it has claimed, and no other.
    #[test]
    fn groups_are_those_of_one_map(
        (chunks, drops) in jobs(),
        (sizes, parts) in any::<(bool, bool)>(),
        dice in proptest::collection::vec(any::<usize>(), 1..40),
    ) {
        let tells = Tells { sizes, parts };
        let mut world = World::new(&chunks, &drops, tells);
        world.run(&dice);
        prop_assert_eq!(world.told, expected(&chunks, &drops, tells));
    }

    /// Any frame at any time: refused and without a trace, or taken; never a panic.
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
        let tells = Tells { parts, ..SIZES };
        let mut world = World::new(&chunks, &drops, tells);
        for _ in 0..delivered {
            if let Some(&(from, to)) = world.waiting().first() {
                world.deliver(from, to);
            }
        }
        let link = FrameLink { job: 5, sender: from, receiver: 0, attempt: 2 };
        let covered = if kind.is_verdict() { covered } else { 0 };
        let frame = Frame { kind, flags, param: 0, cell, sequence, count, covered, payload: &payload };
        let bytes = frame.encode(link);
        let refused = world.step(0, TallyInput::Frame { from: WorkerId(from), bytes }).is_err();
        if refused {
            world.run(&[7, 0, 3]);
            prop_assert_eq!(world.told, expected(&chunks, &drops, tells));
        }
    }
}

/// A made-up claim with a good checksum.
fn refusal(claims: &[Claim], sequence: u32) -> String {
    let mut world = World::new(&[vec![10], vec![10]], &[], SIZES);
    let range = PlaceRange { start: Place::new(0, 0), end: Place::new(0, 10) };
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
    let input = TallyInput::Frame { from: WorkerId(1), bytes };
    let error = world.step(0, input).unwrap_err();
    std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string)
}

#[test]
fn claims_on_what_is_not_there_and_beyond_all_numbers_are_refused() {
    let claim = |item, dropped| Claim { kept: Place::new(0, item), dropped };
    assert!(refusal(&[claim(10, 1)], 0).contains("`claims` is malformed"));
    assert!(refusal(&[claim(3, u64::MAX)], 0).contains("`claims` is malformed"));
    assert!(refusal(&[claim(3, 1)], 1).contains("`sequence` is 1, expected 0"));
}

#[test]
fn parts_that_were_not_asked_for_are_refused() {
    let drops = [(1, Place::new(0, 3)), (1, Place::new(0, 8))];
    let part = RecordPart { record: 0, part: 1 };
    let shape = TallyShape {
        job: 5,
        attempt: 2,
        chunk_bases: vec![0, 1],
        tells_sizes: false,
        names_parts: true,
    };
    let mut tally = Tally::new(WorkerId(0), shape).unwrap();
    let mut outbox = Outbox::new();
    let mut refuses = |parts: Vec<RecordPart>| {
        let outcome = tally.step(TallyInput::Parts(parts), &mut outbox);
        matches!(outcome, Err(ExchangeError::Driver { .. }))
    };
    assert!(refuses(vec![]) && refuses(vec![part]));
    let mut world = World::new(&[vec![10], vec![10]], &drops, Tells { sizes: false, parts: true });
    world.run(&[0]);
    let told = |item| (Place::new(0, item), (2, Some(part_of(Place::new(0, item)))));
    assert_eq!(world.told[1].sizes, BTreeMap::from([told(3), told(8)]));
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let shape = |chunk_bases: &[u32]| TallyShape {
        job: 0,
        attempt: 0,
        chunk_bases: chunk_bases.to_vec(),
        tells_sizes: false,
        names_parts: false,
    };
    for bases in [&[][..], &[1, 0], &[0, 1 << 24], &[0; 1025]] {
        assert!(shape(bases).validate().is_err(), "{bases:?}");
    }
    assert!(Tally::new(WorkerId(2), shape(&[0, 1])).is_err());
}

/// What is planned is what is sent, where records are dropped as the plan takes them to be.
#[test]
fn measured_bits_are_those_of_the_plan() {
    const PLACES: u64 = 20_000;
    let workers = 4usize;
    let chunks = vec![vec![PLACES]; workers];
    let entries = (workers as u64 * PLACES) as f64;
    for (delta, tells_sizes) in [(0.006, false), (0.042, true), (0.17, true), (0.5, false)] {
        let mut number = 99u64;
        let mut drops = Vec::new();
        let mut kept = std::collections::BTreeSet::new();
        while (kept.len() as f64) < entries * delta / 2.0 {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (by, other) =
                ((number >> 60) as usize % workers, (number >> 50) as usize % workers);
            let place = Place::new(other as u32, (number >> 20) % PLACES);
            if by != other && kept.insert(place) {
                drops.push((by, place));
            }
        }
        let mut world = World::new(&chunks, &drops, Tells { sizes: tells_sizes, parts: false });
        world.run(&[1]);
        let kinds = [FrameKind::Claims, FrameKind::Sizes];
        let bits =
            |tally: &Tally| kinds.map(|kind| tally.report().payload_bits(kind)).iter().sum::<u64>();
        let measured = world.tallies.iter().map(bits).sum::<u64>() as f64 / entries;
        let planned = tally_bits_per_entry(delta, workers as u32, tells_sizes, false);
        let ratio = measured / planned;
        assert!((0.95..1.05).contains(&ratio), "{delta}: {measured} measured, {planned} planned");
    }
}
