//! Counts the groups of an attempt whose cells are all settled: drives the tally's machine.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;
use umbel_dedup_engine::job::{Tallied, TallyOrder};
use umbel_dedup_engine::{
    ExchangeError, Group, GroupSize, PlaceRange, Tally, TallyInput, TallyOutput, WorkerId,
};
use umbel_step::Outbox;

use super::lane::{LaneEvent, broken};
use super::outgoing::PeerQueues;
use super::wire::error_text;
use super::workshop::{Workshop, WorkshopError};

/// A frame of a peer, undecoded.
pub(super) type TallyFrame = (WorkerId, Vec<u8>);

/// See the module.
pub(super) struct Tallier {
    pub(super) me: WorkerId,
    pub(super) machine: Tally,
    pub(super) order: TallyOrder,
    pub(super) workshop: Arc<dyn Workshop>,
    pub(super) queues: Arc<PeerQueues>,
    pub(super) events: mpsc::UnboundedSender<LaneEvent>,
    pub(super) inbox: mpsc::Receiver<TallyFrame>,
}

impl Tallier {
    /// Works until the attempt ends: others may still ask when this worker knows all that it needs.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.work().await {
            let _ = self.events.send(LaneEvent::Broken(error));
        }
        // Frames that still come must not hold up their streams.
        while self.inbox.recv().await.is_some() {}
    }

    async fn work(&mut self) -> Result<(), WorkshopError> {
        let workshop = Arc::clone(&self.workshop);
        let places = workshop.gather(self.order.clone()).await?;
        self.step(TallyInput::Begin { places })?;
        while let Some((from, bytes)) = self.inbox.recv().await {
            self.hear(from, bytes)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Takes a peer's frame; one that is refused is the peer's trouble.
    fn hear(&mut self, from: WorkerId, bytes: Vec<u8>) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        match self.machine.step(TallyInput::Frame { from, bytes }, &mut out) {
            Ok(()) => self.carry_out(out),
            Err(error @ (ExchangeError::Frame { .. } | ExchangeError::OutOfPhase { .. })) => {
                let cause = error_text(error.to_string(), std::error::Error::source(&error));
                let _ = self.events.send(LaneEvent::Trouble { peer: from, cause });
                Ok(())
            }
            Err(error) => Err(broken(&error)),
        }
    }

    fn step(&mut self, input: TallyInput) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
        self.carry_out(out)
    }

    fn carry_out(&mut self, mut out: Outbox<TallyOutput>) -> Result<(), WorkshopError> {
        let mut orders: VecDeque<TallyOutput> = out.take().into();
        while let Some(order) = orders.pop_front() {
            let input = match order {
                TallyOutput::Send { to, frame } if to == self.me => {
                    TallyInput::Frame { from: to, bytes: frame }
                }
                TallyOutput::Send { to, frame } => {
                    self.queues.send(to, frame);
                    continue;
                }
                TallyOutput::Read { keeper, range } => {
                    TallyInput::Claims { keeper, claims: self.workshop.claims(range)? }
                }
                TallyOutput::Groups(groups) => {
                    self.workshop.learn(self.me, groups)?;
                    continue;
                }
                TallyOutput::Name(places) => TallyInput::Parts(self.workshop.parts(&places)?),
                TallyOutput::Sizes { keeper, range, sizes } => {
                    self.told(keeper, range, sizes)?;
                    continue;
                }
                TallyOutput::Done => {
                    let weights = self.workshop.seal_groups()?;
                    let tallied = Tallied { report: self.machine.report(), weights };
                    let _ = self.events.send(LaneEvent::Tallied(Box::new(tallied)));
                    continue;
                }
            };
            self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
            orders.extend(out.take());
        }
        Ok(())
    }

    /// Another worker has told how large its groups are, in the order of the claims on them.
    fn told(
        &self,
        keeper: WorkerId,
        range: PlaceRange,
        sizes: Vec<GroupSize>,
    ) -> Result<(), WorkshopError> {
        let claims = self.workshop.claims(range)?;
        let groups = claims.iter().map(|claim| claim.kept).zip(sizes);
        let group = |(kept, GroupSize { size, part })| Group { kept, size, part };
        self.workshop.learn(keeper, groups.map(group).collect())
    }
}
