//! Durable names: a rename, creation or removal in a folder survives a power failure once the folder is
//! synced.

use std::fs::File;
use std::io;
use std::path::Path;

/// The folder that contains a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // The root has no parent; it stands for itself.
    parent.unwrap_or(Path::new(if path.has_root() { "/" } else { "." }))
}

/// Makes the names in a folder durable.
///
/// # Errors
///
/// Any I/O error.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_stands_in_a_folder() {
        for (path, folder) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("/", "/"), ("./a", ".")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
        sync_folder(Path::new(".")).unwrap();
        sync_folder(Path::new("no such folder")).unwrap_err();
    }
}
