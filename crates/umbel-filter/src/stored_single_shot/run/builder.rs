//! Codes the positions of a run, or of some of its groups, one by one.

use std::ops::Range;

use umbel_bits::{BitWriter, RiceCode};

use super::{
    GROUP, GROUP_BUCKETS, Group, PADDING, Run, STRETCH_LEN_MAX, UNEVEN, Waypoint, index_of,
};
use crate::bits::wide::allocated;

/// Least mean number of positions in a bucket; the mean is below twice as many. A bucket's place in
/// the index costs 512/28 = 18.3 bits, so 0.76 to 0.38 bit a position, and a query decodes half a
/// bucket.
const BUCKET_LEN_MIN: u64 = 24;

/// A quotient is less: a bucket spans 2^s < 48·(g + 1) + 2 positions at mean gap g, and
/// 2^B ≥ max(1, 0.48·g). So no quotient has to be escaped.
const QUOTIENT_MAX: u64 = 256;

/// Memory to reserve for codes over what uniform positions take on average, so that their vector
/// need not grow and move. What is too much is given back.
const RESERVE: f64 = 1.01;

/// Makes a run of positions that come one by one.
#[derive(Debug)]
pub(in super::super) struct RunBuilder {
    run: Run,
    bucket_count: u64,
    writer: BitWriter,
    /// The bucket that is being written.
    bucket: u64,
    /// Least position that the next gap may stand for.
    base: u64,
    /// Low bits of the stretch's gaps.
    lows: Vec<u64>,
    /// The group that is being written, and how many of its buckets are.
    group: Group,
    place: usize,
    /// Waypoints before the group.
    waypoints_before: usize,
}

#[cfg(test)]
std::thread_local! {
    /// Number of positions that this thread has coded.
    pub(in super::super) static CODED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl RunBuilder {
    /// A builder for positions below `width`, 1 or more. The run is smallest, and fastest to ask,
    /// if their number is about `len_hint`; memory for so many is reserved.
    pub(in super::super) fn new(width: u64, len_hint: u64) -> Self {
        let len_hint = len_hint.clamp(1, width);
        let mean_gap = (width - len_hint) as f64 / len_hint as f64;
        let code = RiceCode::for_mean_gap(mean_gap);
        // The least span 2^s of a bucket with span · len / width ≥ BUCKET_LEN_MIN.
        let span = (u128::from(BUCKET_LEN_MIN) * u128::from(width)).div_ceil(len_hint.into());
        let shift = span.next_power_of_two().ilog2().min(63);
        let bucket_count = ((width - 1) >> shift) + 1;
        let group_count = bucket_count.div_ceil(GROUP_BUCKETS as u64);
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        let bytes = (code.expected_bits(mean_gap) * RESERVE * len_hint as f64 / 8.0) as usize;
        let run = Run {
            len: 0,
            len_hint,
            is_loose: false,
            code,
            shift,
            bytes: Vec::new(),
            bit_len: 0,
            groups: reserved(index_of(group_count), GROUP),
            waypoints: Vec::new(),
        };
        Self {
            run,
            bucket_count,
            writer: BitWriter::with_buffer(reserved(bytes + PADDING.len(), 0)),
            bucket: 0,
            base: 0,
            lows: Vec::new(),
            group: GROUP,
            place: 0,
            waypoints_before: 0,
        }
    }

    /// A builder for the groups of a part, with the code and the buckets of their run.
    pub(super) fn of_part(run: &Run, part: &Range<usize>) -> Self {
        let base = run.group_base(part.start);
        let run = Run {
            len: 0,
            len_hint: run.len_hint,
            is_loose: true,
            code: run.code,
            shift: run.shift,
            bytes: Vec::new(),
            bit_len: 0,
            groups: Vec::new(),
            waypoints: Vec::new(),
        };
        Self {
            run,
            bucket_count: (part.end * GROUP_BUCKETS) as u64,
            writer: BitWriter::new(),
            bucket: (part.start * GROUP_BUCKETS) as u64,
            base,
            lows: Vec::new(),
            group: GROUP,
            place: 0,
            waypoints_before: 0,
        }
    }

    /// Adds a position, above all before and below the width.
    #[inline]
    pub(in super::super) fn push(&mut self, position: u64) {
        debug_assert!(position >= self.base, "{position} comes after {}", self.base);
        #[cfg(test)]
        CODED.with(|coded| coded.set(coded.get() + 1));
        while position >> self.run.shift != self.bucket {
            self.close_bucket();
        }
        if self.lows.len() == STRETCH_LEN_MAX {
            self.close_stretch();
            self.group.start |= UNEVEN;
        }
        if self.lows.is_empty() {
            let offset = self.writer.bit_len();
            self.run.waypoints.push(Waypoint { base: self.base, offset });
        }
        let gap = position - self.base;
        let quotient = gap >> self.run.code.low_bits();
        debug_assert!(quotient < QUOTIENT_MAX, "{quotient} at {position}");
        self.writer.write_unary(u32::try_from(quotient).expect("at most QUOTIENT_MAX"));
        self.lows.push(gap);
        self.base = position + 1;
        self.run.len += 1;
    }

    /// The run of what was pushed.
    pub(in super::super) fn finish(mut self) -> Run {
        while self.bucket < self.bucket_count || self.place > 0 {
            self.close_bucket();
        }
        self.run.bit_len = self.writer.bit_len();
        self.run.bytes = self.writer.finish();
        self.run.bytes.extend(PADDING);
        self.run.bytes.shrink_to_fit();
        self.run.groups.shrink_to_fit();
        self.run.waypoints.shrink_to_fit();
        self.run
    }

    /// Writes the low bits behind the quotients, the last first.
    fn close_stretch(&mut self) {
        let low_bits = self.run.code.low_bits();
        self.lows.drain(..).rev().for_each(|gap| self.writer.write_bits(gap, low_bits));
    }

    fn close_bucket(&mut self) {
        self.close_stretch();
        let end = self.writer.bit_len();
        match u16::try_from(end - self.group.start()) {
            Ok(end) => self.group.ends[self.place] = end,
            Err(_) => self.group.start |= UNEVEN,
        }
        self.bucket += 1;
        self.base = self.bucket << self.run.shift;
        self.place += 1;
        if self.place == GROUP_BUCKETS {
            if self.group.is_uneven() {
                self.group.set_uneven_len(end - self.group.start());
            } else {
                self.run.waypoints.truncate(self.waypoints_before);
            }
            self.waypoints_before = self.run.waypoints.len();
            self.run.groups.push(self.group);
            self.group.start = end;
            self.place = 0;
        }
    }
}

/// An empty vector with room for so many values, on huge pages where the system has them: queries
/// read at random, as in a bit array.
fn reserved<T: Copy>(count: usize, value: T) -> Vec<T> {
    let mut vector = allocated(count, || value).unwrap_or_default();
    vector.clear();
    vector
}
