//! A file of the simulated disk: what is durable, what readers see, and the changes in between.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use crate::plan::LossMode;

/// Sector size: a sector is written as a whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Bytes, and which of them have flipped bits.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    bytes: Vec<u8>,
    /// Offset to the bits that flipped; bytes that were written since are not in it.
    rotten: BTreeMap<usize, u8>,
}

impl Stored {
    /// The bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.heal(offset..end);
    }

    fn set_len(&mut self, byte_count: usize) {
        self.bytes.resize(byte_count, 0);
        self.heal(byte_count..usize::MAX);
    }

    fn heal(&mut self, range: Range<usize>) {
        if !self.rotten.is_empty() {
            self.rotten.retain(|offset, _| !range.contains(offset));
        }
    }

    fn flip(&mut self, offset: usize, bit: u8) {
        self.bytes[offset] ^= 1 << bit;
        let bits = self.rotten.entry(offset).or_default();
        *bits ^= 1 << bit;
        if *bits == 0 {
            self.rotten.remove(&offset);
        }
    }

    fn rotten_in(&self, range: Range<usize>) -> usize {
        if self.rotten.is_empty() { 0 } else { self.rotten.range(range).count() }
    }
}

/// A change that is not durable yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Bytes at an offset. Never empty.
    Write(usize, Bytes),
    /// A length in bytes.
    Length(usize),
}

impl Change {
    fn apply(&self, to: &mut Stored) {
        match self {
            Self::Write(offset, bytes) => to.write(*offset, bytes),
            Self::Length(byte_count) => to.set_len(*byte_count),
        }
    }
}

/// The effect of a power loss on a file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct FileLoss {
    /// Bytes that read otherwise than before, those beyond the shorter length included.
    pub(super) lost_bytes: u64,
    /// Some of what was not durable survived, and some did not.
    pub(super) is_torn: bool,
}

/// The states of a file's bytes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Layers {
    durable: Stored,
    /// What readers see. It may differ from what `pending` makes of `durable`: by what a failed sync
    /// left in memory.
    current: Stored,
    pending: Vec<Change>,
    /// Where the first write of each sync began, ascending, as far as no later write or cut went
    /// below it.
    synced_starts: Vec<usize>,
}

impl Layers {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Makes everything durable, except what a failed sync has lost.
    fn sync(&mut self) {
        let mut first_write = usize::MAX;
        for change in std::mem::take(&mut self.pending) {
            match &change {
                Change::Write(offset, _) => first_write = first_write.min(*offset),
                Change::Length(byte_count) if *byte_count <= first_write => {
                    first_write = usize::MAX;
                }
                Change::Length(_) => {}
            }
            self.harden(&change);
        }
        if first_write < usize::MAX {
            self.forget_starts_from(first_write);
            self.synced_starts.push(first_write);
        }
    }

    fn harden(&mut self, change: &Change) {
        change.apply(&mut self.durable);
        if let Change::Length(byte_count) = change {
            self.forget_starts_from(*byte_count);
        }
    }

    fn forget_starts_from(&mut self, offset: usize) {
        while self.synced_starts.pop_if(|start| *start >= offset).is_some() {}
    }

    /// The file after a power loss.
    fn lose(&mut self, mode: LossMode, rng: &mut ChaCha8Rng) -> FileLoss {
        let pending = std::mem::take(&mut self.pending);
        let before = self.durable.bytes.clone();
        match mode {
            LossMode::All => {}
            LossMode::Prefix => {
                let kept = rng.random_range(0..=pending.len());
                pending[..kept].iter().for_each(|change| self.harden(change));
            }
            LossMode::Subset => self.keep_sectors(&pending, rng),
        }
        let (seen, left) = (&self.current.bytes, &self.durable.bytes);
        let differing = seen.iter().zip(left).filter(|(seen, left)| seen != left).count();
        let lost_bytes = (differing + seen.len().abs_diff(left.len())) as u64;
        let is_torn = lost_bytes > 0 && *left != before;
        self.current = self.durable.clone();
        FileLoss { lost_bytes, is_torn }
    }

