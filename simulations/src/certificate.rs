//! Certificates without cryptography: who they name, and when they are valid.
//!
//! A certificate names the authority that signed it. No signature is needed, because no party of a
//! simulation forges certificates.

use std::fmt;

use serde::{Deserialize, Serialize};
use umbel_ports::NodeIdentity;

use crate::seed::true_wall_ms;

/// The authority of the cluster.
pub(crate) const OWN_AUTHORITY: u32 = 0;

/// An authority that no node trusts.
pub(crate) const FOREIGN_AUTHORITY: u32 = 1;

/// The URI of a generic node certificate, which names no particular node.
const NODE_URI: &str = "umbel:node";

/// How long before its issue a certificate becomes valid, in milliseconds: clocks of two machines differ.
const BACKDATED_MS: u64 = 10_000;

/// A certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// The authority that signed it.
    pub(crate) authority: u32,
    /// The URI of the node or client that it names.
    pub(crate) uri: String,
    /// The first millisecond at which it is valid, and the first one at which it is no longer.
    pub(crate) valid_ms: (u64, u64),
}

/// Why a certificate is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Another authority signed it.
    Foreign,
    /// It is not valid yet.
    Early,
    /// It has expired.
    Expired,
}

impl Certificate {
    /// A certificate that the cluster's authority issues now.
    pub(crate) fn issued(uri: String, life_ms: u64) -> Self {
        let now_ms = true_wall_ms();
        let valid_ms = (now_ms - BACKDATED_MS, now_ms.saturating_add(life_ms));
        Self { authority: OWN_AUTHORITY, uri, valid_ms }
    }

    /// A generic node certificate, which names no particular node; valid for ever.
    pub(crate) fn generic() -> Self {
        Self::issued(NODE_URI.to_owned(), u64::MAX)
    }

    /// The certificate of a particular node.
    pub(crate) fn member(node: NodeIdentity, life_ms: u64) -> Self {
        Self::issued(node.uri(), life_ms)
    }

    /// A client's certificate; valid for ever.
    pub(crate) fn client(name: &str) -> Self {
        Self::issued(format!("umbel:client:{name}"), u64::MAX)
    }

    /// Why it is refused at this time; None if it is valid.
    pub(crate) const fn refusal(&self, now_ms: u64) -> Option<Refusal> {
        let (from_ms, to_ms) = self.valid_ms;
        if self.authority != OWN_AUTHORITY {
            Some(Refusal::Foreign)
        } else if now_ms < from_ms {
            Some(Refusal::Early)
        } else if now_ms >= to_ms {
            Some(Refusal::Expired)
        } else {
            None
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "its certificate comes from another authority",
            Self::Early => "its certificate is not valid yet",
            Self::Expired => "its certificate has expired",
        })
    }
}
