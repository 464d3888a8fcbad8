//! Runs the sweeps over the hypercube: the engine decides when to ask which partner, this module does
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;
use umbel_engine::{Epoch, NodeId};
use umbel_proto::v1;
use umbel_proto::v1::peer_client::PeerClient;
use umbel_replicated_engine::hypercube::{
    CubeRank, Members, Step, SweepInput, SweepOutput, Sweeper,
};
use umbel_step::Outbox;

use super::answering;
use super::asking::{self, Clients};
use super::copies::Copies;
use super::events::{Asked, ExchangeEvent};
use super::in_sync::check_copies;
use super::wire;
use crate::metrics;

/// A sweep begins after this long without one, even if no copy has news: a copy that lacks something
/// learns that only by asking.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// A node that did not respond in time is skipped for this long, unless it asks this node.
const ABSENT_TIME: Duration = Duration::from_secs(1);

/// A partner that fails faster than this costs the sweep nothing and is asked again in the next one:
/// its process is not running.
const FAST_FAILURE: Duration = Duration::from_millis(100);

/// The outcome of asking a partner.
struct Finished {
    to: NodeId,
    sweep: u64,
    step: Step,
    /// When the question was sent.
    asked_at: Instant,
    /// The number of the partner's sweep.
    outcome: Result<u64, asking::AskError>,
}

/// A question to a partner that is in flight.
struct InFlight {
    sweep: u64,
    step: Step,
    task: AbortHandle,
    /// Whether the partner has begun to answer.
    is_answered: Arc<AtomicBool>,
}

/// The exchange of one node.
struct Exchange {
    copies: Arc<Copies>,
    sweeper: Sweeper,
    clients: Clients,
    /// Partners that asked and wait for their answer, by step.
    waiting: BTreeMap<(Step, NodeId), Asked>,
    /// Nodes that did not respond, and until when they are skipped.
    absent: BTreeMap<NodeId, Instant>,
    /// Nodes that are being asked.
    in_flight: BTreeMap<NodeId, InFlight>,
    /// Nodes to ask again when their current answer is complete, because a newer sweep has begun
    /// meanwhile. If that answer were cancelled, an answer that takes longer than a sweep would never
    /// complete.
    queued: BTreeMap<NodeId, (u64, Step)>,
    finished: mpsc::UnboundedSender<Finished>,
    /// All tasks that ask, answer and check copies; they end with the exchange.
    tasks: JoinSet<()>,
    /// Checks whether copies that were made late have everything. One task at a time: if a node is
    /// down, it may take longer than a sweep.
    sync_check: Option<AbortHandle>,
    begun_at: Instant,
    ended_at: Option<Instant>,
    /// Whether a sweep was requested that has not begun.
    is_wanted: bool,
}

/// Runs the exchange until it is cancelled.
pub(crate) async fn exchange(copies: Arc<Copies>, interval: Duration) {
    let Some(mut events) = copies.take_events() else { return };
    // Each question has one outcome, at most one question to each partner is in flight, and outcomes are taken before all
    // else: a few for each partner can wait.
    let (finished, mut outcomes) = mpsc::unbounded_channel();
    let mut exchange = Exchange::new(copies, finished);
    let mut look_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            Some(outcome) = outcomes.recv() => exchange.finish(outcome),
            Some(event) = events.recv() => exchange.take(event),
            Some(_) = exchange.tasks.join_next() => {}
            () = tokio::time::sleep_until(look_at) => {
                look_at = Instant::now() + interval;
                exchange.look();
            }
        }
    }
}

impl Exchange {
    fn new(copies: Arc<Copies>, finished: mpsc::UnboundedSender<Finished>) -> Self {
        let nobody =
            Members::new(Epoch(0), vec![copies.member.node()]).expect("one node is a cube");
        Self {
            sweeper: Sweeper::new(copies.member.node(), nobody),
            clients: Clients::new(),
            waiting: BTreeMap::new(),
            absent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            queued: BTreeMap::new(),
            finished,
            tasks: JoinSet::new(),
            sync_check: None,
            begun_at: Instant::now(),
            ended_at: None,
            is_wanted: true,
            copies,
        }
    }

