//! Sweeps over the cube: the engine decides when to ask whom, and here it is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;
use umbel_engine::hypercube::{Members, Rank, Step, SweepInput, SweepOutput, Sweeper};
use umbel_engine::meta::MetaState;
use umbel_engine::{Epoch, NodeId, Outbox};
use umbel_proto::v1;
use umbel_proto::v1::peer_client::PeerClient;

use super::answering;
use super::asking::{self, Clients};
use super::wire::{self, CopyQuestion};
use crate::calls::{CopyAnswer, CopyRequest};
use crate::local::Local;
use crate::metrics;

/// A sweep is made after so long without any, whether anybody has news or not: a copy that lacks
/// something does not know it until it asks.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// A node that was waited for in vain is passed over for so long, unless it asks.
const ABSENT_TIME: Duration = Duration::from_secs(1);

/// Who fails faster than this costs a sweep nothing, and is asked again in the next one: its process
/// is not there.
const FAST_FAILURE: Duration = Duration::from_millis(100);

/// How long another node may take to say what its copy has.
const KNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Parts of an answer that wait to be sent: the next one is coded while one is on its way.
pub(super) const PARTS_WAITING_MAX: usize = 2;

/// What the exchange is told.
pub(crate) enum Event {
    /// A sweep shall begin as soon as possible.
    Wanted,
    /// There is another copy.
    Opened,
    /// A partner asks.
    Asked(Asked),
}

/// A partner's step, and where its answer goes.
pub(crate) struct Asked {
    pub(super) from: NodeId,
    pub(super) step: v1::ExchangeStep,
    pub(super) questions: Vec<CopyQuestion>,
    pub(super) parts: mpsc::Sender<Result<v1::ExchangePart, Status>>,
}

/// What became of a question of this node.
struct Finished {
    to: NodeId,
    sweep: u64,
    step: Step,
    /// When it was asked.
    asked_at: Instant,
    /// The partner's sweep.
    outcome: Result<u64, asking::AskError>,
}

/// A question that is on its way.
struct InFlight {
    sweep: u64,
    step: Step,
    task: AbortHandle,
    /// Whether the partner has begun to answer.
    is_answered: Arc<AtomicBool>,
}

/// The exchange of one node.
struct Exchange {
    local: Arc<Local>,
    sweeper: Sweeper,
    clients: Clients,
    /// Who asks in which step, and waits.
    waiting: BTreeMap<(Step, NodeId), Asked>,
    /// Nodes that did not answer, until when they are passed over.
    absent: BTreeMap<NodeId, Instant>,
    /// Nodes that are being asked.
    in_flight: BTreeMap<NodeId, InFlight>,
    /// Who is to be asked again when its answer is in, because a newer sweep has begun meanwhile. Were
    /// the answer given up, one that takes longer than a sweep would never come in.
    queued: BTreeMap<NodeId, (u64, Step)>,
    finished: mpsc::UnboundedSender<Finished>,
    begun_at: Instant,
    ended_at: Option<Instant>,
    /// Whether a sweep was asked for that has not begun.
    is_wanted: bool,
}

/// Exchanges for ever.
pub(crate) async fn exchange(local: Arc<Local>, interval: Duration) {
    let Some(mut events) = local.copies().take_events() else { return };
    let (finished, mut outcomes) = mpsc::unbounded_channel();
    let now = Instant::now();
    let nobody = Members::new(Epoch(0), vec![local.node()]).expect("one node is a cube");
    let mut exchange = Exchange {
        sweeper: Sweeper::new(local.node(), nobody),
        clients: Clients::new(),
        waiting: BTreeMap::new(),
        absent: BTreeMap::new(),
        in_flight: BTreeMap::new(),
        queued: BTreeMap::new(),
        finished,
        begun_at: now,
        ended_at: None,
        is_wanted: true,
        local,
    };
    let mut look_at = now;
    loop {
        tokio::select! {
            biased;
            Some(outcome) = outcomes.recv() => exchange.finish(outcome),
            Some(event) = events.recv() => exchange.take(event),
            () = tokio::time::sleep_until(look_at) => {
                look_at = Instant::now() + interval;
                exchange.look();
            }
        }
    }
}

impl Exchange {
    /// Begins a sweep if there is something to tell or to learn.
    fn look(&mut self) {
        self.follow_members();
        let copies = self.local.copies().all();
        let is_quiet = self.ended_at.is_none_or(|at| at.elapsed() > QUIET_MAX);
        let has_news = copies.iter().any(|copy| copy.has_news());
        if !copies.is_empty() && (self.is_wanted || is_quiet || has_news) {
            self.step(SweepInput::Begin);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Wanted => {
                self.is_wanted = true;
                // During one it begins when that has ended.
                self.look();
            }
            Event::Opened => {
                self.is_wanted = true;
                self.set_partners();
            }
            Event::Asked(asked) => self.asked(asked),
        }
    }

    /// The nodes of the cube are those of the catalogue.
    fn follow_members(&mut self) {
        let meta = self.local.meta().replica();
        let (epoch, nodes) = meta.read_meta(|state| (state.epoch(), state.live_nodes()));
        if epoch == self.sweeper.members().epoch() {
            return;
        }
        let Ok(members) = Members::new(epoch, nodes.into_iter().collect()) else { return };
        self.waiting.clear();
        self.step(SweepInput::Changed(members));
        self.set_partners();
        self.is_wanted = true;
    }

