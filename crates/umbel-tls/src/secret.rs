//! A secret that those who work together share, and keys that come from it.
//!
//! ```text
//! secret ── PBKDF2 ──► HKDF-Extract ──► HKDF-Expand (use, purpose) ──► 32 bytes
//! ```
//!
//! Whoever connects to a listener sees the public half of its key, and can try guesses of the secret
//! against that: nothing short of a password-authenticated exchange, which TLS does not have, would
//! prevent it. Each guess costs [`STRETCH_ROUNDS`] rounds, which makes up for a weak secret no more than
//! 18 bits; a secret must be drawn, and then no number of guesses helps. There is no salt that differs
//! from one use to the next, for both ends know nothing of each other but the secret.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ring::{hkdf, pbkdf2};
use thiserror::Error;

/// Shortest secret: 32 hexadecimal digits, if they are drawn, are 128 bits.
pub const SECRET_BYTES_MIN: usize = 32;

/// Longest secret: longer ones are something else, like a wrong file.
const SECRET_BYTES_MAX: usize = 4 << 10;

/// Rounds of PBKDF2: some 50 ms once a process, and for each guess of somebody who tries.
const STRETCH_ROUNDS: NonZeroU32 = NonZeroU32::new(200_000).unwrap();

/// Tells keys of this way to derive them from those of another one.
const SALT: &[u8] = b"umbel secret 1";

/// What those know who work together. Its `Debug` leaves it out.
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

/// What a secret is for: keys for one use are of no use for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretUse {
    /// A job of duplicate detection over several workers.
    Job,
    /// Sessions of reconciliation.
    Reconcile,
}

/// Why there is no secret. Nothing was begun.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Draw a longer one.
    #[error(
        "a secret of {got} bytes: expected at least {SECRET_BYTES_MIN}, drawn, for example by \
         `openssl rand -hex 32`"
    )]
    Short {
        /// Its bytes.
        got: usize,
    },
    /// Name the right file.
    #[error("more than {SECRET_BYTES_MAX} bytes, which is no secret")]
    Long,
    /// Correct the path, or the file's rights.
    #[error("{}: cannot read the secret: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What the file holds is none.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with what it holds.
        source: Box<Self>,
    },
}

impl Secret {
    /// A secret, without the white space around it.
    ///
    /// # Errors
    /// If it is too short to be one that was drawn, or too long.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        match text.len() {
            got if got < SECRET_BYTES_MIN => Err(SecretError::Short { got }),
            got if got > SECRET_BYTES_MAX => Err(SecretError::Long),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// The secret that a file holds.
    ///
    /// # Errors
    /// If it cannot be read, or holds none.
    pub fn read(file: &Path) -> Result<Self, SecretError> {
        let mut text = String::new();
        let opened = File::open(file);
        // One byte more than a secret may have, and room for white space, tells what is too long.
        let read = opened
            .and_then(|opened| opened.take(2 * SECRET_BYTES_MAX as u64).read_to_string(&mut text));
        read.map_err(|source| SecretError::Read { file: file.to_owned(), source })?;
        Self::new(&text).map_err(|source| {
            let source = Box::new(source);
            SecretError::File { file: file.to_owned(), source }
        })
    }

    /// What comes from it for one use. This takes some 50 ms: keep it.
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

/// What comes from a secret for one use. Its `Debug` leaves it out.
#[derive(Clone)]
pub struct Derived {
    key: hkdf::Prk,
    secret_use: SecretUse,
}

impl Derived {
    /// Bytes for a purpose. They tell nothing of those for another one, nor of the secret.
    ///
    /// # Panics
    /// Never: 32 bytes are what SHA-256 gives.
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
