//! Who is at the other end of a connection.

use std::fmt;
use std::sync::Arc;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// URI of a node's certificate.
pub(crate) const NODE_URI: &str = "umbel:node";

/// What stands before the name in the URI of a client's certificate.
pub(crate) const CLIENT_URI: &str = "umbel:client:";

/// Longest name of a client: it stands in log lines and errors.
pub(crate) const CLIENT_NAME_BYTES_MAX: usize = 128;

/// Who is at the other end of a connection, as far as it was proved.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerIdentity {
    /// The connection is not encrypted, and nobody was asked.
    Unchecked,
    /// The connection is encrypted, and the other end has shown no certificate, or one that names
    /// neither a node nor a client.
    Anonymous,
    /// A client, by its name.
    Client(Arc<str>),
    /// A node of the cluster.
    Node,
}

impl PeerIdentity {
    /// Whom a URI of a certificate names; None if it is none of Umbel's.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        if uri == NODE_URI {
            return Some(Self::Node);
        }
        let name = uri.strip_prefix(CLIENT_URI)?;
        is_client_name(name).then(|| Self::Client(name.into()))
    }

    /// Whom a certificate names, in DER. A certificate that says "node" and "client" is a node's.
    pub(crate) fn from_certificate(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::Anonymous };
        let Ok(Some(names)) = certificate.subject_alternative_name() else {
            return Self::Anonymous;
        };
        let named = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Self::from_uri(uri),
            _ => None,
        });
        let rank = |identity: &Self| u8::from(*identity == Self::Node);
        named.max_by_key(rank).unwrap_or(Self::Anonymous)
    }
}

/// Letters, digits, `-`, `_` and `.`: it stands in a URI and in log lines.
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
    fn what_is_no_certificate_names_nobody() {
        assert_eq!(PeerIdentity::from_certificate(b"\x30\x82"), PeerIdentity::Anonymous);
    }
}
