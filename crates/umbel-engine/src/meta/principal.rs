//! Principals: their names, their proofs of identity, and their rights.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::reply::MetaError;
use crate::limits::FILTER_NAME_BYTES_MAX;
use crate::meta::Result;

/// Longest name of a principal, in bytes: names appear in log lines, errors and certificates.
pub const PRINCIPAL_NAME_BYTES_MAX: usize = 128;

/// Most grants of a principal: each call may check all of them.
pub const GRANT_COUNT_MAX: usize = 64;

/// A principal's name: 1 to [`PRINCIPAL_NAME_BYTES_MAX`] letters, digits, `-`, `_` and `.`, as in a
/// client's certificate.
///
/// ```
/// use umbel_engine::meta::PrincipalName;
/// assert_eq!(PrincipalName::new("crawler-7").unwrap().as_str(), "crawler-7");
/// assert_eq!(PrincipalName::new("two words"), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PrincipalName(String);

impl PrincipalName {
    /// Validates a name; None if it is not valid.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=PRINCIPAL_NAME_BYTES_MAX).contains(&name.len());
        (is_name && name.bytes().all(is_allowed)).then_some(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PrincipalName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name).ok_or("no name of a principal")
    }
}

impl Borrow<str> for PrincipalName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What may be done with a filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum FilterVerb {
    /// Query items; see the filter's counts and sizes.
    Read,
    /// Insert items, which reveals whether they were present; flush; merge other filters into it.
    Insert,
    /// Remove items.
    Remove,
    /// Create, import, clear and drop it.
    Manage,
    /// Export a copy of it; merge it into other filters.
    Export,
}

/// What may be done with a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ClusterVerb {
    /// Everything that no other verb covers: nodes, shards, principals.
    Admin,
    /// Back up and restore all filters with their keys.
    Backup,
    /// Submit jobs, which read and write files on nodes; follow and end them.
    Jobs,
    /// See metrics and the cluster's status.
    Metrics,
}

impl FilterVerb {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Insert, Self::Remove, Self::Manage, Self::Export];

    /// The verb as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Insert => "insert",
            Self::Remove => "remove",
            Self::Manage => "manage",
            Self::Export => "export",
        }
    }
}

impl ClusterVerb {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Backup, Self::Jobs, Self::Metrics];

    /// The verb as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Backup => "backup",
            Self::Jobs => "jobs",
            Self::Metrics => "metrics",
        }
    }
}

/// Allows verbs on the filters whose names match a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// A filter's name, or a prefix followed by `*`; `*` alone matches every filter.
    pub pattern: String,
    /// The allowed verbs.
    pub verbs: BTreeSet<FilterVerb>,
}

impl Grant {
    /// Whether the pattern matches this filter name. `*` is special only at the end.
    ///
    /// ```
    /// use umbel_engine::meta::Grant;
    /// let grant = |pattern: &str| Grant { pattern: pattern.to_owned(), verbs: [].into() };
    /// assert!(grant("crawl.*").covers("crawl.2026") && !grant("crawl.*").covers("crawl"));
    /// assert!(grant("crawl").covers("crawl") && !grant("crawl").covers("crawler"));
    /// ```
    #[must_use]
    pub fn covers(&self, filter: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(prefix) => filter.starts_with(prefix),
            None => self.pattern == filter,
        }
    }
}

/// The rights of a principal. Everything that is not granted is denied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rights {
    /// Rights on filters.
    pub grants: Vec<Grant>,
    /// Rights on the cluster.
    pub cluster: BTreeSet<ClusterVerb>,
}

impl Rights {
    /// Whether a verb is allowed on a filter of this name, whether or not it exists.
    ///
    /// ```
    /// use umbel_engine::meta::{FilterVerb, Grant, Rights};
    /// let grant = Grant { pattern: "crawl.*".to_owned(), verbs: [FilterVerb::Read].into() };
    /// let rights = Rights { grants: vec![grant], ..Rights::default() };
    /// assert!(rights.may(FilterVerb::Read, "crawl.de"));
    /// assert!(!rights.may(FilterVerb::Insert, "crawl.de") && !rights.may(FilterVerb::Read, "mail"));
    /// ```
    #[must_use]
    pub fn may(&self, verb: FilterVerb, filter: &str) -> bool {
        self.grants.iter().any(|grant| grant.verbs.contains(&verb) && grant.covers(filter))
    }

