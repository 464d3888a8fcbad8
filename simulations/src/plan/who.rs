//! [`Who`] as plans write it: `node:3`, `leader:0`, `follower:0`, `meta`, `all`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Who;

/// A text that names no [`Who`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected \"node:N\", \"leader:SHARD\", \"follower:SHARD\", \"meta\" or \"all\", got {text:?}"
)]
pub(crate) struct WhoError {
    /// The text.
    pub(crate) text: String,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node:{node}"),
            Self::Leader(shard) => write!(f, "leader:{shard}"),
            Self::Follower(shard) => write!(f, "follower:{shard}"),
            Self::MetaLeader => f.write_str("meta"),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Who {
    type Err = WhoError;

    fn from_str(text: &str) -> Result<Self, WhoError> {
        let who = match text.split_once(':') {
            Some(("node", node)) => node.parse().ok().map(Self::Node),
            Some(("leader", shard)) => shard.parse().ok().map(Self::Leader),
            Some(("follower", shard)) => shard.parse().ok().map(Self::Follower),
            None if text == "meta" => Some(Self::MetaLeader),
            None if text == "all" => Some(Self::All),
            _ => None,
        };
        // Only one spelling is accepted: the number parser alone would also accept "+3" and "03".
        who.filter(|who| who.to_string() == text).ok_or_else(|| WhoError { text: text.to_owned() })
    }
}

impl Serialize for Who {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Who {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for (who, text) in [
            (Who::Node(3), "node:3"),
            (Who::Leader(0), "leader:0"),
            (Who::Follower(15), "follower:15"),
            (Who::MetaLeader, "meta"),
            (Who::All, "all"),
        ] {
            assert_eq!(who.to_string(), text);
            assert_eq!(text.parse(), Ok(who));
            assert_eq!(serde_json::to_string(&who).unwrap(), format!("{text:?}"));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let texts = [
            "",
            "node",
            "node:",
            "node:+3",
            "node:03",
            "node:-1",
            "node:4294967296",
            "Node:1",
            "meta:0",
            "all:",
            "leader:s1",
            "node:1 ",
            "boss:1",
        ];
        for text in texts {
            let error = text.parse::<Who>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "expected \"node:N\", \"leader:SHARD\", \"follower:SHARD\", \"meta\" or \
                     \"all\", got {text:?}"
                )
            );
        }
    }
}
