//! Carries out what the meta group's leader decides: members of groups, slices of filters.
//!
//! The engine takes the decisions (`umbel_engine::meta::next_tasks`); this module carries them out. Every
//! task may be done twice, so a leader that is deposed halfway does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use umbel_engine::meta::{
    FilterState, GroupView, MetaCommand, MetaState, NodeRecord, SliceDone, SliceProgress, Task,
    forget_finished, next_move, next_split, next_tasks, pause_after_split,
};
use umbel_engine::placement::ShardRecord;
use umbel_engine::shard::ShardCommand;
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_ports::encoding::{decode, encode};
use umbel_ports::locked;
use umbel_raft::peer::CallKind;

use crate::calls::{GroupAnswer, GroupRequest, MetaRequest, ShardRequest};
use crate::leader_calls::{LeaderCalls, Tries};
use crate::local::Local;
use crate::reasons::Reasons;

mod merge;
mod running_tasks;

use merge::Merge;
use running_tasks::{Confirmed, RunningTasks};

/// How often the leader looks if its state has not changed, to notice what other nodes have done.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The same interval while only changes of members are in progress: they may take a minute, and each look
/// asks every group whose members are to change.
const MEMBERS_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often the leader also asks groups for which nothing is planned, to notice changes that were not
/// reported.
const REVIEW_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of one task, after which it is considered again.
const TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a change of members: a new replica may need a snapshot first.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(65);

/// How long a group's leader may take to report its members.
const VIEW_TIMEOUT: Duration = Duration::from_secs(1);

/// Carries out tasks while this node leads the meta group; never returns.
pub(crate) async fn control(local: Arc<Local>, calls: Arc<LeaderCalls>) {
    let mut applied = local.meta().replica().applied_index();
    let mut progress = SliceProgress::new();
    let mut views = BTreeMap::new();
    let mut reviewed: Option<Instant> = None;
    let mut running = RunningTasks::default();
    let mut spread = Spread::default();
    loop {
        let looked = Instant::now();
        spread.applied = *applied.borrow_and_update();
        if local.meta().is_leader() {
            let is_due = reviewed.is_none_or(|at| at.elapsed() >= REVIEW_INTERVAL);
            if is_due {
                reviewed = Some(Instant::now());
            }
            look(&local, &calls, &mut progress, &mut views, &mut spread, &mut running, is_due)
                .await;
        } else {
            progress.clear();
            views.clear();
            spread = Spread::default();
            reviewed = None;
        }
        pause(looked, &mut applied, &mut progress, &mut running).await;
    }
}

/// Whether shards are spread as well as possible. This depends on the catalogue and on the nodes that are alive,
/// and computing it takes a pass over all filters, so it is computed again when one of the two has changed.
#[derive(Default)]
struct Spread {
    /// Index of the last entry of the catalogue that was applied before this look.
    applied: u64,
    /// The index, and the nodes that were alive, when nothing was to be moved or split.
    nothing_due: Option<(u64, BTreeSet<NodeId>)>,
    /// Since when a split is in progress.
    split_since: Option<Instant>,
    /// The end of the pause after the last split.
    pause_end: Option<Instant>,
}

impl Spread {
    /// The next move, or the next split if there is none.
    fn next(&mut self, state: &MetaState, alive: &BTreeSet<NodeId>) -> Option<Task> {
        if self
            .nothing_due
            .as_ref()
            .is_some_and(|(at, nodes)| *at == self.applied && nodes == alive)
        {
            return None;
        }
        let next = next_move(state, alive).or_else(|| next_split(state, alive));
        self.nothing_due = next.is_none().then(|| (self.applied, alive.clone()));
        let is_split = matches!(next, Some(MetaCommand::SplitShard { .. }));
        next.filter(|_| !is_split || !self.is_pausing()).map(Task::Propose)
    }

    /// Follows the splits that are in progress, those by hand included.
    fn note_split(&mut self, state: &MetaState) {
        match (state.shard_map().splitting(), self.split_since) {
            (Some(_), None) => self.split_since = Some(Instant::now()),
            (None, Some(since)) => {
                self.split_since = None;
                self.pause_end = Some(Instant::now() + pause_after_split(since.elapsed()));
            }
            _ => {}
        }
    }

    /// Whether it is too early for the next split.
    fn is_pausing(&self) -> bool {
        self.pause_end.is_some_and(|end| Instant::now() < end)
    }
}

