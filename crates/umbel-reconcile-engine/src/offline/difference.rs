//! The difference of a set and a sketch, or of two sketches.

use std::fmt;

use umbel_sketch::{CodedSymbol, Estimator, Indices, RibltDecoder, RibltEncoder};

use super::super::coded::{CheckHash, decoder_of, encoder_of};
use super::super::digest::SetDigest;
use super::super::item::{ItemIndex, ItemRef, RemoteItem};
use super::super::keys::{KeyedHash, SessionKey};
use super::super::options::SymbolKind;
use super::super::pass::{Pass, Work};
use super::super::table::{Entry, Table};
use super::cells::SketchCell;
use super::error::SketchError;
use super::format::SketchHeader;
use super::{SketchSpec, StoredSketch};

/// Coded symbols of two whole sketches that are decoded at a time.
const CHUNK_CELLS: usize = 128;

/// Coded symbols that any difference is allowed, in addition to three per item.
const SPARE_CELLS: u64 = 64;

/// A difference, verified at least by counts and symbol sums.
///
/// ```
/// use umbel_reconcile_engine::{Item, ItemIndex, ItemRef, SymbolKind, SketchSpec, StoredSketch};
///
/// let spec = SketchSpec::new(SymbolKind::Id64, 0, [7; 16], 64)?;
/// let sketch_of = |ids: &[u64]| -> Result<StoredSketch, Box<dyn std::error::Error>> {
///     let mut pass = spec.pass(20)?;
///     ids.iter().for_each(|&id| pass.add(ItemIndex(0), ItemRef::Id(id)));
///     Ok(StoredSketch::of_pass(spec, pass)?)
/// };
/// let difference = sketch_of(&[1, 2, 3])?.difference(&sketch_of(&[2, 3, 4])?)?;
/// assert_eq!(difference.only_here[0].item, Some(Item::Id(1)));
/// assert_eq!(difference.only_there[0].item, Some(Item::Id(4)));
/// assert!(difference.verified);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SketchDifference {
    /// Items that only this side has, sorted by symbol.
    pub only_here: Vec<RemoteItem>,
    /// The same as sorted indices of the snapshot; empty if this side is a sketch too.
    pub only_here_indices: Vec<ItemIndex>,
    /// Items that only the other side's set has, sorted by symbol; ids are known, of other items only the
    /// symbols.
    pub only_there: Vec<RemoteItem>,
    /// Number of items here.
    pub here_count: u64,
    /// Number of items there.
    pub there_count: u64,
    /// Coded symbols that were used.
    pub coded_count: u64,
    /// Whether the 128-bit digest over all items was checked and agrees. It can be computed for ids, and if
    /// the other side has nothing that this one lacks. Otherwise the counts and the sums of 64-bit hashes
    /// of the symbols agree: then the items do, too, unless two different ones have the same symbol.
    pub verified: bool,
}

fn insufficient(have: usize, ours: &Estimator, theirs: &Estimator) -> SketchError {
    let estimated = ours.clamped_estimate(theirs).ceil();
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^41")]
    let (estimated, by_estimate) = (estimated as u64, (1.5 * estimated).ceil() as u64);
    let have = have as u64;
    let need_at_least = by_estimate.max(have + have.div_ceil(8));
    SketchError::InsufficientSymbols { have, need_at_least, estimated }
}

