//! How items are hashed: with a public seed, or with a secret key from a file.

use crate::exit::UsageError;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use umbel_codec::FrameKey;
use umbel_filter::{HashFunction, ItemHasher};

/// Hexadecimal digits of a key file: 16 bytes of key, then the 8 bytes of its key id.
const KEY_DIGITS: usize = 48;

/// Most bytes of a key file: the digits, and one or two line ends.
const KEY_FILE_BYTES_MAX: u64 = 64;

/// A hasher, and its description for a file's header.
#[derive(Clone, Copy)]
pub(crate) struct Hashing {
    pub(crate) hasher: ItemHasher,
    pub(crate) key: FrameKey,
}

impl Hashing {
    /// Hashing with a public seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: seed };
        Self { hasher: ItemHasher::Xxh3 { seed }, key }
    }

    /// Hashing with the secret key in a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or holds anything else than [`KEY_DIGITS`] hexadecimal digits.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("{shown}: cannot read"))?;
        let mut text = String::new();
        file.take(KEY_FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .with_context(|| format!("{shown}: cannot read"))?;
        parse(text.trim()).ok_or_else(|| {
            UsageError(format!(
                "{shown}: expected {KEY_DIGITS} hexadecimal digits, as `openssl rand -hex 24` draws them: \
                 16 bytes of key and 8 that name it"
            ))
            .into()
        })
    }

    /// The hashing that a file's header describes; the path names the secret key if it needs one.
    ///
    /// # Errors
    ///
    /// If the header needs a secret key and no path is given, or the other way round; if the key cannot
    /// be read.
    pub(crate) fn of_file(key: FrameKey, path: Option<&Path>) -> Result<Self> {
        match (key.function, path) {
            (HashFunction::Xxh3Seeded, None) => Ok(Self::seeded(key.key_id)),
            (HashFunction::SipHash13Keyed, Some(path)) => Self::read(path),
            (HashFunction::RedisBloomPair, _) => Err(UsageError(
                "the file says that its items were hashed as RedisBloom's, which no file's are"
                    .into(),
            )
            .into()),
            (HashFunction::Xxh3Seeded, Some(_)) => Err(UsageError(
                "the file was built without a secret key: leave --hash-key out".into(),
            )
            .into()),
            (HashFunction::SipHash13Keyed, None) => Err(UsageError(format!(
                "the file was built under the secret key {:016x}: name its file with --hash-key",
                key.key_id
            ))
            .into()),
        }
    }
}

fn parse(text: &str) -> Option<Hashing> {
    let is_plain = text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (key, name) = text.split_at_checked(32).filter(|_| is_plain)?;
    let key = u128::from_str_radix(key, 16).ok()?.to_be_bytes();
    let key_id = u64::from_str_radix(name, 16).ok()?;
    let function = HashFunction::SipHash13Keyed;
    Some(Hashing { hasher: ItemHasher::SipHash { key }, key: FrameKey { function, key_id } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_name_are_read_from_digits() {
        let text = "000102030405060708090a0b0c0d0e0f00000000000000ff";
        let Some(Hashing { hasher, key }) = parse(text) else { panic!("{text}") };
        let expected: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert!(hasher == ItemHasher::SipHash { key: expected });
        assert_eq!((key.function, key.key_id), (HashFunction::SipHash13Keyed, 255));
        for wrong in ["", &text[1..], "+00102030405060708090a0b0c0d0e0f00000000000000ff"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
