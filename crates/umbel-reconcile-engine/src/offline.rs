//! Sketch files: the coded symbols of a set, with which another set can be compared later, without the set
//! itself.
//!
//! ```text
//!  0 "UMSK"       4 version 1    5 kind        6 symbol bits   7 zero          kind: 0 hashed, 1 ids of 64 bits, 2 keyed
//!  8 dataset id u64             16 salt 16 B                                   integers are little-endian
//! 32 items u64   40 digest u128 56 symbol sum u64   64 coded symbols u64
//! 72 estimator bytes u16        74 estimator        …  CRC-32C of all before u32
//! then coded symbols from index 0, in blocks of 128, the last of what is left:
//! │ sums, ⌈bits/8⌉ B each │ checks, u32 each │ counts mod 4, two bits each, lowest first │ CRC-32C u32 │
//! ```
//!
//! A block's checksum also covers the header's checksum and the block's first index, both little-endian
//! (u32, u64), so that no block can take the place of another. All keys are derived from the *salt*,
//! instead of a session's domain and nonces. The *digest* is the sum of the items' 128-bit hashes, the
//! *symbol sum* the sum of one 64-bit hash of each symbol. The *count* of a coded symbol is the number of
//! symbols in it.
//!
//! Everything is linear: [`StoredSketch::add`] and [`remove`](StoredSketch::remove) take the sketch of the
//! change alone, so a stored sketch can follow its set without a scan of it. A longer sketch begins with
//! the coded symbols of a shorter one. d differences decode from 1.35·d coded symbols if d is large, see
//! [`SketchSpec::coded_count_for`].
//!
//! Anyone who knows the salt can craft items that collide, so that a difference is wrong: nothing here
//! protects against an owner of the set who wants that, and a file is only as trustworthy as its source.
//! For any bytes, reading and decoding end with a result or an error, in time and memory proportional to
//! their length.
//!
//! Yang, Gilad, Alizadeh, "Practical Rateless Set Reconciliation", SIGCOMM 2024, doi:10.1145/3651890.3672219.

use umbel_sketch::{CodedSymbol, Estimator};

use super::digest::SetDigest;
use super::keys::{KeySource, SessionKey};
use super::options::SymbolKind;
use super::pass::{Pass, Work};
use crate::limits::{ITEM_COUNT_MAX, SKETCH_SYMBOLS_MAX};

mod cells;
mod difference;
mod error;
mod format;
#[cfg(test)]
mod offline_test;

pub(crate) use cells::CodedSums;
pub use cells::SketchCell;
pub use difference::{SketchDecoder, SketchDifference};
pub use error::{SketchError, SketchFormatError};
pub use format::{SketchHeader, SketchReader};

/// Fewest bits of a symbol.
const SYMBOL_BITS_MIN: u8 = 32;

/// The parameters of a sketch's symbols. Only sketches with equal parameters can be compared.
///
/// ```
/// use umbel_reconcile_engine::{SymbolKind, SketchSpec};
///
/// let spec = SketchSpec::new(SymbolKind::Hashed, 0, [7; 16], 64)?;
/// // A thousand differences: 1.36 · 1000 + 3.3 · √1000 + 12.
/// assert_eq!(SketchSpec::coded_count_for(1000), 1477);
/// assert!(SketchSpec::new(SymbolKind::Id64, 0, spec.salt(), 40).is_err(), "an id is its symbol");
/// # Ok::<(), umbel_reconcile_engine::SketchFormatError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SketchSpec {
    kind: SymbolKind,
    dataset_id: u64,
    salt: [u8; 16],
    symbol_bits: u8,
}

impl SketchSpec {
    /// Symbols of `symbol_bits` bits, 32 to 64; kinds other than `Hashed` need 64. For n items and d
    /// differences, two collide with probability n·d / 2^bits. That is detected, but a stored sketch has no
    /// second key to try.
    ///
    /// # Errors
    /// If this number of bits is not possible.
    pub fn new(
        kind: SymbolKind,
        dataset_id: u64,
        salt: [u8; 16],
        symbol_bits: u8,
    ) -> Result<Self, SketchFormatError> {
        let min = if kind == SymbolKind::Hashed { SYMBOL_BITS_MIN } else { 64 };
        if (min..=64).contains(&symbol_bits) {
            return Ok(Self { kind, dataset_id, salt, symbol_bits });
        }
        Err(SketchFormatError::Field { field: "symbol bits", got: symbol_bits.into() })
    }