    /// Begins a sweep if there is something to send or to request.
    fn look(&mut self) {
        self.follow_members();
        let copies = self.copies.all();
        let is_quiet = self.ended_at.is_none_or(|at| at.elapsed() > QUIET_MAX);
        let has_news = copies.iter().any(|copy| copy.has_news());
        if !copies.is_empty() && (self.is_wanted || is_quiet || has_news) {
            self.step(SweepInput::Begin);
        }
    }

    fn take(&mut self, event: ExchangeEvent) {
        match event {
            ExchangeEvent::Wanted => {
                self.is_wanted = true;
                // If a sweep is running, the next one begins after it.
                self.look();
            }
            ExchangeEvent::Opened => {
                self.is_wanted = true;
                self.set_partners();
            }
            ExchangeEvent::Asked(asked) => self.asked(asked),
        }
    }

    /// Takes the members of the cube from the catalogue.
    fn follow_members(&mut self) {
        let member = &self.copies.member;
        let (epoch, nodes) = member.read_meta(|state| (state.epoch(), state.live_nodes()));
        if epoch == self.sweeper.members().epoch() {
            return;
        }
        let Ok(members) = Members::new(epoch, nodes.into_iter().collect()) else { return };
        self.waiting.clear();
        self.step(SweepInput::Changed(members));
        self.forget_others();
        self.set_partners();
        self.is_wanted = true;
    }

    /// Drops the state about nodes that have left.
    fn forget_others(&mut self) {
        let members = self.sweeper.members();
        let is_member = |node: &NodeId| members.rank_of(*node).is_some();
        self.absent.retain(|node, _| is_member(node));
        self.queued.retain(|node, _| is_member(node));
        self.in_flight.retain(|node, asked| {
            let stays = is_member(node);
            if !stays {
                asked.task.abort();
            }
            stays
        });
        let addresses = self.copies.member.read_meta(|state| {
            let addresses =
                state.live_nodes().into_iter().filter_map(|node| state.node_address(node));
            addresses.map(ToOwned::to_owned).collect()
        });
        self.clients.keep(&addresses);
    }

    fn set_partners(&self) {
        let members = self.sweeper.members();
        let Some(rank) = members.rank_of(self.copies.member.node()) else { return };
        let ranks = members.cube().partners(rank);
        let partners: Vec<NodeId> =
            ranks.into_iter().filter_map(|rank| members.node_of(rank)).collect();
        for copy in self.copies.all() {
            copy.set_partners(&partners);
        }
    }

    fn asked(&mut self, asked: Asked) {
        self.follow_members();
        let (from, message) = (asked.from, asked.step);
        // It is present.
        self.absent.remove(&from);
        let cube = self.sweeper.members().cube();
        let Some(step) = wire::step_at(cube, message.step) else {
            let why = format!(
                "{from} asks in step {} of a cube of {} nodes",
                message.step,
                cube.node_count()
            );
            return self.refuse(&asked, why);
        };
        let key = (step, from);
        let before = self.waiting.insert(key, asked);
        let input = SweepInput::Asked {
            from,
            rank: CubeRank(message.rank),
            epoch: Epoch(message.epoch),
            sweep: message.sweep,
            step,
        };
        let mut outbox = Outbox::new();
        if let Err(error) = self.sweeper.step(input, &mut outbox) {
            let refused = match before {
                Some(before) => self.waiting.insert(key, before),
                None => self.waiting.remove(&key),
            };
            if let Some(asked) = refused {
                self.refuse(&asked, error.to_string());
            }
            return;
        }
        self.carry_out(outbox);
    }