    /// Keeps some sectors. A sector is written back whole, at some moment: of the pending writes in
    /// it the first few survive, or all, or none. Lengths go their own way.
    fn keep_sectors(&mut self, pending: &[Change], rng: &mut ChaCha8Rng) {
        let mut pieces_by_sector: BTreeMap<usize, usize> = BTreeMap::new();
        for (sector, ..) in pending.iter().flat_map(pieces) {
            *pieces_by_sector.entry(sector).or_default() += 1;
        }
        let mut left_by_sector = pieces_by_sector;
        for count in left_by_sector.values_mut() {
            *count = if rng.random_bool(0.5) { rng.random_range(1..=*count) } else { 0 };
        }
        for change in pending {
            let end = match change {
                Change::Write(offset, bytes) => offset + bytes.len(),
                Change::Length(byte_count) => *byte_count,
            };
            let is_write = matches!(change, Change::Write(..));
            if (!is_write || end > self.durable.bytes.len()) && rng.random_bool(0.5) {
                self.harden(&Change::Length(end));
            }
            for (sector, offset, bytes) in pieces(change) {
                let left = left_by_sector.get_mut(&sector).filter(|left| **left > 0);
                if let Some(left) = left {
                    *left -= 1;
                    self.durable.write(offset, bytes);
                }
            }
        }
    }
}

/// Splits a write at sector borders: sector number, offset in the file, bytes.
fn pieces(change: &Change) -> Vec<(usize, usize, &[u8])> {
    let Change::Write(start, bytes) = change else { return Vec::new() };
    let (mut offset, mut rest, mut pieces) = (*start, &bytes[..], Vec::new());
    while !rest.is_empty() {
        let room = SECTOR_BYTES - offset % SECTOR_BYTES;
        let (piece, behind) = rest.split_at(room.min(rest.len()));
        pieces.push((offset / SECTOR_BYTES, offset, piece));
        offset += piece.len();
        rest = behind;
    }
    pieces
}

/// A misdirected write that may still be undone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Misdirected {
    /// The file as it would be if no write had been misdirected.
    righted: Layers,
    /// Number of misdirected writes that `righted` has at their right place.
    write_count: u64,
    /// Whether a write followed, which no sync has lost.
    is_followed: bool,
}

/// A file.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Content {
    layers: Layers,
    misdirected: Option<Box<Misdirected>>,
}

impl Content {
    /// The contents that readers see.
    #[cfg(test)]
    pub(super) fn current(&self) -> &Stored {
        &self.layers.current
    }

    /// The durable contents.
    #[cfg(test)]
    pub(super) fn durable(&self) -> &Stored {
        &self.layers.durable
    }

    /// What is not durable yet, in order.
    #[cfg(test)]
    pub(super) fn pending(&self) -> &[Change] {
        &self.layers.pending
    }

    /// The file's length in bytes, as readers see it.
    pub(super) fn len(&self) -> usize {
        self.layers.current.bytes.len()
    }

    /// Up to `byte_count` bytes from `offset`, fewer only at the end, and how many of them are rotten.
    pub(super) fn read(&self, offset: usize, byte_count: usize) -> (Bytes, usize) {
        let from = offset.min(self.len());
        let to = from.saturating_add(byte_count).min(self.len());
        let current = &self.layers.current;
        (Bytes::copy_from_slice(&current.bytes[from..to]), current.rotten_in(from..to))
    }

    /// Writes bytes, visible at once, durable after a sync.
    pub(super) fn write(&mut self, offset: usize, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if let Some(misdirected) = &mut self.misdirected {
            misdirected.righted.change(Change::Write(offset, bytes.clone()));
            misdirected.is_followed = true;
        }
        self.layers.change(Change::Write(offset, bytes));
    }

