//! Serves other nodes: coordinators' requests, the controller's requests, and Raft's calls by its groups.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use umbel_engine::meta::{MetaCommand, MetaReply, MetaState};
use umbel_engine::shard::Bitmap;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};
use umbel_raft::ProposeError;
use umbel_raft::peer::{CallKind, CallRefusal};
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{CommandReply, LogCommand, NodeAddress};

use super::Local;
use crate::calls::{GroupAnswer, GroupRequest, MetaAnswer, MetaRequest, ShardAnswer, ShardRequest};

impl Local {
    /// Responds as the meta group's leader, if this node leads it. Also returns the index that a reader
    /// of its own replica must wait for.
    pub async fn serve_meta(&self, request: MetaRequest) -> (MetaAnswer, u64) {
        let outcome = match request {
            MetaRequest::Propose(command) => {
                // Until a removal is applied, a check of the next one would not count it.
                let _removing = match command {
                    MetaCommand::RemoveNode { .. } => Some(self.removal.lock().await),
                    _ => None,
                };
                if let Some(refused) = self.refuse(&command).await {
                    return (refused, self.meta.applied_index());
                }
                self.meta.propose(LogCommand::Meta(command)).await.map(|reply| match reply {
                    CommandReply::Meta(reply) => MetaAnswer::Reply(reply),
                    CommandReply::None | CommandReply::Shard(_) => MetaAnswer::Unknown,
                })
            }
            MetaRequest::Confirm => self.confirm_meta().await.map(|()| MetaAnswer::Confirmed),
        };
        let answer = outcome.unwrap_or_else(|error| self.unproposed(&error));
        // The entries applied here by now include the command, or all that the question was about.
        (answer, self.meta.applied_index())
    }

    /// The refusal of a command that must not be written to the log.
    async fn refuse(&self, command: &MetaCommand) -> Option<MetaAnswer> {
        match *command {
            // All versions have it.
            MetaCommand::RemoveNode { node } => self.refuse_removal(node).await,
            _ => self.refuse_unwritable(command).await,
        }
    }

    /// The refusal of a command that came with a later version than the cluster's. This node may know
    /// an older version than the leader does, or lead without having applied all entries; so it
    /// confirms its state before it refuses.
    async fn refuse_unwritable(&self, command: &MetaCommand) -> Option<MetaAnswer> {
        if planted::on(Planted::WrittenEarly) {
            return None;
        }
        let check = || self.read_meta(|state| state.check_writable(command));
        check().err()?;
        if let Err(error) = self.meta.confirm().await {
            return Some(self.unproposed(&error));
        }
        check().err().map(|error| MetaAnswer::Reply(MetaReply::Refused(error)))
    }

    /// The refusal of a removal after which the meta group might have no majority.
    async fn refuse_removal(&self, node: NodeId) -> Option<MetaAnswer> {
        // Removals that another leader proposed may be applied here only now.
        if let Err(error) = self.meta.confirm().await {
            return Some(self.unproposed(&error));
        }
        let view = self.meta.view();
        let check = |state: &MetaState| state.check_removal(node, &view);
        let error = self.read_meta(check).err()?;
        Some(MetaAnswer::Reply(MetaReply::Refused(error)))
    }

    fn unproposed(&self, error: &ProposeError) -> MetaAnswer {
        match error {
            ProposeError::NotLeader(leader) => {
                MetaAnswer::NotLeader(leader.filter(|&leader| leader != self.node))
            }
            ProposeError::Unknown(_) | ProposeError::Stopped(_) => MetaAnswer::Unknown,
        }
    }

    /// Sends a command to the meta group's leader, which is another node; whether it succeeded shows in
    /// this node's replica.
    pub(crate) async fn propose_elsewhere(&self, command: &MetaCommand) {
        let Some(leader) = self.meta.leader().filter(|&leader| leader != self.node) else { return };
        let body = encode(&MetaRequest::Propose(command.clone()));
        let timeout = self.host.beats().election();
        let view = self.meta.address_of(leader);
        let Some(address) = view else { return };
        let called =
            self.host.links().call(leader, &address, CallKind::Meta, GroupId::META, body, timeout);
        if let Err(error) = called.await {
            tracing::debug!(%error, "a proposal did not arrive");
        }
    }

