//! Compares forecasts with what happens.

use umbel_engine::NodeId;
use umbel_engine::shard::probe_hashes;
use umbel_filter::sizing::ArrivalRate;
use umbel_filter::{AnyFilter, CellCount, Describe, HashRange, Insert, Insertion, Kind};

use super::*;

fn blocks(block_count: u64) -> SliceShape {
    let kind = Kind::Blocked.id();
    SliceShape::Blocks { kind, block_count, block_bits: 512, probe_count: 6 }
}

#[test]
fn room_is_used_up_by_what_comes() {
    // A million items at 1 %.
    let room = Room::of(&blocks(19_359), 1_000_000, 0.01);
    let at_rate = room.at_rate.unwrap();
    assert!((at_rate / 1e6 - 1.0).abs() < 0.001, "{at_rate}");
    let outlook = room.outlook(Some(400_000.0), Some(100.0));
    assert_eq!(outlook.seconds_to_capacity, Some(6_000.0));
    assert!((outlook.seconds_to_rate.unwrap() - 6_000.0).abs() < 20.0);
    let quarter = room.share(2, 8).outlook(Some(100_000.0), Some(25.0));
    assert_eq!(quarter.seconds_to_capacity, Some(6_000.0));
    // In turn: nothing arrives, nothing is known, all bits are set, there are more items than planned.
    assert_eq!(room.outlook(Some(0.0), Some(0.0)).seconds_to_capacity, None);
    assert_eq!(room.outlook(Some(0.0), None), Outlook::default());
    assert_eq!(room.outlook(None, None).seconds_to_rate, Some(0.0));
    assert_eq!(room.outlook(Some(2e6), None).seconds_to_capacity, Some(0.0));
}

#[test]
fn what_grows_is_never_used_up() {
    let shape = SliceShape::Scalable { item_count: 10, false_positive_rate: 0.01 };
    let room = Room::of(&shape, 10, 0.01);
    let outlook = room.outlook(Some(9.0), Some(1.0));
    assert_eq!(outlook, Outlook { new_per_second: Some(1.0), ..Outlook::default() });
}

const CAPACITY: u64 = 40_000;
const RATE: f64 = 0.01;
const SHARDS: u32 = 4;
const PER_SECOND: u64 = 100;

/// A filter's shards under a steady load, with a clock that the test sets.
struct Steady {
    shape: SliceShape,
    cells: Vec<(HashRange, AnyFilter, u64, ArrivalRate)>,
    second: u64,
}

impl Steady {
    fn new(kind: Kind) -> Self {
        let count = CellCount::new(SHARDS).unwrap();
        let shape = SliceShape::plan(kind, CAPACITY, RATE, count).unwrap();
        let cell = |cell| {
            let range = HashRange::cell(cell, count);
            (range, shape.create(range).unwrap(), 0, ArrivalRate::new(0))
        };
        Self { shape, cells: (0..SHARDS).map(cell).collect(), second: 0 }
    }

    /// Inserts a hundred random items.
    fn pass_second(&mut self) {
        self.second += 1;
        for hash in probe_hashes(self.second, HashRange::WHOLE, u32::try_from(PER_SECOND).unwrap())
        {
            let mut cells = self.cells.iter_mut();
            let (_, filter, new_count, arrivals) =
                cells.find(|(range, ..)| range.contains(hash.hi())).unwrap();
            if filter.insert(hash) == Ok(Insertion::New) {
                *new_count += 1;
                arrivals.add(self.second * 1_000, 1.0);
            }
        }
    }

    /// What the shards' leaders report.
    fn slices(&self) -> Vec<SliceLoad> {
        let slice = |(_, filter, new_count, arrivals): &(_, AnyFilter, u64, ArrivalRate)| {
            let described = filter.describe();
            SliceLoad {
                leader: NodeId(1),
                position_count: described.position_count,
                one_count: described.one_count,
                item_count: described.item_count.map(|estimate| estimate.item_count),
                false_positive_rate: described.false_positive_rate,
                new_count: *new_count,
                memory_bytes: described.memory_bytes,
                room: filter.room(),
                probes: RateProbes::default(),
                unexplained_one_count: None,
                new_per_second: arrivals.per_second(self.second * 1_000),
            }
        };
        self.cells.iter().map(slice).collect()
    }

    fn outlook(&self) -> Outlook {
        let slices = self.slices();
        let per_second = new_per_second(slices.iter());
        let items = slices.iter().map(|slice| slice.item_count).sum();
        let room = Room::of(&self.shape, CAPACITY, RATE);
        let seconds_to_growth = seconds_to_growth(slices.iter(), per_second);
        Outlook { seconds_to_growth, ..room.outlook(items, per_second) }
    }

    fn rate_now(&self) -> f64 {
        let rates = self.cells.iter().map(|(_, filter, ..)| filter.describe().false_positive_rate);
        rates.sum::<f64>() / f64::from(SHARDS)
    }

    /// Levels of the shard with the most levels.
    fn level_count(&self) -> usize {
        let levels = |filter: &AnyFilter| match filter {
            AnyFilter::Scalable(filter) => filter.levels().len(),
            _ => 1,
        };
        self.cells.iter().map(|(_, filter, ..)| levels(filter)).max().unwrap()
    }
}

/// Checks forecasts, each with the second in which it was made, against what happened in second `happened`.
fn assert_near(forecasts: &[(u64, Option<f64>)], happened: u64) {
    for &(second, forecast) in forecasts {
        let truth = f64::from(u32::try_from(happened - second).unwrap());
        let forecast = forecast.unwrap();
        assert!((forecast / truth - 1.0).abs() < 0.1, "second {second}: {forecast} for {truth}");
    }
}

/// After one, two, three and four fifths of the time, the forecast of when the filter reaches the planned
/// rate is right within a tenth.
#[test]
fn the_planned_rate_comes_when_it_was_forecast() {
    for kind in [Kind::Blocked, Kind::Classic] {
        let mut steady = Steady::new(kind);
        let mut forecasts = Vec::new();
        while steady.rate_now() < RATE {
            steady.pass_second();
            if steady.second.is_multiple_of(80) && steady.second <= 320 {
                forecasts.push((steady.second, steady.outlook().seconds_to_rate));
            }
        }
        assert_eq!(forecasts.len(), 4, "{kind}");
        assert_near(&forecasts, steady.second);
        assert!(steady.outlook().seconds_to_rate.unwrap() < 20.0, "{kind}");
    }
}

/// For a growing filter the forecast tells when the open level is full, also for the levels after the first.
#[test]
fn the_next_level_opens_when_it_was_forecast() {
    let mut steady = Steady::new(Kind::Scalable);
    let (mut forecasts, mut levels) = (Vec::new(), 1);
    while levels < 4 {
        steady.pass_second();
        if steady.level_count() > levels {
            assert!(forecasts.len() > 1);
            assert_near(&forecasts, steady.second);
            (forecasts, levels) = (Vec::new(), levels + 1);
        } else if steady.second.is_multiple_of(80) && forecasts.len() < 4 {
            let outlook = steady.outlook();
            assert_eq!((outlook.seconds_to_rate, outlook.seconds_to_capacity), (None, None));
            forecasts.push((steady.second, outlook.seconds_to_growth));
        }
    }
}