/// Returns when it is time to look again: all tasks on slices have ended and one confirmed something new,
/// or the state has changed, or the interval has passed. It waits for tasks on slices, so that a burst of
/// filters is handled together, but not longer than the interval.
async fn pause(
    looked: Instant,
    applied: &mut watch::Receiver<u64>,
    progress: &mut SliceProgress,
    running: &mut RunningTasks,
) {
    let mut has_learned = false;
    loop {
        let is_busy = running.has_slices();
        // New confirmations may lead to decisions at once; each is new only once, so this ends.
        if has_learned && !is_busy {
            return;
        }
        let interval = if running.are_of_members() { MEMBERS_LOOK_INTERVAL } else { LOOK_INTERVAL };
        tokio::select! {
            biased;
            Some(confirmed) = running.next() => {
                has_learned |= confirmed
                    .is_some_and(|(slice, done)| progress.insert(slice, done) != Some(done));
            }
            // A failed watch means that the node stops, and this task with it.
            _ = applied.changed(), if !is_busy => return,
            () = sleep_until(looked + interval) => return,
        }
    }
}

/// One round: refreshes views, decides, starts tasks.
async fn look(
    local: &Arc<Local>,
    calls: &Arc<LeaderCalls>,
    progress: &mut SliceProgress,
    views: &mut BTreeMap<GroupId, GroupView>,
    spread: &mut Spread,
    running: &mut RunningTasks,
    is_review: bool,
) {
    let pending = local.read_meta(|state| pending_shards(state, views));
    let Some(pending) = pending else { return };
    let asked = match pending {
        Pending::All => None,
        Pending::Some(_) if is_review => None,
        Pending::Some(shards) => Some(shards),
    };
    refresh_views(local, calls, views, asked).await;
    let nodes = local.addresses().into_keys();
    let alive = nodes.filter(|&node| local.beats().is_alive(node)).collect();
    let tasks = local.read_meta(|state| {
        forget_finished(progress, state);
        // Whoever leads judges by its own clock; one that jumped ahead is not believed at once.
        let due = state.expired(local.believed_ms()).into_iter();
        let due = due.chain(state.stranded_jobs()).map(Task::Propose);
        let tasks = next_tasks(state, views, &local.meta().view(), &alive, progress);
        spread.note_split(state);
        // A refused proposal, for example while a move begins, is made again in a later round.
        due.chain(tasks).chain(spread.next(state, &alive)).collect::<Vec<_>>()
    });
    let (proposals, tasks): (Vec<Task>, Vec<Task>) =
        tasks.into_iter().partition(|task| matches!(task, Task::Propose(_)));
    for proposal in proposals {
        if let Task::Propose(command) = proposal {
            // Proposed on this node and at once, or not at all: a decision must not arrive in another
            // leader's time.
            let (answer, _) = local.serve_meta(MetaRequest::Propose(command.clone())).await;
            tracing::debug!(?command, ?answer, "the controller decided");
        }
    }
    for task in tasks {
        running.begin(local, calls, task);
    }
}

/// The shards whose views are needed.
enum Pending {
    All,
    Some(Vec<ShardId>),
}

/// Shards whose members change or are unknown; all shards while slices are created, cleared or dropped. A view that
/// differs from the map is never decided by twice: it may have been taken before the group's first entry was
/// committed, and the change that follows from it would be made again in every round until the next review.
fn pending_shards(state: &MetaState, views: &BTreeMap<GroupId, GroupView>) -> Option<Pending> {
    if !state.is_formed() {
        return None;
    }
    let is_steady =
        |state: FilterState| matches!(state, FilterState::Live | FilterState::Importing);
    if state.filters().any(|(_, filter)| !is_steady(filter.state)) {
        return Some(Pending::All);
    }
    let wanted = state.replicas_wanted();
    let shards = state.shards().zip(0..).filter(|((_, record), _)| {
        let has_all = record.replicas.len() >= wanted;
        let all_stay = record
            .replicas
            .iter()
            .all(|&node| state.node(node).is_some_and(NodeRecord::is_available));
        let view = views.get(&record.group());
        let is_as_seen = view.is_none_or(|view| view.has_members(record.wanted(), &[]));
        !record.is_formed || record.target.is_some() || !has_all || !all_stay || !is_as_seen
    });
    Some(Pending::Some(shards.map(|(_, shard)| ShardId(shard)).collect()))
}

