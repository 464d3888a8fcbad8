//! Partitioned PinSketch: symbols are divided into 2^q buckets by their top bits, and each bucket sketches
//! the remaining bits of its symbols over GF(2^(h−q)).
//!
//! The responder sends t0 syndromes of every bucket. The initiator adds its own, decodes what it can, and
//! requests more for the buckets that fail: those with as many differences as syndromes, or more. Windows
//! of 2^16 buckets are processed one after another, so memory does not grow with the difference.

use umbel_sketch::{Field, LsbReader, LsbWriter, decode_syndromes, toggle_symbols};

use super::error::{Result, SessionFrameError, limit};
use super::growth::{Occupancy, SYNDROMES_MAX, refit};
use super::lists::{ListReader, ListWriter};
use super::message::{Extend, Message};
use super::plan::{GROWTH_ROUNDS, Plan};
use super::table::Table;
use super::wire::Reader;
use crate::limits::FRAME_BODY_BYTES_CUT;

/// log2 of the buckets in a window.
const WINDOW_BITS: u8 = 16;

/// Longest bucket that is sent as a whole: it must fit into a frame.
const BUCKET_BYTES_MAX: usize = 1 << 19;

/// Parameters of a partition, known to both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partition {
    symbol_bits: u8,
    bucket_bits: u8,
    field: Field,
}

impl Partition {
    /// `None` if no field has that many bits.
    pub(crate) fn new(plan: &Plan) -> Option<Self> {
        let Plan { symbol_bits, bucket_bits, .. } = *plan;
        let field = Field::new(symbol_bits.checked_sub(bucket_bits)?).ok()?;
        Some(Self { symbol_bits, bucket_bits, field })
    }

    fn window_count(&self) -> u64 {
        1 << self.bucket_bits.saturating_sub(WINDOW_BITS)
    }

    fn window_buckets(&self) -> Vec<u32> {
        (0..1u32 << self.bucket_bits.min(WINDOW_BITS)).collect()
    }

    fn bucket(&self, window: u64, place: u32) -> u64 {
        (window << WINDOW_BITS.min(self.bucket_bits)) | u64::from(place)
    }

    /// The remainders of a bucket's symbols.
    fn remainders(&self, table: &Table, bucket: u64, into: &mut Vec<u64>) {
        into.clear();
        let entries = table.with_prefix(bucket, self.bucket_bits);
        let remainder = |symbol: u64| symbol & self.field.mask();
        into.extend(entries.iter().map(|entry| remainder(entry.symbol(self.symbol_bits))));
    }

    /// Syndromes of a bucket, and whether remainder 0 occurs in it an odd number of times.
    fn sketch(&self, remainders: &[u64], syndromes: &mut [u64]) -> bool {
        toggle_symbols(self.field, syndromes, remainders);
        remainders.iter().filter(|&&remainder| remainder == 0).count() % 2 == 1
    }

    fn symbol(&self, bucket: u64, remainder: u64) -> u64 {
        bucket.checked_shl(self.field.bits().into()).unwrap_or(0) | remainder
    }
}

/// The responder's half.
#[derive(Debug)]
pub(crate) struct Encoder {
    partition: Partition,
    window: u64,
    listed: Vec<u32>,
    cursor: usize,
    from: u8,
    to: u8,
}

impl Encoder {
    pub(crate) fn new(partition: Partition, syndrome_count: u8) -> Self {
        let listed = partition.window_buckets();
        Self { partition, window: 0, listed, cursor: 0, from: 0, to: syndrome_count }
    }