/// Decodes the difference of this side's set and a sketch while the sketch's coded symbols are read. It
/// needs 64 bytes for each item of this side, and 60 for each coded symbol.
///
/// ```
/// use umbel_reconcile_engine::{
///     ItemIndex, ItemRef, SketchDecoder, SketchReader, SketchSpec, StoredSketch, SymbolKind,
/// };
///
/// let spec = SketchSpec::new(SymbolKind::Hashed, 0, [7; 16], 64)?;
/// let mut pass = spec.pass(20)?;
/// pass.add(ItemIndex(0), ItemRef::Bytes(b"alpha"));
/// let file = StoredSketch::of_pass(spec, pass)?.to_bytes();
///
/// let mut reader = SketchReader::new();
/// let cells = reader.push(&file)?;
/// let header = reader.header().expect("the file is whole");
/// let mut ours = header.pass();
/// ours.add(ItemIndex(0), ItemRef::Bytes(b"alpha"));
/// ours.add(ItemIndex(1), ItemRef::Bytes(b"beta"));
/// let mut decoder = SketchDecoder::new(header, ours, u64::MAX)?;
/// assert!(decoder.push(&cells)?);
/// assert_eq!(decoder.finish()?.only_here_indices, [ItemIndex(1)]);
/// # Ok::<(), umbel_reconcile_engine::SketchError>(())
/// ```
pub struct SketchDecoder {
    header: SketchHeader,
    key: SessionKey,
    digest: SetDigest,
    estimator: Estimator,
    table: Table,
    encoder: RibltEncoder,
    decoder: RibltDecoder<CheckHash>,
    diff_max: u64,
}

impl fmt::Debug for SketchDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.decoder.coded_count();
        f.debug_struct("SketchDecoder").field("taken", &taken).finish_non_exhaustive()
    }
}

impl SketchDecoder {
    /// A decoder for a sketch with this header and a set that was added to a pass of
    /// [`SketchHeader::pass`], for at most `diff_max` differences.
    ///
    /// # Errors
    /// If an item was of another kind.
    ///
    /// # Panics
    /// If the pass is not of this header.
    pub fn new(header: &SketchHeader, pass: Pass, diff_max: u64) -> Result<Self, SketchError> {
        let key = header.spec.key();
        assert!(pass.is_of(&key), "a pass of this header");
        let gathered = pass.finish().ok_or(SketchError::Mixed)?;
        let Work::Table { entries, estimator } = gathered.work else { panic!("a pass of a table") };
        let table = Table::new(entries);
        let encoder = encoder_of(&table, &key, header.spec.symbol_bits);
        Ok(Self {
            header: header.clone(),
            key,
            digest: gathered.digest,
            estimator: *estimator,
            table,
            encoder,
            decoder: decoder_of(key),
            diff_max,
        })
    }

    /// Processes the sketch's next coded symbols; returns whether the difference is complete.
    ///
    /// # Errors
    /// If they contradict each other, or more than `diff_max` differences would be needed to explain them.
    pub fn push(&mut self, cells: &[SketchCell]) -> Result<bool, SketchError> {
        let mut coded = self.encoder.next_symbols(cells.len());
        coded.iter_mut().zip(cells).for_each(|(own, cell)| *own ^= cell.coded);
        self.decoder.push_all(&coded).map_err(|_| SketchError::Inconsistent)?;
        if self.decoder.is_complete() {
            return Ok(true);
        }
        let possible = self.digest.count.saturating_add(self.header.digest.count);
        let (coded_count, max) = (self.decoder.coded_count(), self.diff_max);
        if coded_count as u64 > possible.min(max).saturating_mul(3).saturating_add(SPARE_CELLS) {
            return Err(if max < possible {
                SketchError::LimitExceeded { coded_count, max }
            } else {
                SketchError::Inconsistent
            });
        }
        Ok(false)
    }

    /// The difference.
    ///
    /// # Errors
    /// If it is not complete, or contradicts the header.
    pub fn finish(self) -> Result<SketchDifference, SketchError> {
        let Self { header, key, digest, table, decoder, .. } = &self;
        let coded_count = decoder.coded_count();
        if !decoder.is_complete() {
            return Err(insufficient(coded_count, &self.estimator, &header.estimator));
        }
        let bits = header.spec.symbol_bits;
        let (mut here, mut only_here_indices) = (Vec::new(), Vec::new());
        let mut there = Vec::new();
        let mut expected = *digest;
        for &symbol in decoder.symbols() {
            let entries = table.with_prefix(symbol, bits);
            if entries.is_empty() {
                there.push(symbol);
            }
            for entry in entries {
                here.push(symbol);
                only_here_indices.push(entry.index);
                expected = expected.minus(entry.hash);
            }
        }
        only_here_indices.sort_unstable();
        let own_sum =
            |sum: u64, entry: &Entry| sum.wrapping_add(key.second_check(entry.symbol(bits)));
        let own_sum = table.entries().iter().fold(0, own_sum);
        let ours = Side { digest: *digest, symbol_sum: own_sum };
        let theirs = Side { digest: header.digest, symbol_sum: header.symbol_sum };
        let found = Found { spec: header.spec, key, here: &here, there: &there };
        found.check(ours, theirs)?;
        let verified = found.check_digest(expected, header.digest)?;
        Ok(SketchDifference {
            only_here: found.items(&here),
            only_here_indices,
            only_there: found.items(&there),
            here_count: digest.count,
            there_count: header.digest.count,
            coded_count: coded_count as u64,
            verified,
        })
    }
}

