//! Zones: groups of nodes that fail together, such as a rack, a room or a region.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::NodeId;

/// Longest name of a zone, in bytes; zone names of cloud providers have up to 30.
pub const ZONE_BYTES_MAX: usize = 64;

/// The name of a zone: 1 to [`ZONE_BYTES_MAX`] letters, digits, `-`, `_` and `.`.
///
/// ```
/// use umbel_engine::placement::Zone;
///
/// assert_eq!(Zone::new("eu-central-1a")?.as_str(), "eu-central-1a");
/// assert!(Zone::new("rack 7").is_err());
/// # Ok::<(), umbel_engine::placement::ZoneError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Zone(String);

/// The text is not a zone's name. Choose another one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "a zone's name has 1 to {ZONE_BYTES_MAX} letters, digits, '-', '_' and '.', unlike {name:?}"
)]
pub struct ZoneError {
    /// The first `ZONE_BYTES_MAX` characters of the text.
    name: String,
}

impl Zone {
    /// Validates a name.
    ///
    /// # Errors
    /// If it is empty or too long, or contains another character.
    pub fn new(name: impl Into<String>) -> Result<Self, ZoneError> {
        let name = name.into();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if (1..=ZONE_BYTES_MAX).contains(&name.len()) && name.chars().all(is_allowed) {
            return Ok(Self(name));
        }
        Err(ZoneError { name: name.chars().take(ZONE_BYTES_MAX).collect() })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;

    fn try_from(name: String) -> Result<Self, ZoneError> {
        Self::new(name)
    }
}

/// The zone of each node. A node without a zone fails independently of all others.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::placement::{Zone, Zones};
///
/// let mut zones = Zones::default();
/// [1, 2].map(|node| zones.set(NodeId(node), Zone::new("rack1").ok()));
/// assert_eq!(zones.shared(NodeId(1), &[NodeId(1), NodeId(2), NodeId(3)]), 1);
/// assert_eq!(zones.shared(NodeId(3), &[NodeId(1), NodeId(4)]), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Zones(BTreeMap<NodeId, Zone>);

impl Zones {
    /// The zone of a node, if it has reported one.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&Zone> {
        self.0.get(&node)
    }

    /// Sets the zone of a node; None removes it.
    pub fn set(&mut self, node: NodeId, zone: Option<Zone>) {
        match zone {
            Some(zone) => drop(self.0.insert(node, zone)),
            None => drop(self.0.remove(&node)),
        }
    }

    /// The number of these nodes, not counting `node` itself, that are in the zone of `node`.
    #[must_use]
    pub fn shared(&self, node: NodeId, others: &[NodeId]) -> usize {
        let Some(zone) = self.get(node) else { return 0 };
        others.iter().filter(|&&other| other != node && self.get(other) == Some(zone)).count()
    }
}