    /// The next frame; `None` if everything that was requested is sent.
    ///
    /// # Errors
    /// If a whole bucket was requested that is longer than a frame.
    pub(crate) fn next(&mut self, table: &Table) -> Result<Option<Message>> {
        let left = self.listed.get(self.cursor..).unwrap_or_default();
        if left.is_empty() {
            return Ok(None);
        }
        let mut bits = LsbWriter::new();
        let mut count = 0;
        let width = u32::from(self.partition.field.bits());
        let (mut remainders, mut syndromes) = (Vec::new(), Vec::new());
        for &place in left {
            if bits.bit_len() >= 8 * FRAME_BODY_BYTES_CUT as u64 {
                break;
            }
            let bucket = self.partition.bucket(self.window, place);
            self.partition.remainders(table, bucket, &mut remainders);
            count += 1;
            if self.to == Extend::LIST {
                let bytes = remainders.len() * usize::from(self.partition.field.bits()) / 8;
                if bytes > BUCKET_BYTES_MAX {
                    return Err(limit("bytes of a bucket", bytes as u64, BUCKET_BYTES_MAX as u64));
                }
                bits.write_bits(remainders.len() as u64, 32);
                remainders.iter().for_each(|&remainder| bits.write_bits(remainder, width));
                continue;
            }
            syndromes.clear();
            syndromes.resize(usize::from(self.to), 0);
            let has_zero = self.partition.sketch(&remainders, &mut syndromes);
            if self.from == 0 {
                bits.write_bits(has_zero.into(), 1);
            }
            let more = syndromes.iter().skip(usize::from(self.from));
            more.for_each(|&syndrome| bits.write_bits(syndrome, width));
        }
        self.cursor += count;
        let (window, count, bits) = (self.window, count as u64, bits.finish());
        Ok(Some(if self.to == Extend::LIST {
            Message::Buckets { window, count, bits }
        } else {
            Message::Sketch { window, from: self.from, to: self.to, count, bits }
        }))
    }

    /// Whether a frame is to be sent now.
    pub(crate) const fn is_sending(&self) -> bool {
        self.cursor < self.listed.len()
    }

    /// Handles the initiator's next request. `first` is the number of syndromes at the start of a new
    /// window.
    pub(crate) fn extend(&mut self, extend: &Extend, first: u8) -> Result<(), SessionFrameError> {
        let field = |field: &'static str, got: u64| SessionFrameError::Field { field, got };
        if extend.window != self.window || self.is_sending() {
            return Err(field("window", extend.window));
        }
        if extend.to == Extend::COMPLETE {
            if self.window + 1 >= self.partition.window_count() {
                return Err(field("window", self.window + 1));
            }
            self.window += 1;
            self.listed = self.partition.window_buckets();
            (self.cursor, self.from, self.to) = (0, 0, first);
            return Ok(());
        }
        let is_more = extend.to > self.to && usize::from(extend.to) <= SYNDROMES_MAX;
        if self.to == Extend::LIST || !(is_more || extend.to == Extend::LIST) {
            return Err(field("syndromes", extend.to.into()));
        }
        let places = read_places(&extend.places, self.listed.len())?;
        self.listed = places.iter().filter_map(|&place| self.listed.get(place).copied()).collect();
        (self.cursor, self.from, self.to) = (0, self.to, extend.to);
        Ok(())
    }
}

/// Encodes positions among `listed` buckets: a byte for the form, then a bitmap or a list.
fn put_places(places: &[usize], listed: usize) -> Vec<u8> {
    let mut bitmap = vec![0u8; listed.div_ceil(8)];
    for &place in places {
        if let Some(byte) = bitmap.get_mut(place / 8) {
            *byte |= 1 << (place % 8);
        }
    }
    let values: Vec<u64> = places.iter().map(|&place| place as u64).collect();
    let mut list = vec![1];
    ListWriter::new(listed as u128, values.len() as u64).put(&mut list, &values, usize::MAX / 8);
    if list.len() <= bitmap.len() { list } else { [vec![0], bitmap].concat() }
}

fn read_places(bytes: &[u8], listed: usize) -> Result<Vec<usize>, SessionFrameError> {
    let mut reader = Reader::new(bytes);
    let places: Vec<usize> = if reader.u8("places")? == 0 {
        let bitmap = reader.bytes("places", listed.div_ceil(8))?;
        reader.finish()?;
        let is_set =
            |place: &usize| bitmap.get(place / 8).is_some_and(|b| b >> (place % 8) & 1 == 1);
        (0..listed).filter(is_set).collect()
    } else {
        let mut list = ListReader::new(listed as u128, listed as u64);
        let (places, _) = list.read(&mut reader, 0)?;
        places.iter().filter_map(|&place| usize::try_from(place).ok()).collect()
    };
    if places.is_empty() || !places.is_sorted_by(|a, b| a < b) {
        return Err(SessionFrameError::Field { field: "places", got: places.len() as u64 });
    }
    Ok(places)
}

