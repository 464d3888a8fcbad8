//! Which tasks are returned when.

use super::*;
use crate::meta::testing::{create, form};
use crate::meta::{ClusterVersion, MetaReply};

pub(super) fn nodes(numbers: &[u64]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

/// The first group of a shard.
pub(super) fn of(shard: ShardId) -> GroupId {
    GroupId::of_shard(shard)
}

pub(super) fn view(voters: &[u64], learners: &[u64]) -> GroupView {
    GroupView {
        leader: Some(NodeId(voters[0])),
        voters: nodes(voters),
        learners: nodes(learners),
        is_joint: false,
    }
}

/// A formed cluster whose shards have leaders and the members that the shard map wants.
pub(super) struct Cluster {
    pub(super) state: MetaState,
    log_index: u64,
    pub(super) views: BTreeMap<GroupId, GroupView>,
    pub(super) meta: GroupView,
    /// Members that the leader cannot reach.
    pub(super) down: BTreeSet<NodeId>,
    progress: SliceProgress,
}

impl Cluster {
    pub(super) fn new(node_count: u64, shard_count: u32, replica_count: u32) -> Self {
        let mut state = MetaState::new();
        state.apply(2, &form(node_count, shard_count, replica_count));
        let mut views = BTreeMap::new();
        for shard in (0..shard_count).map(ShardId) {
            state.apply(3, &MetaCommand::ShardFormed { shard });
            let voters = state.shard(shard).unwrap().replicas.clone();
            let leader = Some(voters[0]);
            views.insert(of(shard), GroupView { leader, voters, ..GroupView::default() });
        }
        let meta = view(&[1, 2, 3], &(4..=node_count).collect::<Vec<_>>());
        let (down, progress) = (BTreeSet::new(), BTreeMap::new());
        Self { state, log_index: 9, views, meta, down, progress }
    }

    pub(super) fn apply(&mut self, command: &MetaCommand) -> MetaReply {
        self.log_index += 1;
        self.state.apply(self.log_index, command)
    }

    pub(super) fn tasks(&self) -> Vec<Task> {
        let alive = self.state.live_nodes().difference(&self.down).copied().collect();
        next_tasks(&self.state, &self.views, &self.meta, &alive, &self.progress)
    }

    /// Applies the proposed commands, and returns the other tasks.
    pub(super) fn propose(&mut self) -> Vec<Task> {
        let mut rest = vec![];
        for task in self.tasks() {
            match task {
                Task::Propose(command) => assert_eq!(self.apply(&command), MetaReply::Done),
                other => rest.push(other),
            }
        }
        rest
    }

    pub(super) fn drain(&mut self, node: u64) {
        self.apply(&MetaCommand::Drain { node: NodeId(node), drain: true });
    }
}

pub(super) fn is_plan(task: &Task) -> bool {
    matches!(task, Task::Propose(MetaCommand::PlanReplicas { .. }))
}

#[test]
fn nothing_is_to_be_done_before_there_is_a_cluster() {
    let (state, meta) = (MetaState::new(), view(&[1], &[]));
    let (alive, progress) = (BTreeSet::from([NodeId(1)]), BTreeMap::new());
    let tasks = next_tasks(&state, &BTreeMap::new(), &meta, &alive, &progress);
    assert_eq!(tasks, []);
}

#[test]
fn a_group_is_moved_in_three_steps() {
    let mut cluster = Cluster::new(3, 1, 3);
    assert_eq!(cluster.tasks(), []);
    cluster.apply(&MetaCommand::AddNode { address: "d:1".to_owned(), nonce: 1 });
    let meta = Task::ChangeMembers {
        group: GroupId::META,
        leader: NodeId(1),
        voters: nodes(&[1, 2, 3]),
        learners: nodes(&[4]),
    };
    assert_eq!(cluster.tasks(), [meta]);
    cluster.meta = view(&[1, 2, 3], &[4]);
    assert_eq!(cluster.tasks(), []);

    cluster.apply(&MetaCommand::RemoveNode { node: NodeId(2) });
    cluster.meta = view(&[1, 3, 4], &[]);
    let (shard, target) = (ShardId(0), nodes(&[1, 3, 4]));
    let plan = MetaCommand::PlanReplicas { shard, target: target.clone() };
    assert_eq!(cluster.tasks(), [Task::Propose(plan.clone())]);
    cluster.apply(&plan);
    let change = Task::ChangeMembers {
        group: of(shard),
        leader: NodeId(1),
        voters: target.clone(),
        learners: vec![],
    };
    assert_eq!(cluster.tasks(), std::slice::from_ref(&change));
    // The new member catches up, then votes; a member that is left over has to go.
    cluster.views.insert(of(shard), view(&[1, 2, 3], &[4]));
    assert_eq!(cluster.tasks(), std::slice::from_ref(&change));
    cluster.views.insert(of(shard), view(&[3, 4, 1], &[4]));
    let Task::ChangeMembers { leader: NodeId(3), .. } = &cluster.tasks()[0] else { panic!() };
    cluster.views.insert(of(shard), view(&[3, 4, 1], &[]));
    let changed = MetaCommand::ReplicasChanged { shard, replicas: target };
    assert_eq!(cluster.tasks(), [Task::Propose(changed.clone())]);
    cluster.apply(&changed);
    assert_eq!(cluster.tasks(), []);
}

#[test]
fn a_change_that_was_broken_off_is_ended() {
    let mut cluster = Cluster::new(3, 1, 3);
    let change = |group| Task::ChangeMembers {
        group,
        leader: NodeId(1),
        voters: nodes(&[1, 2, 3]),
        learners: vec![],
    };
    // A change from voter 1 to all three, begun by a leader that is gone: together they are the
    // target.
    cluster.meta.is_joint = true;
    assert_eq!(cluster.tasks(), [change(GroupId::META)]);
    cluster.meta.is_joint = false;
    let (shard, target) = (ShardId(0), nodes(&[1, 2, 3]));
    cluster.views.insert(of(shard), GroupView { is_joint: true, ..view(&[1, 2, 3], &[]) });
    assert_eq!(cluster.tasks(), [change(of(shard))]);
    // A move is not complete before that.
    cluster.apply(&MetaCommand::PlanReplicas { shard, target: target.clone() });
    assert_eq!(cluster.tasks(), [change(of(shard))]);
    cluster.views.insert(of(shard), view(&[1, 2, 3], &[]));
    assert_eq!(cluster.tasks(), []);
}

#[test]
fn a_group_without_a_leader_is_left_alone() {
    let mut cluster = Cluster::new(4, 1, 3);
    let replicas = cluster.state.shard(ShardId(0)).unwrap().replicas.clone();
    let leaderless = GroupView { leader: None, ..cluster.views[&of(ShardId(0))].clone() };
    cluster.meta = GroupView { leader: None, ..view(&[1], &[]) };
    cluster.drain(replicas[0].0);
    cluster.apply(&create("a", 1, false));
    assert!(!cluster.tasks().is_empty());
    cluster.views.insert(of(ShardId(0)), leaderless);
    assert_eq!(cluster.tasks(), []);
    cluster.views.clear();
    assert_eq!(cluster.tasks(), []);
}

#[test]
fn few_shards_move_at_once() {
    let mut cluster = Cluster::new(5, 20, 3);
    cluster.drain(5);
    cluster.meta = view(&[1, 2, 3], &[4, 5]);
    let moves = cluster.state.shard_map().shards_of(NodeId(5)).count();
    assert_eq!(moves, 12);
    for moved in (0..moves).step_by(SHARD_MOVES_MAX) {
        assert_eq!(cluster.tasks().iter().filter(|task| is_plan(task)).count(), SHARD_MOVES_MAX);
        assert_eq!(cluster.propose(), []);
        let changes = cluster.propose();
        assert_eq!(changes.len(), SHARD_MOVES_MAX);
        assert_eq!(cluster.propose(), changes);
        for change in changes {
            let Task::ChangeMembers { group, voters, .. } = change else { panic!("{change:?}") };
            let view = GroupView { leader: Some(voters[0]), voters, ..GroupView::default() };
            cluster.views.insert(group, view);
        }
        // Two moves are confirmed, and only then the next two are planned.
        let changed =
            |task: &Task| matches!(task, Task::Propose(MetaCommand::ReplicasChanged { .. }));
        let confirmed: Vec<_> = cluster.tasks().into_iter().filter(changed).collect();
        assert_eq!(confirmed.len(), SHARD_MOVES_MAX);
        for task in confirmed {
            let Task::Propose(command) = task else { continue };
            cluster.apply(&command);
        }
        let left = cluster.state.shard_map().shards_of(NodeId(5)).count();
        assert_eq!(left, moves - moved - SHARD_MOVES_MAX);
    }
    assert_eq!(cluster.tasks(), []);
    // 20 shards with 3 replicas each are 60 replicas, 15 per node on 4 nodes.
    assert!(cluster.state.shard_map().replica_counts().values().all(|&count| count == 15));
}

#[test]
fn a_shard_that_cannot_move_does_not_hold_up_others() {
    let mut cluster = Cluster::new(5, 20, 3);
    cluster.drain(5);
    cluster.meta = view(&[1, 2, 3], &[4, 5]);
    assert_eq!(cluster.propose(), []);
    let planned: Vec<_> = cluster.state.shards().filter(|(_, r)| r.target.is_some()).collect();
    let planned: Vec<_> = planned.into_iter().map(|(_, record)| record.shard).collect();
    for shard in planned {
        cluster.views.remove(&of(shard));
    }
    assert_eq!(cluster.tasks().iter().filter(|task| is_plan(task)).count(), SHARD_MOVES_MAX);
}

#[test]
fn a_new_target_is_found_when_the_old_one_is_gone() {
    let mut cluster = Cluster::new(3, 1, 3);
    cluster.apply(&MetaCommand::AddNode { address: "d:1".to_owned(), nonce: 1 });
    cluster.meta = view(&[1, 2, 3], &[10]);
    let (shard, to) = (ShardId(0), NodeId(4));
    cluster.apply(&MetaCommand::MoveReplica { shard, from: NodeId(3), to });
    cluster.apply(&MetaCommand::RemoveNode { node: to });
    cluster.meta = view(&[1, 2, 3], &[]);
    let plan = MetaCommand::PlanReplicas { shard, target: nodes(&[1, 2, 3]) };
    assert_eq!(cluster.tasks(), [Task::Propose(plan)]);
    assert_eq!(cluster.propose(), []);
    let changed = MetaCommand::ReplicasChanged { shard, replicas: nodes(&[1, 2, 3]) };
    assert_eq!(cluster.tasks(), [Task::Propose(changed)]);
}

#[test]
fn a_filter_is_done_when_every_shard_is() {
    let mut cluster = Cluster::new(3, 2, 3);
    let filter = FilterId(10);
    cluster.apply(&create("a", 1, false));
    let (s0, s1) = (ShardId(0), ShardId(1));
    let ensure = |shard| Task::EnsureSlice { shard, filter };
    assert_eq!(cluster.tasks(), [ensure(s0), ensure(s1)]);
    cluster.progress.insert((filter, s0), SliceDone::Created);
    assert_eq!(cluster.tasks(), [ensure(s1)]);
    cluster.progress.insert((filter, s1), SliceDone::Created);
    assert_eq!(cluster.tasks(), [Task::Propose(MetaCommand::FilterCreated { filter })]);
    assert_eq!((cluster.propose(), cluster.tasks()), (vec![], vec![]));

    cluster.apply(&MetaCommand::ClearFilter { filter, generation: Generation(1) });
    let generation = Generation(2);
    let clear = |shard| Task::ClearSlice { shard, filter, generation };
    cluster.progress.insert((filter, s0), SliceDone::Begun(Generation(1)));
    assert_eq!(cluster.tasks(), [clear(s0), clear(s1)]);
    for shard in [s0, s1] {
        cluster.progress.insert((filter, shard), SliceDone::Begun(generation));
    }
    let cleared = MetaCommand::FilterCleared { filter, generation };
    assert_eq!(cluster.tasks(), [Task::Propose(cleared)]);

    cluster.apply(&MetaCommand::DropFilter { filter });
    assert_eq!(cluster.tasks(), [s0, s1].map(|shard| Task::DropSlice { shard, filter }));
    for shard in [s0, s1] {
        cluster.progress.insert((filter, shard), SliceDone::Dropped);
    }
    forget_finished(&mut cluster.progress, &cluster.state);
    assert_eq!(cluster.progress.len(), 2);
    assert_eq!(cluster.tasks(), [Task::Propose(MetaCommand::FilterDropped { filter })]);
    assert_eq!((cluster.propose(), cluster.tasks()), (vec![], vec![]));
    forget_finished(&mut cluster.progress, &cluster.state);
    assert!(cluster.progress.is_empty());
}

#[test]
fn a_freed_name_has_its_next_holder_when_no_shard_serves_the_earlier_one() {
    let mut cluster = Cluster::new(3, 1, 3);
    let (shard, generation) = (ShardId(0), Generation(2));
    let name = |name: &str| FilterName::new(name).unwrap();
    let [first, second, third, other] = [10, 13, 17, 18].map(FilterId);
    let created = |filter| Task::Propose(MetaCommand::FilterCreated { filter });
    let ensure = |filter| Task::EnsureSlice { shard, filter };
    cluster.apply(&create("a", 1, false));
    cluster.progress.insert((first, shard), SliceDone::Created);
    assert_eq!(cluster.propose(), []);
    forget_finished(&mut cluster.progress, &cluster.state);
    // The filter is called b, and another one a.
    let rename = MetaCommand::RenameFilter {
        filter: first,
        generation: Generation(1),
        name: name("b"),
        replaced: None,
    };
    assert_eq!(cluster.apply(&rename), MetaReply::Done);
    cluster.apply(&create("a", 1, false));
    let renew = Task::RenewSlice { shard, filter: first, generation };
    assert_eq!(cluster.tasks(), [renew.clone(), ensure(second)]);
    cluster.progress.insert((second, shard), SliceDone::Created);
    assert_eq!(cluster.tasks(), [renew]);
    cluster.progress.insert((first, shard), SliceDone::Begun(generation));
    let cleared = Task::Propose(MetaCommand::FilterCleared { filter: first, generation });
    assert_eq!(cluster.tasks(), [cleared, created(second)]);
    assert_eq!(cluster.propose(), []);
    // The second one is dropped, and a third one is called a. A filter of another name need not wait.
    cluster.apply(&MetaCommand::DropFilter { filter: second });
    for new in ["a", "c"] {
        cluster.apply(&create(new, 1, false));
    }
    for filter in [third, other] {
        cluster.progress.insert((filter, shard), SliceDone::Created);
    }
    let drop = Task::DropSlice { shard, filter: second };
    assert_eq!(cluster.tasks(), [drop, created(other)]);
    cluster.progress.insert((second, shard), SliceDone::Dropped);
    assert_eq!(cluster.propose(), []);
    let state = |filter| cluster.state.filter(filter).map(|record| record.state);
    assert_eq!([state(second), state(third)], [None, Some(FilterState::Live)]);
}

#[test]
fn a_slow_shard_gets_few_tasks() {
    let mut cluster = Cluster::new(3, 2, 3);
    for i in 0..100 {
        cluster.apply(&create(&i.to_string(), 1, false));
    }
    // Shard 1 is done with all filters except the last.
    for filter in (10..109).map(FilterId) {
        cluster.progress.insert((filter, ShardId(1)), SliceDone::Created);
    }
    let tasks = cluster.tasks();
    let last = Task::EnsureSlice { shard: ShardId(1), filter: FilterId(109) };
    assert_eq!(tasks.len(), SLICE_TASKS_PER_SHARD_MAX + 1);
    assert_eq!(tasks.last(), Some(&last));
}

/// A cluster at version 3 of nodes 1 to 3 whose shards were split from one, and all have leaders.
fn split_cluster(shard_count: u32) -> Cluster {
    let mut cluster = Cluster::new(3, 1, 3);
    cluster.state = cluster.state.at_version(ClusterVersion(3));
    for shard in (1..shard_count).map(ShardId) {
        cluster.apply(&MetaCommand::SplitShard { shard_count: shard.0 + 1 });
        cluster.apply(&MetaCommand::ShardFormed { shard });
        cluster.views.insert(of(shard), view(&[1, 2, 3], &[]));
    }
    assert_eq!(cluster.tasks(), []);
    cluster
}

#[test]
fn a_merge_is_asked_for_until_the_shard_is_gone() {
    let mut cluster = split_cluster(4);
    cluster.apply(&MetaCommand::MergeShard { shard_count: 3 });
    let (shard, from) = (ShardId(1), ShardId(3));
    let since = cluster.state.epoch();
    let merge = Task::MergeShard { shard, from, era: 0, since };
    assert_eq!(cluster.tasks(), std::slice::from_ref(&merge));
    // Neither shard moves meanwhile; the others do.
    cluster.apply(&MetaCommand::AddNode { address: "d:1".to_owned(), nonce: 1 });
    cluster.drain(3);
    cluster.meta = view(&[1, 2, 4], &[3]);
    let moved: Vec<_> = cluster.tasks().into_iter().filter(is_plan).collect();
    let target = nodes(&[1, 2, 4]);
    let plan = |shard| {
        let (shard, target) = (ShardId(shard), target.clone());
        Task::Propose(MetaCommand::PlanReplicas { shard, target })
    };
    assert_eq!(moved, [plan(0), plan(2)]);
    assert_eq!(cluster.propose(), std::slice::from_ref(&merge));
    // The controller does not depend on a leader: the task says which ones it needs.
    cluster.views.clear();
    assert_eq!(cluster.tasks(), [merge]);
    cluster.apply(&MetaCommand::ShardMerged { shard: from, era: 0 });
    assert_eq!(cluster.tasks(), []);
    cluster.views.insert(of(shard), view(&[1, 2, 3], &[]));
    assert_eq!(cluster.tasks(), [plan(1)]);
}

#[test]
fn the_view_of_an_earlier_group_says_nothing_about_the_next() {
    let mut cluster = split_cluster(2);
    let shard = ShardId(1);
    cluster.apply(&MetaCommand::MergeShard { shard_count: 1 });
    cluster.apply(&MetaCommand::ShardMerged { shard, era: 0 });
    cluster.apply(&MetaCommand::SplitShard { shard_count: 2 });
    // The earlier group had a leader; the new one exists nowhere yet.
    let split = Task::SplitShard { shard: ShardId(0), into: shard, era: 1, at: 1 << 63 };
    assert_eq!(cluster.tasks(), [split]);
    let group = GroupId::of_shard_in(shard, 1);
    cluster.views.insert(group, view(&[1, 2, 3], &[4]));
    let formed = Task::Propose(MetaCommand::ShardFormed { shard });
    assert_eq!(cluster.tasks(), [formed]);
    assert_eq!(cluster.propose(), []);
    let [Task::ChangeMembers { group: changed, .. }] = &cluster.tasks()[..] else { panic!() };
    assert_eq!(*changed, group);
}
