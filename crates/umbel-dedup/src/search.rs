//! Resolves command line arguments to sources: files, directories, globs, standard input, objects.
//!
//! The order of sources is the input order of the keep rules: arguments as given; the files of a directory
//! and the matches of a glob by the bytes of their paths. Files that were found (not named) are checked:
//! outputs of this job and unfinished outputs of other jobs are skipped, and a file that is not text is not
//! read as lines unless the user requests it.

use super::addresses::{is_object, refuse_address};
use super::format_rule::FormatRule;
use super::glob_names::check_names;
use super::inputs::{
    Directories, Location, Source, identity, is_dash, set_relative_paths, source, stdin,
};
use super::name_filter::NameFilter;
use super::object_inputs::{ObjectStores, object_sources};
use super::observer::Observer;
use super::spec::{BinaryFiles, JobSpec, OutputTarget};
use super::unreadable::Unreadable;
use crate::error::{Context, Result, refuse};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_files::UsageError;
use umbel_files::is_object_address;
use umbel_files::{Inode, Roots, inode_of, is_unfinished_output};
use umbel_records::{
    BINARY_HEAD_BYTES, Compression, Format, binary_kind, content_head, magic_kind,
};

/// The parameters of a search for inputs.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    /// Files, directories, globs, `-`, objects.
    pub(crate) args: &'a [OsString],
    /// Which files of directories are read.
    pub(crate) names: &'a NameFilter,
    /// How records are cut.
    pub(crate) format: FormatRule,
    /// The directory to which pipes are copied.
    pub(crate) scratch: &'a Path,
    /// The object store.
    pub(crate) stores: &'a ObjectStores,
    /// The output directory, file or prefix, which is no input.
    pub(crate) output: Option<&'a Path>,
    /// The treatment of files that are not text.
    pub(crate) binary: BinaryFiles,
    /// Whether a file that cannot be opened is a bad record, and not an error.
    pub(crate) skips_bad: bool,
    /// Whether the command has options for files that are not text or cannot be opened, so that messages name them.
    pub(crate) has_options: bool,
    /// Folders below which files must be; then devices and pipes are not allowed: for jobs that a node runs
    /// for others.
    pub(crate) roots: Option<&'a Roots>,
    /// Receives messages about skipped files.
    pub(crate) observer: &'a dyn Observer,
}

impl JobSpec {
    /// The search for the inputs of a job.
    pub(crate) fn search<'a>(
        &'a self,
        format: FormatRule,
        observer: &'a dyn Observer,
    ) -> Search<'a> {
        Search {
            args: &self.inputs,
            names: &self.names,
            format,
            scratch: &self.scratch,
            stores: &self.stores,
            output: match &self.output {
                OutputTarget::Directory(_) if self.in_place => None,
                OutputTarget::Directory(root) => Some(root),
                OutputTarget::Stdout | OutputTarget::File(_) => None,
            },
            // A file that is one record may be binary; annotations copy nothing.
            binary: match self.binary {
                _ if self.compares_files() => BinaryFiles::Text,
                BinaryFiles::Copy if self.annotates => BinaryFiles::Skip,
                binary => binary,
            },
            skips_bad: self.skip_bad.is_some(),
            has_options: true,
            roots: self.roots.as_ref(),
            observer,
        }
    }
}

impl Search<'_> {
    /// What can be done about a found file that is not text.
    const fn way_out(&self) -> &'static str {
        if self.has_options {
            "say --binary skip, copy or text"
        } else {
            "name the files that are meant"
        }
    }
}

/// A file or object that was found.
enum Found {
    File(PathBuf),
    Unreadable(PathBuf, io::Error),
}

impl Found {
    fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Unreadable(path, _) => path,
        }
    }
}

/// Orders files by the bytes of their paths, as keys of objects are ordered: `part-0.txt` comes before `part/0.txt`.
fn sort(files: &mut [Found]) {
    files.sort_by(|a, b| a.path().as_os_str().as_bytes().cmp(b.path().as_os_str().as_bytes()));
}

/// The paths, with links resolved, of the files that one input argument of a job names. Files that cannot be read or are not
/// text are skipped; they are reported when the job begins.
///
/// # Errors
///
/// As for the inputs of a job.
pub fn input_paths(spec: &JobSpec, input: &OsStr, observer: &dyn Observer) -> Result<Vec<PathBuf>> {
    let args = &[input.to_owned()];
    let search = spec.search(spec.format, observer);
    let search = Search { args, binary: BinaryFiles::Text, skips_bad: true, ..search };
    let location = |source: Source| source.identity.unwrap_or_else(|| PathBuf::from(input));
    Ok(resolve(&search)?.into_iter().map(location).collect())
}

