//! Key and certificate that a cluster issued to this node, in the folder `tls` of its data folder.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use umbel_tls::CertificateRequest;

/// Permissions of the folder, which contains a key.
const FOLDER_MODE: u32 = 0o700;

/// Permissions of the files.
const FILE_MODE: u32 = 0o600;

/// The paths of `ca.pem`, `node.pem` and `node.key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedFiles {
    folder: PathBuf,
}

impl IssuedFiles {
    /// The files of a data folder.
    #[must_use]
    pub fn of(data: &Path) -> Self {
        Self { folder: data.join("tls") }
    }

    /// The certificates of the cluster's authorities.
    #[must_use]
    pub fn authorities(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The node's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("node.pem")
    }

    /// The certificate's key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.join("node.key")
    }

    /// The request for the stored key. The first call creates the key and makes it durable; later calls
    /// use the same one.
    ///
    /// # Errors
    /// If the key cannot be read or written, or is not a valid key.
    pub fn request(&self) -> io::Result<CertificateRequest> {
        let path = self.key();
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match fs::read_to_string(&path) {
            Ok(key) => {
                CertificateRequest::read(&key).map_err(|error| named(io::Error::other(error)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = CertificateRequest::generate().map_err(io::Error::other)?;
                self.put(&path, &made.key())?;
                Ok(made)
            }
            Err(error) => Err(named(error)),
        }
    }

    /// Stores a certificate beside its key. The authorities are written first, so a reader that sees
    /// the certificate also finds them.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn keep(&self, certificate: &str, authorities: &str) -> io::Result<()> {
        self.put(&self.authorities(), authorities)?;
        self.put(&self.certificate(), certificate)
    }

    /// Replaces a file durably.
    fn put(&self, path: &Path, text: &str) -> io::Result<()> {
        let write = || {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.folder)?;
            let aside = path.with_extension("part");
            // Left over from a process that was killed.
            match fs::remove_file(&aside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                File::options().write(true).create_new(true).mode(FILE_MODE).open(&aside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&aside, path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: cannot write: {error}", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = IssuedFiles::of(folder.path());
        let key = files.request().unwrap().key();
        // As left by a process that is killed while it writes.
        fs::write(files.folder.join("node.part"), "half").unwrap();
        files.keep("certificate", "authorities").unwrap();
        assert_eq!(files.request().unwrap().key(), key);
        assert_eq!(fs::read_to_string(files.certificate()).unwrap(), "certificate");
        for path in [files.key(), files.certificate(), files.authorities()] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, FILE_MODE);
        }
        assert_eq!(files.folder.metadata().unwrap().permissions().mode() & 0o777, FOLDER_MODE);
        fs::write(files.key(), "torn").unwrap();
        let error = files.request().err().unwrap().to_string();
        assert!(error.contains("node.key"), "{error}");
    }
}
