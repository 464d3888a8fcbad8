//! The items of sets, derived from their numbers.

use umbel_reconcile_engine::{Item, SymbolKind};

use crate::plan::scenario::ItemKind;

/// The item of a number.
pub(super) fn item(items: ItemKind, number: u64) -> Item {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    match items {
        ItemKind::Ids => Item::Id(mixed ^ mixed >> 32),
        ItemKind::Hashes => {
            let words = (1..=4u64).flat_map(|word| mixed.wrapping_mul(2 * word + 1).to_be_bytes());
            Item::Bytes(words.collect())
        }
        ItemKind::Lines => {
            Item::Bytes(format!("line {number} {}", mixed >> (mixed % 64)).into_bytes())
        }
        ItemKind::Records => Item::Keyed {
            key: (number / 2).to_le_bytes().to_vec(),
            value: format!("{mixed:x}").into_bytes(),
        },
    }
}

/// The engine's kind of such items.
pub(super) const fn kind_of(items: ItemKind) -> SymbolKind {
    match items {
        ItemKind::Ids => SymbolKind::Id64,
        ItemKind::Hashes | ItemKind::Lines => SymbolKind::Hashed,
        ItemKind::Records => SymbolKind::Keyed,
    }
}
