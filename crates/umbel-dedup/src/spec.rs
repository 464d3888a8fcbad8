//! What a job is to do: its inputs, what of them is compared, which of equal records stays, and where all goes.

use super::addresses::is_object;
use super::best::BestField;
use super::filter_address::FilterAddress;
use super::format_rule::FormatRule;
use super::memory::pairs_bytes;
use super::name_filter::NameFilter;
use super::object_inputs::ObjectStores;
use super::reach::Reach;
use super::scope::Scope;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_dedup_engine::{FilterChoice, IndexBits, Keep, Level};
use umbel_files::{Inode, Roots, UsageError, inode_of};
use umbel_records::{Granularity, Normaliser};

/// Where kept records go.
#[derive(Clone, Debug)]
pub enum OutputTarget {
    /// Standard output.
    Stdout,
    /// One file.
    File(PathBuf),
    /// One file an input.
    Directory(PathBuf),
}

/// What becomes of a record without a field that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingKey {
    /// It is a bad record.
    Fail,
    /// It stays, and is compared with nothing.
    Keep,
    /// It goes.
    Drop,
}

/// What becomes of an empty item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmptyItems {
    /// It is equal to other empty ones.
    Compare,
    /// Its record stays.
    Keep,
}

/// An index that is to be written.
#[derive(Clone, Debug)]
pub struct SaveIndex {
    /// Its file.
    pub path: PathBuf,
    /// How much of each hash is stored; `None`: as the index has it that is updated, else all.
    pub bits: Option<IndexBits>,
}

/// What becomes of files that were found, not named, and are no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryFiles {
    /// The job ends.
    Refuse,
    /// They are left out.
    Skip,
    /// They go into the output directory as they are.
    Copy,
    /// They are cut like any other.
    Text,
}

/// Which groups are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Groups {
    /// All.
    #[default]
    All,
    /// Those of two records and more.
    Repeated,
    /// Those of one record.
    Unique,
}

/// What is written by the size of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BySize {
    /// Which groups.
    pub groups: Groups,
    /// Whether the size stands in front of each record.
    pub counts: bool,
}

impl BySize {
    /// Whether the sizes must be known before anything is written.
    pub(crate) fn needs_sizes(self) -> bool {
        self != Self::default()
    }
}

/// What the user wants.
#[derive(Debug)]
pub struct JobSpec {
    /// Files, directories, globs, `-`.
    pub inputs: Vec<String>,
    /// Which files of directories are read.
    pub names: NameFilter,
    /// Workers in this process, to measure the exchange between them; `None`: one, which exchanges nothing.
    pub workers: Option<u32>,
    /// What is compared.
    pub granularity: Granularity,
    /// Paragraphs of fewer bytes are not compared.
    pub paragraph_bytes_min: u64,
    /// What of items does not count, in order.
    pub normalise: Vec<Normaliser>,
    /// Which records are compared with each other.
    pub scope: Scope,
    /// Number of the worker that does this part of a job over many machines.
    pub rank: Option<u16>,
    /// What becomes of records without a key.
    pub missing_key: MissingKey,
    /// What becomes of empty items.
    pub empty: EmptyItems,
    /// Whether the user said what is compared; else it depends on the format.
    pub names_granularity: bool,
    /// How records are cut.
    pub format: FormatRule,
    /// Where kept records go, or the annotations.
    pub output: OutputTarget,
    /// Whether each input file is replaced: the output is a directory then, without a name.
    pub in_place: bool,
    /// Whether records are annotated instead of dropped.
    pub annotates: bool,
    /// What is written by how often a record was there.
    pub by_size: BySize,
    /// Where the report of dropped records goes.
    pub duplicates: Option<PathBuf>,
    /// Where the list of groups of equal records goes.
    pub groups: Option<PathBuf>,
    /// Where the list of bad records goes, if there are any.
    pub bad: Option<PathBuf>,
    /// Indexes of what earlier jobs have kept.
    pub references: Vec<PathBuf>,
    /// Filters that are asked what they hold of the kept items.
    pub online: Vec<FilterAddress>,
    /// The filter that kept items are added to.
    pub add_to: Option<FilterAddress>,
    /// Below which folders inputs may be; anywhere if there are none, as for whoever starts the process.
    pub roots: Option<Roots>,
    /// How their clusters are reached.
    pub reach: Reach,
    /// The index of what this job keeps.
    pub save_index: Option<SaveIndex>,
    /// Where the summary goes.
    pub summary: Option<PathBuf>,
    /// Where the page goes that the caller draws of the summary.
    pub page: Option<PathBuf>,
    /// Whether repeats are counted by file, as such a page needs it.
    pub tells_files: bool,
    /// When records are equal.
    pub level: Level,
    /// Which of equal records stays.
    pub keep: Keep,
    /// Where the best one stays: by which field.
    pub best: Option<BestField>,
    /// How entries are compared between workers.
    pub filter: FilterChoice,
    /// Seed of the hash.
    pub seed: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Directory for scratch files.
    pub scratch: PathBuf,
    /// Most bad records that are left out; `None`: the first one ends the job.
    pub skip_bad: Option<u64>,
    /// What becomes of files of a directory or pattern that are no text.
    pub binary: BinaryFiles,
    /// Whether existing outputs are replaced.
    pub overwrite: bool,
    /// The object store, for inputs and outputs.
    pub stores: ObjectStores,
}

