//! The compressed run: sorted positions as Rice-coded gaps, cut into buckets that are read alone.
//!
//! A bucket is the positions with equal high bits, x >> s. Its code is its gaps, the first one from
//! the bucket's start: x − previous − 1, where the previous of the first is the position before the
//! bucket. Gaps of uniform positions have no memory, so cutting them costs no code bits, and where
//! a bucket ends its bit offset says. Bit offsets stand in groups, one cache line for 28 buckets:
//!
//! ```text
//! group    │ start, 64 bits │ end 0 │ end 1 │ … │ end 27 │      ends: 16 bits each, from start on
//! codes    ┊ bucket 0 ┊ bucket 1 ┊ bucket 2 ┊ …
//!          start      start + end 0         start + end 2
//! ```
//!
//! A gap's Rice code is a quotient in unary code and B low bits, and a bucket has first all
//! quotients and then all low bits, the last gap's first. It is as long as the codes one after the
//! other, its number of gaps is known when the two parts meet, and it is decoded twice as fast: to
//! find a quotient the processor waits for the quotients before, but not for their low bits.
//!
//! ```text
//! gaps 2, 5, 0 with B = 2:   0 10 │ 10 01 │ 0 00   →   0 10 0 ┊ 00 01 10
//! ```
//!
//! So a query reads one line of the index and one or two of codes. s is the least that gives a
//! bucket 24 positions on average, which is then below twice as many (`builder`).
//!
//! *Uneven groups.* Positions of hashed items are uniform, and without the hash's seed nobody can
//! choose them. Should they crowd together all the same, a group has a bucket of more than
//! [`STRETCH_LEN_MAX`] positions, or more bits than 16-bit ends can tell. Such a group has
//! *waypoints* instead of ends, in a sorted list: places where reading can start, one at the start
//! of every bucket that is not empty and one every [`STRETCH_LEN_MAX`] positions inside. Therefore
//! no query decodes more than [`STRETCH_LEN_MAX`] gaps, whatever the positions are.
//!
//! A group says where its codes begin and how long they are, so groups need not follow each other without a gap, and
//! some can be replaced while the others stay where they are (`splice` draws it).

use umbel_bits::{BitReader, RiceCode};

use crate::bits::wide::prefetch_far;

#[cfg(test)]
pub(super) use builder::CODED;
pub(super) use builder::RunBuilder;

mod builder;
mod splice;

/// Most gaps that a query decodes. Of uniform positions, a bucket of more than 128 has probability
/// below 2^-60, because 48 are expected at most. In a run that was spliced 72 are, and it is below 2^-28.
const STRETCH_LEN_MAX: usize = 128;

/// Buckets of a group: as many as fill a cache line.
const GROUP_BUCKETS: usize = 28;

/// Flag of an uneven group in its start. Bit offsets are far below it.
const UNEVEN: u64 = 1 << 63;

/// Zeros behind the codes, so that eight bytes can be read from any of their bits on.
const PADDING: [u8; 8] = [0; 8];

/// Bits that an unaligned word has from any bit offset on.
const WINDOW_BITS: u32 = 57;

/// Queries of a batch that are in flight at once: enough to hide the latency of memory.
const BATCH_LEN: usize = 32;

/// Bytes of a cache line, what one prefetch brings.
const LINE_BYTES: usize = 64;

/// Where a group's buckets lie in the codes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Group {
    /// Bit offset of the first bucket, and the flag [`UNEVEN`].
    start: u64,
    /// End of each bucket in bits from `start`. If uneven, the first four are the number of bits of all codes, the
    /// low part first, and the others mean nothing.
    ends: [u16; GROUP_BUCKETS],
}

impl Group {
    /// Bit offset of the first bucket.
    const fn start(&self) -> u64 {
        self.start & !UNEVEN
    }

    const fn is_uneven(&self) -> bool {
        self.start & UNEVEN != 0
    }

