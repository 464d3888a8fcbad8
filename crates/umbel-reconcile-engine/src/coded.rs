//! The stream of coded symbols: the stage with the fewest round trips.
//!
//! The responder sends coded symbols of all its symbols, as many as it has credit for. The initiator
//! combines them with its own and peels, and grants more credit until the difference is complete. On the
//! wire a coded symbol has ⌈h/8⌉ bytes of the sum and four of the check.

use std::fmt;

use umbel_sketch::{CodedSymbol, RibltDecoder, RibltEncoder};

use super::error::SessionFrameError;
use super::keys::SessionKey;
use super::message::Message;
use super::table::Table;
use super::wire::Reader;
use crate::limits::FRAME_BODY_BYTES_CUT;

/// Bytes of a check on the wire.
const CHECK_BYTES: usize = 4;

/// The encoder of all symbols of a table.
pub(crate) fn encoder_of(table: &Table, key: &SessionKey, symbol_bits: u8) -> RibltEncoder {
    let mut encoder = RibltEncoder::with_capacity(table.entries().len());
    for entry in table.entries() {
        let symbol = entry.symbol(symbol_bits);
        encoder.add(symbol, key.check(symbol));
    }
    encoder
}

/// Bytes of the sum of symbols.
pub(crate) const fn sum_bytes(symbol_bits: u8) -> usize {
    (symbol_bits as usize).div_ceil(8)
}

/// Source of a side's coded symbols.
#[derive(Debug)]
enum Source {
    Encoder(RibltEncoder),
    /// Stored ones from index 0, and how many were taken.
    Stored {
        symbols: Vec<CodedSymbol>,
        taken: usize,
    },
}

impl Source {
    fn next_index(&self) -> u64 {
        match self {
            Self::Encoder(encoder) => encoder.next_index() as u64,
            Self::Stored { taken, .. } => *taken as u64,
        }
    }

    /// How many coded symbols there are.
    const fn len(&self) -> u64 {
        match self {
            Self::Encoder(_) => u64::MAX,
            Self::Stored { symbols, .. } => symbols.len() as u64,
        }
    }

    /// The next `count` coded symbols, or what is left of them.
    fn next_symbols(&mut self, count: usize) -> Vec<CodedSymbol> {
        match self {
            Self::Encoder(encoder) => encoder.next_symbols(count),
            Self::Stored { symbols, taken } => {
                let begin = *taken;
                *taken = begin.saturating_add(count).min(symbols.len());
                symbols.get(begin..*taken).unwrap_or_default().to_vec()
            }
        }
    }
}

/// The responder's half.
#[derive(Debug)]
pub(crate) struct CodedJob {
    source: Source,
    symbol_bits: u8,
    credit: u64,
}

impl CodedJob {
    pub(crate) fn new(table: &Table, key: &SessionKey, symbol_bits: u8, credit: u64) -> Self {
        let source = Source::Encoder(encoder_of(table, key, symbol_bits));
        Self { source, symbol_bits, credit }
    }

    /// Serves stored coded symbols; the credit must not exceed their number.
    pub(crate) fn stored(
        symbols: Vec<CodedSymbol>,
        symbol_bits: u8,
        credit: u64,
    ) -> Result<Self, SessionFrameError> {
        if credit > symbols.len() as u64 {
            return Err(SessionFrameError::Field { field: "credit", got: credit });
        }
        Ok(Self { source: Source::Stored { symbols, taken: 0 }, symbol_bits, credit })
    }

    /// Raises the credit, counted from the first coded symbol.
    pub(crate) fn extend(&mut self, credit: u64) -> Result<(), SessionFrameError> {
        if credit <= self.credit || credit > self.source.len() {
            return Err(SessionFrameError::Field { field: "credit", got: credit });
        }
        self.credit = credit;
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<Message> {
        let first = self.source.next_index();
        let left = self.credit.checked_sub(first).filter(|&left| left > 0)?;
        let bytes_each = sum_bytes(self.symbol_bits) + CHECK_BYTES;
        let count =
            usize::try_from(left).unwrap_or(usize::MAX).min(FRAME_BODY_BYTES_CUT / bytes_each);
        let mut symbols = Vec::with_capacity(count * bytes_each);
        for coded in self.source.next_symbols(count) {
            let sum = coded.sum.to_le_bytes();
            symbols.extend_from_slice(sum.get(..sum_bytes(self.symbol_bits)).unwrap_or_default());
            symbols.extend_from_slice(&coded.check.to_le_bytes());
        }
        Some(Message::Coded { first, count: count as u64, symbols })
    }
}

/// Smallest extension of the credit: a round trip costs as much as these coded symbols.
const EXTENSION_MIN: u64 = 16;

/// Computes the checks of symbols for a decoder.
pub(crate) type CheckHash = Box<dyn Fn(u64) -> u64 + Send>;

/// A decoder of symbols under this key.
pub(crate) fn decoder_of(key: SessionKey) -> RibltDecoder<CheckHash> {
    let hash: CheckHash = Box::new(move |symbol| key.check(symbol));
    RibltDecoder::new(hash)
}

/// The initiator's half.
pub(crate) struct CodedDecoder {
    own: Source,
    decoder: RibltDecoder<CheckHash>,
    symbol_bits: u8,
    credit: u64,
    /// Credit beyond which the stage fails.
    credit_max: u64,
    /// How often the credit was extended.
    extension_count: u32,
}

impl fmt::Debug for CodedDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.decoder.coded_count();
        f.debug_struct("CodedDecoder").field("taken", &taken).finish_non_exhaustive()
    }
}