impl JobSpec {
    /// What only reads: these inputs, this of each record, and nothing that depends on an answer of the user.
    pub(crate) fn reading(
        inputs: Vec<String>,
        format: FormatRule,
        granularity: Granularity,
        scratch: PathBuf,
        memory_bytes: u64,
    ) -> Self {
        let connect = |_: &str| Err(UsageError("nothing is asked of clusters here".into()));
        Self {
            inputs,
            names: NameFilter::default(),
            workers: None,
            granularity,
            paragraph_bytes_min: 0,
            normalise: Vec::new(),
            scope: Scope::Global,
            rank: None,
            missing_key: MissingKey::Fail,
            empty: EmptyItems::Compare,
            names_granularity: true,
            format,
            output: OutputTarget::Stdout,
            in_place: false,
            annotates: false,
            by_size: BySize::default(),
            duplicates: None,
            groups: None,
            bad: None,
            references: Vec::new(),
            online: Vec::new(),
            add_to: None,
            roots: None,
            reach: Reach { own_cluster: None, connect: Arc::new(connect) },
            save_index: None,
            summary: None,
            page: None,
            tells_files: false,
            level: Level::Fingerprint,
            keep: Keep::First,
            best: None,
            filter: FilterChoice::Auto,
            seed: 0,
            memory_bytes,
            scratch,
            skip_bad: None,
            binary: BinaryFiles::Refuse,
            overwrite: false,
            stores: ObjectStores::new(memory_bytes),
        }
    }

    /// Whether every file is one record.
    pub(crate) fn compares_files(&self) -> bool {
        self.granularity == Granularity::File
    }

    /// What pairs of workers in one process take.
    pub(crate) fn pairs_bytes(&self) -> u64 {
        self.workers.map_or(0, |workers| pairs_bytes(workers, self.level))
    }

    /// Whether records have parts, which are compared each by itself.
    pub(crate) fn has_parts(&self) -> bool {
        matches!(self.granularity, Granularity::Paragraph(_))
    }

    /// Outputs that are one file or object each, and the options that name them; `-` may be among them.
    pub(crate) fn named_outputs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let target = match &self.output {
            OutputTarget::File(path) => Some(path),
            OutputTarget::Stdout | OutputTarget::Directory(_) => None,
        };
        let outputs = [
            ("--duplicates", self.duplicates.as_ref()),
            ("--groups", self.groups.as_ref()),
            ("--bad", self.bad.as_ref()),
            ("--summary", self.summary.as_ref()),
            ("--report", self.page.as_ref()),
            ("--save-index", self.save_index.as_ref().map(|index| &index.path)),
            (if self.annotates { "--annotate" } else { "--output" }, target),
        ];
        outputs.into_iter().filter_map(|(flag, path)| Some((flag, &**path?)))
    }

    /// The index that is both a reference and saved: it is updated.
    pub(crate) fn updated_index(&self) -> Option<Inode> {
        let inode = |path: &Path| inode_of(&std::fs::metadata(path).ok()?);
        let saved = inode(&self.save_index.as_ref()?.path)?;
        let mut references = self.references.iter().filter(|path| !is_object(path));
        references.any(|path| inode(path) == Some(saved)).then_some(saved)
    }

    /// The byte that ends a record.
    pub(crate) fn record_end(&self) -> u8 {
        self.format.record_end()
    }

    /// The keep rule, as the user names it.
    pub(crate) fn keep_name(&self) -> String {
        match (&self.best, self.keep) {
            (Some(best), _) => best.to_string(),
            (None, Keep::Last) => "last".to_owned(),
            (None, Keep::First | Keep::Best) => "first".to_owned(),
        }
    }

    /// Whether anybody wants to know which record was kept for a dropped one.
    pub(crate) fn reports_kept(&self) -> bool {
        let is_told = self.duplicates.is_some() || self.groups.is_some() || self.annotates;
        is_told || self.tells_files || self.by_size.needs_sizes()
    }
}