    /// Writes bytes to another place of the file than the caller thinks. Where they should be, the
    /// file keeps what it had, or zeros if it was not as long.
    pub(super) fn misdirect(&mut self, offset: usize, bytes: Bytes, rng: &mut ChaCha8Rng) {
        let end = offset + bytes.len();
        let byte_count = self.len().max(end);
        let is_place = |place: &usize| place + bytes.len() <= offset || *place >= end;
        let last = byte_count.saturating_sub(bytes.len());
        let places: Vec<usize> = (0..=last).step_by(SECTOR_BYTES).filter(is_place).collect();
        let place = match places.len() {
            0 => end.next_multiple_of(SECTOR_BYTES),
            count => places[rng.random_range(0..count)],
        };
        let mut misdirected = self.misdirected.take().unwrap_or_else(|| {
            let righted = self.layers.clone();
            Box::new(Misdirected { righted, write_count: 0, is_followed: false })
        });
        misdirected.righted.change(Change::Write(offset, bytes.clone()));
        misdirected.write_count += 1;
        misdirected.is_followed = false;
        self.misdirected = Some(misdirected);
        if byte_count > self.len() {
            self.layers.change(Change::Length(byte_count));
        }
        self.layers.change(Change::Write(place, bytes));
    }

    /// Cuts the file or lengthens it with zeros.
    pub(super) fn set_len(&mut self, byte_count: usize) {
        if let Some(misdirected) = &mut self.misdirected {
            misdirected.righted.change(Change::Length(byte_count));
        }
        self.layers.change(Change::Length(byte_count));
    }

    /// Makes bytes and length durable. Says how many misdirected writes stay for good with that,
    /// because a write behind them is durable now.
    pub(super) fn sync(&mut self) -> u64 {
        self.layers.sync();
        let Some(misdirected) = &mut self.misdirected else { return 0 };
        if !misdirected.is_followed {
            misdirected.righted.sync();
            return 0;
        }
        let write_count = misdirected.write_count;
        self.misdirected = None;
        write_count
    }

    /// A sync that fails: what it should have made durable stays readable, but no later sync knows
    /// of it.
    pub(super) fn fail_sync(&mut self) {
        self.layers.pending.clear();
        if let Some(misdirected) = &mut self.misdirected {
            misdirected.righted.pending.clear();
            misdirected.is_followed = false;
        }
    }

    /// Puts misdirected writes where they belong, unless a durable write is behind them: a log could
    /// not tell them from a torn end.
    pub(super) fn put_right(&mut self) {
        if let Some(misdirected) = self.misdirected.take() {
            self.layers = misdirected.righted;
        }
    }

    /// Drops what was not synced.
    pub(super) fn lose(&mut self, mode: LossMode, rng: &mut ChaCha8Rng) -> FileLoss {
        self.put_right();
        self.layers.lose(mode, rng)
    }

    /// Where the last durable write begins: damage from there on looks like a torn end. 0 if
    /// nothing is known to be durable.
    pub(super) fn last_synced_start(&self) -> usize {
        let lengths = self.layers.pending.iter().filter_map(|change| match change {
            Change::Length(byte_count) => Some(*byte_count),
            Change::Write(..) => None,
        });
        let cut = lengths.min().unwrap_or(usize::MAX);
        let starts = self.layers.synced_starts.iter().rev();
        starts.copied().find(|start| *start < cut).unwrap_or(0)
    }

    /// Offsets below `limit` whose byte is durable and what readers see.
    pub(super) fn stable_offsets(&self, limit: usize) -> Vec<usize> {
        let (durable, current) = (&self.layers.durable.bytes, &self.layers.current.bytes);
        let end = limit.min(durable.len()).min(current.len());
        let mut is_stable: Vec<bool> = durable[..end]
            .iter()
            .zip(current)
            .map(|(durable, current)| durable == current)
            .collect();
        for change in &self.layers.pending {
            let covered = match change {
                Change::Write(offset, bytes) => *offset..offset + bytes.len(),
                // What was cut is covered, even where the file grew again.
                Change::Length(byte_count) => *byte_count..usize::MAX,
            };
            is_stable[covered.start.min(end)..covered.end.min(end)].fill(false);
        }
        (0..end).filter(|offset| is_stable[*offset]).collect()
    }

    /// Flips a bit for good. The offset must be stable.
    pub(super) fn flip(&mut self, offset: usize, bit: u8) {
        self.layers.durable.flip(offset, bit);
        self.layers.current.flip(offset, bit);
    }
}