    /// How items become symbols.
    #[must_use]
    pub const fn kind(&self) -> SymbolKind {
        self.kind
    }

    /// The caller's number for what is sketched.
    #[must_use]
    pub const fn dataset_id(&self) -> u64 {
        self.dataset_id
    }

    /// What the keys are derived from.
    #[must_use]
    pub const fn salt(&self) -> [u8; 16] {
        self.salt
    }

    /// Bits of a symbol, 32 to 64.
    #[must_use]
    pub const fn symbol_bits(&self) -> u8 {
        self.symbol_bits
    }

    /// Coded symbols that decode `differences` differences in 99 of 100 cases: 1.36·d + 3.3·√d + 12.
    #[must_use]
    pub fn coded_count_for(differences: u64) -> u64 {
        let spread = differences.saturating_mul(1089).isqrt() / 10;
        differences.saturating_add(differences.saturating_mul(9) / 25).saturating_add(spread + 13)
    }

    /// The pass over a set that builds a sketch of `coded_count` coded symbols. It needs 24 bytes for each
    /// of them, and nothing for the items.
    ///
    /// # Errors
    /// If `coded_count` is 0, or above
    /// [`SKETCH_SYMBOLS_MAX`](crate::limits::SKETCH_SYMBOLS_MAX).
    pub fn pass(&self, coded_count: u64) -> Result<Pass, SketchFormatError> {
        let count = usize::try_from(coded_count).unwrap_or(usize::MAX);
        if !(1..=SKETCH_SYMBOLS_MAX).contains(&count) {
            return Err(SketchFormatError::Field { field: "coded symbols", got: coded_count });
        }
        Ok(Pass::coded(self.key(), CodedSums::new(self.symbol_bits, count)))
    }

    pub(crate) fn key(&self) -> SessionKey {
        let source = KeySource {
            seed: self.salt,
            dataset_id: self.dataset_id,
            nonce_initiator: u64::from_le_bytes(*b"sketch/1"),
            nonce_responder: 0,
        };
        SessionKey::derive(&source, 0, self.kind)
    }
}

/// A whole sketch: built by a pass, kept up to date, written to a file.
///
/// ```
/// use umbel_reconcile_engine::{ItemIndex, ItemRef, SymbolKind, SketchSpec, StoredSketch};
///
/// let spec = SketchSpec::new(SymbolKind::Id64, 0, [7; 16], 64)?;
/// let sketch_of = |ids: &[u64]| -> Result<StoredSketch, Box<dyn std::error::Error>> {
///     let mut pass = spec.pass(20)?;
///     ids.iter().for_each(|&id| pass.add(ItemIndex(0), ItemRef::Id(id)));
///     Ok(StoredSketch::of_pass(spec, pass)?)
/// };
/// let mut sketch = sketch_of(&[1, 2, 3])?;
/// sketch.add(&sketch_of(&[4])?)?;
/// assert_eq!(sketch, sketch_of(&[1, 2, 3, 4])?);
/// assert_eq!(sketch.item_count(), 4);
/// // 74 bytes, an estimator of 64 numbers of 3 bits, 4 bytes; 20 · 12¼ bytes, 4 bytes.
/// assert_eq!(sketch.to_bytes().len(), 74 + 25 + 4 + 245 + 4);
/// assert_eq!(StoredSketch::from_bytes(&sketch.to_bytes())?, sketch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSketch {
    spec: SketchSpec,
    digest: SetDigest,
    estimator: Estimator,
    sums: CodedSums,
}

impl StoredSketch {
    /// The sketch of what was added to a pass of [`SketchSpec::pass`].
    ///
    /// # Errors
    /// If an item was of another kind.
    ///
    /// # Panics
    /// If the pass is of another spec or kind.
    pub fn of_pass(spec: SketchSpec, pass: Pass) -> Result<Self, SketchError> {
        assert!(pass.is_of(&spec.key()), "a pass of this spec");
        let gathered = pass.finish().ok_or(SketchError::Mixed)?;
        let Work::Coded { sums, estimator } = gathered.work else { panic!("a pass of a sketch") };
        Ok(Self { spec, digest: gathered.digest, estimator: *estimator, sums })
    }

    /// The sketch that a reader has read to its end.
    ///
    /// # Errors
    /// If there are not as many coded symbols as the header announces.
    pub fn of_parts(
        header: SketchHeader,
        cells: Vec<SketchCell>,
    ) -> Result<Self, SketchFormatError> {
        if cells.len() != header.coded_count {
            let (got, expected) = (cells.len() as u64, header.coded_count as u64);
            return Err(SketchFormatError::Truncated { got, expected });
        }
        let SketchHeader { spec, digest, symbol_sum, estimator, .. } = header;
        let sums = CodedSums { symbol_bits: spec.symbol_bits, cells, symbol_sum };
        Ok(Self { spec, digest, estimator, sums })
    }