/// A bucket that is not decoded yet.
#[derive(Debug)]
struct Pending {
    place: u32,
    has_zero: bool,
    /// Syndromes of the difference.
    syndromes: Vec<u64>,
}

/// The initiator's half.
#[derive(Debug)]
pub(crate) struct Decoder {
    partition: Partition,
    seed: u64,
    first: u8,
    window: u64,
    listed: Vec<Pending>,
    cursor: usize,
    failed: Vec<usize>,
    from: u8,
    to: u8,
    rounds: u32,
    decoded_count: u64,
    symbols: Vec<u64>,
}

/// The next step after a frame.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// More frames will arrive.
    Waiting,
    /// Send this.
    Ask(Extend),
    /// The symbols of all differences, unsorted.
    Decoded(Vec<u64>),
    /// There are far more differences than planned for: about this many.
    Overfull(f64),
}

impl Decoder {
    /// A decoder; the caller bounds the number of differences that it gathers.
    pub(crate) fn new(partition: Partition, syndrome_count: u8, seed: u64) -> Self {
        let mut decoder = Self {
            partition,
            seed,
            first: syndrome_count,
            window: 0,
            listed: Vec::new(),
            cursor: 0,
            failed: Vec::new(),
            from: 0,
            to: syndrome_count,
            rounds: 1,
            decoded_count: 0,
            symbols: Vec::new(),
        };
        decoder.begin_window();
        decoder
    }

    fn begin_window(&mut self) {
        let pending = |place| Pending { place, has_zero: false, syndromes: Vec::new() };
        self.listed = self.partition.window_buckets().into_iter().map(pending).collect();
        (self.cursor, self.from, self.to, self.rounds) = (0, 0, self.first, 1);
        self.decoded_count = 0;
    }

    /// Number of differences found so far.
    pub(crate) const fn found(&self) -> usize {
        self.symbols.len()
    }

    /// Processes a frame of syndromes.
    pub(crate) fn take_sketch(&mut self, table: &Table, message: &Message) -> Result<()> {
        let Message::Sketch { window, from, to, count, bits } = message else { return Ok(()) };
        if self.to == Extend::LIST || (*window, *from, *to) != (self.window, self.from, self.to) {
            return Err(SessionFrameError::Field { field: "syndromes", got: (*to).into() }.into());
        }
        let count = self.check_count(*count)?;
        let width = u32::from(self.partition.field.bits());
        let mut reader = LsbReader::new(bits);
        let (mut remainders, mut own) = (Vec::new(), Vec::new());
        let end = self.cursor + count;
        for at in self.cursor..end {
            let Some(pending) = self.listed.get_mut(at) else { break };
            let bucket = self.partition.bucket(self.window, pending.place);
            self.partition.remainders(table, bucket, &mut remainders);
            own.clear();
            own.resize(usize::from(*to), 0);
            let own_zero = self.partition.sketch(&remainders, &mut own);
            if *from == 0 {
                pending.has_zero = own_zero ^ (read_bits(&mut reader, 1)? == 1);
            }
            for syndrome in own.iter().skip(usize::from(*from)) {
                pending.syndromes.push(syndrome ^ read_bits(&mut reader, width)?);
            }
            let seed = self.seed ^ bucket;
            match decode_syndromes(self.partition.field, &pending.syndromes, seed) {
                Some(mut found) => {
                    found.extend(pending.has_zero.then_some(0));
                    self.decoded_count += found.len() as u64;
                    let symbols = found.iter().map(|&rest| self.partition.symbol(bucket, rest));
                    self.symbols.extend(symbols);
                }
                None => self.failed.push(at),
            }
        }
        self.cursor = end;
        reader.finish().map_err(|_| SessionFrameError::Field { field: "padding", got: 1 })?;
        Ok(())
    }

