//! A secret that processes share, and keys derived from it.
//!
//! ```text
//! secret ── PBKDF2 ──► HKDF-Extract ──► HKDF-Expand (use, purpose) ──► 32 bytes
//! ```
//!
//! Anyone who connects to a listener sees the public half of its key, and can test guesses of the secret
//! against it. Only a password-authenticated exchange, which TLS does not have, would prevent that. Each
//! guess costs [`STRETCH_ROUNDS`] rounds, which adds no more than 18 bits to a weak secret; a secret must
//! be random, and then guessing is hopeless. There is no salt per use, because the two ends share nothing
//! but the secret.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ring::{hkdf, pbkdf2};
use thiserror::Error;

use crate::private_file::{OpenToOthers, check_private};

/// Shortest secret: 32 random hexadecimal digits have 128 bits.
pub const SECRET_BYTES_MIN: usize = 32;

/// Longest secret; a longer text is something else, such as a wrong file.
const SECRET_BYTES_MAX: usize = 4 << 10;

/// Rounds of PBKDF2: they cost some 50 ms per process, and per guess of an attacker.
const STRETCH_ROUNDS: NonZeroU32 = NonZeroU32::new(200_000).unwrap();

/// Salt that identifies this version of the derivation.
const SALT: &[u8] = b"umbel secret 1";

/// A secret that processes share. Its `Debug` output omits it.
///
/// ```
/// use umbel_tls::{Secret, SecretUse};
///
/// let secret = Secret::new("8f14e45fceea167a5a36dedd4bea2543\n")?;
/// let keys = secret.derive(SecretUse::Job);
/// assert_eq!(keys.bytes("seed"), Secret::new("8f14e45fceea167a5a36dedd4bea2543")?.derive(SecretUse::Job).bytes("seed"));
/// assert_ne!(keys.bytes("seed"), keys.bytes("number"));
/// assert!(Secret::new("hunter2").is_err());
/// # Ok::<(), umbel_tls::SecretError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The use of a secret; keys for one use do not work for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretUse {
    /// A job of duplicate detection over several workers.
    Job,
    /// Sessions of reconciliation.
    Reconcile,
}

/// Why a secret is unusable. Nothing was started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It is too short: draw a longer one.
    #[error(
        "a secret of {got} bytes: expected at least {SECRET_BYTES_MIN}, drawn, for example by \
         `openssl rand -hex 32`"
    )]
    Short {
        /// Its length in bytes.
        got: usize,
    },
    /// It is too long: name the right file.
    #[error("more than {SECRET_BYTES_MAX} bytes, which is no secret")]
    Long,
    /// The file cannot be read: correct the path, or the permissions.
    #[error("{}: cannot read the secret: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Others may access the file: remove their permissions, and draw another secret.
    #[error(transparent)]
    Mode(#[from] OpenToOthers),
    /// The file's content is no secret.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: Box<Self>,
    },
}

impl Secret {
    /// A secret from a text, without white space around it.
    ///
    /// # Errors
    /// If it is too short to be random, or too long.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        match text.len() {
            got if got < SECRET_BYTES_MIN => Err(SecretError::Short { got }),
            got if got > SECRET_BYTES_MAX => Err(SecretError::Long),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// Reads a secret from a file that nobody but its owner may access.
    ///
    /// # Errors
    /// If the file cannot be read, others may access it, or its content is no secret.
    pub fn read_private(file: &Path) -> Result<Self, SecretError> {
        let failed = |source| SecretError::Read { file: file.to_owned(), source };
        let opened = File::open(file).map_err(failed)?;
        check_private(file, &opened.metadata().map_err(failed)?, "secret")?;
        let mut text = String::new();
        // The limit leaves room for white space and still detects a text that is too long.
        let mut limited = opened.take(2 * SECRET_BYTES_MAX as u64);
        limited.read_to_string(&mut text).map_err(failed)?;
        Self::new(&text).map_err(|source| {
            let source = Box::new(source);
            SecretError::File { file: file.to_owned(), source }
        })
    }

    /// Derives the keys for one use. This takes some 50 ms, so keep the result.
    #[must_use]
    pub fn derive(&self, secret_use: SecretUse) -> Derived {
        let mut stretched = [0; 32];
        let rounds = STRETCH_ROUNDS;
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, rounds, SALT, self.0.as_bytes(), &mut stretched);
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(&stretched);
        Derived { key, secret_use }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Keys derived from a secret for one use. The `Debug` output omits them.
#[derive(Clone)]
pub struct Derived {
    key: hkdf::Prk,
    secret_use: SecretUse,
}

impl Derived {
    /// The derived bytes for a purpose. They reveal nothing about those for other purposes, nor about the
    /// secret.
    ///
    /// # Panics
    /// Never: HKDF-SHA-256 can produce 32 bytes.
    #[must_use]
    pub fn bytes(&self, purpose: &str) -> [u8; 32] {
        let secret_use: &[u8] = match self.secret_use {
            SecretUse::Job => b"job",
            SecretUse::Reconcile => b"reconcile",
        };
        let info = [&b"umbel"[..], b"\0", secret_use, b"\0", purpose.as_bytes()];
        let mut bytes = [0; 32];
        let expanded = self.key.expand(&info, hkdf::HKDF_SHA256);
        let filled = expanded.and_then(|expanded| expanded.fill(&mut bytes));
        filled.expect("SHA-256 gives 32 bytes");
        bytes
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").field("secret_use", &self.secret_use).finish_non_exhaustive()
    }
}