    fn set_partners(&self) {
        let members = self.sweeper.members();
        let Some(rank) = members.rank_of(self.local.node()) else { return };
        let ranks = members.cube().partners(rank);
        let partners: Vec<NodeId> =
            ranks.into_iter().filter_map(|rank| members.node_of(rank)).collect();
        for copy in self.local.copies().all() {
            copy.set_partners(&partners);
        }
    }

    fn asked(&mut self, asked: Asked) {
        self.follow_members();
        let (from, message) = (asked.from, asked.step);
        // It is there.
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
            rank: Rank(message.rank),
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
        self.local.copies().refused(asked.from, &why);
        // Whoever asked may have gone.
        let _ = asked.parts.try_send(Err(Status::failed_precondition(why)));
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { to, sweep, step, asked_at, outcome } = finished;
        // One that was given up may have ended just before.
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
                // An older question's end is nothing to the running step.
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
            self.local.copies().refused(self.local.node(), &error);
        }
        self.carry_out(outbox);
    }

    fn carry_out(&mut self, mut outbox: Outbox<SweepOutput>) {
        for output in outbox.take() {
            match output {
                SweepOutput::Begun { sweep } => self.begun(sweep),
                SweepOutput::Ask { to, sweep, step } => self.ask(to, sweep, step),
                SweepOutput::Answer { to, step, ours, .. } => self.answer(to, step, ours),
                SweepOutput::Done { is_whole, .. } => self.done(is_whole),
            }
        }
    }

    fn begun(&mut self, sweep: u64) {
        self.begun_at = Instant::now();
        self.is_wanted = false;
        for copy in self.local.copies().all() {
            copy.begin_sweep();
        }
        self.local.copies().count_sweeps(|sweeps| {
            (sweeps.sweep, sweeps.is_running) = (sweep, true);
        });
    }

    fn done(&mut self, is_whole: bool) {
        let time = self.begun_at.elapsed();
        self.ended_at = Some(Instant::now());
        for copy in self.local.copies().all() {
            copy.end_sweep(is_whole);
        }
        self.local.copies().count_sweeps(|sweeps| {
            sweeps.is_running = false;
            sweeps.sweep_count += 1;
            sweeps.broken_sweep_count += u64::from(!is_whole);
            sweeps.last_sweep_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        });
        metrics::sweep_done(is_whole, time);
        if self.local.copies().all().iter().any(|copy| !copy.is_settled()) {
            tokio::spawn(settle(Arc::clone(&self.local)));
        }
        if self.is_wanted {
            self.local.copies().begin_sweep();
        }
    }

    fn ask(&mut self, to: NodeId, sweep: u64, step: Step) {
        match self.in_flight.get(&to) {
            Some(running) if running.is_answered.load(Ordering::Relaxed) => {
                self.queued.insert(to, (sweep, step));
                return;
            }
            // It may wait for its own partners in an older sweep, from which this question calls it.
            Some(running) => running.task.abort(),
            None => {}
        }
        let (finished, asked_at) = (self.finished.clone(), Instant::now());
        let finish = move |outcome| {
            // The exchange ends with the node.
            let _ = finished.send(Finished { to, sweep, step, asked_at, outcome });
        };
        let Some((client, asked)) = self.question(to, sweep, step) else {
            self.in_flight.remove(&to);
            return finish(Err(asking::AskError::PassedOver));
        };
        let (local, is_answered) = (Arc::clone(&self.local), Arc::new(AtomicBool::new(false)));
        let answering = Arc::clone(&is_answered);
        let task = tokio::spawn(async move {
            let outcome = match client {
                Ok(client) => asking::ask(&local, client, to, asked, &answering).await,
                Err(error) => Err(error),
            };
            finish(outcome);
        });
        let task = task.abort_handle();
        self.in_flight.insert(to, InFlight { sweep, step, task, is_answered });
    }

    /// How to ask a node; None if it is passed over.
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
        let rank = members.rank_of(self.local.node())?;
        let address = self.local.address_of(to)?;
        let (epoch, step) = (members.epoch().0, wire::step_number(members.cube(), step));
        let asked = v1::ExchangeStep { epoch, rank: rank.0, sweep, step };
        Some((self.clients.get(&self.local, &address), asked))
    }

    fn answer(&mut self, to: NodeId, step: Step, ours: u64) {
        if let Some(asked) = self.waiting.remove(&(step, to)) {
            tokio::spawn(answering::answer(Arc::clone(&self.local), asked, ours));
        }
    }
}

/// Finds out whether copies that came late have what a majority of the others had.
async fn settle(local: Arc<Local>) {
    let mut others = local.meta().replica().read_meta(MetaState::live_nodes);
    others.remove(&local.node());
    for copy in local.copies().all().into_iter().filter(|copy| !copy.is_settled()) {
        let generation = copy.generation();
        let (mut counts, mut late_count) = (Vec::new(), 0);
        for &node in &others {
            let request = CopyRequest::Knowledge { generation };
            let answer = local.copy_call(node, copy.group, &request, KNOWLEDGE_TIMEOUT).await;
            match answer {
                Ok(CopyAnswer::Knowledge { knows, is_settled: true }) => counts.push(knows),
                Ok(CopyAnswer::Knowledge { .. }) => late_count += 1,
                // It may have what was acknowledged.
                _ => {}
            }
        }
        let old_count = others.len() - late_count;
        copy.settle(generation, &counts, (old_count / 2 + 1).min(old_count));
    }
}
