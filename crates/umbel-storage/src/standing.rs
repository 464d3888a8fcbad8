//! What this node's disk tells of another node's replica of a group, whose own disk may have lost data.

use umbel_engine::{GroupId, NodeId};

use crate::Storage;
use crate::types::{LogId, Vote};
use crate::wal::Voters;

impl Storage {
    /// The vote of the replica on this node, which is `own`, and the last entry that the replica on `node` must
    /// have as far as this one knows: the last committed one, or the last one that `node` proposed as leader. It
    /// counted itself, so an entry that it proposed is committed where others vote and have it, too.
    ///
    /// If this replica is a learner, what `node` proposed says nothing: its copy counts for no majority, and a
    /// leader sends entries that it has not synced itself. The only voter of a group would wait for such an entry
    /// for ever, because nobody else can lead.
    pub async fn standing_of(
        &self,
        group: GroupId,
        own: NodeId,
        node: NodeId,
    ) -> (Option<Vote>, Option<LogId>) {
        let committed = self.wal.committed(group);
        let proposed = self.wal.last_proposed_by(group, node).filter(|&id| committed < Some(id));
        let is_told = proposed.is_some() && !self.is_learner(group, own, committed).await;
        (self.wal.vote(group), if is_told { proposed } else { committed })
    }

    /// Whether the replica on `own` has no vote by the newest members that it knows of, nor, unless these are
    /// committed, by those before: until then it may have to lead the group itself. False if it knows of none.
    async fn is_learner(&self, group: GroupId, own: NodeId, committed: Option<LogId>) -> bool {
        // In this order: what the log drops meanwhile is in the snapshot.
        let named = self.wal.member_entries(group);
        // A damaged snapshot is reported when the group starts.
        let snapshot = self.snapshots(group).latest().await.ok().flatten();
        let covered = snapshot.map(|snapshot| snapshot.meta().last_membership.clone());
        let through = covered.as_ref().and_then(|members| *members.log_id());
        let later = named.into_iter().filter(|(id, _)| through < Some(*id));
        let covered = covered.map(|members| members.membership().get_joint_config().clone());
        let mut known: Vec<(Option<LogId>, Voters)> =
            covered.into_iter().map(|voters| (through, voters)).collect();
        known.extend(later.map(|(id, voters)| (Some(id), voters)));
        let is_committed = known.last().is_some_and(|(id, _)| *id <= committed);
        let in_force = known.iter().rev().take(if is_committed { 1 } else { 2 });
        let mut sets = in_force.flat_map(|(_, voters)| voters).peekable();
        sets.peek().is_some() && sets.all(|voters| !voters.contains(&own))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openraft::storage::{IOFlushed, RaftLogStorage};
    use openraft::type_config::TypeConfigExt;
    use openraft::{EntryPayload, Membership};
    use umbel_engine::ShardId;

    use super::*;
    use crate::crash_test::{open, options};
    use crate::testing::{FaultDisk, Faults, entry, id};
    use crate::types::{LogEntry, NodeAddress, SnapshotMeta, StoredMembership, Types};
    use crate::wrapping_test::wrapping;

    const SHARD: GroupId = GroupId::of_shard(ShardId(3));

    /// The node that proposed all entries of the tests' logs, and the one that is asked about it.
    const LEADER: NodeId = NodeId(1);
    const ASKED: NodeId = NodeId(2);

    /// The indexes of entries that name members, and the voters among nodes 1 to 4 that they name.
    type Named<'a> = &'a [(u64, &'a [&'a [u64]])];

    fn members(voters: &[&[u64]]) -> Membership<NodeId, NodeAddress> {
        let sets = voters.iter().map(|set| set.iter().copied().map(NodeId).collect()).collect();
        Membership::new_with_defaults(sets, (1..=4).map(NodeId))
    }

    fn entries(indexes: std::ops::Range<u64>, named: Named<'_>) -> Vec<LogEntry> {
        let entry_at = |index| match named.iter().find(|(at, _)| *at == index) {
            Some((_, voters)) => {
                let payload = EntryPayload::Membership(members(voters));
                LogEntry { log_id: id(1, index), payload }
            }
            None => entry(1, index),
        };
        indexes.map(entry_at).collect()
    }

    type Answer = tokio::sync::oneshot::Receiver<std::io::Result<()>>;

    async fn append(storage: &Storage, group: GroupId, entries: Vec<LogEntry>) -> Answer {
        let (sender, receiver) = <Types as TypeConfigExt>::oneshot();
        storage.log(group).append(entries, IOFlushed::signal(sender)).await.unwrap();
        receiver
    }

    async fn durable(storage: &Storage, group: GroupId, entries: Vec<LogEntry>) {
        append(storage, group, entries).await.await.unwrap().unwrap();
    }

