//! Quota checks: whether there is room for another filter, or for growth.
//!
//! *Memory.* A filter counts with the bytes that it is planned to take on all nodes together: the bytes
//! of one replica times the number of replicas, or, if replicated, the bytes of a copy times the number
//! of nodes. A growing filter also counts with the bytes that its slices may take beyond the plan, which
//! each slice requests before it grows. It counts from the entry that creates it until the entry that
//! reports all slices gone. Room is checked when the creating entry is applied, so that concurrent
//! creates cannot exceed a quota together.
//!
//! *The cluster's own quota* of memory is by default four fifths of the smallest memory limit of a node,
//! times the number of nodes: replicas are spread evenly, so what fits in the quota fits on each node.

use std::collections::BTreeMap;
use std::fmt;

use super::filter_record::FilterRecord;
use super::principal::PrincipalName;
use super::quota::{Quota, Rates, Usage};
use super::reply::{MetaError, MetaReply};
use super::settings::{Distribution, FilterSettings};
use super::state::MetaState;
use crate::ids::NodeId;
use crate::meta::Result;

/// Share of the smallest node's memory limit that filters get in a cluster without a memory quota. The
/// rest is for logs, requests, snapshots and growth beyond plans.
const DEFAULT_MEMORY_SHARE: (u64, u64) = (4, 5);

/// Refuses a change of a quota that is not meaningful.
fn check_change(change: &Quota, of: Option<&PrincipalName>) -> Result<()> {
    let bad = |what: &str| Err(MetaError::BadSettings { what: what.to_owned() });
    if of.is_none() && change.rates != Rates::default() {
        return bad("rates are those of a principal, not of the cluster: name one");
    }
    if change.rates.limits().contains(&Some(0)) {
        return bad("a rate is at least 1 a second: revoke a principal that may ask nothing");
    }
    Ok(())
}

/// How many nodes hold a filter: `replicas` if partitioned, `nodes` if replicated.
#[derive(Clone, Copy)]
struct Holders {
    replicas: u64,
    nodes: u64,
}

impl Holders {
    /// Bytes that a filter is planned to take on all nodes together.
    const fn bytes(self, settings: &FilterSettings) -> u64 {
        let count = match settings.distribution {
            Distribution::Partitioned => self.replicas,
            Distribution::Replicated => self.nodes,
        };
        settings.memory_bytes.saturating_mul(count)
    }

    /// Bytes that a filter may take on all nodes together, including its allowed growth.
    fn bytes_of(self, record: &FilterRecord) -> u64 {
        let growth = record.growth_bytes_of_all().saturating_mul(self.replicas);
        self.bytes(&record.settings).saturating_add(growth)
    }
}

/// The used share of a limit. 0 without a limit; for a limit of 0, it is 0 if nothing is used, else 1.
fn share(used: u64, most: Option<u64>) -> f64 {
    match most {
        None => 0.0,
        Some(0) => f64::from(u8::from(used > 0)),
        Some(most) => used as f64 / most as f64,
    }
}

/// The owner of a quota, for messages; None is the cluster.
#[derive(Clone, Copy)]
struct Holder<'a>(Option<&'a PrincipalName>);

impl Holder<'_> {
    /// Refuses a filter for which the quota has no room.
    fn check(self, quota: Quota, used: Usage, need_bytes: u64) -> Result<()> {
        let after = used.and(need_bytes);
        if let Some(most) = quota.filter_count.filter(|&most| after.filter_count > most) {
            let have = used.filter_count;
            return self
                .refuse("--filters", &format!("{most} filters, has {have} and needs 1 more"));
        }
        self.check_memory(quota, used, need_bytes)
    }

    /// Refuses `need_bytes` more if the quota has no room for them.
    fn check_memory(self, quota: Quota, used: Usage, need_bytes: u64) -> Result<()> {
        let after_bytes = used.memory_bytes.saturating_add(need_bytes);
        let Some(most) = quota.memory_bytes.filter(|&most| after_bytes > most) else {
            return Ok(());
        };
        let have = used.memory_bytes;
        let text = format!(
            "{most} bytes of memory for filters on all nodes, uses {have} and needs {need_bytes} more"
        );
        self.refuse("--memory", &text)
    }

    fn refuse(self, option: &str, text: &str) -> Result<()> {
        let target = self.0.map_or("--all", PrincipalName::as_str);
        let what = format!(
            "{self} has a quota of {text}: drop filters or plan smaller ones, or have an administrator \
             raise it (umbel access quota {target} {option} N)"
        );
        Err(MetaError::Quota { what })
    }
}

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "principal {name}"),
            None => f.write_str("the cluster"),
        }
    }
}

impl MetaState {
    /// A principal's quota; without limits if none was set.
    #[must_use]
    pub fn quota(&self, principal: &str) -> Quota {
        self.quotas.get(principal).copied().unwrap_or_default()
    }

    /// The cluster's quota. Its memory limit has a default if none was set.
    #[must_use]
    pub fn cluster_quota(&self) -> Quota {
        let memory_bytes = self.cluster_quota.memory_bytes.or_else(|| self.default_memory_bytes());
        Quota { memory_bytes, ..self.cluster_quota }
    }

