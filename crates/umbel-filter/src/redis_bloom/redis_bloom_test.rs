//! Golden numbers of RedisBloom's layout, a slow twin, and headers that are none.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::capability::{Contains, Insert};
use crate::{Hex, ItemHasher};

fn hash(item: &str) -> ItemHash {
    ItemHasher::RedisBloom.hash(item.as_bytes())
}

fn with_numbers(shape: RedisBloomShape, count: u32) -> RedisBloom {
    let mut filter = RedisBloom::with_shape(shape).unwrap();
    for number in 0..count {
        filter.insert(hash(&number.to_string())).unwrap();
    }
    filter
}

/// By hand: a = 0x822b4f99b121f10d, b = 0x9d63d52a557f61c2, and (a + j · b mod 2^64) mod 1152.
#[test]
fn an_item_has_the_positions_of_redis_bloom() {
    let shape = RedisBloomShape::for_rate(100, 0.01).unwrap();
    let mut filter = RedisBloom::with_shape(shape).unwrap();
    assert_eq!(filter.insert(hash("foo")), Ok(Insertion::New));
    let positions = [269, 847, 145, 723, 21, 599, 25, 475];
    assert_eq!(filter.links()[0].positions(hash("foo")).collect::<Vec<_>>(), positions);
    let mut words = vec![0_u64; 24];
    for at in positions {
        words[usize::try_from(at / 64).unwrap()] |= 1 << (at % 64);
    }
    assert_eq!(filter.links()[0].words(), words);
    // 0.005 and |ln 0.005| / 0.480453013918201 as doubles.
    assert_eq!(
        Hex(&RedisBloomHeader::of(&filter).to_bytes()).to_string(),
        "0100000000000000010000000500000002000000\
         9000000000000000800400000000000001000000000000007b14ae47e17a743fe9862fb2350e2640\
         08000000640000000000000000"
    );
    assert_eq!(filter.insert(hash("foo")), Ok(Insertion::Present));
}

/// Sizes as `BF.INFO` and `BF.DEBUG` of RedisBloom tell them.
#[test]
fn sizes_are_those_of_redis_bloom() {
    let bytes = |shape: RedisBloomShape| shape.link(0).unwrap().byte_count();
    assert_eq!(bytes(RedisBloomShape::for_rate(100, 0.001).unwrap()), 200);
    assert_eq!(bytes(RedisBloomShape::new(3, 0.01, 2).unwrap().fixed()), 8);
    assert_eq!(bytes(RedisBloomShape::for_rate(1_000, 0.05).unwrap()), 960);

    let filter = with_numbers(RedisBloomShape::for_rate(10, 0.01).unwrap(), 100);
    let of = |what: fn(&RedisBloomLink) -> u64| filter.links().iter().map(what).collect::<Vec<_>>();
    assert_eq!(of(|link| link.shape().byte_count()), [16, 32, 72, 160]);
    assert_eq!(of(|link| link.shape().capacity()), [10, 20, 40, 80]);
    assert_eq!(of(RedisBloomLink::item_count), [10, 20, 40, 29]);

    let filter = with_numbers(RedisBloomShape::for_rate(100, 0.001).unwrap(), 4_000);
    let of = |what: fn(&RedisBloomLink) -> u64| filter.links().iter().map(what).collect::<Vec<_>>();
    assert_eq!(filter.item_count(), 3_997);
    assert_eq!(of(|link| link.shape().byte_count()), [200, 432, 936, 2_016, 4_320, 9_216]);
    assert_eq!(of(|link| link.shape().probe_count().into()), [11, 12, 13, 14, 15, 16]);
    let last = filter.links().last().unwrap();
    assert_eq!((last.item_count(), last.shape().false_positive_rate()), (897, 1.5625e-5));

    let links = |expansion| {
        with_numbers(RedisBloomShape::new(4, 0.005, expansion).unwrap(), 100).links().len()
    };
    assert_eq!([1, 2, 4].map(links), [23, 5, 4]);
}

#[test]
fn a_fixed_chain_is_full_and_still_answers() {
    let shape = RedisBloomShape::new(3, 0.01, 2).unwrap().fixed();
    let mut filter = with_numbers(shape, 3);
    let full = Err(InsertError::Full { item_count: 3 });
    assert_eq!(filter.insert(hash("another")), full);
    assert_eq!(filter.insert(hash("2")), Ok(Insertion::Present));
    // Those before the first that has no room are in.
    let mut outcomes = Vec::new();
    let batch = ["1", "0", "another", "2"].map(hash);
    assert_eq!(filter.insert_batch(&batch, &mut outcomes), full.map(drop));
    assert_eq!(outcomes, [Insertion::Present; 2]);
    assert_eq!(filter.clone().describe().item_count.unwrap().item_count, 3.0);
    let mut absent = RedisBloom::elsewhere(shape);
    assert_eq!(absent.insert(hash("0")), Err(InsertError::Full { item_count: 0 }));
    assert!(!absent.contains(hash("0")));
    assert!(absent.load_link(0, 1, |_| ()).is_err());
}

