//! The named outputs of a job: checked and opened before anything is read, completed at the end, committed together.
//!
//! Whatever would make an output fail at the end of a long job is checked at the start: an output that
//! exists, a missing directory, two outputs with one name, an output with the name of an input.

use super::addresses::{is_object, object_at};
use super::bad::BadLine;
use super::commit::commit;
use super::destinations::{open_sink, output_may_exist, refuse_existing, store_of};
use super::in_place::common_directory;
use super::inputs::{Source, is_dash};
use super::json_lines::JsonLines;
use super::observer::Observer;
use super::sink::{Complete, Sink};
use super::spec::{Groups, JobSpec, OutputTarget, SaveIndex};
use crate::error::{Context, DedupError, Result, chain_text};
use std::path::{Path, PathBuf};
use umbel_files::{FileRoles, UsageError, is_device, is_too_long, remove_leftovers};
use umbel_records::{Compression, Granularity};

/// Name of the list of bad records in an output directory.
pub(crate) const BAD_LIST_NAME: &str = "bad.jsonl";

/// Most bad records that are shown on standard error if no list is written: about a screen.
pub(crate) const BAD_LINES_SHOWN: usize = 20;

/// A named output. A device or pipe is opened only when it is written, because opening one may block until it
/// has a reader.
pub(crate) enum Named {
    Open(Box<Sink>),
    Late(PathBuf),
}