    /// The sketch in a file's bytes.
    ///
    /// # Errors
    /// If they are not a sketch.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SketchFormatError> {
        let mut reader = SketchReader::new();
        let cells = reader.push(bytes)?;
        let header = reader.header().cloned();
        let missing = SketchFormatError::Truncated { got: 0, expected: 1 };
        Self::of_parts(header.ok_or(missing)?, cells)
    }

    /// The contents of its file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        format::to_bytes(&self.header(), &self.sums.cells)
    }

    /// The header of its file.
    #[must_use]
    pub fn header(&self) -> SketchHeader {
        SketchHeader {
            spec: self.spec,
            digest: self.digest,
            symbol_sum: self.sums.symbol_sum,
            estimator: self.estimator.clone(),
            coded_count: self.sums.cells.len(),
        }
    }

    /// What its symbols are.
    #[must_use]
    pub const fn spec(&self) -> SketchSpec {
        self.spec
    }

    /// Number of items of the set.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.digest.count
    }

    /// Number of coded symbols.
    #[must_use]
    pub const fn coded_count(&self) -> usize {
        self.sums.cells.len()
    }

    /// Count and digest of the items under the sketch's key.
    pub(crate) const fn digest(&self) -> SetDigest {
        self.digest
    }

    /// The estimator of the size of a difference.
    pub(crate) const fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// Copies the header fields of another sketch of the same length, for tests of sketches that contradict
    /// themselves.
    #[cfg(test)]
    pub(crate) fn set_header_of(&mut self, other: &Self) {
        (self.digest, self.estimator) = (other.digest, other.estimator.clone());
    }

    /// The coded symbols from index 0, as sent in a session.
    pub(crate) fn coded_symbols(&self) -> Vec<CodedSymbol> {
        self.sums.cells.iter().map(|cell| cell.coded).collect()
    }

    /// Adds the items of another sketch with at least as many coded symbols. The set must contain none of
    /// them, which cannot be checked: an item that is added twice cancels out of the coded symbols, and is
    /// still counted. A difference that decodes then fails with [`SketchError::Unverified`].
    ///
    /// # Errors
    /// If the sketches do not fit, or the set becomes too large; nothing is added then.
    pub fn add(&mut self, more: &Self) -> Result<(), SketchError> {
        self.check_fits(more)?;
        let digest = self.digest.and(more.digest);
        if digest.count > ITEM_COUNT_MAX {
            return Err(SketchError::TooManyItems { got: digest.count, max: ITEM_COUNT_MAX });
        }
        self.digest = digest;
        self.estimator.merge(&more.estimator);
        self.sums.add_all(&more.sums);
        Ok(())
    }

    /// Removes the items of another sketch with at least as many coded symbols. The set must contain all of
    /// them, which is checked only roughly: removing an absent item adds it to the coded symbols.
    ///
    /// # Errors
    /// If the sketches do not fit, or the set cannot have contained all items; nothing is removed then.
    pub fn remove(&mut self, gone: &Self) -> Result<(), SketchError> {
        self.check_fits(gone)?;
        let count = self.digest.count.checked_sub(gone.digest.count);
        let count = count.ok_or(SketchError::NotPresent)?;
        let mut estimator = self.estimator.clone();
        estimator.subtract(&gone.estimator);
        if Estimator::from_bytes(&estimator.to_bytes(), count).is_err() {
            return Err(SketchError::NotPresent);
        }
        self.digest = SetDigest { count, sum: self.digest.sum.wrapping_sub(gone.digest.sum) };
        self.estimator = estimator;
        self.sums.remove_all(&gone.sums);
        Ok(())
    }

    /// Whether the other sketch is of the same set and at least as long.
    #[must_use]
    pub fn is_prefix_of(&self, longer: &Self) -> bool {
        self.header().is_of_set(&longer.header()) && longer.sums.cells.starts_with(&self.sums.cells)
    }

    fn check_fits(&self, other: &Self) -> Result<(), SketchError> {
        if self.spec != other.spec {
            return Err(SketchError::OtherSpec);
        }
        let (got, min) = (other.coded_count(), self.coded_count());
        if got < min {
            return Err(SketchError::Shorter { got, min });
        }
        Ok(())
    }
}
