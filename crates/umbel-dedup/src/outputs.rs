//! Named outputs of a job: checked and opened before anything is read, completed at the end, committed together.
//!
//! Whatever would make an output fail at the end of a long job fails it at the start: a file that stands there, a
//! directory that is missing, two outputs in one file, a report in the place of an input.

use super::addresses::{is_object, object_at};
use super::bad::BadRecords;
use super::commit::commit;
use super::destinations::{open_sink, refuse_existing, store_of};
use super::in_place::common_directory;
use super::inputs::{Source, is_dash};
use super::json_lines::JsonLines;
use super::observer::Observer;
use super::sink::{Complete, Sink, compression_of_name, is_device};
use super::spec::{JobSpec, OutputTarget, SaveIndex};
use crate::error::{Context, Result};
use std::path::{Path, PathBuf};
use umbel_files::UsageError;
use umbel_files::{FileRoles, remove_leftovers};
use umbel_records::Compression;

/// Name of the list of bad records in an output directory.
pub(crate) const BAD_LIST_NAME: &str = "bad.jsonl";

/// Bad records that are shown on standard error where no list is written.
const BAD_LINES_SHOWN: usize = 20;

/// An output with a name. Devices and pipes are opened when they are written: opening one may wait for its reader.
pub(crate) enum Named {
    Open(Box<Sink>),
    Late(PathBuf),
}

impl Named {
    fn new(spec: &JobSpec, path: &Path) -> Result<Self> {
        Self::packed(spec, path, compression_of_name(path))
    }

    fn packed(spec: &JobSpec, path: &Path, compression: Compression) -> Result<Self> {
        if is_dash(path) {
            Ok(Self::Open(Box::new(Sink::stdout()?)))
        } else if is_device(path) {
            Ok(Self::Late(path.to_owned()))
        } else {
            Ok(Self::Open(Box::new(open_sink(spec, path, compression)?)))
        }
    }

    /// The sink.
    pub(crate) fn sink(self) -> Result<Sink> {
        match self {
            Self::Open(sink) => Ok(*sink),
            Self::Late(path) => Sink::file(&path, true),
        }
    }
}

/// The outputs of a job that have names, ready to be written.
pub(crate) struct Outputs {
    /// Kept records or annotations, if they go to one stream.
    pub(crate) kept: Option<Named>,
    /// The report of dropped records.
    pub(crate) duplicates: Option<Named>,
    /// The list of groups of equal records.
    pub(crate) groups: Option<Named>,
    /// The list of bad records.
    pub(crate) bad: Option<Named>,
    /// The index of what is kept.
    pub(crate) index: Option<Named>,
    /// The summary.
    pub(crate) summary: Option<Named>,
    /// The page.
    pub(crate) page: Option<Named>,
}

/// The place of a page, opened before what the page is about has begun: to be written once that is done.
pub struct PageOutput {
    named: Named,
    /// What is said first where the page cannot be written.
    stands: &'static str,
}

impl PageOutput {
    /// A page at this path, in the place of what is there. `stands` says, if the page cannot be written in the end, what
    /// is done in spite of that.
    ///
    /// # Errors
    ///
    /// What the system said, with the path: where the page cannot be, it shall be known before the work.
    pub fn replacing(path: &Path, stands: &'static str) -> Result<Self> {
        if path.is_dir() {
            return refuse(format!("{} is a directory, expected a file", path.display()));
        }
        let named = match is_device(path) {
            true => Named::Late(path.to_owned()),
            false => Named::Open(Box::new(Sink::file(path, true)?)),
        };
        Ok(Self { named, stands })
    }

    /// The page of a job.
    pub(crate) fn of_job(named: Named) -> Self {
        Self { named, stands: "the job is done and its other outputs stand, but not the --report" }
    }

    /// Writes the page, under its name once it is whole.
    ///
    /// # Errors
    ///
    /// What the system said, with the path. Nothing of the page stands then.
    pub fn write(self, page: &str) -> Result<()> {
        let write = || {
            let mut sink = self.named.sink()?;
            sink.write(page.as_bytes())?;
            commit(vec![sink.complete()?])
        };
        write().context(self.stands)
    }
}

