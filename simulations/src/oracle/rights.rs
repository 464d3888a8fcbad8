//! Who has which right, computed from the catalogue's entries and not by the code of the gate: an
//! independent check; and which versions of the catalogue a node may use when it answers.
//!
//! A node uses its own copy of the catalogue. It may have received a version by the end of a call at
//! the latest. It certainly knows what it had applied before the call began, since this start or before
//! an earlier one, and what any node had applied before it started, because it answers no calls until
//! it has caught up. All versions in between are possible; only a decision that is the same in all of
//! them can be checked.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::NodeId;
use umbel_engine::meta::{ClusterVerb, FilterVerb, MetaState, NodeRecord, Proof};

use super::view::CLOCKS_APART_US;
use crate::names::host_name;
use crate::plan::access::{AccessCall, access_filter};

/// A principal, reduced to what a decision needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownPrincipal {
    digest: Option<[u8; 32]>,
    grants: Vec<(String, BTreeSet<FilterVerb>)>,
    cluster: BTreeSet<ClusterVerb>,
    expires_ms: Option<u64>,
}

/// The catalogue's principals and nodes from some entry on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RightsVersion {
    is_formed: bool,
    principals: BTreeMap<String, KnownPrincipal>,
    removed: BTreeSet<NodeId>,
}

/// All versions, and which of them each host's node had at which time.
#[derive(Default, Debug)]
pub(crate) struct RightsOracle {
    /// The entries of the meta group's log that began them, and when these were first applied.
    versions: Vec<(u64, u64, RightsVersion)>,
    /// The last processed entry.
    defined: u64,
    /// For each host, the minimum number of versions that its node must know, with times.
    applied_on: BTreeMap<String, Vec<(u64, usize)>>,
    /// The same, for what it has applied since its last start.
    applied: BTreeMap<String, Vec<(u64, usize)>>,
    /// When each machine's node was last started.
    starts: BTreeMap<u32, u64>,
    /// Maximum error of the nodes' wall clocks, in milliseconds.
    clocks_off_ms: u64,
}

/// The decision about a call, by one version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verdict {
    /// The right is granted, or the catalogue has no principals that restrict anything yet.
    Granted,
    /// The caller presented no credentials.
    Nobody,
    /// The caller's credentials are not those of any principal.
    Stranger,
    /// The caller is a principal, but has this right on nothing.
    Nowhere,
    /// The caller has this right, but not on this target.
    NotThere,
}

/// The credentials that a caller presents, if any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// The principal's name, and the hash of the secret.
    pub(crate) token: Option<(String, [u8; 32])>,
}

impl RightsVersion {
    fn of(state: &MetaState) -> Self {
        let known = |principal: &umbel_engine::meta::Principal| KnownPrincipal {
            digest: match principal.proof {
                Proof::Token { digest } => Some(digest),
                Proof::Certificate => None,
            },
            grants: principal
                .rights
                .grants
                .iter()
                .map(|grant| (grant.pattern.clone(), grant.verbs.clone()))
                .collect(),
            cluster: principal.rights.cluster.clone(),
            expires_ms: principal.expires_ms,
        };
        Self {
            is_formed: state.is_formed(),
            principals: state
                .principals()
                .map(|(name, principal)| (name.as_str().to_owned(), known(principal)))
                .collect(),
            removed: state
                .nodes()
                .filter(|(_, record)| matches!(record, NodeRecord::Removed))
                .map(|(node, _)| node)
                .collect(),
        }
    }

    /// The decision about the call, by this version and at this time.
    pub(crate) fn verdict(&self, shown: &Shown, ask: AccessCall, now_ms: u64) -> Verdict {
        if self.principals.is_empty() {
            return Verdict::Granted;
        }
        let Some((name, digest)) = &shown.token else { return Verdict::Nobody };
        let Some(known) = self.principals.get(name).filter(|known| {
            known.digest == Some(*digest) && known.expires_ms.is_none_or(|at_ms| now_ms < at_ms)
        }) else {
            return Verdict::Stranger;
        };
        let named = |verb: FilterVerb, filter: u32| {
            let name = access_filter(filter);
            let holders = known.grants.iter().filter(|(_, verbs)| verbs.contains(&verb));
            let patterns: Vec<&str> = holders.map(|(pattern, _)| pattern.as_str()).collect();
            if patterns.iter().any(|pattern| covers(pattern, &name)) {
                Verdict::Granted
            } else if patterns.is_empty() {
                Verdict::Nowhere
            } else {
                Verdict::NotThere
            }
        };
        let cluster =
            |verb| if known.cluster.contains(&verb) { Verdict::Granted } else { Verdict::Nowhere };
        match ask {
            AccessCall::Contains { filter, .. } | AccessCall::Info { filter } => {
                named(FilterVerb::Read, filter)
            }
            AccessCall::Insert { filter, .. } | AccessCall::Flush { filter } => {
                named(FilterVerb::Insert, filter)
            }
            AccessCall::Remove { filter, .. } => named(FilterVerb::Remove, filter),
            AccessCall::Create { filter }
            | AccessCall::Clear { filter }
            | AccessCall::Drop { filter } => named(FilterVerb::Manage, filter),
            AccessCall::Merge { filter, source } => match named(FilterVerb::Insert, filter) {
                Verdict::Granted => match named(FilterVerb::Export, source) {
                    // The gate checks only the verb on the target.
                    Verdict::Granted => Verdict::Granted,
                    _ => Verdict::NotThere,
                },
                refused => refused,
            },
            AccessCall::List => Verdict::Granted,
            AccessCall::Status => cluster(ClusterVerb::Metrics),
            AccessCall::Jobs => cluster(ClusterVerb::Jobs),
            AccessCall::Principals | AccessCall::Escalate => cluster(ClusterVerb::Admin),
            // This call is about the session, and its users always have the right.
            AccessCall::Steal { .. } => Verdict::Granted,
        }
    }

