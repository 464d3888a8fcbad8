//! `umbel static build`: builds a static file of keys.

use super::chunks::{GROUP_BITS, Gathered, Plan};
use super::form::ItemForm;
use super::hash_key::Hashing;
use super::info::show;
use crate::amounts::parse_bytes;
use crate::commands::dedup::cutting::CuttingArgs;
use crate::commands::dedup::terminal::Terminal;
use crate::commands::dedup::{GranularityArg, parse_seed};
use crate::commands::filter::create::parse_rate;
use crate::exit::{Exit, UsageError, refuse};
use crate::interrupt::PartialFile;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use umbel_dedup::{FoundRecord, ItemSource, OpenedItems};
use umbel_files::{ANY_NEW_FILE, FileRoles, refuse_existing_file, refuse_stream};
use umbel_filter::ItemHash;
use umbel_records::Normaliser;
use umbel_static::{
    BuildError, CELL_BITS_MAX, Head, STATIC_HEADER_BYTES, StaticShape, StaticShapeError,
    check_bits_for,
};

/// Default false-positive rate of a filter.
const DEFAULT_RATE: f64 = 0.01;

/// Default check bits of a map: one in 256 other items has a value.
const DEFAULT_CHECK_BITS: u8 = 8;

/// Default memory, besides the chunks that are built concurrently.
const DEFAULT_MEMORY: &str = "128M";

const ITEMS: &str = "Items";

/// Arguments of `umbel static build`.
#[derive(Args)]
pub(super) struct BuildArgs {
    /// Keys: files, directories, globs, - or objects, plain or packed [default: standard input]
    #[arg(value_name = "KEYS")]
    keys: Vec<OsString>,
    /// The file
    #[arg(short, long, value_name = "F.umbs")]
    output: PathBuf,
    /// For a filter: largest share of other items that may be reported present, rounded down to a power of
    /// 2 [default: 0.01]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with_all = ["value", "others"])]
    rate: Option<f64>,
    /// Build a map to the whole numbers of this field
    #[arg(long, value_name = "FIELD", conflicts_with = "others", requires = "key")]
    value: Option<String>,
    /// For a map: check bits; other items have a value with probability 2^-BITS [default: 8]
    #[arg(long, value_name = "BITS", requires = "value",
        value_parser = clap::value_parser!(u8).range(0..CELL_BITS_MAX as i64))]
    check: Option<u8>,
    /// For a map: bits of a value [default: as many as the largest needs]
    #[arg(long, value_name = "BITS", requires = "value",
        value_parser = clap::value_parser!(u8).range(1..=CELL_BITS_MAX as i64))]
    value_bits: Option<u8>,
    /// Build an exact set: the keys are members, these others are not; repeatable
    #[arg(long, value_name = "FILE")]
    others: Vec<OsString>,
    /// The key is this field or column; repeatable
    #[arg(long, value_name = "FIELD", help_heading = ITEMS)]
    key: Vec<String>,
    /// trim, lower, nfc, nfkc, squeeze, crlf, punct or url
    #[arg(long, alias = "normalize", value_name = "NAMES", value_delimiter = ',', help_heading = ITEMS)]
    normalise: Vec<Normaliser>,
    #[command(flatten)]
    cutting: CuttingArgs,
    /// Hash under the secret key of this file, where strangers choose items: 48 hexadecimal digits
    #[arg(long, value_name = "FILE", help_heading = ITEMS)]
    hash_key: Option<PathBuf>,
    /// Seed of the hash, if it has no key [default: 0]
    #[arg(long, value_name = "N", value_parser = parse_seed, conflicts_with = "hash_key", help_heading = ITEMS)]
    seed: Option<u64>,
    /// Memory, like 4G: for hashes, the rest goes to disk, then for chunks that are built at once, 64M each
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = DEFAULT_MEMORY)]
    memory: u64,
    /// Folder for scratch files [default: the system's]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
    /// Print no progress, and nothing about the file
    #[arg(long, short)]
    quiet: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// The keys, and the others of an exact set.
struct Opened<'o> {
    keys: OpenedItems<'o>,
    others: Option<OpenedItems<'o>>,
}