impl Outputs {
    /// Opens all of them.
    pub(crate) fn open(spec: &JobSpec) -> Result<Self> {
        let open = |path: &PathBuf| Named::new(spec, path);
        let report = |path: &Option<PathBuf>| path.as_ref().map(open).transpose();
        let kept = match &spec.output {
            OutputTarget::Stdout => Some(Named::new(spec, Path::new("-"))?),
            OutputTarget::File(path) => Some(open(path)?),
            OutputTarget::Directory(_) => None,
        };
        let (duplicates, bad) = (report(&spec.duplicates)?, report(&spec.bad)?);
        let groups = report(&spec.groups)?;
        // Never packed, whatever its name: it is read block by block.
        let plain = |index: &SaveIndex| match spec.updated_index() {
            None => Named::packed(spec, &index.path, Compression::Plain),
            // Where a link leads to, and without --overwrite: nothing that it holds is lost.
            Some(_) => {
                let path = std::fs::canonicalize(&index.path)
                    .with_context(|| format!("--save-index {}", index.path.display()))?;
                Ok(Named::Open(Box::new(Sink::packed_file(&path, Compression::Plain, true)?)))
            }
        };
        let index = spec.save_index.as_ref().map(plain);
        let (index, summary) = (index.transpose()?, report(&spec.summary)?);
        let page = report(&spec.page)?;
        Ok(Self { kept, duplicates, groups, bad, index, summary, page })
    }
}

/// Where the output of a source goes in an output directory; in place, where the source is.
pub(crate) fn output_path(spec: &JobSpec, root: &Path, source: &Source) -> PathBuf {
    if spec.in_place {
        return source.absolute.clone();
    }
    let mut path = root.join(&source.relative).into_os_string();
    if spec.annotates {
        path.push(".jsonl");
    }
    path.into()
}

fn refuse<T>(text: String) -> Result<T> {
    Err(UsageError(text).into())
}

/// Refuses named outputs that could not be written at the end, or not side by side. Needs no input.
///
/// # Errors
///
/// A [`UsageError`] that names the output.
pub(crate) fn check_named(spec: &JobSpec) -> Result<()> {
    let mut streams = spec.named_outputs().filter(|(_, path)| is_dash(path)).count();
    if matches!(spec.output, OutputTarget::Stdout) {
        streams += 1;
    }
    if streams > 1 {
        let text =
            "two outputs would go to standard output: name a file for one of them, or --output";
        return refuse(text.into());
    }
    let paths = spec.named_outputs().map(|(_, path)| path);
    let paths: Vec<&Path> = paths.filter(|path| !is_dash(path)).collect();
    if let Some(path) = paths.iter().find(|path| path.is_dir()) {
        return refuse(format!("{} is a directory, expected a file", path.display()));
    }
    roles(spec, &[])?;
    refuse_existing(spec, paths.iter().copied().filter(|path| !is_updated_index(spec, path)))
}

/// Whether this output is an index that is written anew with what it holds, which needs no leave.
pub(crate) fn is_updated_index(spec: &JobSpec, path: &Path) -> bool {
    let is_index = spec.save_index.as_ref().is_some_and(|index| index.path == path);
    is_index && spec.updated_index().is_some()
}

/// Refuses outputs that clash with inputs, or in an output directory with each other.
///
/// # Errors
///
/// A [`UsageError`] that names the output.
pub(crate) fn check_against_inputs(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let mut roles = roles(spec, sources)?;
    let OutputTarget::Directory(root) = &spec.output else { return Ok(()) };
    // What cannot be opened has no output.
    let sources: Vec<&Source> = sources.iter().filter(|source| !source.is_unreadable()).collect();
    let mut paths: Vec<PathBuf> =
        sources.iter().map(|source| output_path(spec, root, source)).collect();
    for (path, source) in paths.iter().zip(sources) {
        if spec.annotates {
            roles.add_output("annotations in", path)?;
            continue;
        }
        // A file may be replaced by what stays of it, not by what stays of another.
        if let Some(input) = roles.input_at(path).filter(|_| !source.stands_at(path)) {
            return refuse(format!(
                "{}: what is kept of {} would replace the input {input}; name another output directory",
                path.display(),
                source.name
            ));
        }
        roles.add_replacement("", path)?;
    }
    if spec.skip_bad.is_some() && spec.bad.is_none() {
        let list = root.join(BAD_LIST_NAME);
        roles.add_output("the list of bad records,", &list)?;
        paths.push(list);
    }
    let in_place = spec.in_place;
    refuse_existing(spec, paths.iter().map(PathBuf::as_path).filter(|_| !in_place))
}

