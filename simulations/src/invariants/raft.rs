//! The guarantees of Raft and of the log's storage, checked on the events that nodes report and on the
//! reports of their groups.
//!
//! All of them are checked for each group separately. Nodes are hosts here; a host's node id is
//! reported when a group's log is opened.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::meta::{MetaCommand, MetaReply};
use umbel_engine::shard::ShardReply;
use umbel_engine::{GroupId, NodeId};
use umbel_node::ports::observer::{Event, GroupReport, Payload};

use crate::violation::Violation;

mod committed_is_immutable;
mod committed_on_quorum;
mod election_safety;
mod facts;
mod leader_completeness;
mod log_view;
mod membership;
mod monotone;
mod one_log_id_one_payload;
mod order;
mod recovered_prefix;
#[cfg(test)]
mod start_test;
mod state_machine_safety;
#[cfg(test)]
mod story;
#[cfg(test)]
mod story_test;

use facts::GroupFacts;

/// A check of an event, before the facts are updated with it.
type Check = fn(&GroupFacts, NodeId, &Event<'_>) -> Option<String>;

/// All checks of events.
const CHECKS: [(&str, Check); 10] = [
    (one_log_id_one_payload::NAME, one_log_id_one_payload::check),
    (state_machine_safety::NAME, state_machine_safety::check),
    (leader_completeness::NAME, leader_completeness::check),
    (election_safety::NAME, election_safety::check),
    (committed_on_quorum::NAME, committed_on_quorum::check),
    (committed_is_immutable::NAME, committed_is_immutable::check),
    (recovered_prefix::NAME, recovered_prefix::check),
    (order::NAME, order::check),
    (monotone::NAME, monotone::check),
    (membership::NAME, membership::check),
];

/// A host during one incarnation.
#[derive(Default)]
struct HostLife {
    incarnation: u32,
    /// Its node id, since its first group was opened.
    node: Option<NodeId>,
    /// Groups whose log was opened in this incarnation.
    open: BTreeSet<GroupId>,
    /// Groups that were forgotten in this incarnation: calls that were on their way may still end.
    forgotten: BTreeSet<GroupId>,
}

/// All events so far, and the checks on them.
#[derive(Default)]
pub(crate) struct RaftInvariants {
    hosts: BTreeMap<String, HostLife>,
    groups: BTreeMap<GroupId, GroupFacts>,
    /// Groups that others have absorbed: nodes forget them at different times, whatever the others have.
    ended: BTreeSet<GroupId>,
    checked: u64,
}

impl RaftInvariants {
    /// No event yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// How many events and reports were checked.
    pub(crate) fn checked_count(&self) -> u64 {
        self.checked
    }

    /// Checks an event of a host at a simulated time in microseconds; `incarnation` rises with each
    /// start of the host.
    pub(crate) fn observe(
        &mut self,
        at_us: u64,
        node: &str,
        incarnation: u32,
        event: &Event<'_>,
    ) -> Vec<Violation> {
        // A copy of a replicated filter has a log, but no votes.
        let group = group_of(event).filter(|group| group.copy().is_none());
        let Some(group) = group else { return Vec::new() };
        self.take_merge(event);
        let host = self.hosts.entry(node.to_owned()).or_default();
        if incarnation != host.incarnation {
            host.incarnation = incarnation;
            host.open.clear();
            host.forgotten.clear();
        }
        if let Event::LogOpened { node: number, .. } = *event {
            if let Some(before) = host.node.replace(number).filter(|&before| before != number) {
                self.groups.values_mut().for_each(|facts| facts.lose(before));
            }
            host.open.insert(group);
            host.forgotten.remove(&group);
        }
        let violation = |(invariant, what): (&'static str, String)| {
            let what = format!("{group:#} on {node}: {what}");
            Violation { invariant, at_us, what }
        };
        let is_forgetting = matches!(event, Event::Forgotten { .. });
        let is_over = host.forgotten.contains(&group) || self.ended.contains(&group);
        if !is_forgetting && is_over {
            return Vec::new();
        }
        let is_open = host.open.contains(&group);
        let Some(number) = host.node.filter(|_| is_open || is_forgetting) else {
            let what = "something happened before the log was opened".to_owned();
            return vec![violation((order::NAME, what))];
        };
        if is_forgetting {
            host.open.remove(&group);
            host.forgotten.insert(group);
        }
        let facts = self.groups.entry(group).or_default();
        let wrong = CHECKS
            .iter()
            .filter_map(|(name, check)| Some((*name, check(facts, number, event)?)))
            .map(violation)
            .collect();
        facts.take(number, event);
        self.take_split(number, group, event);
        self.checked += 1;
        wrong
    }

    /// The catalogue removes a group that was absorbed.
    fn take_merge(&mut self, event: &Event<'_>) {
        if let Event::Applied { payload: Payload::Meta(command, MetaReply::Done), .. } = *event
            && let MetaCommand::ShardMerged { shard, era } = *command
        {
            self.ended.insert(GroupId::of_shard_in(shard, era));
        }
    }

    /// A shard that is split off begins with the members of the split shard, as if they had formed it
    /// and applied its first entry.
    fn take_split(&mut self, node: NodeId, group: GroupId, event: &Event<'_>) {
        let Event::Applied { entry, ref payload, .. } = *event else { return };
        let Payload::Shard(command, ShardReply::Done(Ok(()))) = payload else { return };
        let Some((into, _)) = command.splits_off() else { return };
        let members =
            self.groups.get(&group).and_then(|facts| facts.voters_before(node, entry.index));
        let members = members.cloned();
        self.groups.entry(into).or_default().begin(members);
    }

    /// Takes what a host's groups report at so many simulated microseconds.
    pub(crate) fn look(
        &mut self,
        at_us: u64,
        node: &str,
        reports: &[GroupReport],
    ) -> Vec<Violation> {
        let Some(host) = self.hosts.get(node) else { return Vec::new() };
        let Some(number) = host.node else { return Vec::new() };
        let mut wrong = Vec::new();
        let is_running =
            |group: GroupId| host.open.contains(&group) && !self.ended.contains(&group);
        for report in reports.iter().filter(|report| is_running(report.group)) {
            let group = report.group;
            let facts = self.groups.entry(group).or_default();
            let found = [
                (
                    leader_completeness::NAME,
                    leader_completeness::check_report(facts, number, report),
                ),
                (order::NAME, order::check_report(number, report)),
                (monotone::NAME, monotone::check_report(facts, number, report)),
            ];
            wrong.extend(found.into_iter().filter_map(|(invariant, what)| {
                let what = format!("{group:#} on {node}: {}", what?);
                Some(Violation { invariant, at_us, what })
            }));
            facts.take_report(number, report);
            self.checked += 1;
        }
        wrong
    }

    /// A host's disk lost some durable data, or everything since some time. The other nodes know what
    /// it confirmed, and it must adopt what they know.
    pub(crate) fn damaged_disk(&mut self, node: &str) {
        if let Some(number) = self.hosts.get(node).and_then(|host| host.node) {
            self.groups.values_mut().for_each(|facts| facts.damage(number));
        }
    }

    /// A host's disk was wiped: its promises end. If it comes back, it must have another node id.
    pub(crate) fn lost_disk(&mut self, node: &str) {
        if let Some(number) = self.hosts.get(node).and_then(|host| host.node) {
            self.groups.values_mut().for_each(|facts| facts.lose(number));
        }
    }
}

fn group_of(event: &Event<'_>) -> Option<GroupId> {
    match *event {
        Event::LogOpened { group, .. }
        | Event::Appended { group, .. }
        | Event::Durable { group, .. }
        | Event::Truncated { group, .. }
        | Event::Purged { group, .. }
        | Event::VoteSaved { group, .. }
        | Event::Applied { group, .. }
        | Event::SnapshotBuilt { group, .. }
        | Event::SnapshotLoaded { group, .. }
        | Event::Forgotten { group } => Some(group),
        Event::DamageFound { .. } | Event::EntryUnknown { .. } => None,
    }
}