    /// Carries out a call of another node.
    pub(crate) async fn serve(
        self: Arc<Self>,
        from: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
    ) -> Result<Bytes, CallRefusal> {
        match kind {
            CallKind::Shard => {
                let request: ShardRequest = argument(&body)?;
                let shard = self.leader_of(group);
                if planted::on(Planted::ForeignShardAbsent)
                    && shard.is_none()
                    && let ShardRequest::Contains { hashes, .. } = &request
                {
                    let count = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
                    return Ok(encode(&ShardAnswer::Bits(Bitmap::zeros(count))));
                }
                let shard = shard.ok_or_else(|| CallRefusal::unknown_group(group))?;
                Ok(encode(&shard.serve(request).await))
            }
            CallKind::Meta => Ok(encode(&self.serve_meta(argument(&body)?).await)),
            CallKind::Group => Ok(encode(&self.serve_group(group, argument(&body)?).await?)),
            CallKind::Copy => Ok(encode(&self.copies.serve(group, argument(&body)?).await)),
            CallKind::Job => Ok(encode(&self.jobs().standing(argument(&body)?))),
            CallKind::Report => Ok(encode(&self.report(argument(&body)?).await)),
            _ => self.host.serve(&*self, from, kind, group, body).await,
        }
    }

    /// Responds to the controller.
    pub(crate) async fn serve_group(
        &self,
        group_id: GroupId,
        request: GroupRequest,
    ) -> Result<GroupAnswer, CallRefusal> {
        let group = self.group(group_id).ok_or_else(|| CallRefusal::unknown_group(group_id))?;
        Ok(match request {
            GroupRequest::View => GroupAnswer::View(group.view()),
            GroupRequest::ChangeMembers { voters, learners } => {
                let nodes = |list: Vec<(NodeId, String)>| {
                    list.into_iter().map(|(node, address)| (node, NodeAddress(address))).collect()
                };
                if !self.wants_voters(group_id, &voters) {
                    let why = "the shard map that this node knows wants other voters";
                    return Ok(GroupAnswer::Failed(why.to_owned()));
                }
                match group.change_members(nodes(voters), nodes(learners)).await {
                    Ok(()) => GroupAnswer::Changed,
                    Err(why) => GroupAnswer::Failed(why),
                }
            }
        })
    }

    /// Whether these are the members that a shard should have, as far as this node knows.
    fn wants_voters(&self, group: GroupId, voters: &[(NodeId, String)]) -> bool {
        let Some(shard) = group.shard() else { return true };
        let voters: Vec<NodeId> = voters.iter().map(|&(node, _)| node).collect();
        self.read_meta(|state| state.shard(shard).is_some_and(|record| record.wanted() == voters))
    }
}

