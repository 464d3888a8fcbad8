//! Counts the groups of an attempt whose cells are all decided: drives the counter's state machine.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;
use umbel_dedup_engine::job::{GroupCountOrder, GroupCountResult};
use umbel_dedup_engine::{
    ExchangeError, Group, GroupCountInput, GroupCountOutput, GroupCounter, GroupSize, RecordRange,
    WorkerId,
};
use umbel_step::Outbox;

use super::cell_task::{CellTaskEvent, broken};
use super::outgoing::PeerQueues;
use super::wire::error_text;
use super::workshop::{Workshop, WorkshopError};

/// A frame of a peer, not decoded yet.
pub(super) type TallyFrame = (WorkerId, Vec<u8>);

/// Drives one count.
pub(super) struct Tallier {
    pub(super) me: WorkerId,
    pub(super) machine: GroupCounter,
    pub(super) order: GroupCountOrder,
    pub(super) workshop: Arc<dyn Workshop>,
    pub(super) queues: Arc<PeerQueues>,
    pub(super) events: mpsc::UnboundedSender<CellTaskEvent>,
    pub(super) inbox: mpsc::Receiver<TallyFrame>,
}

impl Tallier {
    /// Works until the attempt ends: other workers may still ask after this worker has all that it
    /// needs.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.work().await {
            let _ = self.events.send(CellTaskEvent::Broken(error));
        }
        // Frames that still arrive must not block their streams.
        while self.inbox.recv().await.is_some() {}
    }

    async fn work(&mut self) -> Result<(), WorkshopError> {
        let workshop = Arc::clone(&self.workshop);
        let record_counts = workshop.gather(self.order.clone()).await?;
        self.step(GroupCountInput::Begin { record_counts })?;
        while let Some((from, bytes)) = self.inbox.recv().await {
            self.on_frame(from, bytes)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Processes a peer's frame; a frame that is refused is reported as trouble with the peer.
    fn on_frame(&mut self, from: WorkerId, bytes: Vec<u8>) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        match self.machine.step(GroupCountInput::Frame { from, bytes }, &mut out) {
            Ok(()) => self.carry_out(out),
            Err(error @ (ExchangeError::Frame { .. } | ExchangeError::OutOfPhase { .. })) => {
                let cause = error_text(error.to_string(), std::error::Error::source(&error));
                let _ = self.events.send(CellTaskEvent::Trouble { peer: from, cause });
                Ok(())
            }
            Err(error) => Err(broken(&error)),
        }
    }

    fn step(&mut self, input: GroupCountInput) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
        self.carry_out(out)
    }

    fn carry_out(&mut self, mut out: Outbox<GroupCountOutput>) -> Result<(), WorkshopError> {
        let mut orders: VecDeque<GroupCountOutput> = out.take().into();
        while let Some(order) = orders.pop_front() {
            let input = match order {
                GroupCountOutput::Send { to, frame } if to == self.me => {
                    GroupCountInput::Frame { from: to, bytes: frame }
                }
                GroupCountOutput::Send { to, frame } => {
                    self.queues.send(to, frame);
                    continue;
                }
                GroupCountOutput::Read { owner, range } => {
                    GroupCountInput::Claims { owner, claims: self.workshop.claims(range)? }
                }
                GroupCountOutput::Groups(groups) => {
                    self.workshop.learn(self.me, groups)?;
                    continue;
                }
                GroupCountOutput::Name(places) => {
                    GroupCountInput::Parts(self.workshop.parts(&places)?)
                }
                GroupCountOutput::Sizes { owner, range, sizes } => {
                    self.on_sizes(owner, range, sizes)?;
                    continue;
                }
                GroupCountOutput::Done => {
                    let weights = self.workshop.seal_groups()?;
                    let tallied = GroupCountResult { report: self.machine.report(), weights };
                    let _ = self.events.send(CellTaskEvent::Tallied(Box::new(tallied)));
                    continue;
                }
            };
            self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
            orders.extend(out.take());
        }
        Ok(())
    }

    /// Stores the sizes that another worker has sent for its groups, in the order of the claims on
    /// them.
    fn on_sizes(
        &self,
        owner: WorkerId,
        range: RecordRange,
        sizes: Vec<GroupSize>,
    ) -> Result<(), WorkshopError> {
        let claims = self.workshop.claims(range)?;
        let groups = claims.iter().map(|claim| claim.kept).zip(sizes);
        let group = |(kept, GroupSize { size, part })| Group { kept, size, part };
        self.workshop.learn(owner, groups.map(group).collect())
    }
}
