//! Random filters of every kind, and what the tests do with their frames.

use proptest::prelude::*;
use umbel_codec::{FrameKey, FrameView, frames};
use umbel_filter::words::count_ones;
use umbel_filter::{
    AGING_BLOCK_BITS, AnyFilter, BlockShape, CellCount, Describe, HashFunction, HashRange, Insert,
    ItemHash, ItemHasher, Kind, RedisBloom, RedisBloomShape, Scalable, ScalableShape, Shape,
    Sighting, SingleShotShape, StoredSingleShot,
};

pub(crate) const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

/// Enough memory for every filter of the tests.
pub(crate) const MEMORY: u64 = 1 << 26;

/// Ranges of all widths that leave every filter some positions.
pub(crate) fn ranges() -> impl Strategy<Value = HashRange> {
    let inside = (any::<u64>(), any::<u64>(), 0..20u32).prop_map(|(start, width, shift)| {
        let end = u128::from(start) + u128::from(width >> shift) + 1;
        HashRange::new(start, end.min(1 << 64)).unwrap()
    });
    prop_oneof![Just(HashRange::WHOLE), inside]
}

/// So many different items of the range.
pub(crate) fn items(range: HashRange, seed: u64, count: u64) -> Vec<ItemHash> {
    let hash = |item: u64| {
        let hasher = ItemHasher::Xxh3 { seed };
        let hash = hasher.hash(&item.to_le_bytes());
        let offset = (u128::from(hash.hi()) * range.width()) >> 64;
        ItemHash::new(range.start() + u64::try_from(offset).unwrap(), hash.lo())
    };
    (0..count).map(hash).collect()
}

/// An empty filter of an array kind.
pub(crate) fn array(shape: BlockShape) -> AnyFilter {
    AnyFilter::with_block_shape(shape).unwrap()
}

/// Positions that its frames say are set.
pub(crate) fn one_count(filter: &AnyFilter) -> u64 {
    match filter {
        // It describes what is set in both generations once.
        AnyFilter::Aging(filter) => count_ones(filter.words()),
        filter => filter.describe().one_count,
    }
}

/// A filter by what it was made from: short where a test prints it.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    shape: Shape,
    seed: u64,
    item_count: u64,
}

impl Recipe {
    pub(crate) fn filter(&self) -> AnyFilter {
        let mut filter = empty(self.shape);
        for (at, item) in (0..).zip(items(self.shape.range(), self.seed, self.item_count)) {
            match &mut filter {
                // A window may be full before.
                AnyFilter::Window(window) => {
                    window.advance(5, 9);
                    let _ = window.insert_at(item, 5 + at % 6, Sighting::First);
                }
                // So may these.
                AnyFilter::Quotient(filter) => drop(filter.insert(item)),
                AnyFilter::Cuckoo(filter) => drop(filter.insert(item)),
                filter => drop(filter.insert(item).unwrap()),
            }
        }
        filter
    }
}

fn array_shapes() -> impl Strategy<Value = BlockShape> {
    let kinds = prop_oneof![
        2..=5u8,
        Just(Kind::Window.id()),
        Just(Kind::Aging.id()),
        Just(Kind::Stable.id()),
        Just(Kind::Cuckoo.id()),
        Just(Kind::Quotient.id())
    ];
    let numbers = (ranges(), kinds, 1..60u64, 1..4u32, 1..=16u32, 1..1_000u64);
    numbers.prop_map(|(range, kind, blocks, lines, k, pace)| {
        let kind = Kind::from_id(kind).unwrap();
        let spreads = matches!(kind, Kind::Classic | Kind::Partitioned | Kind::Quotient);
        let lines = if spreads { lines } else { 1 };
        // A block fits into the smallest frames of the tests.
        let k = match kind {
            Kind::Window => k.min(5),
            Kind::Cuckoo => k.min(11),
            Kind::Quotient => k.min(8),
            _ => k,
        };
        if kind == Kind::Quotient {
            let shape = BlockShape::new(kind, range, blocks, 64 << (lines - 1), k).unwrap();
            return shape.with_count_bits(u32::try_from(pace % 8).unwrap()).unwrap();
        }
        if kind == Kind::Aging {
            let shape = BlockShape::new(kind, range, blocks, AGING_BLOCK_BITS, k).unwrap();
            return shape.with_pace(pace).unwrap();
        }
        let shape = BlockShape::new(kind, range, blocks, 512 * lines, k).unwrap();
        // Any number from 1 to 1,000 behind any from 1 to 15.
        if kind == Kind::Stable {
            shape.with_pace(16 * pace + 1 + pace % 15).unwrap()
        } else {
            shape
        }
    })
}

