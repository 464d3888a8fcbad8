//! A cluster modelled by a few maps: whatever users do, and whatever messages are lost, the
//! controller's tasks lead to what the state prescribes.

use proptest::prelude::*;

use super::*;
use crate::meta::testing;
use crate::meta::{ClusterVersion, FilterName, MergeStep, MetaReply, NodeRecord};
use crate::placement::ShardRecord;

/// Splits stop at this number, so that runs stay short.
const SHARDS_MAX: u32 = 10;

/// A Raft group as seen from outside.
#[derive(Clone, Debug, Default)]
struct Group {
    voters: Vec<NodeId>,
    learners: Vec<NodeId>,
}

#[derive(Clone, Debug)]
struct World {
    state: MetaState,
    log_index: u64,
    shards: Vec<Group>,
    meta: Group,
    /// Nodes that are unreachable now; removed nodes always are.
    down: BTreeSet<NodeId>,
    slices: BTreeMap<(FilterId, ShardId), Generation>,
    /// The group that has ended because it is being merged, with its slices at that moment.
    ended: Option<(GroupId, BTreeMap<FilterId, Generation>)>,
    progress: SliceProgress,
    filters: Vec<FilterId>,
}

fn pick<T: Copy>(from: &[T], dice: u64) -> Option<T> {
    (!from.is_empty()).then(|| from[dice as usize % from.len()])
}