impl Named {
    fn new(spec: &JobSpec, path: &Path) -> Result<Self> {
        Self::packed(spec, path, Compression::of_name(path))
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

/// The named outputs of a job, ready to be written.
pub(crate) struct Outputs {
    /// Kept records or annotations, if they go to one stream.
    pub(crate) kept: Option<Named>,
    /// The report of dropped records.
    pub(crate) duplicates: Option<Named>,
    /// The list of groups of equal records.
    pub(crate) groups: Option<Named>,
    /// The list of bad records.
    pub(crate) bad: Option<Named>,
    /// The index of kept items.
    pub(crate) index: Option<Named>,
    /// The summary.
    pub(crate) summary: Option<Named>,
    /// The page.
    pub(crate) page: Option<Named>,
}

/// The output of a page, or of another report, opened before the job begins, and written after its end.
pub struct PageOutput {
    named: Named,
    /// The first words of the message if the page cannot be written.
    stands: &'static str,
}

impl PageOutput {
    /// A page at this path, which replaces an existing file if `overwrite` says so; `-` is standard output. If it cannot
    /// be written in the end, the message begins with `stands`, which names what was done nevertheless.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if a file exists there that may not be replaced; the I/O error, with the path, if there cannot be
    /// a page at this path.
    pub fn opened(path: &Path, overwrite: bool, stands: &'static str) -> Result<Self> {
        if path.is_dir() {
            return refuse(is_directory_text(path));
        }
        let named = if is_dash(path) {
            Named::Open(Box::new(Sink::stdout()?))
        } else if is_device(path) {
            Named::Late(path.to_owned())
        } else {
            Named::Open(Box::new(Sink::file(path, overwrite)?))
        };
        Ok(Self { named, stands })
    }

    /// The page of a job.
    pub(crate) fn of_job(named: Named) -> Self {
        Self { named, stands: "the job is done and its other outputs stand, but not the --report" }
    }

    /// Writes the page, and renames it to its name once it is complete.
    ///
    /// # Errors
    ///
    /// The I/O error, with the path; never a [`UsageError`], as what was done before stands. Then there is no page.
    pub fn write(self, page: &str) -> Result<()> {
        let write = || {
            let mut sink = self.named.sink()?;
            sink.write(page.as_bytes())?;
            commit(sink.complete()?)
        };
        // Another program has taken the name since the output was opened: the call was right.
        let failed = |error: DedupError| {
            if error.is_usage() { DedupError::Failed(chain_text(&error)) } else { error }
        };
        write().map_err(failed).context(self.stands)
    }
}

impl Outputs {
    /// Opens all named outputs.
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
        // Never compressed, whatever its name, because later jobs read it block by block.
        let plain = |index: &SaveIndex| match spec.updated_index() {
            None => Named::packed(spec, &index.path, Compression::Plain),
            // Written to the target of a link, and without --overwrite: the new index includes the old one.
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

/// The path of a source's output in an output directory; in a job in place, the path of the source.
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

fn is_directory_text(path: &Path) -> String {
    format!("{} is a directory, expected a file", path.display())
}

/// Rejects an output whose name the system does not take. Temporary names are shortened, so it would be noticed only in the
/// commit.
fn refuse_too_long(path: &Path) -> Result<()> {
    if is_object(path) || !is_too_long(path) {
        return Ok(());
    }
    refuse(format!(
        "{}: too long a name for a file there; rename the input, or name another output",
        path.display()
    ))
}

/// Rejects named outputs that cannot be written, or conflict with each other. Needs no input.
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
        return refuse(is_directory_text(path));
    }
    paths.iter().try_for_each(|path| refuse_too_long(path))?;
    roles(spec, &[])?;
    refuse_existing(spec, paths.iter().copied().filter(|path| !is_updated_index(spec, path)))
}

/// Whether this output is an index that is updated, which needs no `--overwrite`.
pub(crate) fn is_updated_index(spec: &JobSpec, path: &Path) -> bool {
    let is_index = spec.save_index.as_ref().is_some_and(|index| index.path == path);
    is_index && spec.updated_index().is_some()
}

/// Rejects outputs that conflict with inputs or, in an output directory, with each other.
///
/// # Errors
///
/// A [`UsageError`] that names the output.
pub(crate) fn check_against_inputs(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let mut roles = roles(spec, sources)?;
    check_added(spec, sources)?;
    check_updated(spec, sources)?;
    check_repeated(spec, sources)?;
    let OutputTarget::Directory(root) = &spec.output else { return Ok(()) };
    // A source that cannot be opened has no output.
    let sources: Vec<&Source> = sources.iter().filter(|source| !source.is_unreadable()).collect();
    let mut paths: Vec<PathBuf> =
        sources.iter().map(|source| output_path(spec, root, source)).collect();
    for (place, (path, source)) in paths.iter().zip(&sources).enumerate() {
        // The rename would fail in the commit, when others have replaced their files. A link is replaced itself.
        if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return refuse(is_directory_text(path));
        }
        refuse_too_long(path)?;
        let twice = |error: UsageError| match paths[..place].iter().position(|other| other == path)
        {
            Some(first) => UsageError(format!(
                "{}: what is kept of {} and of {} would both be written there: name each input once",
                path.display(),
                sources[first].name,
                source.name
            )),
            None => error,
        };
        if spec.annotates {
            roles.add_output("annotations in", path).map_err(twice)?;
            continue;
        }
        // A file may be replaced by its own kept records, not by those of another file.
        if let Some(input) = roles.input_at(path).filter(|_| !source.stands_at(path)) {
            return refuse(format!(
                "{}: what is kept of {} would replace the input {input}; name another output directory",
                path.display(),
                source.name
            ));
        }
        roles.add_replacement("", path).map_err(twice)?;
    }
    if spec.skip_bad.is_some() && spec.bad.is_none() {
        let list = root.join(BAD_LIST_NAME);
        roles.add_output("the list of bad records,", &list).map_err(|UsageError(text)| {
            UsageError(format!("{text}; --bad FILE puts the list elsewhere"))
        })?;
        paths.push(list);
    }
    roles.check_folders()?;
    let in_place = spec.in_place;
    refuse_existing(spec, paths.iter().map(PathBuf::as_path).filter(|_| !in_place))
}

/// Whether kept records, or annotations, go to the name of this source.
pub(crate) fn is_replaced(spec: &JobSpec, source: &Source) -> bool {
    match &spec.output {
        OutputTarget::Stdout => false,
        OutputTarget::File(path) => source.is_replaced_at(path),
        OutputTarget::Directory(root) => source.is_replaced_at(&output_path(spec, root, source)),
    }
}

/// Whether inputs of which nothing is kept stay as they are: whole files that are not kept have no output in a directory.
pub(crate) fn leaves_unkept(spec: &JobSpec) -> bool {
    spec.granularity == Granularity::File && matches!(spec.output, OutputTarget::Directory(_))
}

/// The first source that is replaced.
fn replaced<'a>(spec: &JobSpec, sources: &'a [Source]) -> Option<&'a Source> {
    sources.iter().find(|source| is_replaced(spec, source))
}

/// Rejects outputs that would replace inputs whose kept items go to a filter: these are read for that once more when all
/// outputs have their names.
fn check_added(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let Some(filter) = &spec.add_to else { return Ok(()) };
    let Some(source) = replaced(spec, sources) else { return Ok(()) };
    refuse(format!(
        "--add-to {filter} reads the inputs again once the outputs have their names, and {} would be replaced by then: \
         name another --output, or leave --add-to out and give what was kept to umbel filter insert",
        source.name
    ))
}

/// Rejects outputs that would replace inputs whose kept records go to the index by which the job drops records: the next
/// job over these files would find all of them in it, and leave nothing.
fn check_updated(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let Some(index) = spec.save_index.as_ref().filter(|_| spec.updated_index().is_some()) else {
        return Ok(());
    };
    if leaves_unkept(spec) {
        return Ok(());
    }
    let Some(source) = replaced(spec, sources) else { return Ok(()) };
    refuse(format!(
        "--save-index {} is a --reference, too, and {} would be replaced by its kept records: a second run would find \
         them all in the index, and leave nothing; name another --output",
        index.path.display(),
        source.name
    ))
}

