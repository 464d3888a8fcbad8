//! All items of a snapshot under one key, sorted by symbol.

use super::item::ItemIndex;
use super::keys::KeyedHash;

/// Index of items that came from the peer: the peer has them, so they are never sent or reported.
pub(crate) const APPLIED: ItemIndex = ItemIndex(u64::MAX);

/// An item of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) hash: KeyedHash,
    pub(crate) index: ItemIndex,
}

impl Entry {
    /// Whether the item came from the peer.
    pub(crate) const fn is_applied(&self) -> bool {
        self.index.0 == APPLIED.0
    }

    /// The item's symbol with `bits` bits.
    pub(crate) const fn symbol(&self, bits: u8) -> u64 {
        top_bits(self.hash.symbol, bits)
    }
}

/// The top `bits` bits of a symbol, 0 to 64.
pub(crate) const fn top_bits(symbol: u64, bits: u8) -> u64 {
    match symbol.checked_shr(64 - bits as u32) {
        Some(top) => top,
        None => 0,
    }
}

/// Entries sorted by symbol, 40 bytes per item.
#[derive(Clone, Default, Debug)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    /// Entries that a filter showed to be only here, in the same order.
    taken: Vec<Entry>,
}

impl Table {
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by_key(|entry| (entry.hash.symbol, entry.hash.hi, entry.index));
        Self { entries, taken: Vec::new() }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries whose symbols begin with these bits.
    pub(crate) fn with_prefix(&self, prefix: u64, bits: u8) -> &[Entry] {
        with_prefix(&self.entries, prefix, bits)
    }

    /// Whether this item, by its full hash, is here.
    pub(crate) fn contains(&self, hash: KeyedHash) -> bool {
        [&self.entries, &self.taken]
            .into_iter()
            .any(|entries| with_prefix(entries, hash.symbol, 64).iter().any(|e| e.hash == hash))
    }

    /// Whether any item here has this symbol of `bits` bits, including those taken out.
    pub(crate) fn contains_symbol(&self, symbol: u64, bits: u8) -> bool {
        !with_prefix(&self.entries, symbol, bits).is_empty() || self.has_taken(symbol, bits)
    }

    /// Whether an item with this symbol was taken out.
    pub(crate) fn has_taken(&self, symbol: u64, bits: u8) -> bool {
        !with_prefix(&self.taken, symbol, bits).is_empty()
    }

    /// Takes out the flagged entries.
    pub(crate) fn take_out(&mut self, flags: &[bool]) -> Vec<Entry> {
        let mut taken = Vec::new();
        let mut flags = flags.iter();
        self.entries.retain(|entry| {
            let is_taken = flags.next() == Some(&true);
            if is_taken {
                taken.push(*entry);
            }
            !is_taken
        });
        self.taken.clone_from(&taken);
        taken
    }
}

fn with_prefix(entries: &[Entry], prefix: u64, bits: u8) -> &[Entry] {
    let begin = entries.partition_point(|entry| entry.symbol(bits) < prefix);
    let rest = entries.get(begin..).unwrap_or_default();
    let length = rest.partition_point(|entry| entry.symbol(bits) == prefix);
    rest.get(..length).unwrap_or_default()
}
