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
//! roles.add_output("--report", report)?;      // then each output: refused if it is an input or another output
//! ```

use crate::UsageError;
use std::collections::BTreeMap;
use std::fs::Metadata;
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

    /// Rejects standard output that is redirected into an input: the input would grow while it is read.
    ///
    /// # Errors
    ///
    /// It is redirected into an input.
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

/// Longest path in bytes that the system accepts: `PATH_MAX` of Linux without the terminating zero.
pub const PATH_BYTES_MAX: usize = 4095;

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
