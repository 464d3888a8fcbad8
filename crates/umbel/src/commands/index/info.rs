//! `umbel index info`: describes indexes.

use super::open_index::{OpenIndex, is_sliced};
use crate::commands::static_file::form::printable;
use crate::exit::Exit;
use crate::printer::{Printer, facts, print};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use umbel_codec::FirstBytes;
use umbel_dedup::index_facts;
use umbel_static::STATIC_MAGIC;
use umbel_static::sliced::SlicedHead;

/// What a file F.umbi begins with.
const INDEX_MAGIC: [u8; 4] = *b"UMBI";

/// Arguments of `umbel index info`.
#[derive(Args)]
pub(super) struct InfoArgs {
    /// The indexes, files or objects
    #[arg(required = true, value_name = "INDEX")]
    inputs: Vec<PathBuf>,
}

impl InfoArgs {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If an index cannot be read or is damaged; the error names it. If standard output cannot be
    /// written.
    pub(super) fn run(&self) -> Result<Exit> {
        let (sliced, kept): (Vec<PathBuf>, Vec<PathBuf>) =
            self.inputs.iter().cloned().partition(|path| is_sliced(path));
        kept.iter().try_for_each(|path| check_kind(path))?;
        let mut text = String::new();
        if !kept.is_empty() {
            text += "index\thashes\tbits\tseed\titems\n";
            for index in index_facts(&kept)? {
                let (seed, digest, bits) =
                    (index.spec.seed, index.spec.digest, index.spec.bits.get());
                text +=
                    &format!("{}\t{}\t{bits}\t{seed:#018x}\t{digest}\n", index.name, index.count);
            }
        }
        if !sliced.is_empty() {
            text += "index\tfiles\titems\tkind\tprobes\trate\tbytes\tbits an item\tseed\n";
            for path in sliced {
                let open = OpenIndex::open(&path)?;
                open.check()?;
                let (head, name) = (open.head(), path.display());
                let (shape, kind) = (head.shape(), printable(head.shape().form()));
                text += &format!(
                    "{name}\t{}\t{}\t{kind}\t{}\t{}\t{}\t{}\t{:#018x}\n",
                    head.sets().len(),
                    item_count(head),
                    shape.probe_count(),
                    shape.rate(),
                    head.file_bytes(),
                    bits_per_item(head).map_or("-".into(), |bits| format!("{bits:.2}")),
                    shape.key().key_id
                );
            }
        }
        let mut printer = Printer::new();
        printer.write(text.as_bytes())?;
        printer.flush()?;
        Ok(Exit::Done)
    }
}

/// Refuses a file that begins as neither kind of index does. What cannot be read here is left to its reader.
fn check_kind(path: &Path) -> Result<()> {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_err() || magic == INDEX_MAGIC {
        return Ok(());
    }
    let (name, first) = (path.display(), FirstBytes(magic));
    let instead = if magic == STATIC_MAGIC { "; `umbel static info` describes it" } else { "" };
    bail!("{name}: not an index: begins with {first}, expected `UMBI` or `UMBX`{instead}")
}

/// The distinct items of each file, summed over all files.
fn item_count(head: &SlicedHead) -> u64 {
    head.sets().iter().map(|set| set.item_count).fold(0, u64::saturating_add)
}

/// Bits of the index per item; None for an index without items.
fn bits_per_item(head: &SlicedHead) -> Option<f64> {
    let items = item_count(head);
    (items > 0).then(|| head.file_bytes() as f64 * 8.0 / items as f64)
}

/// Prints a description of an index that was built.
///
/// # Errors
///
/// If standard output cannot be written.
pub(super) fn show(head: &SlicedHead, as_json: bool) -> Result<()> {
    print(as_json, &as_value(head), || text(head))
}

fn as_value(head: &SlicedHead) -> Value {
    let shape = head.shape();
    json!({
        "items": shape.form(),
        "files": head.sets().len(),
        "item_count": item_count(head),
        "groups": head.groups().len(),
        "probes": shape.probe_count(),
        "false_positive_rate": shape.rate(),
        "bytes": head.file_bytes(),
        "bits_per_item": bits_per_item(head),
        "hash": shape.key().function.to_string(),
        "key_id": format!("{:016x}", shape.key().key_id),
    })
}

fn text(head: &SlicedHead) -> String {
    let (shape, key) = (head.shape(), head.shape().key());
    let mut lines = vec![
        ("kind of items", shape.form().to_owned()),
        ("files", head.sets().len().to_string()),
        ("items", item_count(head).to_string()),
        ("groups", head.groups().len().to_string()),
        ("probes", shape.probe_count().to_string()),
        ("false-positive rate", shape.rate().to_string()),
        ("bytes", head.file_bytes().to_string()),
    ];
    if let Some(bits) = bits_per_item(head) {
        lines.push(("bits an item", format!("{bits:.2}")));
    }
    lines.push(("hash", format!("{}, key id {:016x}", key.function, key.key_id)));
    facts(&lines)
}