/// Finds out, before anything is read, whether objects may be written where outputs go.
///
/// # Errors
///
/// Names the output.
pub(crate) fn try_objects(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let mut paths: Vec<PathBuf> = spec.named_outputs().map(|(_, path)| path.to_owned()).collect();
    if let OutputTarget::Directory(root) = &spec.output {
        paths.extend(sources.first().map(|source| output_path(spec, root, source)));
        paths.extend(spec.skip_bad.is_some().then(|| root.join(BAD_LIST_NAME)));
    }
    // One behind the other: a process that is killed meanwhile leaves one upload, not many.
    for path in &paths {
        if let Some(address) = object_at(path)? {
            let tried = store_of(spec, path)?.try_upload(&address);
            tried.with_context(|| format!("{address}: cannot write"))?;
        }
    }
    Ok(())
}

/// What the job reads and what it writes under names of their own.
fn roles(spec: &JobSpec, sources: &[Source]) -> Result<FileRoles> {
    let (mut roles, mut references) = (FileRoles::default(), FileRoles::default());
    for path in &spec.references {
        let name = path.display().to_string();
        roles.add_input(&name, path);
        references.add_input(&name, path);
    }
    for source in sources {
        match (&source.identity, source.inode) {
            (Some(_), _) => roles.add_input(&source.name, &source.absolute),
            (None, Some(inode)) => roles.add_open_input(&source.name, inode),
            (None, None) => {} // A pipe.
        }
    }
    let mut streams = matches!(spec.output, OutputTarget::Stdout);
    for (flag, path) in spec.named_outputs() {
        match flag {
            _ if is_dash(path) => streams = true,
            // What is kept may take the place of what it was read from.
            "--output" => {
                references.add_output(flag, path)?;
                roles.add_replacement(flag, path)?;
            }
            // The index of a reference and of what is kept.
            "--save-index" if is_object(path) && references.input_at(path).is_some() => {
                return refuse(format!(
                    "--save-index {} is a reference, too: an index in a store is not updated in place; save another, and \
                     name both in later jobs",
                    path.display()
                ));
            }
            "--save-index" if references.input_at(path).is_some() => {
                roles.add_replacement(flag, path)?;
            }
            _ => roles.add_output(flag, path)?,
        }
    }
    if streams {
        roles.check_standard_output()?;
    }
    Ok(roles)
}

/// Removes what dead processes have left in the folders that the job writes to.
pub(crate) fn remove_leftovers_beside(spec: &JobSpec, sources: &[Source]) {
    let named = spec.named_outputs().map(|(_, path)| path.to_owned());
    let named = named.filter(|path| !is_dash(path));
    let root = match &spec.output {
        OutputTarget::Directory(_) if spec.in_place => common_directory(sources),
        OutputTarget::Directory(root) => Some(root.clone()),
        OutputTarget::Stdout | OutputTarget::File(_) => None,
    };
    let below = root.iter().flat_map(|root| {
        let bad_list = std::iter::once(root.join(BAD_LIST_NAME));
        bad_list.chain(sources.iter().map(|source| output_path(spec, root, source)))
    });
    let local = named.chain(below).filter(|path| !is_object(path));
    let folder = |path: PathBuf| match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    remove_leftovers(&local.map(folder).collect(), root.as_deref());
}

/// Lists the bad records where the user wants them, or shows some.
pub(crate) fn write_bad(
    spec: &JobSpec,
    observer: &dyn Observer,
    named: Option<Named>,
    bad: &BadRecords,
) -> Result<Option<Complete>> {
    let lines = bad.lines();
    if lines.is_empty() {
        return Ok(None);
    }
    let sink = match (named, &spec.output) {
        (Some(named), _) => named.sink()?,
        (None, OutputTarget::Directory(root)) => {
            open_sink(spec, &root.join(BAD_LIST_NAME), Compression::Plain)?
        }
        (None, _) => {
            let shown = lines.iter().take(BAD_LINES_SHOWN);
            shown.for_each(|line| observer.warn(&format!("left out: {}", line.text())));
            if lines.len() > BAD_LINES_SHOWN {
                let more = lines.len() - BAD_LINES_SHOWN;
                observer.warn(&format!("left out: {more} more; --bad FILE lists them all"));
            }
            return Ok(None);
        }
    };
    let mut list = JsonLines::new(sink);
    lines.iter().try_for_each(|line| list.add(line))?;
    Ok(Some(list.complete()?))
}