/// Filters of kinds that merge, of any fill.
pub(crate) fn merging_filters() -> impl Strategy<Value = Recipe> {
    let shape = prop_oneof![
        3 => array_shapes().prop_map(Shape::from),
        1 => single_shot_shapes().prop_map(Shape::from),
    ];
    let item_count = prop_oneof![0..30u64, 0..2_000u64];
    (shape, any::<u64>(), item_count).prop_map(|(shape, seed, item_count)| Recipe {
        shape,
        seed,
        item_count,
    })
}

/// Position counts of all magnitudes, powers of two and others.
pub(crate) fn single_shot_shapes() -> impl Strategy<Value = SingleShotShape> {
    (ranges(), 0..=60u32, 0..7u64).prop_map(|(range, bits, odd)| {
        SingleShotShape::new(range, ((1u64 << bits) + odd).min(1 << 60)).unwrap()
    })
}

/// Scalable filters of one to a few levels.
fn scalable_filters() -> impl Strategy<Value = Recipe> {
    (any::<u64>(), 1..200u64, 0..1_500u64, 1..4i32, 1..20u32).prop_map(
        |(seed, capacity, item_count, digits, cells)| {
            let rate = 0.1f64.powi(digits);
            let range = HashRange::cell(cells / 2, CellCount::new(cells).unwrap());
            let shape = ScalableShape::new(range, range.whole_of(capacity), rate).unwrap();
            Recipe { shape: shape.into(), seed, item_count }
        },
    )
}

/// Chains of one to a few links.
fn redis_bloom_filters() -> impl Strategy<Value = Recipe> {
    (any::<u64>(), 1..200u64, 0..1_500u64, 1..4i32, 1..4_u32).prop_map(
        |(seed, capacity, item_count, digits, expansion)| {
            let rate = 0.1f64.powi(digits);
            let shape = RedisBloomShape::new(capacity, rate, expansion).unwrap();
            // One link an item each is as many as are read.
            let item_count = if expansion == 1 { item_count.min(8 * capacity) } else { item_count };
            Recipe { shape: shape.into(), seed, item_count }
        },
    )
}

/// Any filter.
pub(crate) fn all_filters() -> impl Strategy<Value = Recipe> {
    prop_oneof![4 => merging_filters(), 1 => scalable_filters(), 1 => redis_bloom_filters()]
}

/// Payload sizes that cut most filters into a few frames; every block fits into them.
pub(crate) fn payload_bytes() -> impl Strategy<Value = usize> {
    // From one block of the largest that there are.
    prop_oneof![(704 + 16..1_000usize), (1_000..20_000usize)]
}

pub(crate) fn all_frames(filter: &AnyFilter, payload_bytes_max: usize) -> Vec<Vec<u8>> {
    frames(filter, KEY, payload_bytes_max).map(Result::unwrap).collect()
}

pub(crate) fn view(frame: &[u8]) -> FrameView<'_> {
    let (view, consumed_bytes) = FrameView::parse(frame).unwrap();
    assert_eq!(consumed_bytes, frame.len());
    view
}

/// The empty filter of this shape.
pub(crate) fn empty(shape: Shape) -> AnyFilter {
    match shape {
        Shape::Blocks(shape) => array(shape),
        Shape::SingleShot(shape) => StoredSingleShot::new(shape).into(),
        Shape::Scalable(shape) => {
            let (capacity, rate) = (shape.first_capacity(), shape.false_positive_rate());
            Scalable::new(shape.range(), capacity, rate).unwrap().into()
        }
        Shape::RedisBloom(shape) => RedisBloom::with_shape(shape).unwrap().into(),
    }
}

/// The empty filter of the same shape.
pub(crate) fn emptied(filter: &AnyFilter) -> AnyFilter {
    empty(filter.shape())
}