/// Whether an argument is a glob, unless a file has this name.
fn is_pattern(arg: &OsStr) -> bool {
    arg.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// Resolves the arguments.
///
/// # Errors
///
/// A [`UsageError`] if a glob or directory has no files, or files that are not text; any other error names the file that
/// cannot be read.
pub(crate) fn resolve(search: &Search<'_>) -> Result<Vec<Source>> {
    let mut found = Finding::new(search);
    for arg in search.args {
        found.add(arg)?;
    }
    found.finish()
}

/// The sources found so far.
struct Finding<'a> {
    search: &'a Search<'a>,
    /// The output directory or file, if it exists.
    output: Option<(Inode, PathBuf)>,
    directories: Directories,
    sources: Vec<Source>,
    /// Directories that were named.
    roots: Vec<PathBuf>,
    /// An argument that is the output directory itself.
    in_place: Option<&'a OsStr>,
    passed_over: bool,
    skipped: Vec<(String, &'static str)>,
}

impl<'a> Finding<'a> {
    fn new(search: &'a Search<'a>) -> Self {
        let output = search.output.and_then(|path| {
            let inode = inode_of(&std::fs::metadata(path).ok()?)?;
            Some((inode, std::fs::canonicalize(path).ok()?))
        });
        Self {
            search,
            output,
            directories: Directories::default(),
            sources: Vec::new(),
            roots: Vec::new(),
            in_place: None,
            passed_over: false,
            skipped: Vec::new(),
        }
    }

    /// Adds the sources of an argument.
    fn add(&mut self, arg: &'a OsStr) -> Result<()> {
        let Search { format, scratch, .. } = *self.search;
        let (path, shown) = (Path::new(arg), arg.display());
        if is_object(path) {
            let Some(address) = arg.to_str() else { refuse!("{shown}: keys of objects are UTF-8") };
            return self.add_objects(address);
        }
        if is_dash(path) {
            self.sources.push(stdin(format, scratch)?);
            return Ok(());
        }
        if path.file_name().is_some_and(is_unfinished_output) {
            refuse!(
                "{shown}: by its name an output of umbel that is not finished, which the next job may remove; rename it \
                 if it is to be read"
            );
        }
        if path.is_dir() {
            if std::fs::metadata(path).is_ok_and(|metadata| self.is_output(&metadata)) {
                self.in_place = Some(arg);
            }
            self.roots.extend(std::fs::canonicalize(path));
            let mut files = Vec::new();
            self.walk(path, path, &mut files)?;
            sort(&mut files);
            if files.is_empty() {
                let but = match (self.passed_over, self.search.names.is_empty()) {
                    (true, _) => " but the output",
                    (false, true) => "",
                    (false, false) => " that --include and --exclude let pass",
                };
                refuse!("{shown}: no file in this directory{but}");
            }
            return files.into_iter().try_for_each(|file| self.add_found(file));
        }
        if !path.exists() {
            refuse_address(&arg.to_string_lossy())?;
        }
        if !path.exists() && is_pattern(arg) {
            let Some(pattern) = arg.to_str() else {
                refuse!(
                    "{shown}: no such file, and a glob is UTF-8: name the files, or their directory"
                )
            };
            return self.expand(pattern)?.into_iter().try_for_each(|file| self.add_found(file));
        }
        let source = self.source(path.to_owned())?;
        self.sources.push(source);
        Ok(())
    }

    fn source(&mut self, path: PathBuf) -> Result<Source> {
        let Search { format, scratch, roots, .. } = *self.search;
        source(path, format, scratch, &mut self.directories, roots)
    }

    fn is_output(&self, found: &Metadata) -> bool {
        self.output.as_ref().is_some_and(|(output, _)| Some(*output) == inode_of(found))
    }

    /// Adds all regular files below `directory`, which is `root` or below it, in any order.
    fn walk(&mut self, root: &Path, directory: &Path, files: &mut Vec<Found>) -> Result<()> {
        let entries = std::fs::read_dir(directory).and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
        });
        let paths = match entries {
            Ok(paths) => paths,
            Err(error) => {
                files.push(Found::Unreadable(directory.to_owned(), error));
                return Ok(());
            }
        };
        for path in paths {
            if path.file_name().is_some_and(is_unfinished_output) {
                continue;
            }
            let below = path.strip_prefix(root).unwrap_or(&path);
            let names = self.search.names;
            let is_link =
                std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
            match std::fs::metadata(&path) {
                // Links to directories are not followed, because they may form cycles.
                Ok(metadata) if metadata.is_dir() && is_link => {}
                Ok(metadata) if self.is_output(&metadata) => self.passed_over = true,
                Ok(metadata) if metadata.is_dir() && !names.enters(below) => {}
                Ok(metadata) if metadata.is_dir() => self.walk(root, &path, files)?,
                _ if !names.takes(below) => {}
                Ok(metadata) if metadata.is_file() => files.push(Found::File(path)),
                Ok(_) => {}
                Err(error) => files.push(Found::Unreadable(path, error)),
            }
        }
        Ok(())
    }

    fn expand(&mut self, pattern: &str) -> Result<Vec<Found>> {
        let paths =
            glob::glob(pattern).map_err(|error| UsageError(format!("{pattern}: {error}")))?;
        check_names(pattern)?;
        let mut files = Vec::new();
        for path in paths {
            let (path, failed) = match path {
                Ok(path) => (path, None),
                Err(error) => (error.path().to_owned(), Some(io::Error::from(error))),
            };
            if path.iter().any(is_unfinished_output) {
                continue;
            }
            match (failed, std::fs::metadata(&path)) {
                (Some(error), _) | (None, Err(error)) => files.push(Found::Unreadable(path, error)),
                (None, Ok(metadata)) if metadata.is_file() => files.push(Found::File(path)),
                (None, Ok(_)) => {}
            }
        }
        sort(&mut files);
        // A pattern that matches only files of the output is meant to read them.
        let output = self.output.as_ref().map(|(_, output)| output.clone());
        let is_inside = |found: &Found| {
            let location = identity(found.path());
            output.as_ref().is_some_and(|output| location.starts_with(output))
        };
        let inside = files.iter().filter(|found| is_inside(found)).count();
        if inside < files.len() {
            files.retain(|found| !is_inside(found));
            self.passed_over |= inside > 0;
        }
        if files.is_empty() {
            refuse!("{pattern}: no file matches");
        }
        Ok(files)
    }

    /// Adds a file that was found, not named.
    fn add_found(&mut self, found: Found) -> Result<()> {
        let (path, error) = match found {
            Found::Unreadable(path, error) => (path, error),
            Found::File(path) => match self.source(path.clone()) {
                Ok(source) => return self.add_content(source),
                // An error that is not the system's, such as a file outside the roots, is not a bad record.
                Err(error) => (path, error.into_io()?),
            },
        };
        let is_link = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        let text = match std::fs::read_link(&path).ok().filter(|_| is_link) {
            Some(target) => format!("a link to {}: {error}", target.display()),
            None => error.to_string(),
        };
        let name = path.display().to_string();
        if !self.search.skips_bad {
            let hint =
                if self.search.has_options { "; --skip-bad leaves such files out" } else { "" };
            let text = format!("{text}{hint}");
            return Err(io::Error::new(error.kind(), text))
                .with_context(|| format!("{name}: cannot read"));
        }
        let relative = self.directories.identity(&path);
        let (kind, absolute) = (error.kind(), relative.clone());
        // Any format that every granularity supports: the file has no records.
        let packing = (Compression::Plain, Format::JsonLines);
        let location = Location::Unreadable(Arc::new(Unreadable { kind, text }));
        let source = Source::new(name, relative, 0, packing, location);
        self.sources.push(Source { identity: Some(absolute.clone()), absolute, ..source });
        Ok(())
    }

    fn add_objects(&mut self, arg: &str) -> Result<()> {
        let Search { format, stores, output, names, .. } = *self.search;
        let mut sources = object_sources(arg, format, stores, names)?;
        let is_one = sources.len() == 1 && sources[0].name == arg;
        let output = output.and_then(Path::to_str).filter(|output| is_object_address(output));
        let is_inside =
            |source: &Source| output.is_some_and(|output| source.name.starts_with(output));
        let inside = sources.iter().filter(|source| is_inside(source)).count();
        if inside < sources.len() {
            sources.retain(|source| !is_inside(source));
            self.passed_over |= inside > 0;
        }
        if is_one {
            self.sources.extend(sources);
            return Ok(());
        }
        sources.into_iter().try_for_each(|source| self.add_content(source))
    }

    /// Adds a file that was found, according to the treatment of files that are not text.
    fn add_content(&mut self, mut source: Source) -> Result<()> {
        let looks = self.search.binary != BinaryFiles::Text && source.format != Format::Parquet;
        let kind = if looks {
            // If records end with zero bytes, these do not show that a file is binary.
            let kind_of = match source.format {
                Format::ZeroTerminated => magic_kind,
                _ => binary_kind,
            };
            kind_of(&content_head(&source.open()?, source.compression, BINARY_HEAD_BYTES))
        } else {
            None
        };
        match (kind, self.search.binary) {
            (None, _) | (_, BinaryFiles::Text) => self.sources.push(source),
            (Some(kind), BinaryFiles::Skip) => self.skipped.push((source.name, kind)),
            (Some(_), BinaryFiles::Copy) => {
                (source.is_copied, source.format) = (true, Format::Text);
                self.sources.push(source);
            }
            (Some(kind), BinaryFiles::Refuse) => {
                let (name, way_out) = (source.name, self.search.way_out());
                refuse!(
                    "{name}: this is {kind}, not text: {way_out}; a file that is named itself is always cut as told"
                );
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Source>> {
        if let (Some(arg), Some((_, output))) = (self.in_place, &self.output) {
            let outside = self.sources.iter().find(|source| !source.absolute.starts_with(output));
            if let Some(outside) = outside {
                refuse!(
                    "{} is the output directory and an input beside others ({}): leave it out of the inputs",
                    arg.display(),
                    outside.name
                );
            }
        }
        if self.passed_over {
            let output = self.search.output.unwrap_or(Path::new("")).display();
            self.search.observer.notice(&format!(
                "{output} is inside of the input, and was left out: outputs go there"
            ));
        }
        if let Some((first, kind)) = self.skipped.first() {
            let count = self.skipped.len();
            let text = format!("binary files left out: {count}, the first is {first} ({kind})");
            self.search.observer.notice(&text);
        }
        if self.sources.is_empty() && !self.skipped.is_empty() {
            refuse!("no input is text: all files are binary");
        }
        set_relative_paths(&mut self.sources, &self.roots);
        Ok(self.sources)
    }
}

#[cfg(test)]
mod tests {
    use super::super::observer::Unwatched;
    use super::*;
    use crate::error::chain_text;

    fn search(args: &[String], scratch: &Path) -> Result<Vec<Source>> {
        let (output, binary, stores) = (None, BinaryFiles::Refuse, &ObjectStores::new(0));
        let (format, observer) = (FormatRule::default(), &Unwatched);
        let (skips_bad, has_options, roots) = (false, true, None);
        let names = &NameFilter::default();
        let args: &Vec<OsString> = &args.iter().map(OsString::from).collect();
        resolve(&Search {
            args,
            names,
            format,
            scratch,
            stores,
            output,
            binary,
            skips_bad,
            has_options,
            roots,
            observer,
        })
    }

    #[test]
    fn directories_and_globs_come_in_byte_order() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x\n").unwrap();
        };
        let names = ["b.txt", "B.txt", "a/z.txt", "a/y.jsonl", "a-b.txt", "a.txt"];
        names.into_iter().for_each(write);
        let root = directory.path().display().to_string();
        let scratch = directory.path();
        let relative = |args: &[String]| -> Vec<String> {
            let sources = search(args, scratch).unwrap();
            sources.iter().map(|source| source.relative.display().to_string()).collect()
        };
        let ordered = ["B.txt", "a-b.txt", "a.txt", "a/y.jsonl", "a/z.txt", "b.txt"];
        assert_eq!(relative(std::slice::from_ref(&root)), ordered);
        assert_eq!(relative(&[format!("{root}/**/*")]), ordered);
        assert_eq!(relative(&[format!("{root}/*.txt")]), ["B.txt", "a-b.txt", "a.txt", "b.txt"]);
        assert_eq!(
            relative(&[format!("{root}/b.txt"), format!("{root}/a")]),
            ["b.txt", "a/y.jsonl", "a/z.txt"]
        );
    }

    #[test]
    fn what_matches_nothing_is_a_usage_error_and_what_is_missing_is_named() {
        let scratch = std::env::temp_dir();
        let error = search(&["/nonexistent-*.txt".into()], &scratch).unwrap_err();
        assert!(error.is_usage());
        let error = search(&["/nonexistent.txt".into()], &scratch).unwrap_err();
        assert!(!error.is_usage() && chain_text(&error).contains("/nonexistent.txt"));
    }
}