    /// The only voter sends an entry to a learner, and stops before its own disk has it.
    #[tokio::test(start_paused = true)]
    async fn an_only_voter_may_lead_without_an_entry_that_only_a_learner_has() {
        let disks = [FaultDisk::new(), FaultDisk::new()];
        let [voter, learner] = [open(&disks[0]).await, open(&disks[1]).await];
        let named: Named<'_> = &[(0, &[&[1]])];
        for storage in [&voter, &learner] {
            storage.log(SHARD).save_committed(Some(id(1, 3))).await.unwrap();
            durable(storage, SHARD, entries(0..5, named)).await;
        }
        disks[0].set(Faults { full: true, ..Faults::default() });
        let mut unsynced = append(&voter, SHARD, entries(5..6, named)).await;
        durable(&learner, SHARD, entries(5..6, named)).await;
        assert!(unsynced.try_recv().is_err());

        let voter = open(&disks[0].crash(|_| 0)).await;
        let log = voter.log(SHARD);
        let (vote, had) = learner.standing_of(SHARD, ASKED, LEADER).await;
        log.recall(vote, had).await.unwrap();
        assert_eq!((log.last_id(), log.floor()), (Some(id(1, 4)), None));
    }

    /// Index of the last entry that node 1 must have, of five, according to node 2, which knows those up to 3 to be
    /// committed.
    async fn told(named: Named<'_>) -> Option<u64> {
        let mut told = Vec::new();
        for (group, key) in [(SHARD, None), (GroupId::META, wrapping(1))] {
            let disk = FaultDisk::new();
            let opened = async |disk: &FaultDisk| {
                let disk = Arc::new(disk.clone());
                Storage::open_wrapped(disk, options(), key.clone()).await.unwrap().0
            };
            let storage = opened(&disk).await;
            storage.log(group).save_committed(Some(id(1, 3))).await.unwrap();
            durable(&storage, group, entries(0..6, named)).await;
            told.push(storage.standing_of(group, ASKED, LEADER).await.1);
            // Once more by what is on the disk.
            let storage = opened(&disk.crash(|_| 0)).await;
            told.push(storage.standing_of(group, ASKED, LEADER).await.1);
        }
        assert!(told.iter().all(|id| *id == told[0]), "{told:?}");
        told[0].map(|id| id.index)
    }

    #[tokio::test(start_paused = true)]
    async fn who_votes_tells_what_was_proposed_and_a_learner_what_is_committed() {
        assert_eq!(told(&[(0, &[&[1, 2]])]).await, Some(5));
        assert_eq!(told(&[(0, &[&[1]])]).await, Some(3));
        assert_eq!(told(&[(0, &[&[1, 3, 4]])]).await, Some(3));
        // A learner that becomes a voter, and may have been counted as one since.
        assert_eq!(told(&[(0, &[&[1]]), (4, &[&[1], &[1, 2]])]).await, Some(5));
        // A voter that becomes a learner: it may have to lead until it knows that to be committed.
        assert_eq!(told(&[(0, &[&[1, 2], &[1]]), (4, &[&[1]])]).await, Some(5));
        assert_eq!(told(&[(0, &[&[1, 2], &[1]]), (2, &[&[1]])]).await, Some(3));
        assert_eq!(told(&[(0, &[&[1, 2]]), (2, &[&[1, 2], &[1]]), (3, &[&[1]])]).await, Some(3));
        // Without members nobody knows.
        assert_eq!(told(&[]).await, Some(5));
    }

    /// The same where a snapshot covers the first three entries, and the log is purged up to there.
    async fn told_of_purged(covered: &[&[u64]], later: Named<'_>) -> Option<u64> {
        let disk = FaultDisk::new();
        let storage = open(&disk).await;
        storage.log(SHARD).save_committed(Some(id(1, 3))).await.unwrap();
        durable(&storage, SHARD, entries(0..6, later)).await;
        let last_membership = StoredMembership::new(Some(id(1, 1)), members(covered));
        let meta = SnapshotMeta { last_log_id: Some(id(1, 3)), last_membership };
        storage.snapshots(SHARD).writer(meta).await.unwrap().finish().await.unwrap();
        storage.log(SHARD).purge(id(1, 3)).await.unwrap();
        let told = storage.standing_of(SHARD, ASKED, LEADER).await.1;
        let storage = open(&disk.crash(|_| 0)).await;
        assert_eq!(storage.standing_of(SHARD, ASKED, LEADER).await.1, told);
        told.map(|id| id.index)
    }

    #[tokio::test(start_paused = true)]
    async fn members_are_known_by_the_snapshot_where_the_log_is_purged() {
        assert_eq!(told_of_purged(&[&[1, 2]], &[]).await, Some(5));
        assert_eq!(told_of_purged(&[&[1]], &[]).await, Some(3));
        assert_eq!(told_of_purged(&[&[1]], &[(4, &[&[1], &[1, 2]])]).await, Some(5));
        assert_eq!(told_of_purged(&[&[1, 2]], &[(4, &[&[1]])]).await, Some(5));
    }

    /// What another leader replaced names nobody.
    #[tokio::test(start_paused = true)]
    async fn members_of_entries_that_are_gone_do_not_count() {
        let storage = open(&FaultDisk::new()).await;
        let voters: Named<'_> = &[(0, &[&[1]]), (2, &[&[1], &[1, 2]])];
        durable(&storage, SHARD, entries(0..4, voters)).await;
        assert_eq!(storage.standing_of(SHARD, ASKED, LEADER).await.1, Some(id(1, 3)));
        storage.log(SHARD).truncate_after(Some(id(1, 1))).await.unwrap();
        assert_eq!(storage.standing_of(SHARD, ASKED, LEADER).await.1, None);
        durable(&storage, SHARD, vec![entry(2, 2)]).await;
        assert_eq!(storage.standing_of(SHARD, ASKED, LEADER).await.1, None);
    }
}