#[test]
fn shapes_that_are_none_are_refused() {
    for (capacity, rate) in [(0, 0.1), (1, 0.0), (1, 1.0), (1, f64::NAN), (1, -0.5), (1, 1e-320)] {
        assert!(RedisBloomShape::new(capacity, rate, 2).is_err(), "{capacity} {rate}");
    }
    assert!(RedisBloomShape::new(u64::MAX, 0.01, 2).is_err());
    // A chain that cannot grow: the next link has no items, too many, or is not there.
    assert!(RedisBloomShape::new(1, 0.1, 0).unwrap().link(1).is_err());
    assert!(RedisBloomShape::new(1 << 40, 0.1, 1 << 31).unwrap().link(1).is_err());
    assert!(RedisBloomShape::new(1, 0.1, 1).unwrap().fixed().link(1).is_err());
    assert!(RedisBloomShape::new(1, 0.1, 1).unwrap().link(1_024).is_err());
    assert!(RedisBloomShape::new(1, 0.1, 1).unwrap().link(1_000).is_ok());
}

#[test]
fn loads_that_do_not_fit_change_nothing() {
    let shape = RedisBloomShape::for_rate(10, 0.01).unwrap();
    let theirs = with_numbers(shape, 50);
    let mut ours = RedisBloom::with_shape(shape).unwrap();
    let mut load = |link: u32, items| {
        let words = theirs.links()[link as usize].words();
        ours.load_link(link, items, |ours| {
            ours.iter_mut().zip(words).for_each(|(ours, theirs)| *ours |= theirs);
        })
        .is_ok()
    };
    assert!(!load(1, 20), "the first comes first");
    assert!(!load(0, 11), "it has no room for so many");
    assert!(load(0, 10) && load(0, 10), "parts may come twice");
    assert!(!load(0, 9));
    assert!(!load(2, 1) && !load(1, 21));
    assert!(load(1, 20) && load(2, theirs.links()[2].item_count()));
    assert_eq!(ours, theirs);
    // What lies behind the last position is not kept: 128 bits in a line of 512.
    let mut trimmed = RedisBloom::with_shape(shape).unwrap();
    trimmed.load_link(0, 1, |words| words.fill(u64::MAX)).unwrap();
    assert_eq!(trimmed.describe().one_count, 128);
}

