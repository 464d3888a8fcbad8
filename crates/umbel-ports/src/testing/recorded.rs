//! For tests: recordings of what nodes send each other, kept for ever.
//!
//! A recording is a line `NAME HEX` of a file. Each build decodes each to the value that was recorded, and
//! encodes that value to the same bytes, so that nodes of this build understand those of earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoding::{decode, encode};
use crate::hex::from_hex;

/// If this variable is set, values without a recording get one: `UMBEL_WRITE_CALLS=1`. No recording is changed.
const WRITE: &str = "UMBEL_WRITE_CALLS";

/// Defines a trait `Variants` for enums, from their names and those of all their variants. A variant that is left out
/// does not compile. The enums may be of other crates.
#[macro_export]
macro_rules! variants {
    ($($message:ident { $($variant:ident),+ $(,)? })+) => {
        /// A message with several variants.
        trait Variants {
            /// The names of all variants, as they stand in the file.
            const NAMES: &'static [&'static str];

            /// The name of this one's variant.
            fn name(&self) -> &'static str;
        }

        $(impl Variants for $message {
            const NAMES: &'static [&'static str] =
                &[$(concat!(stringify!($message), "::", stringify!($variant))),+];

            fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => {
                        concat!(stringify!($message), "::", stringify!($variant))
                    })+
                }
            }
        })+
    };
}

/// Defines what [`variants`](crate::variants) does, and `check_all(recordings, values)`, which checks a value of each
/// variant of an enum.
#[macro_export]
macro_rules! recorded {
    ($($enums:tt)+) => {
        $crate::variants! { $($enums)+ }

        /// Checks the recordings of all variants of a message, one value of each.
        fn check_all<T: Variants + $crate::testing::recorded::Message>(
            recordings: &mut $crate::testing::recorded::Recordings,
            values: &[T],
        ) {
            for value in values {
                recordings.check(value.name(), value);
            }
            recordings.check_complete(T::NAMES);
        }
    };
}

/// What can be recorded as nodes encode it.
pub trait Message: Serialize + DeserializeOwned + PartialEq + Debug {}

impl<T: Serialize + DeserializeOwned + PartialEq + Debug> Message for T {}

/// A file of recordings.
pub struct Recordings {
    path: PathBuf,
    by_name: BTreeMap<String, String>,
    checked: BTreeSet<String>,
    has_new: bool,
}

impl Recordings {
    /// Reads a file; it need not exist yet.
    ///
    /// # Panics
    /// If it cannot be read, or a line is none of a recording.
    #[must_use]
    pub fn read(path: PathBuf) -> Self {
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            // Otherwise all recordings would be written anew, and nobody would see that one has changed.
            read => read.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        };
        let recording = |line: &str| {
            let (name, hex) = line.split_once(' ').expect("a name and bytes");
            (name.to_owned(), hex.to_owned())
        };
        let by_name = text.lines().map(recording).collect();
        Self { path, by_name, checked: BTreeSet::new(), has_new: false }
    }

    /// Checks the recording of a value.
    ///
    /// # Panics
    /// If there is none, or it is not this value, or the value is encoded differently.
    pub fn check<T: Message>(&mut self, name: &str, value: &T) {
        let decoded = |bytes: &[u8]| decode(bytes).expect("a recording can be decoded");
        self.check_as(name, value, &encode(value), decoded);
    }

    /// Checks the recording of a value in another encoding: its bytes, and how they are decoded.
    ///
    /// # Panics
    /// As [`check`](Self::check) does.
    pub fn check_as<T: PartialEq + Debug>(
        &mut self,
        name: &str,
        value: &T,
        encoded: &[u8],
        decoded: impl FnOnce(&[u8]) -> T,
    ) {
        let encoded = hex_of(encoded);
        if std::env::var_os(WRITE).is_some() && !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), encoded.clone());
            self.has_new = true;
        }
        let Some(hex) = self.by_name.get(name) else {
            panic!("{name} has no recording: run this test with {WRITE}=1, and keep the line")
        };
        assert_eq!(
            decoded(&from_hex(hex.as_bytes()).expect("hexadecimal digits")),
            *value,
            "{name} is decoded differently"
        );
        assert_eq!(encoded, *hex, "{name} is encoded differently");
        assert!(self.checked.insert(name.to_owned()), "{name} is there twice");
    }

    /// Checks that a value of each of these names was checked.
    ///
    /// # Panics
    /// If one was not.
    pub fn check_complete(&self, names: &[&str]) {
        for name in names {
            assert!(self.checked.contains(*name), "{name} has no value in this test");
        }
    }

    /// Writes what is new.
    ///
    /// # Panics
    /// If the file has a recording that was not checked, or cannot be written.
    pub fn finish(self) {
        let unknown: Vec<_> =
            self.by_name.keys().filter(|name| !self.checked.contains(*name)).collect();
        assert!(unknown.is_empty(), "recordings stay for ever, but nobody checked {unknown:?}");
        if self.has_new {
            let line = |(name, hex): (&String, &String)| format!("{name} {hex}\n");
            let text: String = self.by_name.iter().map(line).collect();
            let folder = self.path.parent().expect("a file is in a folder");
            fs::create_dir_all(folder).expect("the folder can be made");
            fs::write(&self.path, text).expect("the file can be written");
        }
    }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all text");
        text
    })
}
