//! Records with a key: `key<TAB>value`, or JSON Lines with a key made of some fields.

use super::records::RecordItems;
use crate::error::{Context, Result, bail, ensure};
use std::sync::{Mutex, PoisonError};
use umbel_reconcile_engine::{Item, ItemRef, SymbolKind};
use umbel_records::{Format, Granularity, ItemExtractor};

/// Lines `key<TAB>value`; the value may contain tabs.
pub(crate) struct TabRecords;

fn cut(line: &[u8]) -> Result<(&[u8], &[u8])> {
    let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
        bail!("no tab: expected `key<TAB>value`");
    };
    Ok((&line[..tab], &line[tab + 1..]))
}

impl RecordItems for TabRecords {
    fn kind(&self) -> SymbolKind {
        SymbolKind::Keyed
    }

    fn name(&self) -> &'static str {
        "key"
    }

    fn identity(&self, line: &[u8], target: &mut Vec<u8>) -> Result<()> {
        target.extend_from_slice(cut(line)?.0);
        Ok(())
    }

    fn with_item(&self, line: &[u8], _: u32, visit: &mut dyn FnMut(ItemRef<'_>)) -> Result<()> {
        let (key, value) = cut(line)?;
        visit(ItemRef::Keyed { key, value });
        Ok(())
    }

    fn check(&self, item: &Item) -> Result<()> {
        match item {
            Item::Keyed { key, .. } if !key.contains(&b'\t') => Ok(()),
            _ => bail!("its key has a tab"),
        }
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        match item {
            Item::Keyed { key, value } => [key, &b"\t"[..], value].concat(),
            other => other.to_bytes(),
        }
    }
}

/// JSON Lines: the key is made of some fields, the value is the whole line.
pub(crate) struct JsonRecords {
    /// Extraction needs a buffer of its own.
    extractor: Mutex<ItemExtractor>,
}

impl JsonRecords {
    /// Records with a key made of these paths.
    ///
    /// # Errors
    ///
    /// If one is not a valid path.
    pub(crate) fn new(paths: &[String]) -> Result<Self> {
        let extractor = ItemExtractor::new(Format::JsonLines, Granularity::Key(paths.to_vec()))?;
        Ok(Self { extractor: Mutex::new(extractor) })
    }

    fn key(&self, line: &[u8]) -> Result<Vec<u8>> {
        let mut extractor = self.extractor.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(extractor.item(line)?.to_vec())
    }
}

impl RecordItems for JsonRecords {
    fn kind(&self) -> SymbolKind {
        SymbolKind::Keyed
    }

    fn name(&self) -> &'static str {
        "key"
    }

    fn identity(&self, line: &[u8], target: &mut Vec<u8>) -> Result<()> {
        target.extend_from_slice(&self.key(line)?);
        Ok(())
    }

    fn with_item(&self, line: &[u8], _: u32, visit: &mut dyn FnMut(ItemRef<'_>)) -> Result<()> {
        visit(ItemRef::Keyed { key: &self.key(line)?, value: line });
        Ok(())
    }

    fn check(&self, item: &Item) -> Result<()> {
        let Item::Keyed { key, value } = item else { bail!("it has no key") };
        let own = self.key(value).context("it cannot be read")?;
        ensure!(own == *key, "its key is not that of its fields");
        Ok(())
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        match item {
            Item::Keyed { value, .. } => value.clone(),
            other => other.to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(records: &impl RecordItems, line: &[u8]) -> Item {
        let mut seen = None;
        let mut keep = |item: ItemRef<'_>| {
            if let ItemRef::Keyed { key, value } = item {
                seen = Some(Item::Keyed { key: key.to_vec(), value: value.to_vec() });
            }
        };
        records.with_item(line, 0, &mut keep).unwrap();
        seen.unwrap()
    }

    #[test]
    fn a_line_is_cut_at_its_first_tab() {
        let item = item(&TabRecords, b"k\tv\tw");
        assert_eq!(item, Item::Keyed { key: b"k".to_vec(), value: b"v\tw".to_vec() });
        assert_eq!(TabRecords.text(&item), b"k\tv\tw");
        TabRecords.check(&item).unwrap();
        assert!(cut(b"kv").unwrap_err().to_string().starts_with("no tab"));
        let forged = Item::Keyed { key: b"a\tb".to_vec(), value: Vec::new() };
        assert!(TabRecords.check(&forged).is_err());
    }

    #[test]
    fn a_json_record_travels_as_it_stands() {
        let records = JsonRecords::new(&["id".into()]).unwrap();
        let item = item(&records, br#"{"id": 7,  "n": 1}"#);
        assert_eq!(records.text(&item), br#"{"id": 7,  "n": 1}"#);
        records.check(&item).unwrap();
        let forged = Item::Keyed { key: b"d\x018".to_vec(), value: br#"{"id": 7}"#.to_vec() };
        assert!(records.check(&forged).unwrap_err().to_string().contains("key is not"));
    }
}
