//! `umbel sketch`: files with which a set can be compared while the other set is not at hand.

use super::form::FormArgs;
use crate::amounts::parse_count;
use crate::exit::{Exit, UsageError, refuse};
use crate::printer::Printer;
use crate::stderr::eprint_line;
use anyhow::{Context, Result};
use clap::{ArgGroup, Args, Subcommand};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use umbel_files::{
    ANY_NEW_FILE, FileRoles, is_device, open_device, refuse_existing_file, write_whole,
};
use umbel_reconcile::{SketchFile, open_set, sketch_of};
use umbel_reconcile_engine::limits::SKETCH_SYMBOLS_MAX;
use umbel_reconcile_engine::{SketchSpec, StoredSketch};

/// Arguments of `umbel sketch`.
#[derive(Args)]
#[command(
    after_help = "`umbel reconcile A F.sketch` shows what differs between A and the set that F.sketch is of.\n\
    A sketch contains its salt, and whoever knows it can craft items that collide, so that a \
    difference is missed or ends in an error: use only sketches, and sets, of parties that you trust.\n\n\
    Examples:\n  \
      umbel sketch build set.txt --differences 1000 -o set.sketch\n  \
      umbel sketch extend set.sketch set.txt --symbols 4000\n  \
      umbel sketch add set.sketch new.txt --new\n\n\
    docs/reconcile.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
)]
pub(crate) struct SketchArgs {
    #[command(subcommand)]
    command: SketchCommand,
}

#[derive(Subcommand)]
enum SketchCommand {
    /// Create the sketch of a set.
    Build(BuildArgs),
    /// Lengthen a sketch, so that it can tell larger differences; this reads its set.
    Extend(ExtendArgs),
    /// Add to a sketch the items that were added to its set; the set is not read.
    Add(AddArgs),
    /// Remove from a sketch the items that were removed from its set; the set is not read.
    Remove(RemoveArgs),
}

#[derive(Args)]
#[command(group = ArgGroup::new("length").required(true))]
struct BuildArgs {
    /// The set
    #[arg(value_name = "FILE")]
    set: PathBuf,
    /// The sketch; - is standard output
    #[arg(short, long, value_name = "F.sketch")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
    /// Number of coded symbols: 1.35 to 2 for each difference that it can tell
    #[arg(long, group = "length", value_name = "N", value_parser = parse_count)]
    symbols: Option<u64>,
    /// As many coded symbols as suffice for D differences in 99 of 100 cases
    #[arg(long, group = "length", value_name = "D", value_parser = parse_count)]
    differences: Option<u64>,
    /// Use this salt of 32 hexadecimal digits, not a random one: two sketches of the same salt can be compared.
    /// Whoever knows the salt can craft items that collide
    #[arg(long, value_name = "HEX", value_parser = parse_salt)]
    salt: Option<[u8; 16]>,
    /// Bits of a symbol, where items are lines, files or long ids. 48 save a sixth of the bytes; with n items and d
    /// differences two collide with probability n * d / 2^BITS, which is an error when the sketch is used. A symbol
    /// takes whole bytes: 41 to 47 save no more than 48
    #[arg(long, value_name = "BITS", default_value_t = 64,
        value_parser = clap::value_parser!(u8).range(32..=64))]
    symbol_bits: u8,
    #[command(flatten)]
    form: FormArgs,
}

#[derive(Args)]
struct ExtendArgs {
    /// The sketch
    #[arg(value_name = "F.sketch")]
    sketch: PathBuf,
    /// Its set
    #[arg(value_name = "FILE")]
    set: PathBuf,
    /// Number of coded symbols that it will have
    #[arg(long, value_name = "N", value_parser = parse_count)]
    symbols: u64,
    #[command(flatten)]
    form: FormArgs,
}

#[derive(Args)]
struct AddArgs {
    /// The sketch
    #[arg(value_name = "F.sketch")]
    sketch: PathBuf,
    /// The items, as a set
    #[arg(value_name = "MORE")]
    more: PathBuf,
    /// None of the items was in the set before. A sketch cannot tell, and adding an item twice removes it
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    form: FormArgs,
}

#[derive(Args)]
struct RemoveArgs {
    /// The sketch
    #[arg(value_name = "F.sketch")]
    sketch: PathBuf,
    /// The items, as a set
    #[arg(value_name = "GONE")]
    gone: PathBuf,
    /// All of the items were in the set before. A sketch cannot tell, and removing one that was not adds it
    #[arg(long)]
    present: bool,
    #[command(flatten)]
    form: FormArgs,
}

/// Runs the command.
///
/// # Errors
///
/// A [`UsageError`] if arguments contradict each other; if a file cannot be read or written.
pub(crate) fn run(args: &SketchArgs) -> Result<Exit> {
    match &args.command {
        SketchCommand::Build(args) => args.run(),
        SketchCommand::Extend(args) => args.run(),
        SketchCommand::Add(args) => args.run(),
        SketchCommand::Remove(args) => args.run(),
    }?;
    Ok(Exit::Done)
}

fn parse_salt(text: &str) -> Result<[u8; 16], String> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = number.filter(|_| is_plain);
    number.map(u128::to_be_bytes).ok_or_else(|| "expected 32 hexadecimal digits".to_owned())
}

