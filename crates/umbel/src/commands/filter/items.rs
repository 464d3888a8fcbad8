//! Items from arguments, files and standard input, packed into batches.
//!
//! An item is a line without its `\n`, as in `umbel dedup`: a `\r` before the `\n` belongs to the item,
//! an empty line is an item, the last line may lack its `\n`, and items need not be UTF-8. If NUL ends
//! items, `\n` is a byte like any other.

use crate::exit::{UsageError, refuse};
use anyhow::{Context, Error, Result};
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use umbel_client::{ITEM_BYTES_MAX, PackedBatch};

/// Most items of a batch: enough to amortise a request, few enough for visible progress.
const BATCH_ITEMS_MAX: usize = 10_000;

/// A batch is complete once its items have this many bytes, which bounds memory with long items.
const BATCH_BYTES_CUT: usize = 4 << 20;

/// Most batches that are read ahead of sending.
const WAITING_BATCHES_MAX: usize = 2;

/// Where items come from.
#[derive(Args)]
pub(crate) struct ItemArgs {
    /// Items; without any, and without --file, they are read from standard input
    #[arg(value_name = "ITEM", conflicts_with = "file")]
    items: Vec<String>,
    /// Read items from a file, one a line, or - for standard input; a \r before the end of a line
    /// belongs to the item
    #[arg(long, short, value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Items of a file or standard input end with NUL in place of \n, and so do lines of --each
    #[arg(long, short = '0')]
    null: bool,
}

/// A batch, and the bytes of the input that it covers.
pub(crate) struct ReadBatch {
    pub(crate) items: PackedBatch,
    pub(crate) input_bytes: u64,
}

impl ReadBatch {
    /// The batch of an input without items.
    pub(crate) fn empty() -> Self {
        Self { items: PackedBatch::new(), input_bytes: 0 }
    }
}

/// Items on their way to a filter.
pub(crate) struct Input {
    /// The batches in order; an error is the last.
    pub(crate) batches: mpsc::Receiver<Result<ReadBatch>>,
    /// The byte that ends an item in output.
    pub(crate) end: u8,
    /// Bytes of the input, if known.
    pub(crate) input_bytes: Option<u64>,
}

/// Whether a batch is complete.
pub(super) fn is_full(batch: &PackedBatch) -> bool {
    batch.len() >= BATCH_ITEMS_MAX || batch.data_bytes() >= BATCH_BYTES_CUT
}

/// A channel for batches that another task or thread reads.
pub(super) fn channel() -> (mpsc::Sender<Result<ReadBatch>>, mpsc::Receiver<Result<ReadBatch>>) {
    mpsc::channel(WAITING_BATCHES_MAX)
}

