//! Checks that no output of a command is one of its inputs or another output, however the files are named.
//!
//! Two names mean one file if they lead to the same inode (symbolic and hard links, `./`, another case on a
//! file system that ignores case), or if they are the same name in the same directory after the links of
//! the path are resolved: a rename puts an output under that name, and the name identifies an output that
//! does not exist yet. Objects of a store are identified by their addresses. Devices and pipes are only
//! written to, and may be named any number of times.
//!
//! ```text
//! let mut roles = FileRoles::default();
//! roles.add_input("A", path_of_a);            // all inputs first, references too
//! roles.add_standard_output()?;               // then standard output, if it is written, and other open files
//! roles.add_output("--report", report)?;      // then each output: refused if it is an input or another output
//! ```

use crate::{UsageError, is_device};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Prefix of the addresses of objects.
pub const OBJECT_SCHEME: &str = "s3://";

/// Whether an argument is the address of objects, not of a file.
pub fn is_object_address(text: &str) -> bool {
    text.starts_with(OBJECT_SCHEME)
}

/// A file's identity, independent of its name: device and inode number.
pub type Inode = (u64, u64);

/// What a name identifies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Identity {
    /// Device and inode number.
    Inode(Inode),
    /// A name in a directory whose links are resolved; or the address of an object.
    Place(PathBuf),
}

/// The files that a command reads and those that it is to write.
#[derive(Default, Debug)]
pub struct FileRoles {
    inputs: BTreeMap<Identity, String>,
    outputs: BTreeMap<Identity, String>,
    /// Open files that are written without a rename, as that of standard output, and what goes there, for messages.
    open_outputs: BTreeMap<Inode, String>,
}

impl FileRoles {
    /// Adds a file that is read; `name` is for messages.
    pub fn add_input(&mut self, name: &str, path: &Path) {
        for identity in identities(path) {
            self.inputs.entry(identity).or_insert_with(|| name.to_owned());
        }
    }

    /// Adds a file that is read without a path, such as standard input.
    pub fn add_open_input(&mut self, name: &str, inode: Inode) {
        self.inputs.entry(Identity::Inode(inode)).or_insert_with(|| name.to_owned());
    }

    /// The name of the input that this path identifies, by inode or by place.
    pub fn input_at(&self, path: &Path) -> Option<&str> {
        identities(path).iter().find_map(|identity| self.inputs.get(identity)).map(String::as_str)
    }

    /// Adds an output, which must be neither an input nor another output.
    ///
    /// # Errors
    ///
    /// It is one of them. `role` describes the output in the message, mostly by the option that names it.
    pub fn add_output(&mut self, role: &str, path: &Path) -> Result<(), UsageError> {
        if let Some(input) = self.input_at(path) {
            let output = described(role, path);
            let text = if Path::new(input) == path {
                format!(
                    "{output} is an input, too: an output never replaces what is read; name another file"
                )
            } else {
                format!(
                    "{output} is the input {input} by another name: an output never replaces what is read; \
                         name another file"
                )
            };
            return Err(UsageError(text));
        }
        self.add_only_output(role, path, identities(path))
    }

    /// Adds an output that may replace an input, because it is made from that input's content.
    ///
    /// # Errors
    ///
    /// Another output has the same name.
    pub fn add_replacement(&mut self, role: &str, path: &Path) -> Result<(), UsageError> {
        // The rename replaces one name: other links to the old file keep its content.
        let places =
            identities(path).into_iter().filter(|identity| matches!(identity, Identity::Place(_)));
        self.add_only_output(role, path, places.collect())
    }

    /// Rejects outputs of which one would stand below the other: a name is that of a file or of a folder.
    ///
    /// # Errors
    ///
    /// There are such outputs.
    pub fn check_folders(&self) -> Result<(), UsageError> {
        // Paths are ordered component by component, so what stands below a path follows it at once.
        let mut last: Option<(&PathBuf, &String)> = None;
        for (identity, output) in &self.outputs {
            // Addresses of objects are not absolute: a store has no folders.
            let Identity::Place(place) = identity else { continue };
            if !place.is_absolute() {
                continue;
            }
            if let Some((folder, above)) = last
                && place.starts_with(folder)
            {
                let text = format!(
                    "{above} cannot be a file and the folder of {output}, too: name another output, or read the inputs in two jobs"
                );
                return Err(UsageError(text));
            }
            last = Some((place, output));
        }
        Ok(())
    }