impl StoredSketch {
    /// The difference of two sketches, without either of the sets. If an item was added to one of them
    /// twice, the sketches do not show it: the item is found as one that only that set has.
    ///
    /// # Errors
    /// If the sketches have different specs or too few coded symbols, contradict each other, or the result
    /// contradicts their headers.
    pub fn difference(&self, there: &Self) -> Result<SketchDifference, SketchError> {
        if self.spec != there.spec {
            return Err(SketchError::OtherSpec);
        }
        let key = self.spec.key();
        let pairs = self.sums.cells.iter().zip(&there.sums.cells);
        let cells: Vec<SketchCell> = pairs.map(|(ours, theirs)| ours.minus(*theirs)).collect();
        let mut decoder = decoder_of(key);
        for chunk in cells.chunks(CHUNK_CELLS) {
            let coded: Vec<CodedSymbol> = chunk.iter().map(|cell| cell.coded).collect();
            decoder.push_all(&coded).map_err(|_| SketchError::Inconsistent)?;
            if decoder.is_complete() {
                break;
            }
        }
        let coded_count = decoder.coded_count();
        if !decoder.is_complete() {
            return Err(insufficient(coded_count, &self.estimator, &there.estimator));
        }
        let counts = cells.iter().take(coded_count).map(|cell| cell.count).collect();
        let sides = sides(&key, decoder.symbols(), counts).ok_or(SketchError::Inconsistent)?;
        let of_side = |wanted: bool| -> Vec<u64> {
            let sided = decoder.symbols().iter().zip(&sides);
            sided.filter(|(_, is_here)| **is_here == wanted).map(|(symbol, _)| *symbol).collect()
        };
        let (only_here, only_there) = (of_side(true), of_side(false));
        let side =
            |sketch: &Self| Side { digest: sketch.digest, symbol_sum: sketch.sums.symbol_sum };
        let found = Found { spec: self.spec, key: &key, here: &only_here, there: &only_there };
        found.check(side(self), side(there))?;
        let mut verified = false;
        if self.spec.kind == SymbolKind::Id64 {
            let removed = only_here.iter().fold(self.digest, |digest, symbol| {
                digest.minus(key.hash(ItemRef::Id(key.unpermute(*symbol))))
            });
            verified = found.check_digest(removed, there.digest)?;
        } else if only_here.is_empty() && only_there.is_empty() {
            verified = found.check_digest(self.digest, there.digest)?;
        }
        Ok(SketchDifference {
            only_here: found.items(&only_here),
            only_here_indices: Vec::new(),
            only_there: found.items(&only_there),
            here_count: self.digest.count,
            there_count: there.digest.count,
            coded_count: coded_count as u64,
            verified,
        })
    }
}

/// Digest and symbol sum of a side's whole set.
#[derive(Clone, Copy)]
struct Side {
    digest: SetDigest,
    symbol_sum: u64,
}

/// The symbols of a difference.
struct Found<'a> {
    spec: SketchSpec,
    key: &'a SessionKey,
    here: &'a [u64],
    there: &'a [u64],
}

