//! Replaces some groups of a run, and leaves the others where they are.
//!
//! A filter that comes in parts, in order, would be coded anew as a whole with every part. Here a part's groups are
//! coded anew with the run's own code and buckets, and take the place of the old ones. What they need beyond it is
//! taken from a gap, which the next part finds at the end of its own place:
//!
//! ```text
//! before       │ kept │ old part │ kept                  │
//! no room      │ kept │ old part ┊     gap     ┊ kept    │     the codes behind move, once
//! spliced      │ kept │ new part    ┊   gap    ┊ kept    │
//! next part    │ kept │ kept        ┊   gap    ┊ old ┊ … │
//! ```
//!
//! A gap has a share of the run, so codes move a bounded number of times until the run has doubled. When it has
//! outgrown its code, or has too many gaps, the caller makes a new one with room to grow.

use std::ops::Range;

use super::{Group, PADDING, Positions, Run, RunBuilder, Waypoint, index_of, union};

/// A run is outgrown when it has more positions than it was made for, by this share of them. Until then a bucket has
/// 72 uniform positions on average at most, and in practice never 128, so that its group is not uneven.
const OUTGROWN_SHARE: u64 = 2;

/// A growing run is made for more positions than it has, by this share of them. So it has 1.25 · 1.5 times as many when
/// it is outgrown, and it and all runs before it coded 2.2 times its positions.
const ROOM_SHARE: u64 = 4;

/// A new gap is as long as this share of the codes. Until a run is outgrown, parts in order open about a dozen gaps. The
/// codes behind move at each, which takes a small part of the time of coding them.
const GAP_SHARE: usize = 16;

/// A run is outgrown, too, when its gaps are more than this share of the codes. It has room for two that were just
/// opened, so that parts of two filters can alternate.
const GAPS_SHARE: u64 = 8;

impl Run {
    /// The run of positions below `width` of which more are expected; `len` is their number.
    pub(in super::super) fn growing(
        width: u64,
        len: u64,
        positions: impl Iterator<Item = u64>,
    ) -> Self {
        let run = Self::of(width, len + len / ROOM_SHARE, positions);
        Self { is_loose: true, ..run }
    }

    /// Whether the run takes more memory, or is slower to ask, than one that is made anew.
    pub(in super::super) const fn is_loose(&self) -> bool {
        self.is_loose
    }

    /// The positions, from a few before this one on.
    pub(in super::super) fn positions_from(&self, position: u64) -> Positions<'_> {
        self.positions_from_group(self.group_of(position).0)
    }

    /// The groups of all positions from `first` to `last`.
    pub(in super::super) fn part(&self, first: u64, last: u64) -> Range<usize> {
        self.group_of(first).0..self.group_of(last).0 + 1
    }

    /// All positions that belong to the groups of a part.
    pub(in super::super) fn span(&self, part: &Range<usize>) -> Range<u64> {
        self.group_base(part.start)..self.group_base(part.end)
    }

    /// Whether a part is so large that a new run costs no more than splicing it.
    pub(in super::super) const fn is_most(&self, part: &Range<usize>) -> bool {
        2 * (part.end - part.start) >= self.groups.len()
    }

    /// Whether so many positions are too many for the run's code and buckets, or it has too many gaps.
    pub(in super::super) const fn is_outgrown(&self, len: u64) -> bool {
        let bits = 8 * self.bytes.len() as u64;
        len > self.len_hint + self.len_hint / OUTGROWN_SHARE
            || bits - self.bit_len > bits / GAPS_SHARE
    }

    /// Adds positions that increase and lie in the groups of a part. Time for the part and the positions, amortised.
    pub(in super::super) fn splice(&mut self, part: Range<usize>, more: impl Iterator<Item = u64>) {
        let mut old_len = 0;
        let end = self.group_base(part.end);
        let old = self.positions_from_group(part.start).take_while(|&position| position < end);
        let mut builder = RunBuilder::of_part(self, &part);
        union(old.inspect(|_| old_len += 1), more).for_each(|position| builder.push(position));
        let new = builder.finish();
        self.len = self.len - old_len + new.len;
        self.is_loose = true;
        self.replace(part, &new);
    }

    /// Puts the groups of a part, coded apart, into the place of the old ones.
    fn replace(&mut self, part: Range<usize>, new: &Self) {
        let codes = new.bytes.strip_suffix(&PADDING).expect("a run ends with its padding");
        // Whole bytes between the groups around, whose codes may end or begin inside of a byte.
        let from = part.start.checked_sub(1).map_or(0, |before| self.groups[before].end());
        let from = index_of(from.div_ceil(8));
        let to = from + codes.len();
        let room_to = match self.groups.get(part.end) {
            Some(after) => index_of(after.start() / 8),
            None => self.bytes.len() - PADDING.len(),
        };
        if to > room_to {
            let gap = self.bytes.len() / GAP_SHARE;
            self.move_codes(part.end, room_to, to - room_to + gap);
        }
        self.bytes[from..to].copy_from_slice(codes);
        let offset = 8 * from as u64;
        let moved =
            |waypoint: &Waypoint| Waypoint { offset: offset + waypoint.offset, ..*waypoint };
        let waypoints = self.waypoints_of(&part);
        self.waypoints.splice(waypoints, new.waypoints.iter().map(moved));
        for (ours, &theirs) in self.groups[part].iter_mut().zip(&new.groups) {
            self.bit_len -= ours.end() - ours.start();
            *ours = Group { start: offset + theirs.start, ..theirs };
        }
        self.bit_len += new.bit_len;
    }

    /// Moves the codes from a group on, which begin in the byte `from`, by so many bytes. The gap keeps what was there,
    /// because that byte may hold the end of the codes before, too.
    fn move_codes(&mut self, group: usize, from: usize, byte_count: usize) {
        let end = self.bytes.len();
        self.bytes.reserve_exact(byte_count);
        self.bytes.resize(end + byte_count, 0);
        self.bytes.copy_within(from..end, from + byte_count);
        let waypoints = self.waypoints_of(&(group..self.groups.len()));
        let bit_count = 8 * byte_count as u64;
        self.groups[group..].iter_mut().for_each(|group| group.start += bit_count);
        self.waypoints[waypoints].iter_mut().for_each(|waypoint| waypoint.offset += bit_count);
    }

    /// The waypoints of a part's groups.
    fn waypoints_of(&self, part: &Range<usize>) -> Range<usize> {
        let Range { start, end } = self.span(part);
        let before = |base| self.waypoints.partition_point(|waypoint| waypoint.base < base);
        before(start)..before(end)
    }
}