    /// Adds standard output, after the inputs and before the outputs: none of these may replace the file that it is
    /// redirected into, because what is written there would be lost with it.
    ///
    /// # Errors
    ///
    /// It is redirected into an input, which would grow while it is read.
    pub fn add_standard_output(&mut self) -> Result<(), UsageError> {
        self.add_open_output(standard_output())
    }

    fn add_open_output(&mut self, inode: Option<Inode>) -> Result<(), UsageError> {
        self.open_outputs.extend(inode.map(|inode| (inode, STANDARD_OUTPUT.to_owned())));
        match inode.and_then(|inode| self.inputs.get(&Identity::Inode(inode))) {
            None => Ok(()),
            Some(input) => Err(UsageError(format!(
                "standard output goes into the input {input}: an output never replaces what is read; use --output"
            ))),
        }
    }

    /// Adds the file that an output's name of an open file, such as `/dev/stdout`, leads to: like standard output, before
    /// the outputs, that output among them. Other names add nothing.
    pub fn add_named_open_file(&mut self, role: &str, path: &Path) {
        let there = std::fs::metadata(path).ok().filter(|_| is_device(path));
        let Some(inode) = there.and_then(|there| inode_of(&there)) else { return };
        let is_standard_output = standard_output() == Some(inode);
        let name =
            if is_standard_output { STANDARD_OUTPUT.to_owned() } else { described(role, path) };
        self.open_outputs.entry(inode).or_insert(name);
    }

    /// What goes into the open file that an output would replace, if it would replace one. A link to it is replaced
    /// itself, and a name of it that is written directly, such as `/dev/stdout`, replaces nothing.
    fn replaced_open_output(&self, path: &Path) -> Option<&str> {
        let there = path.symlink_metadata().ok().and_then(|there| inode_of(&there))?;
        self.open_outputs.get(&there).filter(|_| !is_device(path)).map(String::as_str)
    }

    fn add_only_output(
        &mut self,
        role: &str,
        path: &Path,
        identities: Vec<Identity>,
    ) -> Result<(), UsageError> {
        let output = described(role, path);
        if let Some(open) = self.replaced_open_output(path) {
            return Err(UsageError(format!(
                "{output} would replace the file that {open} goes into: name another file, or send {open} elsewhere"
            )));
        }
        for identity in identities {
            if let Some(other) = self.outputs.insert(identity, output.clone()) {
                let text =
                    format!("{output}: two outputs would be written there, the other is {other}");
                return Err(UsageError(text));
            }
        }
        Ok(())
    }
}

/// Standard output in messages.
const STANDARD_OUTPUT: &str = "standard output";

/// The file that standard output goes into, if it goes into one.
fn standard_output() -> Option<Inode> {
    let file = std::io::stdout().as_fd().try_clone_to_owned().map(std::fs::File::from);
    let metadata = file.and_then(|file| file.metadata()).ok();
    metadata.and_then(|metadata| inode_of(&metadata))
}

/// Longest path in bytes that the system accepts: `PATH_MAX` of Linux without the terminating zero.
pub const PATH_BYTES_MAX: usize = 4095;

/// Names of up to this many bytes fit into the usual file systems: `NAME_MAX` of Linux. A few, such as exFAT, count
/// characters and take more bytes, so longer names are tried.
const NAME_BYTES_USUAL: usize = 255;

/// Whether the system takes no file by this path, because a name in it or all of it is too long, also while its folder
/// does not exist yet.
pub fn is_too_long(path: &Path) -> bool {
    let is_refused = |path: &Path| {
        let looked_up = path.symlink_metadata();
        looked_up.is_err_and(|error| error.kind() == ErrorKind::InvalidFilename)
    };
    let is_long = |name: &&OsStr| name.len() > NAME_BYTES_USUAL;
    // The folder will be made in the last one that exists.
    let mut folders = path.ancestors().skip(1);
    let folder = folders.find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    is_refused(path) || path.iter().filter(is_long).any(|name| is_refused(&folder.join(name)))
}

/// Device and number of a regular file or directory; `None` for all else, which cannot be an input that is
/// replaced.
pub fn inode_of(metadata: &Metadata) -> Option<Inode> {
    let has_content = metadata.is_file() || metadata.is_dir();
    has_content.then(|| (metadata.dev(), metadata.ino()))
}

fn described(role: &str, path: &Path) -> String {
    if role.is_empty() { path.display().to_string() } else { format!("{role} {}", path.display()) }
}