fn argument<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallRefusal> {
    decode(body).map_err(CallRefusal::bad_body)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tempfile::TempDir;
    use umbel_ports::RealSeed;
    use umbel_raft::Group;

    use super::*;
    use crate::shard_leader::ShardLeader;
    use crate::testing::{config, deadline, free_addresses, start, start_alone};
    use crate::{Config, Node};

    /// So many nodes with one shard.
    async fn start_with_a_shard<const N: usize>(
        replicas: u32,
    ) -> ([TempDir; N], Vec<String>, Vec<Node>) {
        let folders = [(); N].map(|()| tempfile::tempdir().unwrap());
        let addresses = free_addresses(N);
        let starts = folders.iter().zip(&addresses).map(|(folder, address)| {
            let (listen, initial_cluster) = (address.clone(), addresses.clone());
            start(Config { listen, initial_cluster, shards: 1, replicas, ..config(folder.path()) })
        });
        let nodes = join_all(starts).await;
        (folders, addresses, nodes)
    }

    /// The shard on the node that leads it, once one does.
    async fn led_shard(nodes: &[Node]) -> Arc<ShardLeader> {
        loop {
            let led = |node: &Node| {
                let mut shards = node.local().shards().into_iter();
                let is_ready = |group: &Group| group.is_leader() && !group.view().voters.is_empty();
                shards.find(|shard| is_ready(shard.group()))
            };
            if let Some(shard) = nodes.iter().find_map(led) {
                return shard;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the leader of the shard has handed leadership over and another node leads, and stops the nodes.
    async fn another_leads(nodes: Vec<Node>, shard: Arc<ShardLeader>) {
        while shard.group().is_leader() {
            tokio::task::yield_now().await;
        }
        drop((led_shard(&nodes).await, shard));
        join_all(nodes.into_iter().map(Node::shutdown)).await;
    }

    /// A leader that removed itself would leave the group without one until the others had noticed.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_that_is_to_leave_hands_leadership_over_and_changes_nothing() {
        let (_folders, addresses, nodes) = start_with_a_shard::<3>(3).await;
        let members: Vec<NodeId> = nodes.iter().map(|node| node.local().node()).collect();
        let voters = members.into_iter().zip(addresses.into_iter().map(NodeAddress));
        let voters: BTreeMap<_, _> = voters.collect();
        let shard = loop {
            let shard = led_shard(&nodes).await;
            let mut stay = voters.clone();
            stay.remove(&shard.group().leader().unwrap_or_default());
            match shard.group().change_members(stay, BTreeMap::new()).await {
                Err(why) if why == "this node leads the group no more" => break shard,
                // The first members are being recorded, or a busy machine has elected another leader.
                Err(_) => tokio::task::yield_now().await,
                Ok(()) => panic!("the leader has removed itself"),
            }
        };
        assert!(shard.group().view().voters.iter().eq(voters.keys()));
        another_leads(nodes, shard).await;
    }

    /// Callers wait so for a leader, whichever node has it.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_next_leader_is_learned_of_by_all_replicas() {
        let (_folders, _, nodes) = start_with_a_shard::<3>(3).await;
        let (shard, leader, term) = loop {
            let shard = led_shard(&nodes).await;
            let (leader, term) = (shard.group().leader(), shard.group().term());
            let knows = |group: &Arc<Group>| group.term() == term && group.leader() == leader;
            let of = |node: &Node| node.local().group(shard.group().id());
            if nodes.iter().all(|node| of(node).as_ref().is_some_and(knows)) {
                break (shard, leader.unwrap(), term);
            }
            tokio::task::yield_now().await;
        };
        let group = shard.group().id();
        let learned = join_all(nodes.iter().map(|node| node.local().leader_learned(group, leader)));
        let (_, ()) = tokio::join!(learned, shard.group().hand_over());
        for node in &nodes {
            assert!(node.local().group(group).unwrap().term() > term);
        }
        drop(shard);
        join_all(nodes.into_iter().map(Node::shutdown)).await;
    }

    /// With the only voter gone, the new one would have to notice that before it stood for election.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_only_voter_that_is_to_leave_hands_over_to_the_one_that_comes() {
        let (_folders, addresses, nodes) = start_with_a_shard::<2>(2).await;
        let members: Vec<NodeId> = nodes.iter().map(|node| node.local().node()).collect();
        let voters = members.into_iter().zip(addresses.into_iter().map(NodeAddress));
        let voters: BTreeMap<_, _> = voters.collect();
        let shard = loop {
            let shard = led_shard(&nodes).await;
            let own = shard.group().leader().unwrap_or_default();
            let (only, other): (BTreeMap<_, _>, BTreeMap<_, _>) =
                voters.clone().into_iter().partition(|(node, _)| *node == own);
            tokio::task::yield_now().await;
            // The other replica is the learner that a new one is at first.
            let is_alone = shard.group().change_members(only, other.clone()).await.is_ok();
            if !is_alone || shard.group().view().voters != [own] {
                continue;
            }
            match shard.group().change_members(other, BTreeMap::new()).await {
                Err(why) if why == "this node leads the group no more" => break shard,
                // The first members are being recorded, or the controller restores those of the shard map.
                Err(_) => {}
                Ok(()) => panic!("the leader has removed itself"),
            }
        };
        assert!(shard.group().view().voters.iter().eq(voters.keys()));
        another_leads(nodes, shard).await;
    }

    /// The other voter calls so seldom that nothing tells whether it can. If leadership were given to a voter that cannot,
    /// which gets no votes, the group would take no entries meanwhile.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_that_is_to_leave_gives_leadership_to_none_that_may_be_unable_to_call() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let addresses = free_addresses(2);
        // Each of the nodes is at home in one of the shards.
        let timings = [(50, 800), (60_000, 180_000)];
        let starts =
            folders.iter().zip(&addresses).zip(timings).map(|((folder, address), timing)| {
                let (listen, initial_cluster) = (address.clone(), addresses.clone());
                let (shards, (heartbeat_ms, suspect_ms)) = (2, timing);
                let config = config(folder.path());
                start(Config {
                    listen,
                    initial_cluster,
                    shards,
                    replicas: 2,
                    heartbeat_ms,
                    suspect_ms,
                    ..config
                })
            });
        let nodes = join_all(starts).await;
        let shard = led_shard(&nodes[..1]).await;
        let group = shard.group();
        // The slow node sent a beat when it started. The next one comes in a minute.
        tokio::time::sleep(Duration::from_millis(3 * timings[0].1)).await;
        let (term, other) = (group.term(), nodes[1].id());
        let stays = BTreeMap::from([(other, NodeAddress(addresses[1].clone()))]);
        while group.view().voters != [other] {
            // The first members may be being recorded.
            let changed = group.change_members(stays.clone(), BTreeMap::new()).await;
            assert_eq!(group.term(), term, "leadership was handed over: {changed:?}");
            tokio::task::yield_now().await;
        }
        drop(shard);
        // What the slow node leads is handed over to one that runs.
        for node in nodes.into_iter().rev() {
            node.shutdown().await;
        }
    }

    /// A shard of one replica, and a live node that gets nothing of it: no map tells it to run the group.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_live_node_that_lacks_entries_does_not_become_a_voter() {
        let (_folders, addresses, nodes) = start_with_a_shard::<2>(1).await;
        // Nodes start their replicas when they learn of the shard map.
        let shard = led_shard(&nodes).await;
        let members: Vec<NodeId> = nodes.iter().map(|node| node.local().node()).collect();
        let voters: BTreeMap<_, _> =
            members.iter().copied().zip(addresses.into_iter().map(NodeAddress)).collect();
        let before = shard.group().view().voters;
        assert_eq!(before.len(), 1);
        let change = async || {
            let voters: BTreeMap<_, _> = BTreeMap::clone(&voters);
            shard.group().change_members(voters, BTreeMap::new()).await.unwrap_err()
        };
        let mut why = change().await;
        // The first members are recorded by an entry of the log, too, which may be on its way.
        while why.contains("already undergoing a configuration change") {
            tokio::task::yield_now().await;
            why = change().await;
        }
        assert!(why.contains("has nothing of entries up to"), "{why}");
        assert_eq!(shard.group().view().voters, before);
        drop(shard);
        join_all(nodes.into_iter().map(Node::shutdown)).await;
    }

    /// There are two nodes, of which one votes. The entry itself could be committed; nothing after it.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_only_voter_of_the_meta_group_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let calls = node.leader_calls(Arc::new(RealSeed));
        let add = MetaCommand::AddNode { address: "127.0.0.1:1".to_owned(), nonce: 7 };
        calls.meta_propose(add, deadline()).await.unwrap();
        let remove = MetaCommand::RemoveNode { node: node.id() };
        let refused = calls.meta_propose(remove, deadline()).await.unwrap_err().to_string();
        assert!(refused.contains("the meta group would have 0 of 1 voters"), "{refused}");
        node.shutdown().await;
    }
}