/// Asks the leaders of groups for the groups' members.
async fn refresh_views(
    local: &Arc<Local>,
    calls: &Arc<LeaderCalls>,
    views: &mut BTreeMap<GroupId, GroupView>,
    asked: Option<Vec<ShardId>>,
) {
    let all = || local.read_meta(|state| state.shards().map(|(_, of)| of.shard).collect());
    let asked = asked.unwrap_or_else(all);
    local.read_meta(|state| {
        let is_there = |group: GroupId| {
            let record = group.shard().and_then(|shard| state.shard(shard));
            record.is_some_and(|record| record.group() == group)
        };
        views.retain(|&group, _| is_there(group));
    });
    let answers = asked.into_iter().map(|shard| view_of(local, calls, shard));
    for (group, view) in join_all(answers).await.into_iter().flatten() {
        match view {
            Some(view) => views.insert(group, view),
            None => views.remove(&group),
        };
    }
}

/// A shard's group as its leader sees it, without a view if no leader is found; None if there is no such
/// shard.
async fn view_of(
    local: &Arc<Local>,
    calls: &Arc<LeaderCalls>,
    shard: ShardId,
) -> Option<(GroupId, Option<GroupView>)> {
    let of_record = |record: &ShardRecord| (record.group(), record.members());
    let (group, members) = local.read_meta(|state| state.shard(shard).map(of_record))?;
    let hint = calls.shard_leader_hint(shard);
    let mut candidates: Vec<NodeId> = hint.into_iter().collect();
    candidates.extend(members.iter().filter(|&&node| Some(node) != hint));
    for node in candidates {
        let answer = query_group(local, node, group, GroupRequest::View, VIEW_TIMEOUT);
        if let Some(GroupAnswer::View(view)) = answer.await
            && view.leader == Some(node)
        {
            return Some((group, Some(view)));
        }
    }
    Some((group, None))
}

async fn query_group(
    local: &Arc<Local>,
    node: NodeId,
    group: GroupId,
    request: GroupRequest,
    timeout: Duration,
) -> Option<GroupAnswer> {
    if node == local.node() {
        let served = local.serve_group(group, request);
        return tokio::time::timeout(timeout, served).await.ok()?.ok();
    }
    let body = encode(&request);
    let answer = local.member().call(node, CallKind::Group, group, body, timeout).await;
    match answer.map(|body| decode(&body)) {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::warn!(%node, %group, %error, "an answer was not understood");
            None
        }
        Err(error) => {
            tracing::debug!(%node, %group, %error, "a group's leader did not answer");
            None
        }
    }
}

/// Carries out one task; returns what it confirmed about a slice. Refusals are logged once in a while for each shard: one
/// without room or majority refuses all of its slices, several times a second.
async fn carry_out(
    local: &Arc<Local>,
    calls: &Arc<LeaderCalls>,
    task: Task,
    refused: &Mutex<Reasons>,
) -> Confirmed {
    let deadline = Instant::now() + TASK_TIMEOUT;
    let (shard, command, filter, done) = match task {
        Task::Propose(_) => return None,
        Task::ChangeMembers { group, leader, voters, learners } => {
            change_members(local, calls, group, leader, &voters, &learners).await;
            return None;
        }
        Task::EnsureSlice { shard, filter } => {
            // Only while the filter is being created: otherwise nothing would drop the slice again.
            let spec = local.read_meta(|state| {
                let record = state.filter(filter)?;
                let is_creating = matches!(record.state, FilterState::Creating { .. });
                is_creating.then(|| record.slice_spec(filter))
            })?;
            (shard, ShardCommand::CreateSlice(spec), filter, SliceDone::Created)
        }
        Task::MergeShard { shard, from, era, since } => {
            let merge = Merge { shard, from, era, since };
            if let Err(error) = merge.carry_out(local, calls, deadline).await {
                tracing::warn!(%shard, %from, %error, "a shard is not merged yet");
            }
            return None;
        }
        Task::SplitShard { shard, into, at, era } => {
            let group = GroupId::of_shard_in(into, era);
            let request = ShardRequest::Command(ShardCommand::split_off(group, at));
            match calls.shard_call(shard, request, deadline).await {
                Ok(_) => tracing::info!(%shard, %into, "a shard was split"),
                Err(error) => tracing::warn!(%shard, %into, %error, "a shard is not split yet"),
            }
            return None;
        }
        Task::DropSlice { shard, filter } => {
            (shard, ShardCommand::DropSlice(filter), filter, SliceDone::Dropped)
        }
        Task::ClearSlice { shard, filter, generation } => {
            let command = ShardCommand::ClearSlice { filter, generation };
            (shard, command, filter, SliceDone::Begun(generation))
        }
        Task::RenewSlice { shard, filter, generation } => {
            let command = ShardCommand::RenewSlice { filter, generation };
            (shard, command, filter, SliceDone::Begun(generation))
        }
        Task::RotateSlice { shard, filter, generation } => {
            let command = ShardCommand::RotateSlice { filter, generation };
            (shard, command, filter, SliceDone::Begun(generation))
        }
    };
    match calls.shard_call(shard, ShardRequest::Command(command), deadline).await {
        Ok(_) => Some(((filter, shard), done)),
        Err(error) => {
            let mut refused = locked(refused);
            if refused.is_due(&shard.to_string(), Instant::now()) {
                tracing::warn!(%shard, %filter, %error, "a slice could not be changed yet");
            }
            None
        }
    }
}

