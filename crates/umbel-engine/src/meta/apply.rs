//! How each entry of the meta group's log is applied.

use std::collections::BTreeSet;

use umbel_step::planted::{self, Planted};

use super::command::MetaCommand;
use super::filter_order::FilterOrder;
use super::node_record::NodeRecord;
use super::nodes::check_address;
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use crate::ids::{NodeId, ShardId};
use crate::limits::{NODE_COUNT_MAX, REPLICA_COUNT_MAX, SHARD_COUNT_MAX};
use crate::meta::Result;
use crate::placement::{ShardMap, ShardRanges, ShardRecord, assign};

#[cfg(test)]
mod apply_test;
#[cfg(test)]
mod given_up_test;
#[cfg(test)]
mod merge_test;
#[cfg(test)]
mod renamed_test;
#[cfg(test)]
mod replicated_test;
#[cfg(test)]
mod rotated_test;
#[cfg(test)]
mod shards_test;
#[cfg(test)]
mod split_test;

impl MetaState {
    /// Applies a log entry, with the same result on every node. Total: any command leads to a reply, and
    /// after [`MetaReply::Refused`] nothing has changed. `log_index` is the entry's index, which rises from
    /// entry to entry and becomes the number of whatever the entry creates.
    ///
    /// ```
    /// use umbel_engine::meta::{MetaCommand, MetaError, MetaReply, MetaState};
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::SessionKey;
    ///
    /// let mut state = MetaState::new();
    /// let open = MetaCommand::OpenSession { key: SessionKey::new([7; 16]), owner: String::new() };
    /// let early = state.apply(1, &open);
    /// assert_eq!(early, MetaReply::Refused(MetaError::NotFormed));
    /// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
    /// let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 3 };
    /// assert_eq!(state.apply(2, &form), MetaReply::Done);
    /// assert!(matches!(state.apply(3, &open), MetaReply::Session(session) if session.0 >> 32 == 3));
    /// assert_eq!(state.shard_map().members(umbel_engine::ShardId(0)), [NodeId(1)]);
    /// ```
    pub fn apply(&mut self, log_index: u64, command: &MetaCommand) -> MetaReply {
        self.try_apply(log_index, command).unwrap_or_else(MetaReply::Refused)
    }

    fn try_apply(&mut self, log_index: u64, command: &MetaCommand) -> Result<MetaReply> {
        match command {
            MetaCommand::Form { cluster, nodes, shard_count, replica_count } => {
                self.form(*cluster, nodes, *shard_count, *replica_count)
            }
            _ if !self.is_formed() => Err(MetaError::NotFormed),
            command => self.apply_formed(log_index, command),
        }
    }