    /// Whether a verb is allowed on at least one possible filter name.
    #[must_use]
    pub fn may_somewhere(&self, verb: FilterVerb) -> bool {
        self.grants.iter().any(|grant| grant.verbs.contains(&verb))
    }

    /// Whether any verb is allowed on at least one possible filter name.
    #[must_use]
    pub fn may_anything_somewhere(&self) -> bool {
        FilterVerb::ALL.into_iter().any(|verb| self.may_somewhere(verb))
    }

    /// Whether lists show a filter of this name: there is any grant on it.
    #[must_use]
    pub fn may_see(&self, filter: &str) -> bool {
        self.grants.iter().any(|grant| grant.covers(filter))
    }

    /// Whether a verb is allowed on the cluster.
    #[must_use]
    pub fn may_with_cluster(&self, verb: ClusterVerb) -> bool {
        self.cluster.contains(&verb)
    }

    /// Refuses rights that allow nothing, or name no filters.
    pub(super) fn check(&self) -> Result<()> {
        let bad = |what: String| Err(MetaError::BadSettings { what });
        if self.grants.len() > GRANT_COUNT_MAX {
            let count = self.grants.len();
            return bad(format!("{count} grants, at most {GRANT_COUNT_MAX} are allowed"));
        }
        for Grant { pattern, verbs } in &self.grants {
            let length = pattern.len();
            if !(1..=FILTER_NAME_BYTES_MAX).contains(&length) || pattern.contains(char::is_control)
            {
                return bad(format!(
                    "a grant names filters by 1 to {FILTER_NAME_BYTES_MAX} bytes without control \
                     characters, not by {length} bytes like these"
                ));
            }
            if verbs.is_empty() {
                return bad(format!("the grant on {pattern:?} has no verb"));
            }
        }
        if self.grants.is_empty() && self.cluster.is_empty() {
            return bad("a principal needs a grant or a verb of the cluster".to_owned());
        }
        Ok(())
    }
}

/// How a principal proves its identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proof {
    /// By a token; only the BLAKE3 hash of its secret is stored, 32 bytes.
    Token {
        /// The hash.
        digest: [u8; 32],
    },
    /// By a client certificate with the principal's name.
    Certificate,
}

/// A caller that the cluster knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Principal {
    /// How it proves its identity.
    pub proof: Proof,
    /// What it may do.
    pub rights: Rights,
    /// When it was added: milliseconds since 1970, by the clock of the node that received the
    /// request.
    pub created_ms: u64,
    /// When its rights end, by each node's own clock, in milliseconds since 1970; None for never.
    pub expires_ms: Option<u64>,
}

impl Principal {
    /// Whether its rights have ended.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    /// Whether it may add principals, without an expiry.
    pub(super) fn is_lasting_admin(&self) -> bool {
        self.rights.may_with_cluster(ClusterVerb::Admin) && self.expires_ms.is_none()
    }

    /// Whether the two are equal except for the time at which they were added.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { proof, rights, created_ms: _, expires_ms } = other;
        (&self.proof, &self.rights, &self.expires_ms) == (proof, rights, expires_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> Principal {
        let grant = Grant { pattern: "crawl.*".to_owned(), verbs: [FilterVerb::Read].into() };
        let rights = Rights { grants: vec![grant], ..Rights::default() };
        Principal { proof: Proof::Certificate, rights, created_ms: 1, expires_ms: None }
    }

    #[test]
    fn nothing_is_allowed_that_is_not_granted() {
        let rights = reader().rights;
        for verb in FilterVerb::ALL {
            let is_read = verb == FilterVerb::Read;
            assert_eq!(
                (rights.may(verb, "crawl.a"), rights.may_somewhere(verb)),
                (is_read, is_read)
            );
            assert!(!rights.may(verb, "crawl") && !rights.may(verb, "mail"));
        }
        assert!(ClusterVerb::ALL.into_iter().all(|verb| !rights.may_with_cluster(verb)));
        assert!(rights.may_see("crawl.a") && !rights.may_see("mail"));
        assert!(rights.may_anything_somewhere() && !Rights::default().may_anything_somewhere());
    }

    #[test]
    fn rights_end_at_the_moment_of_expiry() {
        let principal = Principal { expires_ms: Some(10), ..reader() };
        assert!(!principal.is_expired(9) && principal.is_expired(10));
        assert!(!reader().is_expired(u64::MAX));
    }
}
