//! Sets of ids: hexadecimal digits with one id per line, or raw bytes with ids back to back.

use super::apply;
use super::change::Change;
use super::frozen::FrozenFile;
use super::records::RecordItems;
use super::set::ItemSet;
use crate::error::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use umbel_bits::Hex;
use umbel_reconcile_engine::{Item, ItemIndex, ItemRef, Pass, SymbolKind};
use umbel_records::{Compression, ReadLimits, RecordReader, line_item, records};

/// Shortest and longest id, in bytes: shorter ones are better kept as a bitmap, longer ones as records.
const ID_BYTES: std::ops::RangeInclusive<usize> = 8..=32;

/// Approximate bytes of a raw file that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Ids in hexadecimal digits, one per line, all of the same length.
pub(crate) struct HexIds {
    bytes: usize,
}

impl HexIds {
    /// The ids of a file; `expected` is the length of those of an empty one, or else it is 64 bits.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or its ids do not have the expected length.
    pub(crate) fn of_file(path: &Path, expected: Option<usize>) -> Result<Self> {
        let bytes = Self::length_in(path)?.or(expected).unwrap_or(*ID_BYTES.start());
        if let Some(expected) = expected.filter(|expected| *expected != bytes) {
            let (bits, expected) = (8 * bytes, 8 * expected);
            bail!(
                "{}: line 1 has an id of {bits} bits, expected {expected}, as the other set has or --ids={expected} says",
                path.display()
            );
        }
        Ok(Self { bytes })
    }

    /// The length of a file's ids in bytes, by its first line; `None` if it has no lines.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or its first line cannot be an id.
    pub(crate) fn length_in(path: &Path) -> Result<Option<usize>> {
        let shown = || path.display().to_string();
        let frozen = FrozenFile::open(path)?;
        let compression = Compression::of_file(frozen.file(), path).with_context(shown)?;
        let file = Arc::clone(frozen.file());
        let reader = RecordReader::open(file, compression, None, ReadLimits::default());
        let mut reader = reader.with_context(shown)?;
        let block = reader.next_block().with_context(shown)?;
        let Some(first) = block.and_then(|block| records(block).next()) else { return Ok(None) };
        let line = line_item(first);
        let digits = line.strip_suffix(b"\r").unwrap_or(line).len();
        ensure!(
            digits.is_multiple_of(2) && ID_BYTES.contains(&(digits / 2)),
            "{}: line 1 has {digits} characters, expected an id of 16 to 64 hexadecimal digits",
            path.display()
        );
        Ok(Some(digits / 2))
    }

    fn parse(&self, line: &[u8]) -> Result<[u8; 32]> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        ensure!(
            line.len() == 2 * self.bytes,
            "{} characters, expected {} hexadecimal digits as in line 1",
            line.len(),
            2 * self.bytes
        );
        let mut id = [0; 32];
        for (byte, digits) in id.iter_mut().zip(line.as_chunks::<2>().0) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (value(digits[0]), value(digits[1])) else {
                bail!("`{}` is not hexadecimal", String::from_utf8_lossy(digits));
            };
            *byte = u8::try_from(16 * high + low).expect("two digits");
        }
        Ok(id)
    }
}

/// An id in the form that the session expects: a number if it has 8 bytes.
fn item_ref(id: &[u8]) -> ItemRef<'_> {
    match id.try_into() {
        Ok(bytes) => ItemRef::Id(u64::from_be_bytes(bytes)),
        Err(_) => ItemRef::Bytes(id),
    }
}

fn kind_of(id_bytes: usize) -> SymbolKind {
    if id_bytes == 8 { SymbolKind::Id64 } else { SymbolKind::Hashed }
}

/// The bytes of an id as in a raw file.
fn raw_bytes(item: &Item) -> Vec<u8> {
    match item {
        Item::Id(id) => id.to_be_bytes().to_vec(),
        other => other.to_bytes(),
    }
}

/// An id as in a text file.
fn text(item: &Item) -> Vec<u8> {
    Hex(&raw_bytes(item)).to_string().into_bytes()
}

impl RecordItems for HexIds {
    fn kind(&self) -> SymbolKind {
        kind_of(self.bytes)
    }

    fn name(&self) -> &'static str {
        "id"
    }

    fn id_bytes(&self) -> usize {
        self.bytes
    }

    fn identity(&self, line: &[u8], target: &mut Vec<u8>) -> Result<()> {
        target.extend_from_slice(&self.parse(line)?[..self.bytes]);
        Ok(())
    }

    fn with_item(&self, line: &[u8], _: u32, visit: &mut dyn FnMut(ItemRef<'_>)) -> Result<()> {
        visit(item_ref(&self.parse(line)?[..self.bytes]));
        Ok(())
    }

    fn check(&self, item: &Item) -> Result<()> {
        let got = raw_bytes(item).len();
        ensure!(got == self.bytes, "an id of {got} bytes came, those here have {}", self.bytes);
        Ok(())
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        text(item)
    }
}

/// Ids of one length, back to back.
pub(crate) struct RawIds {
    file: FrozenFile,
    id_bytes: usize,
}