/// Has a group's leader change its members. One that is to leave hands leadership over and changes nothing: then its
/// successor is asked, as the group would else keep its old members until the next look. It refuses until it has
/// committed an entry.
async fn change_members(
    local: &Arc<Local>,
    calls: &Arc<LeaderCalls>,
    group: GroupId,
    leader: NodeId,
    voters: &[NodeId],
    learners: &[NodeId],
) {
    let is_changed = ask_for_members(local, group, leader, voters, learners).await;
    if is_changed || voters.contains(&leader) {
        return;
    }
    let Some(shard) = group.shard() else { return };
    let mut tries = Tries::new(Instant::now() + VIEW_TIMEOUT);
    while !tries.is_over() {
        let seen = match view_of(local, calls, shard).await {
            Some((of, view)) if of == group => view.and_then(|view| view.leader),
            _ => return,
        };
        if let Some(next) = seen.filter(|next| voters.contains(next))
            && ask_for_members(local, group, next, voters, learners).await
        {
            return;
        }
        // It is being elected, or has committed nothing yet.
        let learned = local.leader_learned(group, seen.unwrap_or(leader));
        tries.pause(false, learned).await;
    }
}

/// Asks a leader to change the members of its group; returns whether it did.
async fn ask_for_members(
    local: &Arc<Local>,
    group: GroupId,
    leader: NodeId,
    voters: &[NodeId],
    learners: &[NodeId],
) -> bool {
    let with_addresses = |nodes: &[NodeId]| {
        local.read_meta(|state| {
            let address = |&node| Some((node, state.node_address(node)?.to_owned()));
            nodes.iter().filter_map(address).collect::<Vec<_>>()
        })
    };
    let request = GroupRequest::ChangeMembers {
        voters: with_addresses(voters),
        learners: with_addresses(learners),
    };
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
    let (voters, learners) = (numbers(voters), numbers(learners));
    tracing::info!(%group, %leader, ?voters, ?learners, "members are changed");
    match query_group(local, leader, group, request, MEMBERS_TIMEOUT).await {
        Some(GroupAnswer::Changed) => {
            tracing::info!(%group, ?voters, "members were changed");
            return true;
        }
        Some(GroupAnswer::Failed(why)) => tracing::info!(%group, why, "members not changed yet"),
        _ => tracing::info!(%group, %leader, "the leader did not answer"),
    }
    false
}

#[cfg(test)]
mod tests {
    use umbel_engine::FilterId;
    use umbel_engine::meta::{Distribution, FilterName, MetaReply};

    use super::*;
    use crate::testing::{SetClock, create_filter, deadline, start_alone_at};

    const HOUR_MS: u64 = 60 * 60 * 1000;
    const DAY_MS: u64 = 24 * HOUR_MS;

    async fn expire(calls: &LeaderCalls, filter: FilterId, at_ms: u64) {
        let command = MetaCommand::SetExpiry { filter, expires_ms: Some(at_ms) };
        assert_eq!(calls.meta_propose(command, deadline()).await, Ok(MetaReply::Done));
    }

    async fn gone(calls: &LeaderCalls, filter: FilterId) {
        let is_gone = |state: &MetaState| state.filter(filter).is_none().then_some(());
        calls.wait_meta(deadline(), is_gone).await.unwrap();
    }