impl BuildArgs {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// A usage error if arguments contradict each other, or the output is `-`, a device or pipe; if keys cannot be read or do not fit the shape;
    /// if the file cannot be written. No file is left then.
    pub(super) fn run(&self) -> Result<Exit> {
        let hashing = match &self.hash_key {
            Some(path) => Hashing::read(path)?,
            None => Hashing::seeded(self.seed.unwrap_or(0)),
        };
        // The head is written last, before the chunks: only a file can be written so.
        refuse_stream("--output", &self.output)?;
        if !self.overwrite {
            refuse_existing_file(&self.output)?;
        }
        self.check_rate()?;
        self.check_value_bits()?;
        let terminal = Terminal::new(self.quiet);
        let has_others = !self.others.is_empty();
        let keys = if self.keys.is_empty() { vec!["-".into()] } else { self.keys.clone() };
        if keys.iter().chain(&self.others).filter(|input| *input == "-").count() > 1 {
            refuse!("standard input can be read only once");
        }
        let opened = Opened {
            keys: self.source(keys)?.open(&terminal)?,
            others: has_others
                .then(|| {
                    self.source(self.others.clone())?.open(&terminal).map_err(anyhow::Error::from)
                })
                .transpose()?,
        };
        let mut roles = FileRoles::default();
        opened.keys.add_to(&mut roles);
        opened.others.iter().for_each(|others| others.add_to(&mut roles));
        roles.add_output("--output", &self.output)?;
        let gathered = Gathered {
            memory_bytes: self.memory,
            keys: opened.keys.gather(hashing.hasher, GROUP_BITS)?,
            others: opened
                .others
                .as_ref()
                .map(|others| others.gather(hashing.hasher, GROUP_BITS))
                .transpose()?,
        };
        let form = self.form(&gathered);
        let plan_for = |key_count, other_count| {
            let shape = self.shape(&gathered, hashing, (key_count, other_count))?;
            let shape = shape.with_form(form.text())?;
            Ok(Plan { chunk_bits: shape.chunk_bits(key_count, other_count)?, shape })
        };
        let head = self.write(&gathered, plan_for, |error| opened.explain(hashing, error))?;
        if !self.quiet {
            show(&head, &form, self.json)?;
        }
        Ok(Exit::Done)
    }

    fn source(&self, inputs: Vec<OsString>) -> Result<ItemSource> {
        let compared = if self.key.is_empty() { GranularityArg::Line } else { GranularityArg::Key };
        let is_map = self.value.is_some();
        Ok(ItemSource {
            inputs,
            format: self.cutting.format(compared)?,
            granularity: self.item_form().granularity(),
            normalise: self.normalise.clone(),
            number: self.value.clone(),
            number_max: if is_map { (1 << self.value_bits_max()) - 1 } else { 0 },
            output: self.earlier_output(),
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            memory_bytes: self.memory,
        })
    }

    /// The output, if an earlier build has made it: then it is none of the keys beside which it lies. Any other file there
    /// is an input, which no output replaces.
    fn earlier_output(&self) -> Option<PathBuf> {
        let mut header = [0; STATIC_HEADER_BYTES];
        File::open(&self.output).and_then(|mut file| file.read_exact(&mut header)).ok()?;
        Head::bytes_needed(&header).is_ok().then(|| self.output.clone())
    }

    /// Refuses a rate for which a key has too few bits.
    fn check_rate(&self) -> Result<()> {
        let least = 0.5f64.powi(i32::from(CELL_BITS_MAX));
        match self.rate {
            Some(rate) if rate < least => Err(UsageError(format!(
                "--rate {rate:e}: expected at least {least:.2e}, which is 2^-{CELL_BITS_MAX}: a key has at most \
                 {CELL_BITS_MAX} bits"
            ))
            .into()),
            _ => Ok(()),
        }
    }

    /// Refuses value bits for which a key has too few bits besides the check bits.
    fn check_value_bits(&self) -> Result<()> {
        let (value, check) = (self.value_bits.unwrap_or(0), self.check_bits());
        if value > CELL_BITS_MAX - check {
            refuse!(
                "--value-bits {value} and --check {check}: a key has at most {CELL_BITS_MAX} bits in all"
            );
        }
        Ok(())
    }