#[test]
fn headers_say_what_follows_from_shape_and_items_or_are_refused() {
    let filter = with_numbers(RedisBloomShape::for_rate(10, 0.01).unwrap(), 100);
    let header = RedisBloomHeader::of(&filter);
    let bytes = header.to_bytes();
    assert_eq!((bytes.len(), header.data_bytes()), (20 + 4 * 53, 16 + 32 + 72 + 160));
    assert_eq!(RedisBloomHeader::parse(&bytes), Ok(header.clone()));
    for length in 0..bytes.len() {
        assert!(RedisBloomHeader::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(RedisBloomHeader::parse(&[&bytes[..], &[0]].concat()).is_err());
    // A flipped bit is refused, or what it says holds together: the rise of capacities of one link alone, and the
    // bits an item as far as platforms differ.
    let mut damaged = bytes.clone();
    for bit in 0..8 * bytes.len() {
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(other) = RedisBloomHeader::parse(&damaged) {
            assert_eq!(other, header, "bit {bit}");
        }
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    let fixed = RedisBloomShape::new(5, 0.01, 2).unwrap().fixed();
    let fixed = RedisBloomHeader::new(fixed, 5).unwrap();
    assert_eq!(RedisBloomHeader::parse(&fixed.to_bytes()), Ok(fixed.clone()));
    assert!(RedisBloomHeader::new(fixed.shape(), 6).is_err());
}

/// Older filters have hashes of 32 bits, or sizes of powers of two.
#[test]
fn headers_of_older_filters_are_refused() {
    let filter = with_numbers(RedisBloomShape::for_rate(10, 0.01).unwrap(), 5);
    let bytes = RedisBloomHeader::of(&filter).to_bytes();
    for (at, value) in [(12, 0), (12, 1), (12, 4), (12, 7), (12, 21), (20 + 52, 7)] {
        let mut older = bytes.clone();
        older[at] = value;
        let error = RedisBloomHeader::parse(&older).unwrap_err();
        assert!(error.to_string().contains("expected"), "{error}");
    }
}

/// Sets of positions, computed in 128 bits.
struct Twin {
    shape: RedisBloomShape,
    links: Vec<(BTreeSet<u64>, u64)>,
}

impl Twin {
    fn positions(&self, link: usize, hash: ItemHash) -> BTreeSet<u64> {
        let shape = self.shape.link(u32::try_from(link).unwrap()).unwrap();
        (0..u128::from(shape.probe_count()))
            .map(|probe| {
                let sum = u128::from(hash.hi()) + probe * u128::from(hash.lo());
                u64::try_from(sum % (1 << 64) % u128::from(shape.bit_count())).unwrap()
            })
            .collect()
    }

    fn contains(&self, hash: ItemHash) -> bool {
        let mut links = self.links.iter().enumerate();
        links.any(|(at, (bits, _))| self.positions(at, hash).is_subset(bits))
    }

    fn insert(&mut self, hash: ItemHash) -> Option<Insertion> {
        if self.contains(hash) {
            return Some(Insertion::Present);
        }
        let newest = self.links.len() - 1;
        let capacity = self.shape.link(u32::try_from(newest).unwrap()).unwrap().capacity();
        if self.links[newest].1 == capacity {
            self.shape.link(u32::try_from(newest + 1).unwrap()).ok()?;
            self.links.push((BTreeSet::new(), 0));
        }
        let at = self.links.len() - 1;
        let positions = self.positions(at, hash);
        self.links[at].0.extend(positions);
        self.links[at].1 += 1;
        Some(Insertion::New)
    }
}

fn shapes() -> impl Strategy<Value = RedisBloomShape> {
    (1..20_u64, 1e-6..0.9, 0..4_u32, any::<bool>()).prop_map(
        |(capacity, rate, expansion, is_fixed)| {
            let shape = RedisBloomShape::new(capacity, rate, expansion).unwrap();
            if is_fixed { shape.fixed() } else { shape }
        },
    )
}

proptest! {
    #[test]
    fn it_does_what_its_slow_twin_does(
        shape in shapes(),
        hashes in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..60),
    ) {
        let mut filter = RedisBloom::with_shape(shape).unwrap();
        let mut twin = Twin { shape, links: vec![(BTreeSet::new(), 0)] };
        for &(hi, lo, asks) in &hashes {
            let hash = ItemHash::new(hi, lo);
            if asks {
                prop_assert_eq!(filter.contains(hash), twin.contains(hash));
            } else {
                prop_assert_eq!(filter.insert(hash).ok(), twin.insert(hash));
            }
        }
        for (link, (positions, item_count)) in filter.links().iter().zip(&twin.links) {
            let ones: BTreeSet<u64> = crate::words::iter_ones(link.words()).collect();
            prop_assert_eq!((&ones, link.item_count()), (positions, *item_count));
        }
        // Its header is that of any filter of so many items.
        let header = RedisBloomHeader::of(&filter);
        prop_assert_eq!(RedisBloomHeader::new(shape, filter.item_count()), Ok(header.clone()));
        prop_assert_eq!(RedisBloomHeader::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn any_bytes_are_a_header_or_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200), links in 0..4_u32,
    ) {
        if let Some(field) = bytes.get_mut(8..16) {
            field[..4].copy_from_slice(&links.to_le_bytes());
            field[4..].copy_from_slice(&5_u32.to_le_bytes());
        }
        if let Ok(header) = RedisBloomHeader::parse(&bytes) {
            prop_assert_eq!(RedisBloomHeader::parse(&header.to_bytes()), Ok(header));
        }
    }
}

/// Whole dumps of RedisBloom's own code, bit by bit.
#[test]
fn dumps_are_those_that_were_recorded_from_redis_bloom() {
    let recorded = include_str!("../../testdata/redisbloom.txt");
    let mut lines = recorded.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    while let Some(reserve) = lines.next() {
        let words: Vec<&str> = reserve.split(' ').collect();
        let [_, capacity, rate, expansion, fixed, items] = words[..] else { panic!("{reserve}") };
        let (capacity, expansion) = (capacity.parse().unwrap(), expansion.parse().unwrap());
        let rate: f64 = rate.parse().unwrap();
        let shape = match fixed {
            "1" => RedisBloomShape::new(capacity, rate, expansion).unwrap().fixed(),
            _ => RedisBloomShape::new(capacity, rate / 2.0, expansion).unwrap(),
        };
        let mut filter = RedisBloom::with_shape(shape).unwrap();
        for number in 0..items.parse::<u32>().unwrap() {
            // What a fixed one has no room for is refused there, too.
            let _ = filter.insert(hash(&number.to_string()));
        }
        let header = RedisBloomHeader::of(&filter).to_bytes();
        assert_eq!(Some(format!("header {}", Hex(&header)).as_str()), lines.next(), "{reserve}");
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for link in filter.links() {
            let bytes = link.words().iter().flat_map(|word| word.to_le_bytes());
            for byte in bytes.take(usize::try_from(link.shape().byte_count()).unwrap()) {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!(Some(format!("data {digest:016x}").as_str()), lines.next(), "{reserve}");
        count += 1;
    }
    assert_eq!(count, 16);
}