    fn apply_formed(&mut self, log_index: u64, command: &MetaCommand) -> Result<MetaReply> {
        match command {
            // A cluster is formed only once.
            MetaCommand::Form { .. } => Ok(MetaReply::Done),
            MetaCommand::AddNode { address, nonce } => self.add_node(address, *nonce),
            MetaCommand::AdmitNode(applicant) => self.admit_node(applicant),
            MetaCommand::PutJoinToken { digest, expires_ms, now_ms } => {
                self.put_join_token(*digest, *expires_ms, *now_ms)
            }
            MetaCommand::Drain { node, drain } => self.drain(*node, *drain),
            MetaCommand::RemoveNode { node } => self.remove_node(*node),
            MetaCommand::MoveReplica { shard, from, to } => self.move_replica(*shard, *from, *to),
            MetaCommand::PlanReplicas { shard, target } => self.plan_replicas(*shard, target),
            MetaCommand::ReplicasChanged { shard, replicas } => {
                self.replicas_changed(*shard, replicas)
            }
            MetaCommand::ShardFormed { shard } => self.shard_formed(*shard),
            MetaCommand::SplitShard { shard_count } => self.split_shard(*shard_count),
            MetaCommand::CreateFilter { name, settings, importing, owner } => {
                self.create_filter(log_index, name, settings, *importing, owner.as_ref())
            }
            MetaCommand::BeginImport { name, settings, owner, expires_ms: at } => {
                self.begin_import(log_index, name, settings, owner.as_ref(), *at)
            }
            MetaCommand::FilterCreated { filter } => self.filter_created(*filter),
            MetaCommand::ActivateImport { filter } => self.activate_import(*filter),
            MetaCommand::DropFilter { filter } => self.drop_filter(*filter),
            MetaCommand::FilterDropped { filter } => self.filter_dropped(*filter),
            MetaCommand::ClearFilter { filter, generation: g } => self.clear_filter(*filter, *g),
            MetaCommand::RotateFilter { filter, generation: g } => self.rotate_filter(*filter, *g),
            MetaCommand::RenameFilter { filter, generation, name, replaced } => {
                self.rename_filter((*filter, *generation), name, *replaced)
            }
            MetaCommand::FilterCleared { filter, generation } => {
                self.filter_cleared(*filter, *generation)
            }
            MetaCommand::GrowFilter { filter, generation, shard, growth_bytes } => {
                self.grow_filter((*filter, *generation), *shard, *growth_bytes)
            }
            MetaCommand::SetExpiry { filter, expires_ms } => self.set_expiry(*filter, *expires_ms),
            MetaCommand::DropExpired { filter, expires_ms: at } => self.drop_expired(*filter, *at),
            MetaCommand::OpenSession { key, owner } => self.open_session(log_index, *key, owner),
            MetaCommand::SubmitJob(order) => self.submit_job(log_index, order),
            MetaCommand::EndJob { job, run, end } => self.end_job(*job, *run, end),
            MetaCommand::CancelJob { job } => self.cancel_job(*job),
            MetaCommand::ResumeJob { job } => self.resume_job(*job),
            MetaCommand::PutPrincipal { name, principal, replace } => {
                self.put_principal(name, principal, *replace)
            }
            MetaCommand::DropPrincipal { name } => self.drop_principal(name),
            MetaCommand::SetQuota { of, change, from_none } => {
                self.set_quota(of.as_ref(), *change, *from_none)
            }
            MetaCommand::NoteMemoryLimit { node, limit_bytes } => {
                self.note_memory_limit(*node, *limit_bytes)
            }
            MetaCommand::NoteCoreCount { node, core_count } => {
                self.note_core_count(*node, *core_count)
            }
            MetaCommand::SetAutoSplit { is_on } => Ok(self.set_auto_split(*is_on)),
            MetaCommand::NoteZone { node, zone } => self.note_zone(*node, zone.clone()),
            MetaCommand::RaiseVersion { to, asked } => self.raise_version(*to, asked),
            MetaCommand::MergeGivenUp { since, what } => Ok(self.merge_given_up(*since, what)),
            MetaCommand::MergeShard { shard_count } => self.merge_shard(*shard_count),
            MetaCommand::ShardMerged { shard, era } => self.shard_merged(*shard, *era),
            MetaCommand::Order(order) => self.apply_order(log_index, order),
            MetaCommand::RenewImport { filter, expires_ms: at } => self.renew_import(*filter, *at),
            MetaCommand::ReplaceExpiry { filter, seen_ms, expires_ms } => {
                self.replace_expiry(*filter, *seen_ms, *expires_ms)
            }
            MetaCommand::TakeFilter { filter, seen } => self.take_filter(*filter, *seen),
        }
    }

    fn apply_order(&mut self, log_index: u64, order: &FilterOrder) -> Result<MetaReply> {
        self.check_order(order)?;
        self.apply_formed(log_index, &order.command())
    }

    fn form(
        &mut self,
        cluster: u128,
        nodes: &[(NodeId, String)],
        shard_count: u32,
        replica_count: u32,
    ) -> Result<MetaReply> {
        if self.is_formed() {
            return Ok(MetaReply::Done);
        }
        check_count("shards", u64::from(shard_count), u64::from(SHARD_COUNT_MAX))?;
        check_count("replicas of a shard", u64::from(replica_count), u64::from(REPLICA_COUNT_MAX))?;
        check_count("nodes", nodes.len() as u64, NODE_COUNT_MAX as u64)?;
        let mut addresses = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (node, address) in nodes {
            check_address(address)?;
            check_count("as a first node's number", node.0, NODE_COUNT_MAX as u64)?;
            if !ids.insert(*node) || !addresses.insert(address) {
                let what = format!("{node} or its address {address} is named twice");
                return Err(MetaError::BadSettings { what });
            }
        }
        let founders = assign(shard_count, replica_count, &ids);
        self.shard_map = ShardMap::new(founders.into_iter().map(ShardRecord::founded).collect());
        self.nodes = nodes
            .iter()
            .map(|(node, address)| {
                let address = address.clone();
                (*node, NodeRecord::Live { address, nonce: None, is_draining: false })
            })
            .collect();
        self.cluster = Some(cluster);
        self.replica_count = replica_count;
        Ok(MetaReply::Done)
    }

    fn shard_record(&mut self, shard: ShardId) -> Result<&mut ShardRecord> {
        self.shard_map.get_mut(shard).ok_or_else(|| bad_move(format!("there is no {shard}")))
    }