    /// The default memory limit; None until a node has reported its limit.
    fn default_memory_bytes(&self) -> Option<u64> {
        let nodes = self.available_nodes();
        let limits = nodes.iter().filter_map(|node| self.memory_limits.get(node).copied());
        let (numerator, denominator) = DEFAULT_MEMORY_SHARE;
        let of_a_node = limits.min()? / denominator * numerator;
        Some(of_a_node.saturating_mul(nodes.len() as u64))
    }

    /// The memory limit that a node last reported.
    #[must_use]
    pub fn memory_limit(&self, node: NodeId) -> Option<u64> {
        self.memory_limits.get(&node).copied()
    }

    /// How many nodes hold a filter now.
    fn holders(&self) -> Holders {
        let (replicas, nodes) = (self.replicas_wanted() as u64, self.live_nodes().len() as u64);
        Holders { replicas, nodes }
    }

    /// What a principal uses; for None, what all filters use together, including those without an owner.
    #[must_use]
    pub fn usage(&self, principal: Option<&str>) -> Usage {
        let is_owned = |owner: Option<&PrincipalName>| {
            principal.is_none_or(|name| owner.is_some_and(|owner| owner.as_str() == name))
        };
        let holders = self.holders();
        let owned = self.filters.values().filter(|record| is_owned(record.owner.as_ref()));
        owned.fold(Usage::default(), |usage, record| usage.and(holders.bytes_of(record)))
    }

    /// The largest used share of any quota, for filter counts and for memory, over the cluster and all
    /// principals. 0 if there is no quota; above 1 if a quota was lowered below its usage.
    #[must_use]
    pub fn quota_shares(&self) -> (f64, f64) {
        let holders = self.holders();
        let mut used_by = BTreeMap::<&str, Usage>::new();
        let mut used_by_all = Usage::default();
        for record in self.filters.values() {
            let memory_bytes = holders.bytes_of(record);
            used_by_all = used_by_all.and(memory_bytes);
            if let Some(owner) = &record.owner {
                let used = used_by.entry(owner.as_str()).or_default();
                *used = used.and(memory_bytes);
            }
        }
        let of_principals = self
            .quotas
            .iter()
            .map(|(name, quota)| (*quota, used_by.get(name.as_str()).copied().unwrap_or_default()));
        let all = of_principals.chain([(self.cluster_quota(), used_by_all)]);
        all.fold((0.0, 0.0), |(filters, memory), (quota, used)| {
            let of_filters = share(used.filter_count, quota.filter_count);
            let of_memory = share(used.memory_bytes, quota.memory_bytes);
            (of_filters.max(filters), of_memory.max(memory))
        })
    }

    /// Refuses a filter for which the quota of its owner or of the cluster has no room. Checked again
    /// when the creating entry is applied.
    ///
    /// # Errors
    /// [`MetaError::Quota`], with the quota, the usage and the need.
    pub fn check_quota(
        &self,
        owner: Option<&PrincipalName>,
        settings: &FilterSettings,
    ) -> Result<()> {
        let need_bytes = self.holders().bytes(settings);
        let check = |holder: Option<&PrincipalName>, quota: Quota| {
            if (quota.filter_count, quota.memory_bytes) == (None, None) {
                return Ok(());
            }
            let used = self.usage(holder.map(PrincipalName::as_str));
            Holder(holder).check(quota, used, need_bytes)
        };
        if let Some(name) = owner {
            check(owner, self.quota(name.as_str()))?;
        }
        check(None, self.cluster_quota())
    }

    /// Refuses growth of a slice, counted in each of its replicas, for which a quota has no room.
    pub(super) fn check_growth_quota(
        &self,
        owner: Option<&PrincipalName>,
        slice_bytes: u64,
    ) -> Result<()> {
        let need_bytes = self.holders().replicas.saturating_mul(slice_bytes);
        let check = |holder: Option<&PrincipalName>, quota: Quota| {
            let used = self.usage(holder.map(PrincipalName::as_str));
            Holder(holder).check_memory(quota, used, need_bytes)
        };
        if let Some(name) = owner {
            check(owner, self.quota(name.as_str()))?;
        }
        check(None, self.cluster_quota())
    }

    pub(super) fn set_quota(
        &mut self,
        of: Option<&PrincipalName>,
        change: Quota,
        from_none: bool,
    ) -> Result<MetaReply> {
        check_change(&change, of)?;
        let over = |old: Quota| if from_none { change } else { change.or(old) };
        match of {
            None => self.cluster_quota = over(self.cluster_quota),
            Some(name) if !self.principals.contains_key(name) => {
                let what = format!("there is no principal named {name}");
                return Err(MetaError::BadPrincipal { what });
            }
            Some(name) => {
                let quota = over(self.quota(name.as_str()));
                if quota == Quota::default() {
                    self.quotas.remove(name);
                } else {
                    self.quotas.insert(name.clone(), quota);
                }
            }
        }
        Ok(MetaReply::Done)
    }

    pub(super) fn note_memory_limit(
        &mut self,
        node: NodeId,
        limit_bytes: u64,
    ) -> Result<MetaReply> {
        if !self.is_live(node) {
            return Err(MetaError::UnknownNode { node });
        }
        self.memory_limits.insert(node, limit_bytes);
        Ok(MetaReply::Done)
    }
}

#[cfg(test)]
mod quota_check_test;
