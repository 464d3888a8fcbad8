//! What can be wrong with the files.

use std::path::PathBuf;

use rustls::server::VerifierBuilderError;
use thiserror::Error;

/// Certificates or keys that cannot be used. Whoever had older ones goes on with them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read. Correct the path or the file's rights.
    #[error("{}: cannot read it: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is longer than certificates are. Name the right one.
    #[error("{}: {byte_count} bytes, more than the {most} that certificates or keys may have", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// Its length.
        byte_count: u64,
        /// The most that is read.
        most: u64,
    },
    /// A file is damaged. Copy it again.
    #[error("{}: damaged PEM: {why}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file holds none of what it should. Name the right one.
    #[error("{}: no {expected} in it; expected PEM, \"-----BEGIN {begin}-----\"", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// How that begins.
        begin: &'static str,
    },
    /// A certificate cannot be read or used. Make another one.
    #[error("{}: not a certificate that can be used: {why}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A certificate is too old. Make another one.
    #[error("{}: the certificate expired on {on}: make another one", file.display())]
    Expired {
        /// The file.
        file: PathBuf,
        /// The last moment of its life.
        on: String,
    },
    /// A certificate is not valid yet. Wait, or correct the clock.
    #[error("{}: the certificate is valid from {from} on: is this machine's clock right?", file.display())]
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// The first moment of its life.
        from: String,
    },
    /// The key is another certificate's. Name files that were made together.
    #[error("{} is not the key of the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// The key cannot be used. Make another one.
    #[error("{}: not a key that can be used: {why}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The authority's certificates cannot be used. Name the right file.
    #[error("{}: its certificates cannot be used as an authority's: {source}", file.display())]
    Authority {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: VerifierBuilderError,
    },
    /// The library refuses the settings: a bug, please report it.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}