/// The identities of a path; none for a device or pipe.
fn identities(path: &Path) -> Vec<Identity> {
    if is_object_address(&path.to_string_lossy()) {
        return vec![Identity::Place(path.to_owned())];
    }
    let place = Identity::Place(place_of(path));
    match std::fs::metadata(path) {
        Ok(metadata) => {
            inode_of(&metadata).map_or_else(Vec::new, |inode| vec![Identity::Inode(inode), place])
        }
        Err(_) => vec![place],
    }
}

/// The absolute path with the links of its directory resolved, as far as that exists; a link as the last
/// component is not resolved. A path longer than `PATH_BYTES_MAX` is only made absolute.
pub fn place_of(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if absolute.as_os_str().len() > PATH_BYTES_MAX {
        return absolute;
    }
    // From the end: the names behind the longest parent that exists.
    let mut names = Vec::new();
    let mut at = absolute.as_path();
    let known = loop {
        let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
            break at.to_owned();
        };
        names.push(name);
        match std::fs::canonicalize(parent) {
            Ok(parent) => break parent,
            Err(_) => at = parent,
        }
    };
    names.into_iter().rev().fold(known, |place, name| place.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_too_long_are_found_before_their_folders_exist() {
        let root = tempfile::tempdir().unwrap();
        let [longest, longer] = [255, 256].map(|bytes| "n".repeat(bytes));
        let deep = "d/".repeat(PATH_BYTES_MAX / 2);
        for (path, expected) in [
            (longest.clone(), false),
            (longer.clone(), true),
            (format!("new/{longest}/{longest}"), false),
            (format!("new/{longer}"), true),
            (format!("new/{longer}/x"), true),
            (deep, true),
        ] {
            assert_eq!(is_too_long(&root.path().join(&path)), expected, "{path}");
        }
        assert!(is_too_long(Path::new(&longer)) && !is_too_long(Path::new("new")));
    }

    #[test]
    fn no_output_replaces_the_file_of_standard_output() {
        let root = tempfile::tempdir().unwrap();
        let [open, other] = ["open", "other"].map(|name| root.path().join(name));
        for path in [&open, &other] {
            std::fs::write(path, "").unwrap();
        }
        let inode = inode_of(&std::fs::metadata(&open).unwrap());
        let mut roles = FileRoles::default();
        roles.add_open_output(inode).unwrap();
        roles.add_output("--summary", &other).unwrap();
        for refused in [roles.add_output("--groups", &open), roles.add_replacement("", &open)] {
            let UsageError(text) = refused.unwrap_err();
            assert!(text.contains("open would replace the file that standard output"), "{text}");
        }
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        roles.add_output("--groups", &link).unwrap();
        roles.add_input("the input", &open);
        let UsageError(text) = roles.add_open_output(inode).unwrap_err();
        assert!(text.contains("goes into the input the input"), "{text}");
        // A pipe or a terminal.
        let mut roles = FileRoles::default();
        roles.add_open_output(None).unwrap();
        roles.add_output("--groups", &open).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_output_replaces_an_open_file_that_another_one_names() {
        use std::os::fd::AsRawFd;
        let root = tempfile::tempdir().unwrap();
        let [path, other] = ["open", "other"].map(|name| root.path().join(name));
        let open = std::fs::File::create(&path).unwrap();
        let name = format!("/proc/self/fd/{}", open.as_raw_fd());
        let mut roles = FileRoles::default();
        roles.add_named_open_file("--summary", Path::new(&name));
        roles.add_named_open_file("--groups", &other);
        roles.add_output("--summary", Path::new(&name)).unwrap();
        roles.add_replacement("--output", &other).unwrap();
        let UsageError(text) = roles.add_replacement("--output", &path).unwrap_err();
        let said = format!("open would replace the file that --summary {name} goes into");
        assert!(text.contains(&said), "{text}");
    }

    #[test]
    fn no_output_stands_below_another_one() {
        let root = tempfile::tempdir().unwrap();
        let checked = |names: &[&str]| {
            let mut roles = FileRoles::default();
            for name in names {
                roles.add_output("--output", &root.path().join(name)).unwrap();
            }
            roles.add_output("--output", Path::new("s3://b/x")).unwrap();
            roles.add_output("--output", Path::new("s3://b/x/y")).unwrap();
            roles.check_folders().map_err(|UsageError(text)| text)
        };
        assert_eq!(checked(&["x", "x-1", "x.txt", "y/x/z", "z/x"]), Ok(()));
        for names in [["x-1", "x/y", "x"], ["a", "x/y/z", "x"], ["./x", "b", "x/y"]] {
            let text = checked(&names).unwrap_err();
            assert!(text.contains("x cannot be a file and the folder of"), "{text}");
        }
    }
}