    /// Bit offset behind the last bucket.
    fn end(&self) -> u64 {
        let [first, second, third, fourth, .., last] = self.ends.map(u64::from);
        let bit_len =
            if self.is_uneven() { first | second << 16 | third << 32 | fourth << 48 } else { last };
        self.start() + bit_len
    }

    /// Keeps the number of bits of an uneven group, whose ends cannot tell it.
    fn set_uneven_len(&mut self, bit_len: u64) {
        for (part, end) in self.ends.iter_mut().take(4).enumerate() {
            let [low, high, ..] = (bit_len >> (16 * part)).to_le_bytes();
            *end = u16::from_le_bytes([low, high]);
        }
    }
}

const GROUP: Group = Group { start: 0, ends: [0; GROUP_BUCKETS] };

/// A place where reading can start.
#[derive(Clone, Copy, Debug)]
struct Waypoint {
    /// Least position that may be coded from here on.
    base: u64,
    /// Bit offset of the next gap.
    offset: u64,
}

/// Codes to be read for one query.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Least position that may be coded here.
    base: u64,
    /// Bit offset of the first gap.
    from: u64,
    /// Bit offset behind the last gap.
    to: u64,
}

/// Strictly increasing positions, compressed.
#[derive(Clone, Debug)]
pub(super) struct Run {
    len: u64,
    /// The number of positions that code and buckets were chosen for.
    len_hint: u64,
    /// Whether code, buckets or memory are not what the positions need, because some were spliced in or are expected.
    is_loose: bool,
    code: RiceCode,
    /// A position's bucket is the position without so many low bits.
    shift: u32,
    /// Codes of all groups, with gaps between them if some were spliced, then [`PADDING`].
    bytes: Vec<u8>,
    /// Bits of codes, without gaps.
    bit_len: u64,
    /// None begins before the end of the one before.
    groups: Vec<Group>,
    /// Only of uneven groups, both numbers increasing.
    waypoints: Vec<Waypoint>,
}

impl Run {
    /// The run of strictly increasing positions below `width`; `len_hint` is about their number.
    pub(super) fn of(width: u64, len_hint: u64, positions: impl Iterator<Item = u64>) -> Self {
        let mut builder = RunBuilder::new(width, len_hint);
        positions.for_each(|position| builder.push(position));
        builder.finish()
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of codes and index.
    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = self.bytes.capacity()
            + size_of::<Group>() * self.groups.capacity()
            + size_of::<Waypoint>() * self.waypoints.capacity();
        bytes as u64
    }

    /// Whether the run has a position, which must be below its width.
    #[inline]
    pub(super) fn contains(&self, position: u64) -> bool {
        self.len > 0 && self.finds(self.stretch(position), position)
    }

    /// Calls `answer` with every index of `positions`, in order, and whether the run has the
    /// position. Memory accesses of [`BATCH_LEN`] positions overlap.
    pub(super) fn contains_batch(&self, positions: &[u64], mut answer: impl FnMut(usize, bool)) {
        if self.len == 0 {
            (0..positions.len()).for_each(|index| answer(index, false));
            return;
        }
        let mut stretches = [Stretch { base: 0, from: 0, to: 0 }; BATCH_LEN];
        for (chunk, first) in positions.chunks(BATCH_LEN).zip((0..).step_by(BATCH_LEN)) {
            for &position in chunk {
                prefetch_far(&self.groups, self.group_of(position).0);
            }
            for (stretch, &position) in stretches.iter_mut().zip(chunk) {
                *stretch = self.stretch(position);
                let (first, last) = (index_of(stretch.from / 8), index_of(stretch.to / 8));
                prefetch_far(&self.bytes, first);
                prefetch_far(&self.bytes, last);
                prefetch_far(&self.bytes, last.saturating_sub(LINE_BYTES));
            }
            for ((&stretch, &position), index) in stretches.iter().zip(chunk).zip(first..) {
                answer(index, self.finds(stretch, position));
            }
        }
    }