    fn refuse(&self, asked: &Asked, why: String) {
        self.copies.refused(asked.from, &why);
        // The asking partner may have gone.
        let _ = asked.parts.try_send(Err(Status::failed_precondition(why)));
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { to, sweep, step, asked_at, outcome } = finished;
        // A cancelled question may have finished just before it was cancelled.
        let is_latest = |asked: &InFlight| (asked.sweep, asked.step) == (sweep, step);
        if self.in_flight.get(&to).is_some_and(is_latest) {
            self.in_flight.remove(&to);
        }
        match outcome {
            Ok(theirs) => self.step(SweepInput::Answered { from: to, sweep, step, theirs }),
            Err(error) => {
                tracing::debug!(%to, %error, "a partner is left out of the sweep");
                if error.is_absence() && asked_at.elapsed() > FAST_FAILURE {
                    self.absent.insert(to, Instant::now() + ABSENT_TIME);
                }
                // The end of an older question does not concern the running step.
                if self.sweeper.running() == Some((sweep, step)) {
                    self.step(SweepInput::Unreachable { node: to });
                }
            }
        }
        if let Some((sweep, step)) = self.queued.remove(&to)
            && self.sweeper.running() == Some((sweep, step))
        {
            self.ask(to, sweep, step);
        }
    }

    fn step(&mut self, input: SweepInput) {
        let mut outbox = Outbox::new();
        if let Err(error) = self.sweeper.step(input, &mut outbox) {
            self.copies.refused(self.copies.member.node(), &error);
        }
        self.carry_out(outbox);
    }

    fn carry_out(&mut self, mut outbox: Outbox<SweepOutput>) {
        for output in outbox.take() {
            match output {
                SweepOutput::Begun { sweep } => self.begun(sweep),
                SweepOutput::Ask { to, sweep, step } => {
                    self.copies.note_step(Some(step));
                    self.ask(to, sweep, step);
                }
                SweepOutput::Answer { to, step, ours, .. } => self.answer(to, step, ours),
                SweepOutput::Done { is_whole, .. } => self.done(is_whole),
            }
        }
    }

    fn begun(&mut self, sweep: u64) {
        self.begun_at = Instant::now();
        self.is_wanted = false;
        for copy in self.copies.all() {
            copy.begin_sweep();
        }
        self.copies.count_sweeps(|sweeps| {
            (sweeps.sweep, sweeps.is_running) = (sweep, true);
        });
    }

    fn done(&mut self, is_whole: bool) {
        let time = self.begun_at.elapsed();
        self.ended_at = Some(Instant::now());
        self.copies.note_step(None);
        for copy in self.copies.all() {
            copy.end_sweep(is_whole);
        }
        self.copies.count_sweeps(|sweeps| {
            sweeps.is_running = false;
            sweeps.sweep_count += 1;
            sweeps.broken_sweep_count += u64::from(!is_whole);
            sweeps.last_sweep_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        });
        metrics::sweep_done(is_whole, time);
        self.check_sync();
        if self.is_wanted {
            self.copies.begin_sweep();
        }
    }

    fn check_sync(&mut self) {
        let is_running = self.sync_check.as_ref().is_some_and(|task| !task.is_finished());
        if !is_running && self.copies.all().iter().any(|copy| !copy.is_in_sync()) {
            self.sync_check = Some(self.tasks.spawn(check_copies(Arc::clone(&self.copies))));
        }
    }

    fn ask(&mut self, to: NodeId, sweep: u64, step: Step) {
        match self.in_flight.get(&to) {
            Some(running) if running.is_answered.load(Ordering::Relaxed) => {
                self.queued.insert(to, (sweep, step));
                return;
            }
            // The partner may be waiting for its own partners in an older sweep; the new question makes
            // it leave that sweep.
            Some(running) => running.task.abort(),
            None => {}
        }
        let (finished, asked_at) = (self.finished.clone(), Instant::now());
        let finish = move |outcome| {
            // If sending fails, the exchange has ended with the node.
            let _ = finished.send(Finished { to, sweep, step, asked_at, outcome });
        };
        let Some((client, asked)) = self.question(to, sweep, step) else {
            self.in_flight.remove(&to);
            return finish(Err(asking::AskError::PassedOver));
        };
        let (copies, is_answered) = (Arc::clone(&self.copies), Arc::new(AtomicBool::new(false)));
        let answering = Arc::clone(&is_answered);
        let task = self.tasks.spawn(async move {
            let outcome = match client {
                Ok(client) => asking::ask(&copies, client, to, asked, &answering).await,
                Err(error) => Err(error),
            };
            finish(outcome);
        });
        self.in_flight.insert(to, InFlight { sweep, step, task, is_answered });
    }