/// The result of a frame of coded symbols.
#[derive(Debug)]
pub(crate) enum CodedVerdict {
    /// More frames will arrive.
    Waiting,
    /// More credit is needed.
    Ask(u64),
    /// All differences, decoded.
    Decoded(Vec<u64>),
    /// The coded symbols contradict each other, or `credit_max` was not enough.
    Failed,
}

impl CodedDecoder {
    pub(crate) fn new(
        table: &Table,
        key: SessionKey,
        symbol_bits: u8,
        credit: u64,
        credit_max: u64,
    ) -> Self {
        let own = Source::Encoder(encoder_of(table, &key, symbol_bits));
        Self::of(own, key, symbol_bits, (credit, credit_max))
    }

    /// The same with this side's coded symbols stored; there must be at least `credit_max` of them.
    pub(crate) fn stored(
        symbols: Vec<CodedSymbol>,
        key: SessionKey,
        symbol_bits: u8,
        credit: u64,
        credit_max: u64,
    ) -> Self {
        Self::of(Source::Stored { symbols, taken: 0 }, key, symbol_bits, (credit, credit_max))
    }

    fn of(own: Source, key: SessionKey, symbol_bits: u8, (credit, credit_max): (u64, u64)) -> Self {
        let decoder = decoder_of(key);
        Self { own, decoder, symbol_bits, credit, credit_max, extension_count: 0 }
    }

    /// Coded symbols that were granted and have not arrived.
    pub(crate) fn credit_left(&self) -> u64 {
        self.credit.saturating_sub(self.decoder.coded_count() as u64)
    }

    pub(crate) fn take(
        &mut self,
        first: u64,
        count: u64,
        bytes: &[u8],
    ) -> Result<CodedVerdict, SessionFrameError> {
        let taken = self.decoder.coded_count() as u64;
        if first != taken {
            return Err(SessionFrameError::Field { field: "first index", got: first });
        }
        let sum_bytes = sum_bytes(self.symbol_bits);
        let bytes_each = sum_bytes + CHECK_BYTES;
        let is_whole = count > 0
            && count <= self.credit.saturating_sub(taken)
            && count.checked_mul(bytes_each as u64) == Some(bytes.len() as u64);
        if !is_whole {
            return Err(SessionFrameError::Field { field: "coded symbol count", got: count });
        }
        let mut coded = self.own.next_symbols(bytes.len() / bytes_each);
        let mask = u64::MAX >> (64 - self.symbol_bits);
        for (own, theirs) in coded.iter_mut().zip(bytes.chunks_exact(bytes_each)) {
            let mut reader = Reader::new(theirs);
            let mut sum = [0; 8];
            let low = reader.bytes("sum", sum_bytes)?;
            sum.iter_mut().zip(low).for_each(|(to, from)| *to = *from);
            let check = reader.u32("check")?;
            let sum = u64::from_le_bytes(sum);
            if sum & !mask != 0 {
                return Err(SessionFrameError::Field { field: "sum", got: sum });
            }
            *own ^= CodedSymbol { sum, check };
        }
        if self.decoder.push_all(&coded).is_err() {
            return Ok(CodedVerdict::Failed);
        }
        if self.decoder.is_complete() {
            return Ok(CodedVerdict::Decoded(self.decoder.symbols().to_vec()));
        }
        let taken = self.decoder.coded_count() as u64;
        if taken < self.credit {
            return Ok(CodedVerdict::Waiting);
        }
        if taken >= self.credit_max {
            return Ok(CodedVerdict::Failed);
        }
        self.credit = (taken + self.extension(taken)).min(self.credit_max);
        self.extension_count += 1;
        Ok(CodedVerdict::Ask(self.credit))
    }

    /// Further coded symbols to request: a quarter of what was taken, then a half, then as many again. The
    /// first extension covers the usual error of an estimate. If that is not enough, the estimate was poor,
    /// and each further extension costs a round trip.
    fn extension(&self, taken: u64) -> u64 {
        (taken >> 2u32.saturating_sub(self.extension_count)).max(EXTENSION_MIN)
    }
}
