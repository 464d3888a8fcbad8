//! `umbel index build`: builds an index of files, which answers which of them may hold an item.

use super::columns::Columns;
use super::info::show;
use super::items::ItemRule;
use crate::commands::dedup::parse_seed;
use crate::commands::filter::create::parse_rate;
use crate::commands::static_file::hash_key::Hashing;
use crate::exit::{Exit, refuse};
use crate::interrupt::PartialFile;
use crate::stderr::eprint_line;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use umbel_files::{
    ANY_NEW_FILE, FileRoles, refuse_existing_file, refuse_standard_input, refuse_stream,
};
use umbel_static::sliced::{SLICED_PROBES_MAX, SlicedShape};

/// From this rate on, one probe is the default: it needs at most a fifth more bits than the optimum. At
/// 0.1 it would need twice as many.
const ONE_PROBE_RATE: f64 = 0.25;

/// The default number of probes at lower rates. Each probe of an item reads a row in each group.
const PROBES: u32 = 3;

/// Arguments of `umbel index build`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel index build logs/*.txt -o logs.umbx --items words\n  \
      umbel index build tables/*.csv -o rows.umbx --rate 0.001 -k 4\n  \
      umbel index build genomes/*.fa.gz -o genomes.umbx --items kmers:31\n\n\
    docs/static.md has every detail.")]
pub(super) struct BuildArgs {
    /// The files, plain or packed; each is a set, which `ask` reports by its name
    #[arg(required = true, value_name = "FILES")]
    files: Vec<PathBuf>,
    /// The index
    #[arg(short, long, value_name = "F.umbx")]
    output: PathBuf,
    /// What an item is: a line; a word, in lower case; a trigram, to find parts of lines; K bases (FASTA,
    /// FASTQ, plain)
    #[arg(long, value_name = "lines|words|trigrams|kmers:K", default_value = "lines")]
    items: ItemRule,
    /// False-positive rate of one item and one file [default: 0.01; trigrams and k-mers 0.3]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Probes per item: more take less space at low rates, and more time [default: 1 at rates from 0.25,
    /// else 3]
    #[arg(short = 'k', long, value_name = "K",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SLICED_PROBES_MAX)))]
    probes: Option<u32>,
    /// Hash under the secret key of this file, where strangers choose items: 48 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,
    /// Seed of the hash, if it has no key [default: 0]
    #[arg(long, value_name = "N", value_parser = parse_seed, conflicts_with = "hash_key")]
    seed: Option<u64>,
    /// Folder for a scratch file, which is as large as the index [default: the system's]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Replace the index if it exists
    #[arg(long)]
    overwrite: bool,
    /// Print nothing about the index
    #[arg(long, short)]
    quiet: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl BuildArgs {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is also the output, or the index cannot be written, as into a pipe. No index is left
    /// then.
    pub(super) fn run(&self) -> Result<Exit> {
        let hashing = match &self.hash_key {
            Some(path) => Hashing::read(path)?,
            None => Hashing::seeded(self.seed.unwrap_or(0)),
        };
        // The head is written last, before the rows: only a file can be written so.
        refuse_stream("--output", &self.output)?;
        if !self.overwrite {
            refuse_existing_file(&self.output)?;
        }
        // Each set is reported by the name of its file.
        self.files.iter().try_for_each(|path| refuse_standard_input("-", path))?;
        if let Some(folder) = self.files.iter().find(|path| path.is_dir()) {
            let (shown, files) = (folder.display(), folder.join("*"));
            refuse!("{shown}: a directory, expected files: name them, like {}", files.display());
        }
        let mut roles = FileRoles::default();
        for path in &self.files {
            roles.add_input(&path.display().to_string(), path);
        }
        roles.add_output("--output", &self.output)?;
        let rate = self.rate.unwrap_or(self.items.default_rate());
        let probes = self.probes.unwrap_or(if rate >= ONE_PROBE_RATE { 1 } else { PROBES });
        let shape =
            SlicedShape::new(hashing.key, probes, rate)?.with_form(self.items.to_string())?;
        let scratch = self.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let columns = Columns::read(&self.files, self.items, &shape, hashing.hasher, &scratch)?;
        self.tell_without_items(&columns);
        let cannot = || format!("{}: cannot write", self.output.display());
        let (aside, file) = PartialFile::beside(&self.output, ANY_NEW_FILE).with_context(cannot)?;
        let head = columns.write(shape, &file).with_context(cannot)?;
        file.sync_all().with_context(cannot)?;
        aside.rename(&self.output).with_context(cannot)?;
        if !self.quiet {
            show(&head, self.json)?;
        }
        Ok(Exit::Done)
    }

    /// Tells of each file that has bytes and no item: most likely `--items` is wrong for it, and no query finds it.
    fn tell_without_items(&self, columns: &Columns) {
        let empty = self.files.iter().zip(columns.sets()).filter(|(_, set)| set.item_count == 0);
        for (path, _) in empty {
            if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
                let (name, items) = (path.display(), self.items);
                eprint_line(format_args!("{name} has none of the items {items}"));
            }
        }
    }
}