    fn check_bits(&self) -> u8 {
        self.check.unwrap_or(DEFAULT_CHECK_BITS)
    }

    /// Most bits of a value.
    fn value_bits_max(&self) -> u8 {
        self.value_bits.unwrap_or(CELL_BITS_MAX - self.check_bits())
    }

    fn item_form(&self) -> ItemForm {
        ItemForm {
            key: self.key.clone(),
            normalise: self.normalise.iter().map(ToString::to_string).collect(),
            types: String::new(),
            value: self.value.clone(),
        }
    }

    /// The form of the items, with the types of the keys that were read.
    fn form(&self, gathered: &Gathered) -> ItemForm {
        let types = if self.key.len() == 1 { gathered.keys.tags() } else { String::new() };
        ItemForm { types, ..self.item_form() }
    }

    fn shape(
        &self,
        gathered: &Gathered,
        hashing: Hashing,
        (key_count, other_count): (u64, u64),
    ) -> Result<StaticShape, StaticShapeError> {
        if gathered.others.is_some() {
            return StaticShape::exact(key_count, other_count, hashing.key);
        }
        if self.value.is_none() {
            let bits = check_bits_for(self.rate.unwrap_or(DEFAULT_RATE));
            return StaticShape::filter(bits, hashing.key);
        }
        let most = gathered.keys.number_most();
        let needed = u8::try_from(64 - most.leading_zeros()).expect("at most 64").max(1);
        StaticShape::map(self.value_bits.unwrap_or(needed), self.check_bits(), hashing.key)
    }

    /// Writes the file to a temporary name, syncs it and renames it.
    fn write(
        &self,
        gathered: &Gathered,
        plan_for: impl Fn(u64, u64) -> Result<Plan, StaticShapeError>,
        explain: impl Fn(anyhow::Error) -> anyhow::Error,
    ) -> Result<Head> {
        let path: &Path = &self.output;
        let cannot = || format!("{}: cannot write", path.display());
        let (aside, file) = PartialFile::beside(path, ANY_NEW_FILE).with_context(cannot)?;
        let head = gathered.write(plan_for, &file, path).map_err(explain)?;
        file.sync_all().with_context(cannot)?;
        aside.rename(path).with_context(cannot)?;
        Ok(head)
    }
}

impl Opened<'_> {
    /// Adds to the error of a chunk the records that caused it.
    fn explain(&self, hashing: Hashing, error: anyhow::Error) -> anyhow::Error {
        let records: Result<Vec<Option<FoundRecord>>> = match error.downcast_ref::<BuildError>() {
            Some(BuildError::TwoValues { hash, values }) => {
                let find = |value| first(&self.keys, hashing, *hash, Some(value));
                values.iter().copied().map(find).collect()
            }
            Some(BuildError::OnBothSides { hash }) => {
                let sides = [Some(&self.keys), self.others.as_ref()].into_iter().flatten();
                sides.map(|side| first(side, hashing, *hash, None)).collect()
            }
            _ => return error,
        };
        let records = match records {
            Ok(records) => records,
            Err(why) => return why,
        };
        // If they cannot be found again, the input has changed meanwhile.
        let [Some(a), Some(b)] = &records[..] else { return error };
        match error.downcast_ref::<BuildError>() {
            Some(BuildError::TwoValues { .. }) => anyhow!(
                "one key has two values: {} in {a}, {} in {b}; decide which is right",
                a.number,
                b.number
            ),
            _ => anyhow!("one item is a key and among the others: {a} and {b}"),
        }
    }
}

/// The first record with this item, and with this number if one is given.
fn first(
    items: &OpenedItems<'_>,
    hashing: Hashing,
    hash: ItemHash,
    value: Option<u64>,
) -> Result<Option<FoundRecord>> {
    let is_it = |found, number| found == hash && value.is_none_or(|value| value == number);
    Ok(items.find(hashing.hasher, &is_it, 1)?.pop())
}
