//! Umbel's static filters as structures of the benchmark: with as many bits as the rate asks for, and with those of the peers.

use umbel_codec::FrameKey;
use umbel_filter::{HashFunction, Insertion, ItemHash};
use umbel_static::{StaticFile, build_filter, check_bits_for};

use crate::structure::{Case, Structure};

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };

/// Lowest rate of 8-bit fingerprints: above it the peer has 8 bits, below it 16.
const RATE_MIN_OF_8_BITS: f64 = 1.0 / 256.0;

/// A static file in memory. The time of building one includes sorting hashes and all checksums.
pub struct StaticFilter<const BITS: u8>(StaticFile<Vec<u8>>);

macro_rules! static_structure {
    ($bits:literal, $name:literal, $suits:expr, $bits_for:expr) => {
        impl Structure for StaticFilter<$bits> {
            const NAME: &'static str = $name;
            const IS_STATIC: bool = true;
            const HAS_BATCHES: bool = true;
            type Key = ItemHash;
            type Outcome = Insertion;

            fn suits(case: Case) -> bool {
                $suits(case.rate)
            }

            fn create(case: Case) -> Self {
                Self::build(case, Vec::new())
            }

            fn build(case: Case, hashes: Vec<ItemHash>) -> Self {
                let bytes = build_filter(hashes, $bits_for(case.rate), KEY).expect("random hashes");
                Self(StaticFile::parse(bytes).expect("it was built just now"))
            }

            fn memory_bytes(&self) -> u64 {
                self.0.head().file_bytes()
            }

            #[inline]
            fn contains(&self, key: ItemHash) -> bool {
                self.0.contains(key)
            }

            fn contains_batch(&self, keys: &[ItemHash], present: &mut Vec<bool>) {
                self.0.contains_batch(keys, present);
            }
        }
    };
}

static_structure!(0, "umbel-static", |_| true, check_bits_for);
static_structure!(8, "umbel-static-8", |rate| rate >= RATE_MIN_OF_8_BITS, |_| 8);
static_structure!(16, "umbel-static-16", |rate| rate < RATE_MIN_OF_8_BITS, |_| 16);