/// Draws a salt. Only sketches of the same salt can be compared; they share one only if the user asks for
/// it.
#[expect(clippy::disallowed_methods, reason = "decides only whose symbols collide")]
fn draw_salt() -> [u8; 16] {
    rand::random()
}

fn eprint_sketch(path: &Path, sketch: &StoredSketch) {
    let salt = u128::from_be_bytes(sketch.spec().salt());
    eprint_line(format_args!(
        "{}: {} items, {} coded symbols, {} bytes, salt {salt:032x}",
        path.display(),
        sketch.item_count(),
        sketch.coded_count(),
        sketch.to_bytes().len(),
    ));
}

impl BuildArgs {
    fn run(&self) -> Result<()> {
        let form = self.form.form();
        let coded_count = match (self.symbols, self.differences.unwrap_or(0)) {
            (Some(symbols), _) => checked_length("--symbols", symbols, symbols)?,
            (None, differences) => {
                let symbols = SketchSpec::coded_count_for(differences);
                checked_length("--differences", differences, symbols)?
            }
        };
        if self.output != Path::new("-") {
            let mut roles = FileRoles::default();
            roles.add_input(&self.set.display().to_string(), &self.set);
            roles.add_output("--output", &self.output)?;
            if !self.overwrite {
                refuse_existing_file(&self.output)?;
            }
        }
        let set = open_set(&self.set, &form)?;
        let salt = self.salt.unwrap_or_else(draw_salt);
        let spec = SketchSpec::new(set.kind(), form.dataset_id(&*set), salt, self.symbol_bits);
        let spec = spec.map_err(|_| {
            UsageError("ids of 64 bits and records with keys have symbols of 64 bits".into())
        })?;
        let sketch = sketch_of(&*set, spec, coded_count)?;
        let bytes = sketch.to_bytes();
        if self.output == Path::new("-") {
            // Who compares with it reads only as much as it needs.
            let mut out = Printer::new();
            out.write(&bytes)?;
            out.flush()?;
        } else {
            let written = if is_device(&self.output) {
                open_device(&self.output).and_then(|mut device| device.write_all(&bytes))
            } else {
                write_whole(&self.output, ANY_NEW_FILE, &bytes)
            };
            written.with_context(|| format!("{}: cannot write", self.output.display()))?;
        }
        eprint_sketch(&self.output, &sketch);
        Ok(())
    }
}

/// The number of coded symbols, which this option asks for, if a sketch can have as many.
fn checked_length(flag: &str, given: u64, symbols: u64) -> Result<u64> {
    let most = SKETCH_SYMBOLS_MAX as u64;
    if (1..=most).contains(&symbols) {
        return Ok(symbols);
    }
    refuse!("{flag} {given}: {symbols} coded symbols, expected 1 to {most}")
}

/// Refuses a sketch file that is also the set: it is replaced in place.
fn refuse_own_set(sketch: &Path, set: &Path) -> Result<()> {
    let mut roles = FileRoles::default();
    roles.add_input(&set.display().to_string(), set);
    Ok(roles.add_output("the sketch", sketch)?)
}

impl ExtendArgs {
    fn run(&self) -> Result<()> {
        checked_length("--symbols", self.symbols, self.symbols)?;
        refuse_own_set(&self.sketch, &self.set)?;
        let file = SketchFile::open(&self.sketch)?;
        let shown = self.sketch.display();
        let have = file.sketch.coded_count();
        if self.symbols <= have as u64 {
            refuse!("{shown}: has {have} coded symbols already");
        }
        let longer = file.sketch_of(&self.set, &self.form.form(), self.symbols)?;
        if !file.sketch.is_prefix_of(&longer) {
            anyhow::bail!(
                "{shown}: is not the sketch of {}, or of what that was: build it again",
                self.set.display()
            );
        }
        file.replace(&longer)?;
        eprint_sketch(&self.sketch, &longer);
        Ok(())
    }
}

/// A change of one sketch by another.
type Change =
    fn(&mut StoredSketch, &StoredSketch) -> Result<(), umbel_reconcile_engine::SketchError>;

fn change(path: &Path, items: &Path, form: &FormArgs, change: Change) -> Result<()> {
    refuse_own_set(path, items)?;
    let file = SketchFile::open(path)?;
    let by = file.sketch_of(items, &form.form(), file.sketch.coded_count() as u64)?;
    let mut sketch = file.sketch.clone();
    change(&mut sketch, &by).with_context(|| path.display().to_string())?;
    file.replace(&sketch)?;
    eprint_sketch(path, &sketch);
    Ok(())
}

impl AddArgs {
    fn run(&self) -> Result<()> {
        if !self.new {
            refuse!(
                "{}: adding an item twice removes it, and no sketch can tell whether its set has an item: \
                 say --new if it has none of those of {}",
                self.sketch.display(),
                self.more.display()
            );
        }
        change(&self.sketch, &self.more, &self.form, StoredSketch::add)
    }
}

impl RemoveArgs {
    fn run(&self) -> Result<()> {
        if !self.present {
            refuse!(
                "{}: removing an item that is not there adds it, and no sketch can tell whether its set has an \
                 item: say --present if it has all of those of {}",
                self.sketch.display(),
                self.gone.display()
            );
        }
        change(&self.sketch, &self.gone, &self.form, StoredSketch::remove)
    }
}