/// Rejects outputs that would replace inputs by their repeated records: of these one each is left, so the next job over
/// these files would leave nothing.
fn check_repeated(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    if spec.by_size.groups != Groups::Repeated || leaves_unkept(spec) {
        return Ok(());
    }
    let Some(source) = replaced(spec, sources) else { return Ok(()) };
    refuse(format!(
        "--repeated: {} would be replaced by what is left of it, which occurs once by then, and a second run would remove \
         that, too: write to another --output",
        source.name
    ))
}

/// Checks, before anything is read, that the process may write the objects that are outputs.
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
    // One after the other: a process that is killed meanwhile leaves at most one upload open.
    for path in &paths {
        if let Some(address) = object_at(path)? {
            let tried = store_of(spec, path)?.try_upload(&address);
            tried.with_context(|| format!("{address}: cannot write"))?;
        }
    }
    Ok(())
}

/// The roles of all files that the job reads and writes.
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
            (None, None) => {} // A pipe has no identity.
        }
    }
    let streams = matches!(spec.output, OutputTarget::Stdout);
    if streams || spec.named_outputs().any(|(_, path)| is_dash(path)) {
        roles.add_standard_output()?;
    }
    for (flag, path) in spec.named_outputs() {
        roles.add_named_open_file(flag, path);
    }
    for (flag, path) in spec.named_outputs() {
        match flag {
            _ if is_dash(path) => {}
            // Kept records may replace the input that they were read from, but not be written into it.
            "--output" if !is_device(path) => {
                references.add_output(flag, path)?;
                roles.add_replacement(flag, path)?;
            }
            // One index may be a reference and be updated.
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
    Ok(roles)
}

/// Removes the temporary files of ended processes from the folders that the job writes to.
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

/// Whether the list of bad records replaces an old one, as far as is known, and is written although this job has no bad
/// record: the old list would be taken for that of this job.
///
/// # Errors
///
/// That of a store that does not respond.
pub(crate) fn replaces_bad_list(spec: &JobSpec) -> Result<bool> {
    let path = match (&spec.bad, &spec.output) {
        (Some(path), _) => path.clone(),
        (None, OutputTarget::Directory(root)) if spec.skip_bad.is_some() => {
            root.join(BAD_LIST_NAME)
        }
        (None, _) => return Ok(false),
    };
    let may_be_old = spec.overwrite && !is_dash(&path) && !is_device(&path);
    Ok(may_be_old && output_may_exist(spec, &path)?)
}

/// Writes the list of bad records if it is wanted, or shows some of them. `lines` has all, or those that are shown.
pub(crate) fn write_bad<'a>(
    spec: &JobSpec,
    observer: &dyn Observer,
    named: Option<Named>,
    total: u64,
    lines: impl Iterator<Item = BadLine<'a>>,
) -> Result<Option<Complete>> {
    if total == 0 && !replaces_bad_list(spec)? {
        return Ok(None);
    }
    let sink = match (named, &spec.output) {
        (Some(named), _) => named.sink()?,
        (None, OutputTarget::Directory(root)) => {
            open_sink(spec, &root.join(BAD_LIST_NAME), Compression::Plain)?
        }
        (None, _) => {
            let shown = lines.take(BAD_LINES_SHOWN);
            shown.for_each(|line| observer.warn(&format!("left out: {}", line.text())));
            let more = total.saturating_sub(BAD_LINES_SHOWN as u64);
            if more > 0 {
                observer.warn(&format!("left out: {more} more; --bad FILE lists them all"));
            }
            return Ok(None);
        }
    };
    Ok(Some(write_bad_lines(sink, lines)?))
}

/// Writes a list of bad records.
pub(crate) fn write_bad_lines<'a>(
    sink: Sink,
    mut lines: impl Iterator<Item = BadLine<'a>>,
) -> Result<Complete> {
    let mut list = JsonLines::new(sink);
    lines.try_for_each(|line| list.add(&line))?;
    list.complete()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command was right, and what it has done stands: exit code 1, not 2.
    #[test]
    fn a_page_whose_name_others_have_taken_meanwhile_is_no_wrong_usage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let output = PageOutput::opened(&path, false, "the job is done").unwrap();
        std::fs::write(&path, "theirs").unwrap();
        let error = output.write("ours").unwrap_err();
        let text = chain_text(&error);
        assert!(
            text.starts_with("the job is done: ") && text.contains("page.html exists"),
            "{text}"
        );
        assert!(!error.is_usage());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
        assert!(PageOutput::opened(&path, false, "").is_err_and(|error| error.is_usage()));
    }
}