impl ItemArgs {
    /// Starts to read the items.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn input(&self) -> Result<Input> {
        let (end, input_bytes) = (self.end(), self.input_bytes());
        Ok(Input { batches: self.read()?, end, input_bytes })
    }

    /// Whether exactly one item was given as an argument.
    pub(crate) fn is_single(&self) -> bool {
        self.items.len() == 1
    }

    /// Whether items end with NUL.
    pub(crate) fn is_null(&self) -> bool {
        self.null
    }

    /// The byte that ends an item.
    pub(crate) fn end(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }

    /// Bytes of the input, if known.
    fn input_bytes(&self) -> Option<u64> {
        let path = self.file.as_ref().filter(|path| !is_dash(path))?;
        path.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    }

    /// Starts to read on a thread of its own: batches in order; an error is the last.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if `--null` is given with items as arguments; if the file cannot be opened.
    pub(crate) fn read(&self) -> Result<mpsc::Receiver<Result<ReadBatch>>> {
        let (sender, receiver) = channel();
        if !self.items.is_empty() {
            if self.null {
                refuse!("--null says how a file or standard input is cut: leave it out");
            }
            let items = PackedBatch::from_items(&self.items)?;
            let batch = ReadBatch { items, input_bytes: 0 };
            sender.try_send(Ok(batch)).expect("the channel is empty");
            return Ok(receiver);
        }
        let (name, input): (String, Box<dyn Read + Send>) = match &self.file {
            Some(path) if !is_dash(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("{name}: cannot read"))?;
                (name, Box::new(file))
            }
            _ => ("standard input".to_owned(), Box::new(io::stdin())),
        };
        let mut cutter = Cutter::new(name, input, self.end());
        tokio::task::spawn_blocking(move || {
            while let Some(batch) = cutter.next_batch().transpose() {
                let is_last = batch.is_err();
                // Sending fails once the receiver is gone.
                if sender.blocking_send(batch).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(receiver)
    }
}

fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Splits input into items.
struct Cutter<R> {
    name: String,
    input: BufReader<R>,
    end: u8,
    item_count: u64,
    line: Vec<u8>,
    /// An error behind the items of the last batch.
    failure: Option<Error>,
}

impl<R: Read> Cutter<R> {
    fn new(name: String, input: R, end: u8) -> Self {
        let input = BufReader::with_capacity(1 << 20, input);
        Self { name, input, end, item_count: 0, line: Vec::new(), failure: None }
    }

    /// The next items; None at the end. The batch is not filled up if no complete item is buffered, so
    /// that the last line of a slow pipe need not wait for the next one. An error comes after all items
    /// before it.
    fn next_batch(&mut self) -> Result<Option<ReadBatch>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut batch = PackedBatch::new();
        let mut input_bytes = 0;
        while !is_full(&batch) {
            match self.read_item(&mut batch) {
                Ok(0) => break,
                Ok(byte_count) => input_bytes += byte_count,
                Err(failure) if batch.is_empty() => return Err(failure),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
            if !self.input.buffer().contains(&self.end) {
                break;
            }
        }
        Ok((!batch.is_empty()).then_some(ReadBatch { items: batch, input_bytes }))
    }

    /// Adds the next item to a batch; returns its bytes in the input, 0 at the end.
    fn read_item(&mut self, batch: &mut PackedBatch) -> Result<u64> {
        self.line.clear();
        // One byte more than the longest item: for its end, or to detect an item that is too long.
        let mut limited = self.input.by_ref().take(ITEM_BYTES_MAX as u64 + 1);
        let byte_count = limited
            .read_until(self.end, &mut self.line)
            .with_context(|| format!("{}: cannot read", self.name))?;
        if byte_count == 0 {
            return Ok(0);
        }
        self.item_count += 1;
        if self.line.last() == Some(&self.end) {
            self.line.pop();
        }
        let (name, number) = (&self.name, self.item_count);
        batch.push(&self.line).map_err(|_| {
            UsageError(format!("{name}: item {number} has more than {ITEM_BYTES_MAX} bytes"))
        })?;
        Ok(byte_count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(input: &[u8], end: u8) -> Result<Vec<Vec<u8>>> {
        let mut cutter = Cutter::new("i".into(), input, end);
        let mut items = Vec::new();
        let mut input_bytes = 0;
        while let Some(batch) = cutter.next_batch()? {
            assert!(batch.items.len() <= BATCH_ITEMS_MAX);
            items.extend(batch.items.iter().map(<[u8]>::to_vec));
            input_bytes += batch.input_bytes;
        }
        assert_eq!(input_bytes, input.len() as u64);
        Ok(items)
    }

    #[test]
    fn items_are_lines_of_any_bytes() {
        for (input, items) in [
            (&b""[..], &[][..]),
            (b"\n", &[&b""[..]]),
            (b"a\nb", &[b"a", b"b"]),
            (b"a\r\n\nb\n", &[b"a\r", b"", b"b"]),
            (b"\xff\x00\n", &[b"\xff\x00"]),
        ] {
            assert_eq!(cut(input, b'\n').unwrap(), items, "{input:?}");
        }
        assert_eq!(cut(b"a\nb\0c", 0).unwrap(), [&b"a\nb"[..], b"c"]);
    }

    #[test]
    fn batches_hold_all_items_in_order() {
        let lines: Vec<String> = (0..BATCH_ITEMS_MAX * 2 + 1).map(|at| at.to_string()).collect();
        let items = cut(lines.join("\n").as_bytes(), b'\n').unwrap();
        assert!(items.iter().eq(lines.iter().map(String::as_bytes)));
    }

    #[test]
    fn an_item_that_is_too_long_is_named() {
        let mut input = b"a\n".to_vec();
        input.resize(2 + ITEM_BYTES_MAX, b'x');
        assert_eq!(cut(&input, b'\n').unwrap().len(), 2);
        input.push(b'\n');
        assert_eq!(cut(&input, b'\n').unwrap().len(), 2);
        input.insert(2, b'x');
        let error = cut(&input, b'\n').unwrap_err();
        assert_eq!(error.to_string(), "i: item 2 has more than 16777216 bytes");
        let mut cutter = Cutter::new("i".into(), &input[..], b'\n');
        let before = cutter.next_batch().unwrap().expect("the item before it");
        assert_eq!((before.items.len(), before.input_bytes), (1, 2));
        let error = cutter.next_batch().err().expect("then the error");
        assert_eq!(error.to_string(), "i: item 2 has more than 16777216 bytes");
    }
}
