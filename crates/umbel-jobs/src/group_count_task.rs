//! Counts the groups of an attempt whose cells are all decided: drives the counter's state machine.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;
use umbel_dedup_engine::job::{GroupCountOrder, GroupCountResult};
use umbel_dedup_engine::{
    ExchangeError, GroupCountInput, GroupCountOutput, GroupCounter, GroupSize, KeptGroup,
    RecordRange, WorkerId,
};
use umbel_step::Outbox;

use super::cell_task::{CellTaskEvent, broken};
use super::outgoing::PeerQueues;
use super::wire::error_text;
use super::workshop::{Attempt, GatheredGroups, WorkshopError};

/// A frame of a peer, not decoded yet.
pub(super) type GroupCountFrame = (WorkerId, Vec<u8>);

/// Drives one count.
pub(super) struct GroupCountTask {
    pub(super) me: WorkerId,
    pub(super) machine: GroupCounter,
    pub(super) order: GroupCountOrder,
    pub(super) attempt: Arc<dyn Attempt>,
    pub(super) queues: Arc<PeerQueues>,
    pub(super) events: mpsc::UnboundedSender<CellTaskEvent>,
    pub(super) inbox: mpsc::Receiver<GroupCountFrame>,
    /// Whether a peer's frame was refused; see
    /// [`CellTask::is_in_trouble`](super::cell_task::CellTask::is_in_trouble).
    pub(super) is_in_trouble: bool,
}

impl GroupCountTask {
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
        let attempt = Arc::clone(&self.attempt);
        let mut gathered = attempt.gather(self.order.clone()).await?;
        let groups = &mut *gathered;
        let record_counts = groups.record_counts();
        self.step(GroupCountInput::Begin { record_counts }, groups)?;
        while let Some((from, bytes)) = self.inbox.recv().await {
            self.on_frame(from, bytes, groups)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Processes a peer's frame; the first frame that is refused is reported as trouble with the peer.
    fn on_frame(
        &mut self,
        from: WorkerId,
        bytes: Vec<u8>,
        groups: &mut dyn GatheredGroups,
    ) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        match self.machine.step(GroupCountInput::Frame { from, bytes }, &mut out) {
            Ok(()) => self.carry_out(out, groups),
            Err(error @ (ExchangeError::Frame { .. } | ExchangeError::OutOfPhase { .. })) => {
                if !std::mem::replace(&mut self.is_in_trouble, true) {
                    let cause = error_text(error.to_string(), std::error::Error::source(&error));
                    let _ = self.events.send(CellTaskEvent::Trouble { peer: from, cause });
                }
                Ok(())
            }
            Err(error) => Err(broken(&error)),
        }
    }

    fn step(
        &mut self,
        input: GroupCountInput,
        groups: &mut dyn GatheredGroups,
    ) -> Result<(), WorkshopError> {
        let mut out = Outbox::new();
        self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
        self.carry_out(out, groups)
    }

    fn carry_out(
        &mut self,
        mut out: Outbox<GroupCountOutput>,
        groups: &mut dyn GatheredGroups,
    ) -> Result<(), WorkshopError> {
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
                    GroupCountInput::Claims { owner, claims: groups.claims(range)? }
                }
                GroupCountOutput::Groups(own) => {
                    groups.learn(self.me, own)?;
                    continue;
                }
                GroupCountOutput::Name(record_ids) => {
                    GroupCountInput::Parts(groups.parts(&record_ids)?)
                }
                GroupCountOutput::Sizes { owner, range, sizes } => {
                    learn_sizes(groups, owner, range, sizes)?;
                    continue;
                }
                GroupCountOutput::Done => {
                    let weights = groups.seal()?;
                    let group_count = GroupCountResult { report: self.machine.report(), weights };
                    let _ = self.events.send(CellTaskEvent::GroupsCounted(Box::new(group_count)));
                    continue;
                }
            };
            self.machine.step(input, &mut out).map_err(|error| broken(&error))?;
            orders.extend(out.take());
        }
        Ok(())
    }
}

/// Stores the sizes that another worker has sent for its groups, in the order of the claims on them.
fn learn_sizes(
    groups: &mut dyn GatheredGroups,
    owner: WorkerId,
    range: RecordRange,
    sizes: Vec<GroupSize>,
) -> Result<(), WorkshopError> {
    let claims = groups.claims(range)?;
    let sized = claims.iter().map(|claim| claim.kept).zip(sizes);
    let group = |(kept, GroupSize { size, part })| KeptGroup { kept, size, part };
    groups.learn(owner, sized.map(group).collect())
}
