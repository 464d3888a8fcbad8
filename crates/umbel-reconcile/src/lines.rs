//! Lines of a file as a multiset: each occurrence of a line is an item of its own.

use super::records::RecordItems;
use crate::error::Result;
use umbel_reconcile_engine::{Item, ItemRef, SymbolKind};

/// Bytes of the occurrence number that follows the line in an item.
const OCCURRENCE_BYTES: usize = 4;

/// Items that are a line and the number of equal lines before it.
pub(crate) struct Lines;

impl RecordItems for Lines {
    fn kind(&self) -> SymbolKind {
        SymbolKind::Hashed
    }

    fn name(&self) -> &'static str {
        "line"
    }

    fn may_repeat(&self) -> bool {
        true
    }

    fn identity(&self, line: &[u8], target: &mut Vec<u8>) -> Result<()> {
        target.extend_from_slice(line);
        Ok(())
    }

    fn with_item(
        &self,
        line: &[u8],
        occurrence: u32,
        visit: &mut dyn FnMut(ItemRef<'_>),
    ) -> Result<()> {
        // Most lines fit on the stack; an allocation for each would take longer than its hash.
        let mut short = [0; 512];
        let length = line.len() + OCCURRENCE_BYTES;
        if let Some(item) = short.get_mut(..length) {
            item[..line.len()].copy_from_slice(line);
            item[line.len()..].copy_from_slice(&occurrence.to_le_bytes());
            visit(ItemRef::Bytes(item));
        } else {
            let item = [line, &occurrence.to_le_bytes()].concat();
            visit(ItemRef::Bytes(&item));
        }
        Ok(())
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        match item {
            Item::Bytes(bytes) => bytes[..bytes.len().saturating_sub(OCCURRENCE_BYTES)].to_vec(),
            other => other.to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_a_line_and_its_occurrence() {
        let mut seen = Vec::new();
        for line in [&b"a"[..], &[b'x'; 600]] {
            Lines.with_item(line, 258, &mut |item| seen.push(item.to_bytes())).unwrap();
        }
        assert_eq!(seen[0], b"a\x02\x01\0\0");
        assert_eq!(seen[1].len(), 604);
        assert_eq!(Lines.text(&Item::Bytes(seen[0].clone())), b"a");
    }
}