    /// All positions, ascending, decoded on the way.
    pub(super) fn positions(&self) -> Positions<'_> {
        self.positions_from_group(0)
    }

    /// The same from a group on.
    fn positions_from_group(&self, group: usize) -> Positions<'_> {
        let base = self.group_base(group);
        Positions {
            run: self,
            quotients: BitReader::new(&self.bytes),
            high_at: 0,
            low_at: 0,
            base: 0,
            bucket: (group * GROUP_BUCKETS) as u64,
            waypoint: self.waypoints.partition_point(|waypoint| waypoint.base < base),
        }
    }

    /// Index of a position's group, and of its bucket in there.
    #[inline]
    fn group_of(&self, position: u64) -> (usize, usize) {
        let bucket = index_of(position >> self.shift);
        (bucket / GROUP_BUCKETS, bucket % GROUP_BUCKETS)
    }

    /// Codes that hold the position, if the run has it.
    #[inline]
    fn stretch(&self, position: u64) -> Stretch {
        let (index, place) = self.group_of(position);
        let group = &self.groups[index];
        if group.is_uneven() {
            return self.uneven_stretch(group, position);
        }
        let from = if place == 0 { 0 } else { group.ends[place - 1] };
        Stretch {
            base: position >> self.shift << self.shift,
            from: group.start + u64::from(from),
            to: group.start + u64::from(group.ends[place]),
        }
    }

    /// The same in an uneven group: from the last waypoint that is not beyond the position.
    #[cold]
    fn uneven_stretch(&self, group: &Group, position: u64) -> Stretch {
        let after = self.waypoints.partition_point(|waypoint| waypoint.base <= position);
        match after.checked_sub(1).map(|index| self.waypoints[index]) {
            Some(waypoint) if waypoint.offset >= group.start() => {
                let to = self.waypoints.get(after).map_or(u64::MAX, |next| next.offset);
                Stretch { base: waypoint.base, from: waypoint.offset, to: to.min(group.end()) }
            }
            // The group begins with empty buckets, and the position is in one of them.
            _ => Stretch { base: position, from: 0, to: 0 },
        }
    }

    /// The least position of a group, or beyond all positions if there is no such group.
    fn group_base(&self, index: usize) -> u64 {
        if index < self.groups.len() {
            ((index * GROUP_BUCKETS) as u64) << self.shift
        } else {
            u64::MAX
        }
    }

    /// The most gaps that one query may decode.
    #[cfg(test)]
    pub(super) fn stretch_len_max(&self) -> u32 {
        let gaps = |position| {
            let Stretch { from, to, .. } = self.stretch(position);
            let mut reader = BitReader::at(&self.bytes, from);
            let (mut count, mut left) = (0, to - from);
            while left > 0 {
                left -= u64::from(reader.read_unary(u32::MAX).unwrap() + 1 + self.code.low_bits());
                count += 1;
            }
            count
        };
        self.positions().map(gaps).max().unwrap_or(0)
    }

    /// Whether the codes hold the position, which is not below their base.
    #[inline]
    fn finds(&self, stretch: Stretch, position: u64) -> bool {
        let low_bits = self.code.low_bits();
        let (mut high_at, mut low_at) = (stretch.from, stretch.to);
        let (mut window, mut valid) = (0_u64, 0);
        let (mut wanted, mut quotient) = (position - stretch.base, 0);
        while high_at < low_at {
            let ones = window.leading_ones();
            if ones >= valid {
                // The unary code goes on behind the window.
                quotient += u64::from(valid);
                high_at += u64::from(valid);
                (window, valid) = (self.window(high_at), WINDOW_BITS);
                continue;
            }
            window <<= ones + 1;
            valid -= ones + 1;
            high_at += u64::from(ones + 1);
            low_at -= u64::from(low_bits);
            let gap = (quotient + u64::from(ones)) << low_bits | self.low(low_at);
            if gap >= wanted {
                return gap == wanted;
            }
            wanted -= gap + 1;
            quotient = 0;
        }
        false
    }

    /// The low bits of a gap.
    #[inline]
    fn low(&self, offset: u64) -> u64 {
        let low_bits = self.code.low_bits();
        if low_bits > WINDOW_BITS {
            return BitReader::at(&self.bytes, offset).read_bits(low_bits).unwrap_or(0);
        }
        (self.window(offset) >> 1) >> (63 - low_bits)
    }

    /// The [`WINDOW_BITS`] bits from an offset on, at the top of a word; what is below them means
    /// nothing.
    #[inline]
    fn window(&self, offset: u64) -> u64 {
        let next = self.bytes.get(index_of(offset / 8)..).and_then(<[u8]>::first_chunk::<8>);
        next.map_or(0, |&next| u64::from_be_bytes(next) << (offset % 8))
    }
}