    /// The client and message to ask a node with; None if the node is skipped.
    fn question(
        &mut self,
        to: NodeId,
        sweep: u64,
        step: Step,
    ) -> Option<(Result<PeerClient<Channel>, asking::AskError>, v1::ExchangeStep)> {
        if self.absent.get(&to).is_some_and(|until| Instant::now() < *until) {
            return None;
        }
        let members = self.sweeper.members();
        let rank = members.rank_of(self.copies.member.node())?;
        let address = self.copies.member.address_of(to)?;
        let (epoch, step) = (members.epoch().0, wire::step_number(members.cube(), step));
        let asked = v1::ExchangeStep { epoch, rank: rank.0, sweep, step };
        Some((self.clients.get(&self.copies.member, to, &address), asked))
    }

    fn answer(&mut self, to: NodeId, step: Step, ours: u64) {
        if let Some(asked) = self.waiting.remove(&(step, to)) {
            self.tasks.spawn(answering::answer(Arc::clone(&self.copies), asked, ours));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_engine::meta::Distribution;

    use crate::testing::{create_filter, deadline, start_alone};

    /// An exchange beside the node's own.
    #[tokio::test]
    async fn one_sync_check_runs_at_a_time_and_ends_with_the_exchange() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let id = create_filter(&node, Distribution::Replicated, (10_000, 1e-6)).await;
        let copies = Arc::clone(node.local().copies());
        let copy = copies.get(id).unwrap();
        let mut exchange = Exchange::new(Arc::clone(&copies), mpsc::unbounded_channel().0);
        copy.write().is_in_sync = false;
        for _ in 0..5 {
            exchange.check_sync();
        }
        assert_eq!(exchange.tasks.len(), 1);
        exchange.tasks.join_next().await.unwrap().unwrap();
        // No other node has anything.
        assert!(copy.is_in_sync());
        exchange.check_sync();
        assert!(exchange.tasks.is_empty());

        copy.write().is_in_sync = false;
        exchange.check_sync();
        assert_eq!(exchange.tasks.len(), 1);
        let held = Arc::strong_count(&copies);
        drop(exchange);
        // Meanwhile the node's own tasks may take references, too.
        let is_dropped = async {
            while Arc::strong_count(&copies) >= held {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout_at(deadline(), is_dropped).await.unwrap();
        drop((copy, copies));
        node.shutdown().await;
    }

    #[tokio::test]
    async fn nodes_that_left_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let copies = Arc::clone(node.local().copies());
        let mut exchange = Exchange::new(Arc::clone(&copies), mpsc::unbounded_channel().0);
        let (own, left) = (copies.member.node(), NodeId(99));
        let step =
            wire::step_at(umbel_replicated_engine::hypercube::Cube::new(2).unwrap(), 0).unwrap();
        let task = exchange.tasks.spawn(std::future::pending());
        let is_answered = Arc::new(AtomicBool::new(true));
        exchange.in_flight.insert(left, InFlight { sweep: 1, step, task, is_answered });
        for node in [own, left] {
            exchange.absent.insert(node, Instant::now());
            exchange.queued.insert(node, (1, step));
        }
        for (node, address) in
            [(own, &*copies.member.address_of(own).unwrap()), (left, "127.0.0.1:1")]
        {
            exchange.clients.get(&copies.member, node, address).unwrap();
        }
        exchange.follow_members();
        assert_eq!(exchange.absent.keys().collect::<Vec<_>>(), [&own]);
        assert_eq!(exchange.queued.keys().collect::<Vec<_>>(), [&own]);
        assert!(exchange.in_flight.is_empty());
        assert_eq!(exchange.clients.len(), 1);
        assert!(exchange.tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
        drop((exchange, copies));
        node.shutdown().await;
    }
}
