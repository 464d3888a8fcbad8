//! The specification of a job: its inputs, what is compared, which of several equal records is kept, and the outputs.

use super::addresses::is_object;
use super::best::BestField;
use super::filter_address::FilterAddress;
use super::format_rule::FormatRule;
use super::memory::pairs_bytes;
use super::name_filter::NameFilter;
use super::object_inputs::ObjectStores;
use super::reach::Reach;
use super::scope::Scope;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_dedup_engine::{Exactness, FilterChoice, IndexBits, Keep};
use umbel_files::{Inode, Roots, UsageError, inode_of};
use umbel_records::{Granularity, Normaliser};

/// The output of kept records.
#[derive(Clone, Debug)]
pub enum OutputTarget {
    /// Standard output.
    Stdout,
    /// One file.
    File(PathBuf),
    /// One file per input.
    Directory(PathBuf),
}

/// The treatment of a record that lacks the compared field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingKey {
    /// It is a bad record.
    Fail,
    /// It is kept, and not compared.
    Keep,
    /// It is dropped.
    Drop,
}

/// The treatment of an empty item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmptyItems {
    /// It is an item like any other, equal to other empty ones.
    Compare,
    /// Its record is kept, and not compared.
    Keep,
}

/// An index to write.
#[derive(Clone, Debug)]
pub struct SaveIndex {
    /// Its file.
    pub path: PathBuf,
    /// Bits of each hash to store; `None`: as in the index that is updated, otherwise all.
    pub bits: Option<IndexBits>,
}

/// The treatment of files that were found (not named) and are not text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryFiles {
    /// The job fails.
    Refuse,
    /// They are skipped.
    Skip,
    /// They are copied to the output directory as they are.
    Copy,
    /// They are read like text.
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

/// Output by the size of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BySize {
    /// Which groups are written.
    pub groups: Groups,
    /// Whether each record is written with the size in front.
    pub counts: bool,
}

impl BySize {
    /// Whether the output needs the sizes of groups.
    pub(crate) fn needs_sizes(self) -> bool {
        self != Self::default()
    }
}

/// The specification of a job.
#[derive(Debug)]
pub struct JobSpec {
    /// Files, directories, globs, `-`, objects, as they were given: names of files may have any bytes.
    pub inputs: Vec<OsString>,
    /// Which files of directories are read.
    pub names: NameFilter,
    /// Number of workers in this process, to measure the exchange between them; `None`: one, which exchanges nothing.
    pub workers: Option<u32>,
    /// The part of a record that is compared.
    pub granularity: Granularity,
    /// Paragraphs of fewer bytes are not compared.
    pub paragraph_bytes_min: u64,
    /// The normalisations of items, in order.
    pub normalise: Vec<Normaliser>,
    /// Which records are compared with each other.
    pub scope: Scope,
    /// Number of this worker, in a job over many machines.
    pub rank: Option<u16>,
    /// The treatment of records without a key.
    pub missing_key: MissingKey,
    /// The treatment of empty items.
    pub empty: EmptyItems,
    /// Whether the user has given the granularity; otherwise it depends on the format.
    pub names_granularity: bool,
    /// How records are cut.
    pub format: FormatRule,
    /// The output of kept records, or of annotations.
    pub output: OutputTarget,
    /// Whether each input file is replaced: then the output is a directory without a name.
    pub in_place: bool,
    /// Whether records are annotated instead of dropped.
    pub annotates: bool,
    /// Output by the size of groups, if any.
    pub by_size: BySize,
    /// The report of dropped records.
    pub duplicates: Option<PathBuf>,
    /// The list of groups of equal records.
    pub groups: Option<PathBuf>,
    /// The list of bad records, written if there are any, or an old list is replaced.
    pub bad: Option<PathBuf>,
    /// Indexes of what earlier jobs have kept.
    pub references: Vec<PathBuf>,
    /// Filters of a cluster that are queried for the kept items.
    pub online: Vec<FilterAddress>,
    /// The filter that kept items are added to.
    pub add_to: Option<FilterAddress>,
    /// Folders below which inputs must be, or `None` for no restriction.
    pub roots: Option<Roots>,
    /// How to connect to the clusters of filters.
    pub reach: Reach,
    /// The index of kept items to write.
    pub save_index: Option<SaveIndex>,
    /// The output of the summary.
    pub summary: Option<PathBuf>,
    /// The output of the page that the caller renders from the summary.
    pub page: Option<PathBuf>,
    /// Whether repeats are counted by file, which that page needs.
    pub reports_files: bool,
    /// When two items are equal.
    pub exactness: Exactness,
    /// Which of several equal records is kept.
    pub keep: Keep,
    /// The field that determines the best one, if the best is kept.
    pub best: Option<BestField>,
    /// How entries are compared between workers.
    pub filter: FilterChoice,
    /// Seed of the hash.
    pub seed: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Directory for scratch files.
    pub scratch: PathBuf,
    /// Most bad records that are skipped; `None`: the first one ends the job.
    pub skip_bad: Option<u64>,
    /// The treatment of files of a directory or pattern that are not text.
    pub binary: BinaryFiles,
    /// Whether existing outputs are replaced.
    pub overwrite: bool,
    /// The object store, for inputs and outputs.
    pub stores: ObjectStores,
}

impl JobSpec {
    /// A specification to read these inputs with this granularity, and defaults for everything else: the first one of equal
    /// records is kept, on standard output, and nothing is replaced.
    #[must_use]
    pub fn reading(
        inputs: Vec<OsString>,
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
            reports_files: false,
            exactness: Exactness::Fingerprint,
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

    /// The inputs for people and for other processes, as the names of found files are told them: what is not UTF-8 is
    /// replaced.
    pub(crate) fn input_names(&self) -> Vec<String> {
        self.inputs.iter().map(|input| input.display().to_string()).collect()
    }

    /// Whether every file is one record.
    pub(crate) fn compares_files(&self) -> bool {
        self.granularity == Granularity::File
    }

    /// Memory in bytes that pairs of workers in one process take.
    pub(crate) fn pairs_bytes(&self) -> u64 {
        self.workers.map_or(0, |workers| pairs_bytes(workers, self.exactness))
    }

    /// Whether records have parts, which are compared one by one.
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

    /// Whether an output names all bad records: a list of them, or the annotations.
    pub(crate) fn lists_bad(&self) -> bool {
        let has_list = self.bad.is_some() || matches!(self.output, OutputTarget::Directory(_));
        has_list || self.annotates
    }

    /// The byte that ends a record.
    pub(crate) fn record_end(&self) -> u8 {
        self.format.record_end()
    }

    /// The keep rule as the user writes it.
    pub(crate) fn keep_name(&self) -> String {
        match (&self.best, self.keep) {
            (Some(best), _) => best.to_string(),
            (None, Keep::Last) => "last".to_owned(),
            (None, Keep::First | Keep::Best) => "first".to_owned(),
        }
    }

    /// Whether an output names, for dropped records, the kept ones.
    pub(crate) fn reports_kept(&self) -> bool {
        let reports_kept = self.duplicates.is_some() || self.groups.is_some() || self.annotates;
        reports_kept || self.reports_files || self.by_size.needs_sizes()
    }
}
