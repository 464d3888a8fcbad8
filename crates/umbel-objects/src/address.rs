//! `s3://BUCKET/KEY`: addresses of objects, of all objects below a prefix, and patterns of addresses.

use crate::error::AddressError;
use std::fmt;
use std::path::PathBuf;
use umbel_files::OBJECT_SCHEME;

/// Longest key that S3 allows, in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// A bucket and a key in it; where the caller allows it, the key is a prefix or a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAddress {
    /// The bucket.
    pub bucket: String,
    /// The key; the slash behind the bucket is not part of it.
    pub key: String,
}

impl ObjectAddress {
    /// Parses `s3://BUCKET/KEY`.
    ///
    /// # Errors
    ///
    /// The bucket name is invalid, or the key is too long.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(OBJECT_SCHEME).unwrap_or(text);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_name = bucket.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !is_name || !bucket.chars().all(is_sound) || bucket.contains("..") {
            let text = format!("{text}: `{bucket}` is no bucket; expected s3://BUCKET/KEY");
            return Err(AddressError(text));
        }
        if key.len() > KEY_BYTES_MAX {
            let text =
                format!("{text}: the key is longer than the {KEY_BYTES_MAX} bytes of any key");
            return Err(AddressError(text));
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// The same bucket with another key.
    pub fn with_key(&self, key: String) -> Self {
        Self { bucket: self.bucket.clone(), key }
    }

    /// Whether it stands for all objects below a prefix.
    pub fn is_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// The part of the key in front of its first wild card; `None` if it has no wild card.
    pub fn prefix_of_pattern(&self) -> Option<&str> {
        self.key.find(['*', '?', '[']).map(|at| &self.key[..at])
    }

    /// An absolute path for outputs that derive from the object: bucket and key. Components of the key that
    /// are no file names (`.`, `..` and the empty one) are escaped, so that they do not leave the directory.
    pub fn path(&self) -> PathBuf {
        let step = |step| match step {
            "" => "%".to_owned(),
            "." | ".." => step.replace('.', "%2E"),
            name => name.to_owned(),
        };
        let mut path = PathBuf::from("/");
        path.push(&self.bucket);
        path.extend(self.key.split('/').map(step));
        path
    }
}

impl fmt::Display for ObjectAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OBJECT_SCHEME}{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, bucket, key) in [
            ("s3://b/k", "b", "k"),
            ("s3://my.bucket-1/a/b c/*.gz", "my.bucket-1", "a/b c/*.gz"),
            ("s3://b//a//b", "b", "/a//b"),
            ("s3://b/", "b", ""),
        ] {
            let address = ObjectAddress::parse(text).unwrap();
            assert_eq!((&address.bucket[..], &address.key[..]), (bucket, key));
            assert_eq!(address.to_string(), text);
        }
        assert!(ObjectAddress::parse("s3://b").unwrap().is_prefix());
        for text in ["s3://", "s3:///k", "s3://a b/k", "s3://../k", "s3://a..b/k", "s3://b@h/k"] {
            let error = ObjectAddress::parse(text).unwrap_err();
            assert!(
                error.to_string().ends_with("is no bucket; expected s3://BUCKET/KEY"),
                "{text}"
            );
        }
        assert!(ObjectAddress::parse(&format!("s3://b/{}", "k".repeat(1025))).is_err());
    }

    #[test]
    fn patterns_have_a_literal_beginning() {
        let prefix =
            |text| ObjectAddress::parse(text).unwrap().prefix_of_pattern().map(str::to_owned);
        assert_eq!(prefix("s3://b/a/b?/*"), Some("a/b".to_owned()));
        assert_eq!(prefix("s3://b/[ab]"), Some(String::new()));
        assert_eq!(prefix("s3://b/a"), None);
    }

    #[test]
    fn paths_never_leave_their_directory() {
        let path = |key: &str| ObjectAddress { bucket: "b".into(), key: key.into() }.path();
        assert_eq!(path("a/b.txt"), PathBuf::from("/b/a/b.txt"));
        assert_eq!(path("../../etc/x"), PathBuf::from("/b/%2E%2E/%2E%2E/etc/x"));
        assert_eq!(path("/etc//x/."), PathBuf::from("/b/%/etc/%/x/%2E"));
    }
}