/// See [`Run::positions`].
#[derive(Clone, Debug)]
pub(super) struct Positions<'a> {
    run: &'a Run,
    /// Reads the quotients of a stretch.
    quotients: BitReader<'a>,
    /// Bit offset of the next quotient.
    high_at: u64,
    /// Bit offset behind the next low bits: equal to that of the next quotient after the last gap.
    low_at: u64,
    /// Least position that the next gap may stand for.
    base: u64,
    /// The bucket to read next.
    bucket: u64,
    /// The waypoint to read from next.
    waypoint: usize,
}

impl Positions<'_> {
    /// Turns to the next bucket, or in an uneven group to the next waypoint; false at the end.
    fn turn(&mut self) -> bool {
        let run = self.run;
        let bucket = index_of(self.bucket);
        let (index, place) = (bucket / GROUP_BUCKETS, bucket % GROUP_BUCKETS);
        let Some(group) = run.groups.get(index) else { return false };
        if !group.is_uneven() {
            let from = if place == 0 { 0 } else { group.ends[place - 1] };
            self.base = self.bucket << run.shift;
            self.bucket += 1;
            let ends = (u64::from(from), u64::from(group.ends[place]));
            self.read(group.start + ends.0, group.start + ends.1);
            return true;
        }
        let group_end = group.end();
        match run.waypoints.get(self.waypoint) {
            Some(waypoint) if waypoint.offset < group_end => {
                self.waypoint += 1;
                let next = run.waypoints.get(self.waypoint).map_or(u64::MAX, |next| next.offset);
                self.base = waypoint.base;
                self.read(waypoint.offset, next.min(group_end));
            }
            _ => self.bucket = ((index + 1) * GROUP_BUCKETS) as u64,
        }
        true
    }

    /// Turns to a stretch, by its bit offsets.
    fn read(&mut self, from: u64, to: u64) {
        self.quotients = BitReader::at(&self.run.bytes, from);
        (self.high_at, self.low_at) = (from, to);
    }
}

impl Iterator for Positions<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        while self.high_at >= self.low_at {
            if !self.turn() {
                return None;
            }
        }
        let ones = self.quotients.read_unary(u32::MAX).ok()?;
        self.high_at += u64::from(ones) + 1;
        let low_bits = self.run.code.low_bits();
        self.low_at -= u64::from(low_bits);
        let position = self.base + (u64::from(ones) << low_bits | self.run.low(self.low_at));
        self.base = position + 1;
        Some(position)
    }
}

/// The positions of either, ascending, each once. Both must strictly increase.
pub(super) fn union(
    ours: impl Iterator<Item = u64>,
    theirs: impl Iterator<Item = u64>,
) -> impl Iterator<Item = u64> {
    let (mut ours, mut theirs) = (ours.peekable(), theirs.peekable());
    std::iter::from_fn(move || match (ours.peek(), theirs.peek()) {
        (Some(our), Some(their)) if our > their => theirs.next(),
        (Some(our), Some(_)) => {
            theirs.next_if_eq(our);
            ours.next()
        }
        (Some(_), None) => ours.next(),
        (None, _) => theirs.next(),
    })
}

#[inline]
fn index_of(number: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "what is in memory has a usize index")]
    let index = number as usize;
    index
}
