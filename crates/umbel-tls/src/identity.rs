//! The identity of the other end of a connection.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The URI in a certificate that is valid for any node.
pub(crate) const NODE_URI: &str = "umbel:node";

/// Prefix of the URI in a certificate for one node of one cluster.
const MEMBER_URI: &str = "umbel://";

/// Hexadecimal digits of a cluster's id.
const CLUSTER_DIGITS: usize = 32;

/// Prefix of the URI in a client's certificate; the client's name follows.
pub(crate) const CLIENT_URI: &str = "umbel:client:";

/// Longest name of a client; it appears in log lines and errors.
pub(crate) const CLIENT_NAME_BYTES_MAX: usize = 128;

/// The identity of the other end of a connection, as far as it was proved.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerIdentity {
    /// The connection is not encrypted, so no identity was asked for.
    Unchecked,
    /// The connection is encrypted, and the other end presented no certificate, or one that names neither
    /// a node nor a client.
    Anonymous,
    /// A client with this name.
    Client(Arc<str>),
    /// Any node of the cluster; the certificate does not name a particular one.
    Node,
    /// This particular node.
    Member(NodeIdentity),
}

/// A node of a cluster, as certificates name it.
///
/// ```
/// use umbel_tls::NodeIdentity;
/// let node: NodeIdentity = "0123456789abcdef0123456789abcdef/7".parse()?;
/// assert_eq!(node.node, 7);
/// assert_eq!(node.uri(), "umbel://0123456789abcdef0123456789abcdef/node/7");
/// assert_eq!(node.to_string(), "node 7 of cluster 0123456789abcdef0123456789abcdef");
/// # Ok::<(), umbel_tls::NodeIdentityError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeIdentity {
    /// The cluster's random id.
    pub cluster: u128,
    /// The node's number in the cluster.
    pub node: u64,
}

/// The text names no node of a cluster. Write the cluster's id, a slash and the node's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected CLUSTER/NODE: the cluster's 32 hexadecimal digits in lower case, and the node's number, \
     as `umbel cluster status` shows them"
)]
pub struct NodeIdentityError;

impl NodeIdentity {
    /// The URI for certificates.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{MEMBER_URI}{:032x}/node/{}", self.cluster, self.node)
    }

    fn of_uri(uri: &str) -> Option<Self> {
        let (cluster, node) = uri.strip_prefix(MEMBER_URI)?.split_once("/node/")?;
        Self::of_parts(cluster, node)
    }

    fn of_parts(cluster: &str, node: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if cluster.len() != CLUSTER_DIGITS || !cluster.bytes().all(is_digit) {
            return None;
        }
        let cluster = u128::from_str_radix(cluster, 16).ok()?;
        let number: u64 = node.parse().ok()?;
        // Each node has exactly one text: no sign, no leading zeros.
        (number > 0 && number.to_string() == node).then_some(Self { cluster, node: number })
    }
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of cluster {:032x}", self.node, self.cluster)
    }
}

impl FromStr for NodeIdentity {
    type Err = NodeIdentityError;

    fn from_str(text: &str) -> Result<Self, NodeIdentityError> {
        let (cluster, node) = text.split_once('/').ok_or(NodeIdentityError)?;
        Self::of_parts(cluster, node).ok_or(NodeIdentityError)
    }
}

impl PeerIdentity {
    /// The identity that a certificate's URI names; None if it is no URI of Umbel.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        if uri == NODE_URI {
            return Some(Self::Node);
        }
        if let Some(node) = NodeIdentity::of_uri(uri) {
            return Some(Self::Member(node));
        }
        let name = uri.strip_prefix(CLIENT_URI)?;
        is_client_name(name).then(|| Self::Client(name.into()))
    }

    /// The identity in a certificate in DER. A particular node takes precedence over any node, and that
    /// over a client; a certificate for two nodes identifies nobody.
    pub(crate) fn from_certificate(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::Anonymous };
        let Ok(Some(names)) = certificate.subject_alternative_name() else {
            return Self::Anonymous;
        };
        let named = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Self::from_uri(uri),
            _ => None,
        });
        Self::of_named(named)
    }

    fn of_named(named: impl Iterator<Item = Self>) -> Self {
        let mut found = Self::Anonymous;
        for identity in named {
            found = match (found, identity) {
                (Self::Member(one), Self::Member(other)) if one != other => return Self::Anonymous,
                (member @ Self::Member(_), _) | (_, member @ Self::Member(_)) => member,
                (Self::Node, _) | (_, Self::Node) => Self::Node,
                (_, other) => other,
            };
        }
        found
    }
}

/// Whether a name consists of letters, digits, `-`, `_` and `.`, since it appears in a URI and in log
/// lines.
pub(crate) fn is_client_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=CLIENT_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchecked => write!(f, "unchecked"),
            Self::Anonymous => write!(f, "anonymous"),
            Self::Client(name) => write!(f, "client {name}"),
            Self::Node => write!(f, "node"),
            Self::Member(node) => write!(f, "{node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_uris_name_somebody() {
        for uri in ["umbel:node:1", "umbel:Node", "umbel:client:", "umbel:client:a b", "umbel:x"] {
            assert_eq!(PeerIdentity::from_uri(uri), None, "{uri}");
        }
        let long = format!("umbel:client:{}", "a".repeat(CLIENT_NAME_BYTES_MAX + 1));
        assert_eq!(PeerIdentity::from_uri(&long), None);
    }

    #[test]
    fn a_node_of_a_cluster_has_one_text() {
        let cluster = "0123456789abcdef0123456789abcdef";
        let uri = format!("umbel://{cluster}/node/7");
        let node = NodeIdentity { cluster: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, node: 7 };
        assert_eq!(PeerIdentity::from_uri(&uri), Some(PeerIdentity::Member(node)));
        assert_eq!(node.uri(), uri);
        for uri in [
            format!("umbel://{cluster}/node/07"),
            format!("umbel://{cluster}/node/+7"),
            format!("umbel://{cluster}/node/0"),
            format!("umbel://{cluster}/node/7/"),
            format!("umbel://{cluster}/node/18446744073709551616"),
            format!("umbel://{}/node/7", cluster.to_uppercase()),
            format!("umbel://{}/node/7", &cluster[1..]),
            format!("umbel://+{}/node/7", &cluster[1..]),
            "umbel:///node/7".to_owned(),
        ] {
            assert_eq!(PeerIdentity::from_uri(&uri), None, "{uri}");
        }
        for text in ["", "7", "x/7"] {
            assert_eq!(text.parse::<NodeIdentity>(), Err(NodeIdentityError), "{text:?}");
        }
    }

    #[test]
    fn the_narrower_name_counts_and_two_nodes_are_nobody() {
        let member = |node| PeerIdentity::Member(NodeIdentity { cluster: 1, node });
        let client = || PeerIdentity::Client("a".into());
        let of = |named: Vec<PeerIdentity>| PeerIdentity::of_named(named.into_iter());
        assert_eq!(of(vec![]), PeerIdentity::Anonymous);
        assert_eq!(of(vec![client(), PeerIdentity::Node]), PeerIdentity::Node);
        assert_eq!(of(vec![PeerIdentity::Node, member(3), client()]), member(3));
        assert_eq!(of(vec![member(3), member(3)]), member(3));
        assert_eq!(of(vec![member(3), PeerIdentity::Node, member(4)]), PeerIdentity::Anonymous);
    }

    #[test]
    fn what_is_no_certificate_names_nobody() {
        assert_eq!(PeerIdentity::from_certificate(b"\x30\x82"), PeerIdentity::Anonymous);
    }
}
