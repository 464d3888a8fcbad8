//! Coded symbols of a set at fixed indices, to which symbols are added in any order.

use umbel_sketch::{CodedSymbol, Indices};

use super::super::keys::SessionKey;
use super::super::table::top_bits;

/// A coded symbol and how many symbols are in it.
///
/// ```
/// use umbel_reconcile_engine::SketchCell;
///
/// assert_eq!(SketchCell::default().count, 0);
/// assert!(SketchCell::default().coded.is_zero());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SketchCell {
    /// XOR of symbols and of their checks.
    pub coded: CodedSymbol,
    /// Number of symbols modulo 4. Of the difference of two cells with one symbol left it shows the side.
    pub count: u8,
}

impl SketchCell {
    /// What is in this cell and not in the other, with count 1, or in the other and not in this one, with count 3.
    pub(super) fn minus(self, other: Self) -> Self {
        let mut coded = self.coded;
        coded ^= other.coded;
        Self { coded, count: self.count.wrapping_sub(other.count) & 3 }
    }
}

/// The coded symbols with the lowest indices, and the symbol sum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CodedSums {
    pub(super) symbol_bits: u8,
    pub(super) cells: Vec<SketchCell>,
    /// Sum of the symbols' second checks.
    pub(super) symbol_sum: u64,
}

impl CodedSums {
    pub(super) fn new(symbol_bits: u8, count: usize) -> Self {
        Self { symbol_bits, cells: vec![SketchCell::default(); count], symbol_sum: 0 }
    }

    /// The same of no symbols.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.symbol_bits, self.cells.len())
    }

    /// Adds an item by its symbol of 64 bits.
    pub(crate) fn add(&mut self, key: &SessionKey, symbol: u64) {
        let symbol = top_bits(symbol, self.symbol_bits);
        let check_hash = key.check(symbol);
        let coded = CodedSymbol::of(symbol, check_hash);
        for index in Indices::new(check_hash) {
            let cell = usize::try_from(index).ok().and_then(|index| self.cells.get_mut(index));
            let Some(cell) = cell else { break };
            cell.coded ^= coded;
            cell.count = (cell.count + 1) & 3;
        }
        self.symbol_sum = self.symbol_sum.wrapping_add(key.second_check(symbol));
    }

    /// Adds all symbols of others that have as many cells or more.
    pub(crate) fn add_all(&mut self, more: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(&more.cells) {
            cell.coded ^= other.coded;
            cell.count = (cell.count + other.count) & 3;
        }
        self.symbol_sum = self.symbol_sum.wrapping_add(more.symbol_sum);
    }

    /// Removes all symbols of others that have as many cells or more.
    pub(super) fn remove_all(&mut self, gone: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(&gone.cells) {
            *cell = cell.minus(*other);
        }
        self.symbol_sum = self.symbol_sum.wrapping_sub(gone.symbol_sum);
    }
}