    /// Whether a filter's name may be shown to a caller.
    fn may_see(&self, shown: &Shown, filter: &str) -> bool {
        let known = || self.principals.get(&shown.token.as_ref()?.0);
        self.principals.is_empty()
            || known().is_some_and(|known| known.grants.iter().any(|(p, _)| covers(p, filter)))
    }
}

/// Literal comparison, with a star at the end that matches any suffix.
fn covers(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars().peekable(), name.chars());
    loop {
        match (pattern.next(), name.next()) {
            (Some('*'), _) if pattern.peek().is_none() => return true,
            (None, None) => return true,
            (one, other) if one == other => {}
            _ => return false,
        }
    }
}

impl RightsOracle {
    /// The nodes' wall clocks are off by at most `ms` milliseconds.
    pub(crate) fn expect_clocks_off(&mut self, ms: u64) {
        self.clocks_off_ms = ms;
    }

    /// The range that the nodes' wall clocks may show between two true times.
    pub(crate) const fn shown_ms(&self, (from_ms, to_ms): (u64, u64)) -> (u64, u64) {
        (from_ms - self.clocks_off_ms, to_ms + self.clocks_off_ms)
    }

    /// A host's node starts.
    pub(crate) fn started(&mut self, at_us: u64, machine: u32) {
        self.starts.insert(machine, at_us);
        let host = &host_name(machine);
        let is_old =
            |&(_, from_us, _): &(u64, u64, RightsVersion)| from_us + CLOCKS_APART_US < at_us;
        let count = self.versions.partition_point(is_old);
        self.must_go_by(at_us, host, count);
        self.applied.entry(host.to_owned()).or_default().push((at_us, 0));
    }

    /// A host's node has a catalogue up to this entry; `newest` is the state that the log has produced
    /// so far.
    pub(crate) fn applied_on(&mut self, at_us: u64, host: &str, index: u64, newest: &MetaState) {
        if index > self.defined {
            self.defined = index;
            let version = RightsVersion::of(newest);
            if self.versions.last().is_none_or(|(_, _, last)| *last != version) {
                self.versions.push((index, at_us, version));
            }
        }
        let count = self.versions.partition_point(|(from, _, _)| *from <= index);
        self.must_go_by(at_us, host, count);
        let applied = self.applied.entry(host.to_owned()).or_default();
        if applied.last().is_none_or(|&(_, before)| before < count) {
            applied.push((at_us, count));
        }
    }

    fn must_go_by(&mut self, at_us: u64, host: &str, count: usize) {
        let applied_on = self.applied_on.entry(host.to_owned()).or_default();
        if applied_on.last().is_none_or(|&(_, before)| before < count) {
            applied_on.push((at_us, count));
        }
    }

    /// The versions that a machine's node may have used in a call between two times, oldest first.
    /// `None` if it may have used none at all.
    pub(crate) fn possible(
        &self,
        machine: u32,
        from_us: u64,
        to_us: u64,
    ) -> Option<&[(u64, u64, RightsVersion)]> {
        let applied_on = self.applied_on.get(&host_name(machine))?;
        let sure = applied_on.partition_point(|&(at_us, _)| at_us + CLOCKS_APART_US < from_us);
        let (_, least) = *applied_on[..sure].last()?;
        let by_us = to_us + CLOCKS_APART_US;
        let most = self.versions.partition_point(|&(_, at_us, _)| at_us <= by_us);
        (least > 0).then(|| &self.versions[least - 1..most.max(least)])
    }

    /// Whether a machine's node had certainly applied, since its start and before the first time, that
    /// another node was removed; and was not restarted until the second time.
    pub(crate) fn knows_removed(&self, machine: u32, node: NodeId, us: (u64, u64)) -> bool {
        let applied = self.applied.get(&host_name(machine)).map_or(&[][..], Vec::as_slice);
        let sure = applied.partition_point(|&(at_us, _)| at_us + CLOCKS_APART_US < us.0);
        let is_restarted = |&(at_us, count): &(u64, usize)| count == 0 && at_us <= us.1;
        let count = applied[..sure].last().map_or(0, |&(_, count)| count);
        count > 0
            && !applied[sure..].iter().any(is_restarted)
            && self.versions[count - 1].2.removed.contains(&node)
    }

    /// Machines whose nodes were started after a time.
    pub(crate) fn started_after(&self, us: u64) -> Vec<u32> {
        let is_later = |start: &(&u32, &u64)| *start.1 > us;
        self.starts.iter().filter(is_later).map(|(machine, _)| *machine).collect()
    }

    /// Nodes that were removed for good.
    pub(crate) fn removed(&self) -> Vec<NodeId> {
        let last = self.versions.last();
        last.map(|(_, _, version)| version.removed.iter().copied().collect()).unwrap_or_default()
    }
}

/// All possible decisions.
pub(crate) fn verdicts(
    versions: &[(u64, u64, RightsVersion)],
    shown: &Shown,
    ask: AccessCall,
    (from_ms, to_ms): (u64, u64),
) -> BTreeSet<Verdict> {
    let of = |(_, _, version): &(u64, u64, RightsVersion)| {
        [version.verdict(shown, ask, from_ms), version.verdict(shown, ask, to_ms)]
    };
    versions.iter().flat_map(of).collect()
}

/// Whether a list may contain a name.
pub(crate) fn may_list(
    versions: &[(u64, u64, RightsVersion)],
    shown: &Shown,
    filter: &str,
) -> bool {
    versions.iter().any(|(_, _, version)| version.may_see(shown, filter))
}

#[cfg(test)]
#[path = "rights_test.rs"]
mod rights_test;
