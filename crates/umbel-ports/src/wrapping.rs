//! The key that wraps (encrypts) secrets on disks and in backups, read from a file.
//!
//! AES-256-GCM with a random nonce for each piece: `nonce (12) | encrypted bytes | tag (16)`. The tag
//! also covers what a piece is and where it is stored, so that pieces cannot be swapped. Random nonces
//! of 96 bits can be drawn 2^32 times without a noteworthy chance of a collision; a meta group writes
//! far fewer pieces.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use thiserror::Error;
use umbel_tls::{OpenToOthers, check_private};

use crate::hex::from_hex;

/// Bytes of the key.
const KEY_BYTES: usize = 32;

/// Most bytes that are read of a key file: hexadecimal digits and surrounding whitespace.
const FILE_BYTES_MAX: u64 = 256;

/// Extra bytes of a wrapped piece compared with its content.
pub const WRAPPED_EXTRA_BYTES: usize = NONCE_LEN + MAX_TAG_LEN;

/// Why a key file was not accepted. Nothing was changed.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// Name a file that exists and can be read.
    #[error("{path}: cannot read the key: {error}")]
    Read {
        /// The file.
        path: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// Others may access the file: remove their permissions, and create another key.
    #[error(transparent)]
    Mode(#[from] OpenToOthers),
    /// Create a key: `openssl rand -hex 32`.
    #[error(
        "{path}: no key: expected 32 bytes, or 64 hexadecimal digits; `openssl rand -hex 32` draws one"
    )]
    Form {
        /// The file.
        path: String,
    },
}

/// The piece was wrapped with another key, was changed since, or is in another piece's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("wrapped by another key, or damaged")]
pub struct NotUnwrapped;

/// A key that wraps data.
pub struct WrappingKey {
    path: String,
    key: LessSafeKey,
}

impl WrappingKey {
    /// Reads a key from a file of 32 bytes or 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the file cannot be read, can be read by others, or does not contain a key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let shown = path.display().to_string();
        let failed = |error| KeyFileError::Read { path: shown.clone(), error };
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        check_private(path, &metadata, "key")?;
        let mut bytes = Vec::new();
        file.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        match parse(&bytes) {
            Some(key) => Ok(Self::new(shown, &key)),
            None => Err(KeyFileError::Form { path: shown }),
        }
    }

    fn new(path: String, key: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has the cipher's length");
        Self { path, key: LessSafeKey::new(key) }
    }

    /// The path of the key file, for messages.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Wraps bytes. The nonce must be newly drawn for this call; `context` identifies the data and its
    /// place.
    ///
    /// # Panics
    /// If `bytes` has 64 GiB or more, the cipher's limit; wrapped data is far shorter.
    #[must_use]
    pub fn wrap(&self, nonce: [u8; NONCE_LEN], context: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut wrapped = Vec::with_capacity(bytes.len() + WRAPPED_EXTRA_BYTES);
        wrapped.extend_from_slice(&nonce);
        wrapped.extend_from_slice(bytes);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(context), &mut wrapped[NONCE_LEN..])
            .expect("a piece is far shorter than the cipher's limit of 64 GiB");
        wrapped.extend_from_slice(tag.as_ref());
        wrapped
    }

    /// Returns the bytes that were wrapped in this context.
    ///
    /// # Errors
    /// If they were wrapped with another key or in another context, or have changed.
    pub fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Vec<u8>, NotUnwrapped> {
        let (nonce, sealed) = wrapped.split_first_chunk().ok_or(NotUnwrapped)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut bytes = sealed.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(context), &mut bytes);
        let byte_count = opened.map_err(|_| NotUnwrapped)?.len();
        bytes.truncate(byte_count);
        Ok(bytes)
    }
}

/// Parses 32 raw bytes, or 64 hexadecimal digits with surrounding whitespace.
fn parse(bytes: &[u8]) -> Option<[u8; KEY_BYTES]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    from_hex(bytes.trim_ascii())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_wrapped_is_read_by_its_key_in_its_place_only() {
        let key = WrappingKey::new("k".to_owned(), &[1; 32]);
        for bytes in [&b""[..], b"x", &[7; 1000]] {
            let wrapped = key.wrap([9; 12], b"here", bytes);
            assert_eq!(wrapped.len(), bytes.len() + WRAPPED_EXTRA_BYTES);
            assert_eq!(key.unwrap(b"here", &wrapped).unwrap(), bytes);
            assert_eq!(key.unwrap(b"there", &wrapped), Err(NotUnwrapped));
            let other = WrappingKey::new("k".to_owned(), &[2; 32]);
            assert_eq!(other.unwrap(b"here", &wrapped), Err(NotUnwrapped));
            for at in [0, wrapped.len() / 2, wrapped.len() - 1] {
                let mut damaged = wrapped.clone();
                damaged[at] ^= 1;
                assert_eq!(key.unwrap(b"here", &damaged), Err(NotUnwrapped));
                assert_eq!(key.unwrap(b"here", &wrapped[..at]), Err(NotUnwrapped));
            }
        }
    }

    #[test]
    fn a_key_file_is_its_owners_and_holds_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |content: &[u8], mode: u32| {
            write(&path, content).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            WrappingKey::read(&path)
        };
        let hex = format!(" {}\n", "0a".repeat(32));
        let wrapped = read(&[10; 32], 0o600).unwrap().wrap([1; 12], b"", b"x");
        assert_eq!(read(hex.as_bytes(), 0o400).unwrap().unwrap(b"", &wrapped).unwrap(), b"x");
        for content in [&b""[..], &[10; 31], &[10; 33], &[b'g'; 64], &[b'a'; 63], &[b'a'; 5000]] {
            let error = read(content, 0o600).err().unwrap();
            assert!(matches!(error, KeyFileError::Form { .. }), "{error}");
            assert!(error.to_string().contains("openssl rand -hex 32"));
        }
        for mode in [0o604, 0o602, 0o660] {
            let error = read(&[10; 32], mode).err().unwrap().to_string();
            assert!(
                error.contains(&format!("mode {mode:o}"))
                    && error.contains("chmod 600")
                    && error.contains("`defaultMode: 0440`"),
                "{error}"
            );
        }
        let missing = WrappingKey::read(&folder.path().join("none")).err().unwrap();
        assert!(matches!(missing, KeyFileError::Read { .. }));
    }
}
