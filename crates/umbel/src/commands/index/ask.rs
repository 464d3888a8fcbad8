//! `umbel index ask`: which files of an index may hold given items.

use super::items::{ItemCutter, ItemRule};
use super::open_index::OpenIndex;
use crate::commands::static_file::form::printable;
use crate::commands::static_file::hash_key::Hashing;
use crate::exit::{Exit, refuse};
use crate::printer::Printer;
use anyhow::{Context, Result};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use umbel_filter::ItemHash;

/// Arguments of `umbel index ask`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel index ask logs.umbx timeout refused\n  \
      umbel index ask genomes.umbx ACGTTGCA... --share 0.8\n  \
      grep -l timeout $(umbel index ask logs.umbx timeout)\n\n\
    Exit codes, like grep's: 0 files are named, 1 none is, 2 it failed.")]
pub(super) struct AskArgs {
    /// The index
    #[arg(value_name = "F.umbx")]
    file: PathBuf,
    /// Items; for an index of words, trigrams or k-mers, texts that are split into them
    #[arg(required = true, value_name = "ITEM")]
    items: Vec<OsString>,
    /// List files that have at least this share of the items, most first, with their shares [default: files
    /// that have all]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    share: Option<f64>,
    /// The secret key that items are hashed under, if the index was built with one
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,
}

impl AskArgs {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If the index cannot be read or is damaged, the hash key is missing or wrong, or an argument
    /// contains no item.
    pub(super) fn run(&self) -> Result<Exit> {
        let mut open = OpenIndex::open(&self.file)?;
        let name = self.file.display().to_string();
        let key = open.head().shape().key();
        let hashing =
            Hashing::of_file(key, self.hash_key.as_deref()).with_context(|| name.clone())?;
        open.head().check_key(hashing.key).with_context(|| name.clone())?;
        let form = open.head().shape().form();
        let rule: ItemRule = form.parse().map_err(|_| {
            anyhow::anyhow!(
                "{name}: its items are `{}`, which this release does not know: ask it with a newer one",
                printable(form)
            )
        })?;
        let hashes = self.hashes(rule, hashing)?;
        let question = open.query(&hashes)?;
        let counts = open.head().counts(&question);
        let least = least(self.share.unwrap_or(1.0), hashes.len());
        let mut found: Vec<(usize, u32)> = counts.into_iter().enumerate().collect();
        found.retain(|(_, count)| *count as usize >= least);
        if self.share.is_some() {
            found.sort_by_key(|(set, count)| (std::cmp::Reverse(*count), *set));
        }
        let mut printer = Printer::new();
        for (set, count) in &found {
            let share = f64::from(*count) / hashes.len() as f64;
            let share = self.share.map(|_| format!("{share:.3}\t")).unwrap_or_default();
            let line = format!("{share}{}\n", printable(&open.head().sets()[*set].name));
            printer.write(line.as_bytes())?;
        }
        printer.flush()?;
        // As with grep, code 1 means that no file was found and not a failure.
        Ok(if found.is_empty() { Exit::No } else { Exit::Done })
    }

    /// The distinct hashes of the items of all arguments.
    fn hashes(&self, rule: ItemRule, hashing: Hashing) -> Result<Vec<ItemHash>> {
        let mut hashes = Vec::new();
        for argument in &self.items {
            let before = hashes.len();
            let mut cutter = ItemCutter::new(rule);
            cutter.cut(argument.as_bytes(), &mut |item| hashes.push(hashing.hasher.hash(item)));
            if hashes.len() == before {
                refuse!(
                    "`{}` has none of the index's items, {rule}",
                    printable(&argument.to_string_lossy())
                );
            }
        }
        hashes.sort_unstable();
        hashes.dedup();
        Ok(hashes)
    }
}

/// The least number of items that is this share of `count` items; at least one.
fn least(share: f64, count: usize) -> usize {
    // The tolerance is for products like 0.7 · 10, which may be slightly above 7.
    let is_enough = |found: &usize| *found as f64 >= share * count as f64 - 1e-9;
    (1..count).find(is_enough).unwrap_or(count)
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("`{text}` is not a share above 0 and up to 1, like 0.8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up() {
        assert_eq!(
            [least(0.7, 10), least(0.75, 10), least(1.0, 10), least(1e-12, 10)],
            [7, 8, 10, 1]
        );
        for wrong in ["0", "1.1", "-1", "NaN", "x"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }
}
