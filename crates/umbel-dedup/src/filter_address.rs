//! Addresses of filters of clusters, as a job names them.

use std::fmt;
use std::str::FromStr;
use umbel_files::UsageError;

/// The port of an address without one: where `umbel serve` listens by default.
const DEFAULT_PORT: u16 = 7300;

/// The scheme of a filter's address: `umbel://HOST[:PORT][,..]/FILTER`, or `umbel:///FILTER` for a filter of the cluster that
/// runs the job.
pub(super) const SCHEME: &str = "umbel://";

/// A filter of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterAddress {
    /// The nodes of its cluster; `None`: the cluster that runs the job.
    pub(super) nodes: Option<String>,
    filter: String,
}

impl FilterAddress {
    /// Whether this text is a filter's address and not a file name.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// A filter of the cluster that runs the job; `None` without a name.
    pub(crate) fn own(filter: String) -> Option<Self> {
        (!filter.is_empty()).then_some(Self { nodes: None, filter })
    }

    /// The filter's name in its cluster.
    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }
}

impl FromStr for FilterAddress {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let wrong = || UsageError(format!("`{text}`: expected {SCHEME}HOST[:PORT][,..]/FILTER"));
        let rest = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (nodes, filter) = rest.split_once('/').ok_or_else(wrong)?;
        if filter.is_empty() {
            return Err(wrong());
        }
        if nodes.is_empty() {
            return Ok(Self { nodes: None, filter: filter.to_owned() });
        }
        if nodes.split(',').any(str::is_empty) {
            return Err(wrong());
        }
        let with_port = |node: &str| {
            let behind_brackets = node.rsplit(']').next().unwrap_or(node);
            let has_port = behind_brackets.contains(':');
            if has_port { node.to_owned() } else { format!("{node}:{DEFAULT_PORT}") }
        };
        let nodes: Vec<String> = nodes.split(',').map(with_port).collect();
        Ok(Self { nodes: Some(nodes.join(",")), filter: filter.to_owned() })
    }
}

impl fmt::Display for FilterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.nodes.as_deref().unwrap_or_default(), self.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_nodes_and_a_filter() {
        let parsed = |text: &str| text.parse::<FilterAddress>().map(|address| address.to_string());
        for (text, expected) in [
            ("umbel://a/f", "umbel://a:7300/f"),
            ("umbel://a:1,[::1],[::1]:2/f/g", "umbel://a:1,[::1]:7300,[::1]:2/f/g"),
            ("umbel:///f/g", "umbel:///f/g"),
        ] {
            assert_eq!(parsed(text).ok().as_deref(), Some(expected));
        }
        for text in ["umbel://a", "umbel:///", "umbel://a/", "umbel://a,,b/f", "http://a/f"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