impl World {
    fn new(nodes: u64, shard_count: u32, replica_count: u32) -> Self {
        let mut state = MetaState::new().at_version(ClusterVersion(3));
        let form = testing::form(nodes, shard_count, replica_count);
        assert_eq!(state.apply(3, &form), MetaReply::Done);
        let of_founders = |r: &ShardRecord| Group { voters: r.founders.clone(), learners: vec![] };
        let shards = state.shard_map().shards.iter().map(of_founders).collect();
        Self {
            state,
            log_index: 3,
            shards,
            meta: Group { voters: vec![NodeId(1)], learners: vec![] },
            down: BTreeSet::new(),
            slices: BTreeMap::new(),
            ended: None,
            progress: BTreeMap::new(),
            filters: vec![],
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.state.is_live(node) && !self.down.contains(&node)
    }

    fn has_majority(&self, voters: &[NodeId]) -> bool {
        voters.iter().filter(|&&voter| self.is_up(voter)).count() > voters.len() / 2
    }

    fn leader(&self, group: &Group) -> Option<NodeId> {
        let up = || group.voters.iter().copied().find(|&voter| self.is_up(voter));
        self.has_majority(&group.voters).then(up).flatten()
    }

    fn view(&self, group: &Group) -> GroupView {
        let (voters, learners) = (group.voters.clone(), group.learners.clone());
        GroupView { leader: self.leader(group), voters, learners, is_joint: false }
    }

    fn tasks(&self) -> Vec<Task> {
        let shards = self.state.shard_map().shards.iter().zip(&self.shards);
        let views = shards.map(|(record, group)| (record.group(), self.view(group))).collect();
        let alive = self.state.live_nodes().difference(&self.down).copied().collect();
        let tasks = next_tasks(&self.state, &views, &self.view(&self.meta), &alive, &self.progress);
        self.check_tasks(&tasks);
        tasks
    }

    /// At most one task per group changes members, few shards are moved at once, and none to a node that
    /// is down. No such node begins to vote in the meta group.
    fn check_tasks(&self, tasks: &[Task]) {
        let (mut groups, mut changes) = (BTreeSet::new(), 0);
        let records = self.state.shard_map().shards.iter();
        let moving = records.filter(|record| record.target.is_some());
        let group_of = |shard: ShardId| self.state.shard(shard).unwrap().group();
        let mut planned: BTreeSet<_> = moving.map(|record| record.shard).collect();
        let before = planned.len();
        for task in tasks {
            let group = match task {
                Task::ChangeMembers { group, voters, .. } => {
                    let is_meta = *group == GroupId::META;
                    changes += usize::from(!is_meta);
                    let may_vote =
                        |node: &NodeId| self.meta.voters.contains(node) || self.is_up(*node);
                    assert!(!is_meta || voters.iter().all(may_vote), "{tasks:?}");
                    *group
                }
                Task::Propose(MetaCommand::PlanReplicas { shard, target }) => {
                    let had = &self.state.shard(*shard).unwrap().replicas;
                    assert!(target.iter().all(|node| had.contains(node) || self.is_up(*node)));
                    planned.insert(*shard);
                    group_of(*shard)
                }
                Task::Propose(MetaCommand::ReplicasChanged { shard, .. }) => group_of(*shard),
                _ => continue,
            };
            assert!(groups.insert(group), "{tasks:?}");
        }
        assert!(changes <= SHARD_MOVES_MAX);
        assert!(planned.len() <= before + SHARD_MOVES_MAX);
    }

    fn apply(&mut self, command: &MetaCommand) -> Option<MetaReply> {
        self.leader(&self.meta)?;
        self.log_index += 1;
        let reply = self.state.apply(self.log_index, command);
        // No node has a replica of a shard that has not been split off yet, and nodes forget a shard that
        // is gone.
        let count = self.state.shard_count();
        self.shards.resize(count as usize, Group::default());
        self.slices.retain(|(_, shard), _| shard.0 < count);
        Some(reply)
    }

    /// A user's command, valid or not.
    fn command(&mut self, kind: u8, dice: u64) {
        let nodes: Vec<_> = self.state.nodes().map(|(node, _)| node).collect();
        let node = pick(&nodes, dice).unwrap();
        let shard = ShardId((dice >> 8) as u32 % self.state.shard_count());
        let filter = pick(&self.filters, dice).unwrap_or(FilterId(1));
        let command = match kind {
            0 => MetaCommand::AddNode { address: format!("new{dice}:1"), nonce: dice },
            1 => MetaCommand::Drain { node, drain: dice & 0x1000 != 0 },
            2 => {
                // The meta group's leader ensures the meta group's own majority.
                let lives = |voter: &&NodeId| **voter != node && self.state.is_live(**voter);
                if self.meta.voters.iter().filter(lives).count() <= self.meta.voters.len() / 2 {
                    return;
                }
                MetaCommand::RemoveNode { node }
            }
            3 => {
                let replicas = &self.state.shard(shard).unwrap().replicas;
                let from = pick(replicas, dice >> 16).unwrap();
                MetaCommand::MoveReplica { shard, from, to: node }
            }
            4 => testing::create(&format!("filter {}", dice % 4), dice % 3, dice & 8 != 0),
            5 => MetaCommand::ActivateImport { filter },
            6 => {
                let generation = self.state.filter(filter).map_or(Generation(1), |f| f.generation);
                let name = FilterName::new(format!("filter {}", dice >> 20 & 3)).unwrap();
                match dice & 0x10 {
                    0 => MetaCommand::ClearFilter { filter, generation },
                    _ => MetaCommand::RenameFilter { filter, generation, name, replaced: None },
                }
            }
            7 => MetaCommand::DropFilter { filter },
            _ if dice & 1 == 0 && self.state.shard_count() < SHARDS_MAX => {
                MetaCommand::SplitShard { shard_count: self.state.shard_count() + 1 }
            }
            _ => match self.state.merge_step(self.state.shard_count() - 1) {
                Ok(MergeStep::Propose(command)) => command,
                _ => return,
            },
        };
        if let Some(MetaReply::Filter(filter)) = self.apply(&command) {
            self.filters.push(filter);
        }
    }

    fn execute(&mut self, task: &Task, completely: bool) {
        match task {
            Task::Propose(command) => {
                let reply = self.apply(command);
                let is_refused = matches!(reply, Some(MetaReply::Refused(_)));
                assert!(!(completely && is_refused), "{command:?}: {reply:?}");
            }
            Task::ChangeMembers { group, leader, voters, learners } => {
                self.change_members(*group, *leader, voters, learners, completely);
            }
            Task::SplitShard { shard, into, era, at } => self.split(*shard, (*into, *era), *at),
            Task::MergeShard { shard, from, era, since } => {
                self.merge(*shard, (*from, *era), *since);
            }
            Task::EnsureSlice { shard, filter } => {
                let Some(record) = self.state.filter(*filter) else { return };
                if matches!(record.state, FilterState::Creating { .. }) {
                    let generation = record.generation;
                    self.slice(*shard, *filter, Some(generation), SliceDone::Created);
                }
            }
            Task::DropSlice { shard, filter } => {
                self.slice(*shard, *filter, None, SliceDone::Dropped);
            }
            Task::ClearSlice { shard, filter, generation }
            | Task::RenewSlice { shard, filter, generation }
            | Task::RotateSlice { shard, filter, generation } => {
                // A slice's generation only rises.
                if let Some(&old) = self.slices.get(&(*filter, *shard)) {
                    let done = SliceDone::Begun(*generation);
                    self.slice(*shard, *filter, Some(old.max(*generation)), done);
                }
            }
        }
    }

    /// Splits once: the new shard gets the members and slices that the other one has at that
    /// moment.
    fn split(&mut self, shard: ShardId, (into, era): (ShardId, u32), at: u64) {
        // A shard refuses a split into a group that was merged into it.
        if self.state.shard(into).is_none_or(|record| record.era != era) {
            return;
        }
        let range = |shard| self.state.shard_map().range(shard).unwrap();
        let parent = self.shards[shard.0 as usize].clone();
        if self.leader(&parent).is_none() || !self.shards[into.0 as usize].voters.is_empty() {
            return;
        }
        assert_eq!((range(shard).end(), range(into).start()), (u128::from(at), at));
        self.shards[into.0 as usize] = parent;
        let theirs: Vec<_> = self
            .slices
            .iter()
            .filter(|((_, of), _)| *of == shard)
            .map(|(&(id, _), &g)| (id, g))
            .collect();
        self.slices.extend(theirs.into_iter().map(|(id, generation)| ((id, into), generation)));
    }

    /// Ends one group and has the other take over its slices, as far as they have leaders.
    fn merge(&mut self, shard: ShardId, (from, era): (ShardId, u32), since: Epoch) {
        let group = GroupId::of_shard_in(from, era);
        let map = self.state.shard_map();
        if map.merging() != Some(from) || map.get(from).is_none_or(|held| held.group() != group) {
            return;
        }
        assert_eq!((map.merging_since, map.absorbing()), (Some(since), Some(shard)));
        let slices_of = |of: ShardId| -> BTreeMap<FilterId, Generation> {
            let slices = self.slices.iter().filter(|((_, shard), _)| *shard == of);
            slices.map(|(&(id, _), &generation)| (id, generation)).collect()
        };
        let (theirs, ours) = (slices_of(from), slices_of(shard));
        let is_led = |of: ShardId| self.leader(&self.shards[of.0 as usize]).is_some();
        let (has_ended, can_take) = (is_led(from), is_led(shard));
        if self.ended.as_ref().is_none_or(|(ended, _)| *ended != group) {
            if !has_ended {
                return;
            }
            self.ended = Some((group, theirs));
        }
        if !can_take {
            return;
        }
        // No slice has changed since: every filter is the same in both.
        assert_eq!(self.ended.as_ref().map(|(_, slices)| slices), Some(&ours), "{self:?}");
        self.apply(&MetaCommand::ShardMerged { shard: from, era });
    }

    fn slice(&mut self, shard: ShardId, id: FilterId, to: Option<Generation>, done: SliceDone) {
        let Some(group) = self.state.shard(shard).map(ShardRecord::group) else { return };
        if self.ended.as_ref().is_some_and(|(ended, _)| *ended == group) {
            return;
        }
        if self.leader(&self.shards[shard.0 as usize]).is_some() {
            match to {
                Some(generation) => self.slices.insert((id, shard), generation),
                None => self.slices.remove(&(id, shard)),
            };
            self.progress.insert((id, shard), done);
        }
    }

    fn change_members(
        &mut self,
        group_id: GroupId,
        leader: NodeId,
        voters: &[NodeId],
        learners: &[NodeId],
        completely: bool,
    ) {
        let mut group = match group_id.shard() {
            None => self.meta.clone(),
            Some(shard) => {
                // The group is gone, or the shard map wants others.
                let record = self.state.shard(shard).filter(|record| record.group() == group_id);
                if record.is_none_or(|record| record.wanted() != voters) {
                    return;
                }
                self.shards[shard.0 as usize].clone()
            }
        };
        if self.leader(&group) != Some(leader) {
            return;
        }
        for node in voters.iter().chain(learners) {
            if !group.voters.contains(node) && !group.learners.contains(node) {
                group.learners.push(*node);
            }
        }
        if completely && voters.iter().all(|&voter| self.is_up(voter)) {
            group = Group { voters: voters.to_vec(), learners: learners.to_vec() };
        }
        match group_id.shard() {
            None => self.meta = group,
            Some(shard) => self.shards[shard.0 as usize] = group,
        }
    }

    /// No group has voters on a node that does not run it.
    fn check_members(&self) {
        for (record, group) in self.state.shard_map().shards.iter().zip(&self.shards) {
            let members = record.members();
            assert!(group.voters.iter().all(|voter| members.contains(voter)), "{self:?}");
        }
    }

    fn shuffled_tasks(&self, dice: u64) -> Vec<Task> {
        let mut tasks: Vec<_> = (0_u64..).zip(self.tasks()).collect();
        let key = |i: u64| (i + 1).wrapping_mul(dice | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        tasks.sort_by_key(|(i, _)| key(*i));
        tasks.into_iter().map(|(_, task)| task).collect()
    }

    fn step(&mut self, kind: u8, dice: u64, delayed: &mut Vec<Task>) {
        match kind {
            0..8 | 20.. => self.command(kind, dice),
            8 => {
                let nodes: Vec<_> = self.state.live_nodes().into_iter().collect();
                let node = pick(&nodes, dice).unwrap();
                if !self.down.remove(&node) {
                    self.down.insert(node);
                }
            }
            9 => self.progress.clear(),
            10 => forget_finished(&mut self.progress, &self.state),
            // Orders to other nodes may arrive late; proposals are made where they are decided.
            11 => {
                for task in delayed.drain(..) {
                    self.execute(&task, dice & 1 == 0);
                    self.check_members();
                }
            }
            _ => {
                for (i, task) in self.shuffled_tasks(dice).iter().enumerate() {
                    let fate = dice.rotate_left(i as u32 * 7) % 4;
                    match task {
                        Task::Propose(_) if fate == 0 => {}
                        Task::Propose(command) => {
                            self.apply(command);
                        }
                        _ if fate == 0 => delayed.push(task.clone()),
                        _ => self.execute(task, fate > 1),
                    }
                    self.check_members();
                }
            }
        }
        self.check_members();
    }

    /// Every node is up and does its tasks.
    fn run_until_stable(&mut self, dice: u64) {
        self.down.clear();
        for _ in 0..1000 {
            let tasks = self.shuffled_tasks(dice);
            if tasks.is_empty() {
                return;
            }
            for task in tasks {
                self.execute(&task, true);
                self.check_members();
            }
        }
        panic!("still to do: {:?}\n{self:?}", self.tasks());
    }

    fn check_stable(&self) {
        let state = &self.state;
        assert_eq!((state.shard_map().merging(), state.shard_map().splitting()), (None, None));
        for (record, group) in state.shard_map().shards.iter().zip(&self.shards) {
            assert_eq!((&record.replicas, &record.target), (&group.voters, &None));
            assert_eq!((record.replicas.len(), record.is_formed), (state.replicas_wanted(), true));
            let may_have = |node: &NodeId| state.node(*node).is_some_and(NodeRecord::is_available);
            assert!(record.replicas.iter().all(may_have));
            assert!(record.abandoned.is_empty() && group.learners.is_empty());
        }
        let mut slices = BTreeMap::new();
        for (filter, record) in state.filters() {
            assert!(matches!(record.state, FilterState::Live | FilterState::Importing));
            let shards = &state.shard_map().shards;
            slices.extend(shards.iter().map(|s| ((filter, s.shard), record.generation)));
        }
        assert_eq!(self.slices, slices);
        let mut members = [&self.meta.voters[..], &self.meta.learners].concat();
        members.sort_unstable();
        assert_eq!(members, state.live_nodes().into_iter().collect::<Vec<_>>());
        let wanted = state.meta_voters_wanted(&self.meta.voters, &state.live_nodes());
        assert_eq!(self.meta.voters, wanted);
        assert_eq!(self.meta.voters.len() % 2, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tasks_lead_to_where_the_state_says(
        nodes in 1_u64..8,
        shard_count in 1_u32..6,
        replica_count in 1_u32..=4,
        steps in prop::collection::vec((0_u8..23, any::<u64>()), 0..120),
        dice: u64,
    ) {
        let (mut world, mut delayed) = (World::new(nodes, shard_count, replica_count), vec![]);
        for (kind, dice) in steps {
            world.step(kind, dice, &mut delayed);
        }
        world.run_until_stable(dice);
        world.check_stable();
        // Orders that arrive after everything is done change nothing, or are corrected.
        for task in delayed {
            world.execute(&task, true);
            world.check_members();
        }
        world.run_until_stable(dice);
        world.check_stable();
    }
}