impl Found<'_> {
    /// Checks that removing and adding what was found turns one side into the other.
    fn check(&self, ours: Side, theirs: Side) -> Result<(), SketchError> {
        let count = ours.digest.count.wrapping_sub(self.here.len() as u64);
        if count.wrapping_add(self.there.len() as u64) != theirs.digest.count {
            return Err(SketchError::Unverified { what: "number of items" });
        }
        let sum_of = |symbols: &[u64]| {
            symbols
                .iter()
                .fold(0u64, |sum, &symbol| sum.wrapping_add(self.key.second_check(symbol)))
        };
        let sum = ours.symbol_sum.wrapping_sub(sum_of(self.here)).wrapping_add(sum_of(self.there));
        if sum != theirs.symbol_sum {
            return Err(SketchError::Unverified { what: "symbol sum" });
        }
        Ok(())
    }

    /// Checks the digest over the items if that is possible, and returns whether it was; `rest` is this
    /// side's digest without what only this side has.
    fn check_digest(&self, rest: SetDigest, theirs: SetDigest) -> Result<bool, SketchError> {
        let mut expected = rest;
        if self.spec.kind == SymbolKind::Id64 {
            for &symbol in self.there {
                expected.add(self.key.hash(ItemRef::Id(self.key.unpermute(symbol))));
            }
        } else if !self.there.is_empty() {
            return Ok(false);
        }
        if expected != theirs {
            return Err(SketchError::Unverified { what: "digest of the items" });
        }
        Ok(true)
    }

    fn items(&self, symbols: &[u64]) -> Vec<RemoteItem> {
        let mut symbols = symbols.to_vec();
        symbols.sort_unstable();
        let item = |symbol: u64| RemoteItem {
            symbol: symbol << (64 - self.spec.symbol_bits),
            item: (self.spec.kind == SymbolKind::Id64).then(|| self.key.item_of(symbol)),
        };
        symbols.into_iter().map(item).collect()
    }
}

impl SetDigest {
    /// Without an item.
    fn minus(self, hash: KeyedHash) -> Self {
        let mut one = Self::default();
        one.add(hash);
        Self { count: self.count.wrapping_sub(1), sum: self.sum.wrapping_sub(one.sum) }
    }
}

/// A coded symbol, of which only the count is left.
#[derive(Clone, Copy, Default)]
struct Undecided {
    count: u8,
    /// Number of symbols in it whose side is unknown.
    symbols: u32,
    /// XOR of their positions in `symbols`.
    places: usize,
}

/// For each symbol, whether this side has it. The counts of the coded symbols are peeled as the symbols
/// were, because a coded symbol with a single symbol counts 1 or −1. `None` if the counts contradict each
/// other.
fn sides(key: &SessionKey, symbols: &[u64], counts: Vec<u8>) -> Option<Vec<bool>> {
    let blank = Undecided::default();
    let mut cells: Vec<Undecided> =
        counts.into_iter().map(|count| Undecided { count, ..blank }).collect();
    let indices = |place: usize, end: usize| {
        let hash = symbols.get(place).map(|&symbol| key.check(symbol));
        let walk = hash.map(Indices::new).into_iter().flatten();
        walk.filter_map(|index| usize::try_from(index).ok()).take_while(move |index| *index < end)
    };
    let end = cells.len();
    for place in 0..symbols.len() {
        for index in indices(place, end) {
            let cell = cells.get_mut(index)?;
            cell.symbols += 1;
            cell.places ^= place;
        }
    }
    let mut sides = vec![None; symbols.len()];
    let mut single: Vec<usize> = (0..end).collect();
    while let Some(index) = single.pop() {
        let cell = *cells.get(index)?;
        if cell.symbols != 1 {
            continue;
        }
        *sides.get_mut(cell.places)? = match cell.count {
            1 => Some(true),
            3 => Some(false),
            _ => return None,
        };
        for index in indices(cell.places, end) {
            let other = cells.get_mut(index)?;
            other.count = other.count.wrapping_sub(cell.count) & 3;
            other.symbols = other.symbols.checked_sub(1)?;
            other.places ^= cell.places;
            if other.symbols == 1 {
                single.push(index);
            }
        }
    }
    if cells.iter().any(|cell| cell.count != 0) {
        return None;
    }
    sides.into_iter().collect()
}
