//! A filter as an array of bits, which does not change while it is compared.

use std::collections::BTreeSet;

use thiserror::Error;
use umbel_filter::{AnyFilter, Blocked, Kind, SingleShotShape, StoredSingleShot};
use umbel_sketch::{BLOCK_BITS, BLOCK_WORDS};

use super::error::TableError;
use super::options::BlockDifference;
use super::table::{BitBlocks, ResidueTable};
use crate::limits::{REPAIR_POSITIONS_MAX, REPAIR_SPARSE_BLOCKS_MAX};

/// Why a filter cannot be compared bit by bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FilterBitsError {
    /// Its contents are not the bits of a single array. Compare blocked and single-shot filters.
    #[error("a {kind} filter is not compared bit by bit, expected a blocked or a single-shot one")]
    Kind {
        /// The kind.
        kind: Kind,
    },
    /// Most of the array would be empty blocks. Use a higher false-positive rate, or smaller filters.
    #[error("{position_count} positions, at most {max} are compared bit by bit")]
    Positions {
        /// The filter's number of positions.
        position_count: u64,
        /// The limit.
        max: u64,
    },
    /// Too many positions are set to hold them as numbers.
    #[error("{set_count} set positions, at most {REPAIR_POSITIONS_MAX} are compared bit by bit")]
    SetPositions {
        /// The number of set positions.
        set_count: u64,
    },
    /// It has no bits, or too many.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The bits of a filter at one point in time, and those that were set since.
///
/// A blocked filter is stored as its words. A single-shot filter is stored as its set positions, and its
/// blocks are built when they are read.
///
/// ```
/// use umbel_replicated_engine::repair::{BlockDifference, FilterBits};
/// use umbel_filter::{AnyFilter, Contains, HashRange, Insert, ItemHash, SingleShotShape, StoredSingleShot};
///
/// // 16 positions: the top hexadecimal digit of `hi`.
/// let mut filter = StoredSingleShot::new(SingleShotShape::new(HashRange::WHOLE, 16)?);
/// filter.insert(ItemHash::new(0x3000_0000_0000_0000, 1))?;
/// let mut bits = FilterBits::of(AnyFilter::SingleShot(filter))?;
/// bits.set(&BlockDifference { block: 0, differing: vec![3, 9], flips: vec![9] });
/// assert_eq!(bits.set_bit_count(), 1);
/// assert!(bits.into_filter().contains(ItemHash::new(0x9000_0000_0000_0000, 2)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FilterBits {
    array: Array,
    set_bit_count: u64,
}

#[derive(Clone, Debug)]
enum Array {
    Words(Box<Blocked>),
    Positions {
        shape: SingleShotShape,
        /// In ascending order.
        positions: Vec<u64>,
        /// Positions set since.
        set: BTreeSet<u64>,
    },
}

impl FilterBits {
    /// The bits of a filter.
    ///
    /// # Errors
    /// If it cannot be compared bit by bit.
    pub fn of(filter: AnyFilter) -> Result<Self, FilterBitsError> {
        let array = match filter {
            AnyFilter::Blocked(filter) => Array::Words(Box::new(filter)),
            AnyFilter::SingleShot(filter) => {
                let shape = filter.single_shot_shape();
                let max = u64::from(REPAIR_SPARSE_BLOCKS_MAX) * u64::from(BLOCK_BITS);
                let position_count = shape.width();
                if position_count > max {
                    return Err(FilterBitsError::Positions { position_count, max });
                }
                let set_count = filter.len();
                if set_count > REPAIR_POSITIONS_MAX {
                    return Err(FilterBitsError::SetPositions { set_count });
                }
                let positions = filter.positions().collect();
                Array::Positions { shape, positions, set: BTreeSet::new() }
            }
            other => return Err(FilterBitsError::Kind { kind: other.kind() }),
        };
        Ok(Self { array, set_bit_count: 0 })
    }