    /// Processes a frame of whole buckets.
    pub(crate) fn take_buckets(
        &mut self,
        table: &Table,
        window: u64,
        count: u64,
        bits: &[u8],
    ) -> Result<()> {
        if self.to != Extend::LIST || window != self.window {
            return Err(SessionFrameError::Field { field: "window", got: window }.into());
        }
        let count = self.check_count(count)?;
        let width = u32::from(self.partition.field.bits());
        let mut reader = LsbReader::new(bits);
        let mut remainders = Vec::new();
        let end = self.cursor + count;
        for pending in self.listed.get(self.cursor..end).unwrap_or_default() {
            let bucket = self.partition.bucket(self.window, pending.place);
            self.partition.remainders(table, bucket, &mut remainders);
            for _ in 0..read_bits(&mut reader, 32)? {
                remainders.push(read_bits(&mut reader, width)?);
            }
            remainders.sort_unstable();
            let odd = remainders.chunk_by(|a, b| a == b).filter(|same| same.len() % 2 == 1);
            let symbols = odd.filter_map(|same| same.first());
            self.symbols.extend(symbols.map(|&rest| self.partition.symbol(bucket, rest)));
        }
        self.cursor = end;
        reader.finish().map_err(|_| SessionFrameError::Field { field: "padding", got: 1 })?;
        Ok(())
    }

    fn check_count(&self, count: u64) -> Result<usize, SessionFrameError> {
        let left = self.listed.len() - self.cursor;
        let checked = usize::try_from(count).ok().filter(|count| (1..=left).contains(count));
        checked.ok_or(SessionFrameError::Field { field: "bucket count", got: count })
    }

    /// The next step after a frame.
    pub(crate) fn verdict(&mut self, table: &Table) -> Verdict {
        if self.cursor < self.listed.len() {
            return Verdict::Waiting;
        }
        if self.failed.is_empty() {
            if self.window + 1 >= self.partition.window_count() {
                return Verdict::Decoded(std::mem::take(&mut self.symbols));
            }
            let window = self.window;
            self.window += 1;
            self.begin_window();
            return Verdict::Ask(Extend { window, to: Extend::COMPLETE, places: Vec::new() });
        }
        let places = put_places(&self.failed, self.listed.len());
        let next = self.next_threshold();
        if next == Extend::LIST && self.is_too_long(table) {
            let mean = 2.0 * SYNDROMES_MAX as f64;
            return Verdict::Overfull(mean * (1u64 << self.partition.bucket_bits) as f64);
        }
        let mut kept = Vec::new();
        let mut failed = std::mem::take(&mut self.failed).into_iter().peekable();
        for (at, pending) in std::mem::take(&mut self.listed).into_iter().enumerate() {
            if failed.next_if_eq(&at).is_some() {
                kept.push(pending);
            }
        }
        self.listed = kept;
        (self.cursor, self.from, self.to) = (0, self.to, next);
        self.rounds += 1;
        Verdict::Ask(Extend { window: self.window, to: next, places })
    }

    /// Whether whole buckets would be too long to send.
    fn is_too_long(&self, table: &Table) -> bool {
        let items = table.entries().len() >> self.partition.bucket_bits;
        items * usize::from(self.partition.field.bits()) / 8 > BUCKET_BYTES_MAX / 4
    }

    /// Number of syndromes that the failed buckets should have, given how many failed.
    fn next_threshold(&self) -> u8 {
        let have = usize::from(self.to);
        if have >= SYNDROMES_MAX {
            return Extend::LIST;
        }
        let buckets = self.partition.window_buckets().len() as u64;
        let mean = refit(self.decoded_count, buckets, self.failed.len() as u64, have);
        let left = GROWTH_ROUNDS.saturating_sub(self.rounds);
        let planned = Occupancy::new(mean, 0.0).grow(have, left.max(1)).next;
        // The planned rounds are used up, so the assumed distribution is wrong: take large steps.
        let least = if left == 0 { have * 3 / 2 } else { have + 1 };
        u8::try_from(planned.max(least).min(SYNDROMES_MAX)).unwrap_or(Extend::LIST)
    }
}

fn read_bits(reader: &mut LsbReader<'_>, width: u32) -> Result<u64, SessionFrameError> {
    reader.read_bits(width).map_err(|_| SessionFrameError::Truncated { field: "syndromes" })
}