    #[test]
    fn a_shard_that_was_seen_with_other_members_is_asked_again() {
        let mut state = MetaState::new();
        let nodes = vec![(NodeId(1), "a:1".to_owned())];
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 2, replica_count: 1 });
        for shard in (0..2).map(ShardId) {
            state.apply(2, &MetaCommand::ShardFormed { shard });
        }
        let view = |voters: &[NodeId]| GroupView {
            leader: Some(NodeId(1)),
            voters: voters.to_vec(),
            ..GroupView::default()
        };
        let [first, second] = [0, 1].map(|shard| GroupId::of_shard(ShardId(shard)));
        let mut views = BTreeMap::from([(first, view(&[])), (second, view(&[NodeId(1)]))]);
        let asked = |views: &BTreeMap<GroupId, GroupView>| match pending_shards(&state, views) {
            Some(Pending::Some(shards)) => shards,
            _ => panic!("all shards are asked, or none"),
        };
        assert_eq!(asked(&views), [ShardId(0)]);
        views.insert(first, view(&[NodeId(1)]));
        assert_eq!(asked(&views), []);
    }

    #[test]
    fn what_is_spread_is_looked_at_again_after_a_change_alone() {
        let mut state = MetaState::new();
        let nodes = vec![(NodeId(1), "a:1".to_owned())];
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 1 });
        for shard in (0..4).map(ShardId) {
            state.apply(2, &MetaCommand::ShardFormed { shard });
        }
        let (alone, both) = (BTreeSet::from([NodeId(1)]), BTreeSet::from([1, 2].map(NodeId)));
        let mut spread = Spread { applied: 2, ..Spread::default() };
        assert_eq!(spread.next(&state, &both), None);
        state.apply(3, &MetaCommand::AddNode { address: "b:1".to_owned(), nonce: 1 });
        assert_eq!(spread.next(&state, &both), None, "it has not been told of the entry");
        spread.applied = 3;
        assert!(spread.next(&state, &both).is_some());
        assert!(spread.next(&state, &both).is_some(), "the proposal may have been refused");
        assert_eq!(spread.next(&state, &alone), None);
        assert!(spread.next(&state, &both).is_some(), "the node is back");
    }

    #[tokio::test(start_paused = true)]
    async fn splits_pause_for_three_times_as_long_as_they_take() {
        let mut state = MetaState::new();
        let (node, nodes) = (NodeId(1), vec![(NodeId(1), "a:1".to_owned())]);
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
        state.apply(2, &MetaCommand::ShardFormed { shard: ShardId(0) });
        state.apply(3, &MetaCommand::NoteCoreCount { node, core_count: 2 });
        state.apply(4, &MetaCommand::SetAutoSplit { is_on: true });
        let (alive, mut spread) = (BTreeSet::from([node]), Spread::default());
        let Some(Task::Propose(split)) = spread.next(&state, &alive) else { panic!("none is due") };
        state.apply(5, &split);
        spread.note_split(&state);
        tokio::time::advance(Duration::from_millis(100)).await;
        state.apply(6, &MetaCommand::ShardFormed { shard: ShardId(1) });
        spread.note_split(&state);
        assert_eq!(spread.next(&state, &alive), None);
        tokio::time::advance(Duration::from_millis(299)).await;
        assert_eq!(spread.next(&state, &alive), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(spread.next(&state, &alive).is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_clock_that_jumps_drops_no_filter_before_the_hold_ends() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SetClock::new(DAY_MS));
        let node = start_alone_at(folder.path(), &clock).await;
        let calls = node.leader_calls(Arc::clone(&clock) as _);
        let filter = create_filter(&node, Distribution::Partitioned, (10_000, 0.01)).await;
        let settings =
            node.local().read_meta(|state| state.filter(filter).unwrap().settings.clone());
        let name = FilterName::new("due").unwrap();
        let command = MetaCommand::CreateFilter { name, settings, importing: false, owner: None };
        let made = calls.meta_propose(command, deadline()).await.unwrap();
        let MetaReply::Filter(due) = made else { panic!("{made:?}") };
        let is_live = |state: &MetaState| {
            state.filter(due).filter(|record| record.state == FilterState::Live).map(|_| ())
        };
        calls.wait_meta(deadline(), is_live).await.unwrap();

        expire(&calls, filter, DAY_MS + HOUR_MS).await;
        clock.add(2 * DAY_MS);
        // The controller has looked at both since the jump when the one that is due is gone.
        expire(&calls, due, DAY_MS - HOUR_MS).await;
        gone(&calls, due).await;
        let state = node.local().read_meta(|state| state.filter(filter).map(|record| record.state));
        assert_eq!(state, Some(FilterState::Live));
        node.local().clock().end_hold();
        gone(&calls, filter).await;
        drop(calls);
        node.shutdown().await;
    }
}