impl RawIds {
    /// Opens a file of ids that are `id_bytes` long.
    ///
    /// # Errors
    ///
    /// If its length is not a multiple of that, or an id occurs twice.
    pub(crate) fn open(path: &Path, id_bytes: usize) -> Result<Self> {
        let file = FrozenFile::open(path)?;
        let shown = path.display();
        let rest = file.bytes() % id_bytes as u64;
        ensure!(
            rest == 0,
            "{shown}: {} bytes are no multiple of {id_bytes}: {rest} bytes follow the last id",
            file.bytes()
        );
        let ids = Self { file, id_bytes };
        ids.refuse_repeated()?;
        Ok(ids)
    }

    fn refuse_repeated(&self) -> Result<()> {
        let mut ids = Vec::new();
        self.visit(&mut |_, id| {
            ids.push(<[u8; 8]>::try_from(&id[..8]).expect("at least 8 bytes"));
        })?;
        ids.sort_unstable();
        let twice = ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let twice: BTreeSet<[u8; 8]> = twice.collect();
        if twice.is_empty() {
            return Ok(());
        }
        let mut seen = std::collections::BTreeMap::new();
        let mut repeated = None;
        self.visit(&mut |index, id| {
            if twice.contains(&id[..8])
                && let Some(first) = seen.insert(id.to_vec(), index)
            {
                repeated.get_or_insert((first, index));
            }
        })?;
        if let Some((first, second)) = repeated {
            bail!(
                "{}: id {second} (counted from 0) is that of {first}: a set has each id once",
                self.file.path().display()
            );
        }
        Ok(())
    }

    fn visit(&self, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let shown = || self.file.path().display().to_string();
        let mut reader =
            BufReader::with_capacity(READ_BYTES, Positioned { file: &self.file, at: 0 });
        let mut id = vec![0; self.id_bytes];
        for index in 0..self.item_count() {
            reader.read_exact(&mut id).with_context(shown)?;
            visit(index, &id);
        }
        Ok(())
    }
}

/// Reads a file from its start, independent of the shared cursor.
struct Positioned<'f> {
    file: &'f FrozenFile,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.file().read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl ItemSet for RawIds {
    fn kind(&self) -> SymbolKind {
        kind_of(self.id_bytes)
    }

    fn id_bytes(&self) -> usize {
        self.id_bytes
    }

    fn item_count(&self) -> u64 {
        self.file.bytes() / self.id_bytes as u64
    }

    fn scan(&self, pass: &mut Pass) -> Result<()> {
        self.visit(&mut |index, id| pass.add(ItemIndex(index), item_ref(id)))?;
        self.file.check()
    }

    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>> {
        let mut id = vec![0; self.id_bytes];
        let mut item = |ItemIndex(index): &ItemIndex| {
            let place = index * self.id_bytes as u64;
            self.file.file().read_exact_at(&mut id, place)?;
            Ok(match item_ref(&id) {
                ItemRef::Id(id) => Item::Id(id),
                _ => Item::Bytes(id.clone()),
            })
        };
        let items: std::io::Result<Vec<Item>> = wanted.iter().map(&mut item).collect();
        items.with_context(|| self.file.path().display().to_string())
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        text(item)
    }

    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    fn apply(&self, change: &Change) -> Result<()> {
        let removed: BTreeSet<u64> = change.removed.iter().map(|index| index.0).collect();
        apply::replace(&self.file, |target| {
            let mut outcome = Ok(());
            self.visit(&mut |index, id| {
                if !removed.contains(&index) && outcome.is_ok() {
                    outcome = target.write(id);
                }
            })?;
            outcome?;
            for item in &change.added {
                let bytes = raw_bytes(item);
                let expected = self.id_bytes;
                ensure!(
                    bytes.len() == expected,
                    "an id of {} bytes came, those here have {expected}",
                    bytes.len()
                );
                target.write(&bytes)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_bytes_and_back() {
        let ids = HexIds { bytes: 8 };
        let line = b"00000000000001fF";
        let mut seen = None;
        ids.with_item(line, 0, &mut |item| seen = Some(item.to_bytes())).unwrap();
        assert_eq!(seen.unwrap(), 0x1ff_u64.to_le_bytes());
        assert_eq!(ids.text(&Item::Id(0x1ff)), b"00000000000001ff");
        let error = ids.parse(b"00000000000001fg").unwrap_err().to_string();
        assert_eq!(error, "`fg` is not hexadecimal");
        let error = ids.parse(b"00").unwrap_err().to_string();
        assert_eq!(error, "2 characters, expected 16 hexadecimal digits as in line 1");
    }

    #[test]
    fn raw_ids_are_whole_and_stand_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids");
        std::fs::write(&path, [1; 17]).unwrap();
        let error = RawIds::open(&path, 8).err().unwrap().to_string();
        assert!(
            error.ends_with("17 bytes are no multiple of 8: 1 bytes follow the last id"),
            "{error}"
        );
        std::fs::write(&path, [1; 16]).unwrap();
        let error = RawIds::open(&path, 8).err().unwrap().to_string();
        assert!(error.contains("id 1 (counted from 0) is that of 0"), "{error}");
        assert_eq!(RawIds::open(&path, 16).unwrap().item_count(), 1);
    }
}