    fn move_replica(&mut self, shard: ShardId, from: NodeId, to: NodeId) -> Result<MetaReply> {
        self.check_whole(shard)?;
        let may_have = self.node(to).is_some_and(NodeRecord::is_available);
        let record = self.shard_record(shard)?;
        if record.replicas.binary_search(&to).is_ok() {
            return Err(bad_move(format!("{shard} has a replica on {to} already")));
        }
        let mut target = record.replicas.clone();
        if let Ok(at) = target.binary_search(&from) {
            target.remove(at);
        } else {
            return Err(bad_move(format!("{shard} has no replica on {from}")));
        }
        target.push(to);
        target.sort_unstable();
        if record.target.as_ref() == Some(&target) {
            return Ok(MetaReply::Done);
        }
        if record.target.is_some() {
            return Err(bad_move(format!("the replicas of {shard} are being changed already")));
        }
        if !may_have {
            return Err(bad_move(format!("{to} is no node that may have replicas")));
        }
        if record.plan(&target) {
            self.shard_map.raise_epoch();
        }
        Ok(MetaReply::Done)
    }

    fn plan_replicas(&mut self, shard: ShardId, target: &[NodeId]) -> Result<MetaReply> {
        let most = REPLICA_COUNT_MAX as usize;
        let is_list = (1..=most).contains(&target.len()) && target.is_sorted_by(|a, b| a < b);
        if !is_list {
            return Err(bad_move(format!("replicas are 1 to {most} different nodes, sorted")));
        }
        if let Some(node) =
            target.iter().find(|&&node| !self.node(node).is_some_and(NodeRecord::is_available))
        {
            return Err(bad_move(format!("{node} is no node that may have replicas")));
        }
        self.check_whole(shard)?;
        if self.shard_record(shard)?.plan(target) {
            self.shard_map.raise_epoch();
        }
        Ok(MetaReply::Done)
    }

    /// Only a change to the target can complete: a report of other voters is outdated.
    fn replicas_changed(&mut self, shard: ShardId, replicas: &[NodeId]) -> Result<MetaReply> {
        let record = self.shard_record(shard)?;
        if record.target.as_deref() == Some(replicas) {
            record.arrive();
            if !planted::on(Planted::EpochStays) {
                self.shard_map.raise_epoch();
            }
            return Ok(MetaReply::Done);
        }
        if record.replicas == replicas {
            return Ok(MetaReply::Done);
        }
        Err(bad_move(format!("{shard} is not being changed to these replicas")))
    }

    /// Splits one shard at a time, and only while its replicas are not being moved: the new shard's
    /// replicas start on the nodes of its parent.
    fn split_shard(&mut self, shard_count: u32) -> Result<MetaReply> {
        // The number of shards is about to fall.
        self.check_no_merge()?;
        let count = self.shard_count();
        if shard_count == count {
            return Ok(MetaReply::Done);
        }
        check_count("shards", u64::from(shard_count), u64::from(SHARD_COUNT_MAX))?;
        if count.checked_add(1) != Some(shard_count) {
            let what =
                format!("{count} shards become {} by the next split, not {shard_count}", count + 1);
            return Err(MetaError::BadSplit { what });
        }
        if let Some(record) = self.shard_map.shards.iter().find(|record| !record.is_formed) {
            return Err(MetaError::ShardBusy { what: format!("{} is being made", record.shard) });
        }
        let after = self.shard_map.ranges().and_then(ShardRanges::split);
        let parent = after.and_then(|after| after.parent(ShardId(count)));
        let Some(parent) = parent.and_then(|parent| self.shard_map.get(parent)) else {
            let what = format!("there can be no shard beside the {count} that there are");
            return Err(MetaError::BadSplit { what });
        };
        let parent_shard = parent.shard;
        if parent.target.is_some() {
            let what =
                format!("the replicas of {parent_shard}, which is the next, are being moved");
            return Err(MetaError::ShardBusy { what });
        }
        if let Some(shard) = self.shard_map.split() {
            // Each half may grow to half of what the whole was allowed.
            self.filters.values_mut().for_each(|record| record.split_growth(parent_shard, shard));
        }
        Ok(MetaReply::Done)
    }

    fn shard_formed(&mut self, shard: ShardId) -> Result<MetaReply> {
        let is_split_off = self.shard_map.splitting() == Some(shard);
        self.shard_record(shard)?.is_formed = true;
        if is_split_off {
            // Nodes that did not split it off themselves may start their replicas now.
            self.shard_map.raise_epoch();
        }
        Ok(MetaReply::Done)
    }

    /// Refuses to move replicas of a shard that is being split or merged, and of the other half: both have
    /// to be on the same nodes.
    fn check_whole(&self, shard: ShardId) -> Result<()> {
        if [self.shard_map.merging(), self.shard_map.absorbing()].contains(&Some(shard)) {
            return self.check_no_merge();
        }
        let Some(into) = self.shard_map.splitting() else { return Ok(()) };
        if shard != into && self.shard_map.halved() != Some(shard) {
            return Ok(());
        }
        Err(MetaError::ShardBusy { what: format!("{into} is being split off another shard") })
    }
}

fn bad_move(what: String) -> MetaError {
    MetaError::BadMove { what }
}

fn check_count(of: &str, count: u64, most: u64) -> Result<()> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(MetaError::Quota { what: format!("{count} {of}, 1 to {most} are allowed") })
}
