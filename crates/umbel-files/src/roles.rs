//! No output of a command is one of its inputs, or the place of two outputs, however the file is named.
//!
//! Two names mean one file if they lead to one inode (links of both kinds, `./`, another case where the file system does
//! not tell cases apart), or if they are one name in one directory after its links are resolved: that is what an output
//! takes when it is renamed into place, and what it is known by before it exists. Objects of a store are known by their
//! addresses. Devices and pipes are only written to, and may be named as often as one likes.
//!
//! ```text
//! let mut roles = FileRoles::default();
//! roles.add_input("A", path_of_a);            // all inputs first, references too
//! roles.add_output("--report", report)?;      // then each output: refused if it is an input or another output
//! ```

use crate::UsageError;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How addresses of objects of a store begin.
pub const OBJECT_SCHEME: &str = "s3://";

/// Whether an argument means objects, and no file.
pub fn is_object_address(text: &str) -> bool {
    text.starts_with(OBJECT_SCHEME)
}

/// A file by what it is, not by what it is called: device and number.
pub type Inode = (u64, u64);

/// Which file a name means.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Identity {
    /// Device and number.
    Inode(Inode),
    /// A name in a directory whose links are resolved; or the address of an object.
    Place(PathBuf),
}

/// What a command reads and what it is to write.
#[derive(Default, Debug)]
pub struct FileRoles {
    inputs: BTreeMap<Identity, String>,
    outputs: BTreeMap<Identity, String>,
}

impl FileRoles {
    /// Notes a file that is read, under what people call it.
    pub fn add_input(&mut self, name: &str, path: &Path) {
        for identity in identities(path) {
            self.inputs.entry(identity).or_insert_with(|| name.to_owned());
        }
    }

    /// Notes a file that is read without a path, such as standard input.
    pub fn add_open_input(&mut self, name: &str, inode: Inode) {
        self.inputs.entry(Identity::Inode(inode)).or_insert_with(|| name.to_owned());
    }

    /// The input that stands where an output is to go, or that the output is another name of.
    pub fn input_at(&self, path: &Path) -> Option<&str> {
        identities(path).iter().find_map(|identity| self.inputs.get(identity)).map(String::as_str)
    }

    /// Notes an output that must be neither an input nor another output.
    ///
    /// # Errors
    ///
    /// If it is. `role` says what the output is, mostly the option that names it.
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

    /// Notes an output that may take the name of an input, because what is read of that goes into it.
    ///
    /// # Errors
    ///
    /// If another output takes that name, too.
    pub fn add_replacement(&mut self, role: &str, path: &Path) -> Result<(), UsageError> {
        // A new file takes one name: other links to what stood there keep their content.
        let places =
            identities(path).into_iter().filter(|identity| matches!(identity, Identity::Place(_)));
        self.add_only_output(role, path, places.collect())
    }

    /// Refuses standard output that was redirected into an input: it would be read while it grows.
    ///
    /// # Errors
    ///
    /// If it was.
    pub fn check_standard_output(&self) -> Result<(), UsageError> {
        let file = std::io::stdout().as_fd().try_clone_to_owned().map(std::fs::File::from);
        let inode =
            file.and_then(|file| file.metadata()).ok().and_then(|metadata| inode_of(&metadata));
        match inode.and_then(|inode| self.inputs.get(&Identity::Inode(inode))) {
            None => Ok(()),
            Some(input) => Err(UsageError(format!(
                "standard output goes into the input {input}: an output never replaces what is read; use --output"
            ))),
        }
    }

    fn add_only_output(
        &mut self,
        role: &str,
        path: &Path,
        identities: Vec<Identity>,
    ) -> Result<(), UsageError> {
        let output = described(role, path);
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

/// Longest path in bytes that systems take: `PATH_MAX` of Linux, less the zero at its end.
pub const PATH_BYTES_MAX: usize = 4095;

/// Device and number of a regular file or directory; nothing else is an input that can be replaced.
pub fn inode_of(metadata: &Metadata) -> Option<Inode> {
    let has_content = metadata.is_file() || metadata.is_dir();
    has_content.then(|| (metadata.dev(), metadata.ino()))
}

fn described(role: &str, path: &Path) -> String {
    if role.is_empty() { path.display().to_string() } else { format!("{role} {}", path.display()) }
}

/// By what a path is known: nothing for a device or pipe.
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

/// A path whose directory is absolute and without links, as far as it exists; a link at its end stays one. One that is
/// longer than any file's stays as it is, but absolute.
pub fn place_of(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if absolute.as_os_str().len() > PATH_BYTES_MAX {
        return absolute;
    }
    // From the end: names behind the longest part that exists.
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
