//! The orders of pages, as JSON: a field that is unknown, missing or of another type is refused.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use tonic::Status;
use umbel_filter::Kind;

use crate::errors;

/// Longest part of an order that is logged.
const SHOWN_CHARS_MAX: usize = 300;

/// A filter to create.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    pub(super) name: String,
    #[serde(deserialize_with = "by_name")]
    pub(super) kind: Kind,
    pub(super) capacity: u64,
    /// False positive rate at that number of items.
    pub(super) rate: f64,
    pub(super) is_replicated: bool,
}

/// A filter to clear, as the page saw it.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Clear {
    pub(super) name: String,
    pub(super) filter: u64,
    pub(super) generation: u64,
    /// Its name again, as the operator typed it.
    pub(super) typed: String,
}

/// A filter to drop, as the page saw it.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Drop {
    pub(super) name: String,
    pub(super) filter: u64,
    /// Its name again, as the operator typed it.
    pub(super) typed: String,
}

/// A replica to move.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    pub(super) shard: u32,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A node to drain, or to let take replicas again.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    pub(super) node: u64,
    pub(super) undo: bool,
    /// Its address, as the operator typed it; not needed with `undo`.
    #[serde(default)]
    pub(super) typed: String,
}

/// A node to remove.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Remove {
    pub(super) node: u64,
    /// Its address, as the operator typed it.
    pub(super) typed: String,
}

/// What to compare: a filter, or everything if the name is empty.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    pub(super) filter: String,
}

/// A job, by its number in decimal: JavaScript's numbers cannot hold 64 bits.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    pub(super) job: String,
}

impl Job {
    /// Its number.
    ///
    /// # Errors
    /// If it is not a decimal number.
    pub(super) fn number(&self) -> Result<u64, Status> {
        let bad = |_| errors::bad_order("job: expected the number of a job, in decimal");
        self.job.parse().map_err(bad)
    }
}

/// Parses an order.
///
/// # Errors
/// If it is malformed.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Status> {
    let bad = |error| errors::bad_order(format!("the page's order makes no sense: {error}"));
    serde_json::from_slice(body).map_err(bad)
}

/// Parses a kind by the name that `umbel filter create` uses for it.
fn by_name<'de, D: Deserializer<'de>>(name: D) -> Result<Kind, D::Error> {
    String::deserialize(name)?.parse().map_err(D::Error::custom)
}

/// Refuses a dangerous order unless its name was typed.
///
/// # Errors
/// If another text was typed.
pub(super) fn check_typed(typed: &str, name: &str) -> Result<(), Status> {
    let what = || format!("type {name:?} to have it done: {typed:?} was typed");
    if typed == name { Ok(()) } else { Err(errors::bad_order(what())) }
}

/// An order as it is logged, cut to `SHOWN_CHARS_MAX`.
pub(super) fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_whole_or_refused() {
        let clear = r#"{"name":"a","filter":7,"generation":2,"typed":"a"}"#;
        let read_clear = |body: &str| read::<Clear>(body.as_bytes());
        let Clear { name, filter, generation, typed } = read_clear(clear).unwrap();
        assert_eq!((&*name, filter, generation, &*typed), ("a", 7, 2, "a"));
        for bad in [
            "",
            "[]",
            r#"{"name":"a","filter":7,"generation":2}"#,
            r#"{"name":"a","filter":-7,"generation":2,"typed":"a"}"#,
            r#"{"name":"a","filter":7,"generation":2,"typed":"a","force":true}"#,
            r#"{"name":"a","name":"b","filter":7,"generation":2,"typed":"a"}"#,
        ] {
            assert_eq!(read_clear(bad).unwrap_err().code(), tonic::Code::InvalidArgument, "{bad}");
        }
        let job = |job: &str| Job { job: job.to_owned() }.number();
        assert_eq!(job("18446744073709551615").unwrap(), u64::MAX);
        assert!(job("1e3").is_err() && job("").is_err());
    }

    #[test]
    fn kinds_go_by_their_names() {
        let create = |kind: &str| {
            let rest = r#""name":"a","capacity":7,"rate":0.1,"is_replicated":false"#;
            read::<Create>(format!(r#"{{"kind":{kind},{rest}}}"#).as_bytes())
        };
        for kind in Kind::ALL {
            assert_eq!(create(&format!("{:?}", kind.name())).unwrap().kind, kind);
        }
        let text = create(r#""ribbon""#).unwrap_err();
        assert!(text.message().contains("`ribbon` is no kind"), "{text}");
        assert!(create("7").is_err() && create("null").is_err());
    }

    #[test]
    fn a_name_is_typed_exactly() {
        assert!(check_typed("seen", "seen").is_ok());
        for wrong in ["", "seen ", "Seen"] {
            assert!(check_typed(wrong, "seen").is_err());
        }
    }
}