    /// The residues of all blocks as they are now. Compute them before the first bit is set.
    ///
    /// # Errors
    /// If there are too few bits or too many.
    pub fn table(&self) -> Result<ResidueTable, FilterBitsError> {
        match &self.array {
            Array::Words(filter) => {
                let words = filter.words();
                Ok(ResidueTable::of_words(words, 64 * words.len() as u64)?)
            }
            Array::Positions { shape, positions, set } => {
                let mut table = ResidueTable::of_nothing(shape.width())?;
                positions.iter().chain(set).for_each(|&position| table.flip(position));
                Ok(table)
            }
        }
    }

    /// Sets the bits of a difference that must be flipped here, all of which must be unset.
    ///
    /// # Panics
    /// If a bit is beyond the array. A session only outputs bits within its table.
    pub fn set(&mut self, difference: &BlockDifference) {
        let begin = u64::from(difference.block) * u64::from(BLOCK_BITS);
        let bits = difference.flips.iter().map(|&at| begin + u64::from(at));
        match &mut self.array {
            Array::Words(filter) => {
                let words = filter.words_mut();
                for bit in bits {
                    let word = usize::try_from(bit / 64).expect("a word of the array");
                    words[word] |= 1 << (bit % 64);
                }
            }
            Array::Positions { shape, set, .. } => {
                let width = shape.width();
                set.extend(bits.inspect(|&bit| assert!(bit < width, "bit {bit} of {width}")));
            }
        }
        self.set_bit_count += difference.flips.len() as u64;
    }

    /// Number of bits set since the start.
    #[must_use]
    pub const fn set_bit_count(&self) -> u64 {
        self.set_bit_count
    }

    /// A filter of the same shape with the bits that were set since; it may also have bits that were set
    /// before.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "every position was checked when it was set")]
    pub fn into_filter(self) -> AnyFilter {
        match self.array {
            Array::Words(filter) => AnyFilter::Blocked(*filter),
            Array::Positions { shape, set, .. } => {
                let filter = StoredSingleShot::from_positions(shape, set.into_iter());
                AnyFilter::SingleShot(filter.expect("positions of the array, ascending"))
            }
        }
    }
}

