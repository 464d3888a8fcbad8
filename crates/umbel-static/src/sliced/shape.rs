//! What sets of an index have in common, and how large the filter of each is.

use umbel_codec::FrameKey;
use umbel_filter::{BLOCK_BITS_MAX, BlockShape, HashRange, Kind};

use super::error::SlicedError;
use crate::limits::FORM_BYTES_MAX;

/// Most probes an item. Each costs a row a group and a question; four are within a tenth of the fewest bits at 1 %, and
/// eight within a fiftieth at 0.1 %.
pub const SLICED_PROBES_MAX: u32 = 8;

/// Most sets of an index: a row of one group has 128 KiB then.
pub const SET_COUNT_MAX: usize = 1 << 20;

/// Bytes of the name of a set: as long as a path may be.
pub const NAME_BYTES_MAX: usize = 4096;

/// Step of the largest column, 2^40 bits: 128 GiB a set.
pub const COLUMN_STEP_MAX: u8 = 61;

/// Bits of the smallest column: a cache line, the unit of filters.
const COLUMN_BITS_MIN: u64 = 512;

/// Blocks of columns that have an even step, and more bits.
const EVEN_BLOCK_BITS: u64 = 3 << 17;

/// Bits an item that k probes need for a rate p: −k / ln(1 − p^(1/k)). A bit is one with probability
/// f = 1 − e^(−k/b) at b bits an item (Bloom 1970, doi:10.1145/362686.362692), and p = f^k. Infinite if there is no such
/// number of bits.
///
/// ```
/// use umbel_static::sliced::bits_per_item;
///
/// // 1 / −ln(0.7), and 3 / −ln(1 − 0.2154).
/// assert_eq!(format!("{:.2}", bits_per_item(1, 0.3)), "2.80");
/// assert_eq!(format!("{:.2}", bits_per_item(3, 0.01)), "12.36");
/// ```
#[must_use]
pub fn bits_per_item(probe_count: u32, rate: f64) -> f64 {
    let probes = f64::from(probe_count);
    -probes / (-rate.powf(1.0 / probes)).ln_1p()
}

/// Size of a column: 1, 2, 3, 4, 6, 8, 12, … times 512 bits. A set has the smallest that suffices, so at most twice what
/// it needs above 512 bits, and from 1,024 bits on at most half more; a fifth on average.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnSize {
    step: u8,
}

impl ColumnSize {
    /// The size with this number, 0 to [`COLUMN_STEP_MAX`].
    #[must_use]
    pub const fn from_step(step: u8) -> Option<Self> {
        if step <= COLUMN_STEP_MAX { Some(Self { step }) } else { None }
    }

    /// The smallest for so many items; None if they need more than the largest.
    ///
    /// ```
    /// use umbel_static::sliced::ColumnSize;
    ///
    /// let bits = |items| ColumnSize::for_items(items, 3, 0.01).map(ColumnSize::bits);
    /// // 41 items need 506.6 bits, 42 519, 100 1,236.
    /// assert_eq!([41, 42, 100].map(bits), [Some(512), Some(1024), Some(1536)]);
    /// assert_eq!(bits(u64::MAX), None);
    /// ```
    #[must_use]
    pub fn for_items(item_count: u64, probe_count: u32, rate: f64) -> Option<Self> {
        let needed = item_count as f64 * bits_per_item(probe_count, rate);
        (0..=COLUMN_STEP_MAX)
            .map(|step| Self { step })
            .find(|size| item_count == 0 || size.bits() as f64 >= needed)
    }

    /// Its number.
    #[must_use]
    pub const fn step(self) -> u8 {
        self.step
    }

    /// Bits of a column, and rows of its group.
    #[must_use]
    pub const fn bits(self) -> u64 {
        match self.step {
            0 => COLUMN_BITS_MIN,
            step if step % 2 == 1 => COLUMN_BITS_MIN << step.div_ceil(2),
            step => (COLUMN_BITS_MIN / 2 * 3) << (step / 2),
        }
    }

    /// The shape of the classic filter that a column is. Probes are 1 to [`SLICED_PROBES_MAX`].
    pub(super) fn shape(self, probe_count: u32) -> BlockShape {
        let is_even = self.step > 0 && self.step.is_multiple_of(2);
        let block_bits_max = if is_even { EVEN_BLOCK_BITS } else { u64::from(BLOCK_BITS_MAX) };
        let block_bits = self.bits().min(block_bits_max);
        let block_count = self.bits() / block_bits;
        let block_bits = u32::try_from(block_bits).expect("at most 2^19");
        BlockShape::new(Kind::Classic, HashRange::WHOLE, block_count, block_bits, probe_count)
            .expect("probes were checked, blocks are lines, and 2^40 bits are within the limits")
    }
}

/// What the sets of an index have in common: hash, probes, rate, and what an item is.
#[derive(Clone, PartialEq, Debug)]
pub struct SlicedShape {
    key: FrameKey,
    probe_count: u32,
    rate: f64,
    form: String,
}

impl SlicedShape {
    /// Of so many probes an item, 1 to [`SLICED_PROBES_MAX`], at a false-positive rate a set above 0 and below 1.
    ///
    /// # Errors
    ///
    /// [`SlicedError::Probes`] or [`SlicedError::Rate`].
    pub fn new(key: FrameKey, probe_count: u32, rate: f64) -> Result<Self, SlicedError> {
        if !(1..=SLICED_PROBES_MAX).contains(&probe_count) {
            return Err(SlicedError::Probes { probe_count });
        }
        // Written so that it refuses what is no number.
        if !(rate > 0.0 && rate < 1.0) {
            return Err(SlicedError::Rate { rate });
        }
        Ok(Self { key, probe_count, rate, form: String::new() })
    }

    /// The same, with a text that says what an item is, for who asks later.
    ///
    /// # Errors
    ///
    /// [`SlicedError::Form`].
    pub fn with_form(self, form: impl Into<String>) -> Result<Self, SlicedError> {
        let form = form.into();
        if form.len() > FORM_BYTES_MAX {
            return Err(SlicedError::Form { form_bytes: form.len() });
        }
        Ok(Self { form, ..self })
    }

    /// How items are hashed.
    #[must_use]
    pub const fn key(&self) -> FrameKey {
        self.key
    }

    /// Probes an item, k.
    #[must_use]
    pub const fn probe_count(&self) -> u32 {
        self.probe_count
    }

    /// The rate that was asked for, of one item and one set. The sets' own are mostly lower, because sizes are rounded up.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// What an item is.
    #[must_use]
    pub fn form(&self) -> &str {
        &self.form
    }

    /// A set of so many different items.
    ///
    /// # Errors
    ///
    /// [`SlicedError::Name`] or [`SlicedError::Items`].
    pub fn set(&self, name: &str, item_count: u64) -> Result<SlicedSet, SlicedError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(SlicedError::Name { name_bytes: name.len() });
        }
        let name = name.to_owned();
        match ColumnSize::for_items(item_count, self.probe_count, self.rate) {
            Some(size) => Ok(SlicedSet { name, item_count, size }),
            None => Err(SlicedError::Items { name, item_count }),
        }
    }
}

/// What an index says of a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicedSet {
    /// Its name, of at most [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Different items.
    pub item_count: u64,
    /// Size of its filter.
    pub size: ColumnSize,
}