impl BitBlocks for FilterBits {
    fn read(&self, block: u32, words: &mut [u64; BLOCK_WORDS]) {
        match &self.array {
            Array::Words(filter) => filter.words().read(block, words),
            Array::Positions { positions, set, .. } => {
                words.fill(0);
                let begin = u64::from(block) * u64::from(BLOCK_BITS);
                let end = begin + u64::from(BLOCK_BITS);
                let first = positions.partition_point(|&position| position < begin);
                let old = positions.iter().skip(first).take_while(|&&position| position < end);
                for position in old.chain(set.range(begin..end)) {
                    let at = usize::try_from(position - begin).expect("a bit of a block");
                    words[at / 64] |= 1 << (at % 64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::{Classic, Contains, HashRange, Insert, ItemHash, ItemHasher};

    use super::*;
    use crate::repair::{
        Policy, RepairInput, RepairLimits, RepairOptions, RepairOutput, RepairSession,
    };
    use umbel_step::Outbox;

    fn empty(is_blocked: bool) -> AnyFilter {
        if is_blocked {
            AnyFilter::Blocked(Blocked::new(HashRange::WHOLE, 300, 6).unwrap())
        } else {
            let shape = SingleShotShape::new(HashRange::WHOLE, 1_000_000).unwrap();
            AnyFilter::SingleShot(StoredSingleShot::new(shape))
        }
    }

    fn hashes(items: std::ops::Range<u64>) -> Vec<ItemHash> {
        items.map(|item| ItemHasher::Xxh3 { seed: 7 }.hash(&item.to_le_bytes())).collect()
    }

    fn filter(is_blocked: bool, items: std::ops::Range<u64>) -> AnyFilter {
        let mut filter = empty(is_blocked);
        filter.insert_batch(&hashes(items), &mut Vec::new()).unwrap();
        filter
    }

    /// Lets two filters repair each other, and returns the bits that each must merge.
    fn repaired(ours: AnyFilter, theirs: AnyFilter) -> [FilterBits; 2] {
        let mut bits = [ours, theirs].map(|filter| FilterBits::of(filter).unwrap());
        let options = |bits: &FilterBits, nonce| {
            let limits = RepairLimits::of(&bits.table().unwrap());
            RepairOptions { shape_id: 7, domain: [0; 16], nonce, limits }
        };
        let [ours, theirs] = &bits;
        let mut sessions = [
            RepairSession::initiator(options(ours, 1), Policy::Union, ours.table().unwrap()),
            RepairSession::responder(options(theirs, 2), true, theirs.table().unwrap()),
        ];
        let (mut inputs, mut out) = (vec![(0, RepairInput::Start)], Outbox::new());
        let mut finished = 0;
        while let Some((who, input)) = inputs.pop() {
            sessions[who].step(input, &bits[who], &mut out);
            for output in out.take() {
                match output {
                    RepairOutput::Send(sent) => {
                        inputs.insert(0, (1 - who, RepairInput::Received(sent)));
                    }
                    RepairOutput::Differs(difference) => bits[who].set(&difference),
                    RepairOutput::Finish(result) => {
                        result.unwrap();
                        finished += 1;
                    }
                }
            }
        }
        assert_eq!(finished, 2);
        bits
    }

    #[test]
    fn filters_of_both_kinds_become_their_union() {
        for is_blocked in [true, false] {
            let (mut ours, mut theirs) = (filter(is_blocked, 0..900), filter(is_blocked, 30..1000));
            let [to_ours, to_theirs] = repaired(ours.clone(), theirs.clone());
            assert!(to_ours.set_bit_count() > 0 && to_theirs.set_bit_count() > 0);
            let new = ours.merge(&to_ours.clone().into_filter()).unwrap();
            assert_eq!(new, to_ours.set_bit_count());
            theirs.merge(&to_theirs.into_filter()).unwrap();
            assert!(ours == theirs && ours == filter(is_blocked, 0..1000), "{is_blocked}");
            let [none, nothing] = repaired(ours, theirs);
            assert_eq!((none.set_bit_count(), nothing.set_bit_count()), (0, 0));
        }
    }

    /// Reads a single-shot filter's blocks, and compares them with its positions, bit by bit.
    #[test]
    fn blocks_are_the_bits_of_the_filter() {
        let AnyFilter::SingleShot(sparse) = filter(false, 0..1000) else { unreachable!() };
        let bits = FilterBits::of(AnyFilter::SingleShot(sparse.clone())).unwrap();
        let (mut positions, mut words) = (Vec::new(), [0; BLOCK_WORDS]);
        for block in 0..bits.table().unwrap().block_count() {
            bits.read(block, &mut words);
            let ones = (0..u64::from(BLOCK_BITS))
                .filter(|at| words[usize::try_from(at / 64).unwrap()] >> (at % 64) & 1 == 1);
            positions.extend(ones.map(|at| u64::from(block) * u64::from(BLOCK_BITS) + at));
        }
        assert!(positions.into_iter().eq(sparse.positions()));
    }

    #[test]
    fn filters_that_are_no_array_of_bits_are_refused_by_name() {
        let classic = AnyFilter::Classic(Classic::for_rate(HashRange::WHOLE, 100, 0.01).unwrap());
        assert!(matches!(FilterBits::of(classic), Err(FilterBitsError::Kind { .. })));
        let wide = SingleShotShape::new(HashRange::WHOLE, 1 << 40).unwrap();
        let wide = FilterBits::of(AnyFilter::SingleShot(StoredSingleShot::new(wide)));
        let error = wide.unwrap_err().to_string();
        assert_eq!(error, "1099511627776 positions, at most 34359738368 are compared bit by bit");
        assert!(filter(true, 0..9).contains(hashes(3..4)[0]));
    }
}
