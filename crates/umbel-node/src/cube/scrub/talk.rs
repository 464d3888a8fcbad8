//! Runs a repair session over a line.

use std::collections::VecDeque;

use futures_util::future::BoxFuture;
use umbel_ports::{Pacer, Purpose, run_blocking};
use umbel_proto::v1::scrub_part::Part;
use umbel_replicated_engine::repair::{
    Policy, RepairInput, RepairLimits, RepairOptions, RepairOutcome, RepairOutput, RepairSession,
    ResidueTable,
};
use umbel_step::Outbox;

use super::ScrubError;
use super::image::ComparedImage;
use super::line::{Line, Outlet};
use crate::cube::copies::Copies;
use crate::member::Member;
use crate::metrics;

/// The side that this node is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Asking,
    Answering,
}

/// Runs a session to its end and returns its outcome. The image then records the missing bits; the copy
/// does not have them yet.
pub(super) async fn talk<T: Send + 'static>(
    copies: &Copies,
    side: Side,
    image: &mut ComparedImage,
    line: &mut Line<T>,
) -> Result<Box<RepairOutcome>, ScrubError> {
    let table = run_blocking(|| image.table())?;
    let options = options(&copies.member, image, &table);
    let (mut session, mut input) = match side {
        Side::Asking => {
            let session = RepairSession::initiator(options, Policy::Union, table);
            (session, RepairInput::Start)
        }
        Side::Answering => {
            let session = RepairSession::responder(options, true, table);
            (session, next_input(line).await?)
        }
    };
    let mut outbox = Outbox::new();
    let outlet = line.outlet.clone();
    let mut queue = Queue { outlet, pacer: &copies.pacer, waiting: VecDeque::new(), sending: None };
    loop {
        run_blocking(|| session.step(input, &image.bits, &mut outbox));
        for output in outbox.take() {
            match output {
                RepairOutput::Send(bytes) => queue.waiting.push_back(bytes),
                RepairOutput::Differs(difference) => image.lacks(&difference)?,
                RepairOutput::Finish(outcome) => {
                    while queue.is_sending() {
                        queue.sent().await?;
                    }
                    return Ok(outcome?);
                }
            }
        }
        input = loop {
            if !queue.is_sending() {
                break next_input(line).await?;
            }
            // The asking side has questions in flight, and reads answers even while it has frames to
            // send: otherwise each side could wait for the other one to read.
            tokio::select! {
                biased;
                sent = queue.sent() => sent?,
                input = next_input(line), if side == Side::Asking => break input?,
            }
        };
    }
}

/// Frames that wait to be sent, and the frame that is being sent.
struct Queue<'a, T> {
    outlet: Outlet<T>,
    pacer: &'a Pacer,
    waiting: VecDeque<Vec<u8>>,
    sending: Option<BoxFuture<'a, Result<(), ScrubError>>>,
}

impl<T: Send + 'static> Queue<'_, T> {
    fn is_sending(&self) -> bool {
        self.sending.is_some() || !self.waiting.is_empty()
    }

    /// Waits until one more frame is sent. Cancelling the wait loses nothing.
    async fn sent(&mut self) -> Result<(), ScrubError> {
        if self.sending.is_none() {
            let Some(bytes) = self.waiting.pop_front() else { return Ok(()) };
            metrics::scrub_sent(bytes.len());
            self.sending = Some(Box::pin(self.outlet.clone().send_frames(bytes, self.pacer)));
        }
        if let Some(sending) = &mut self.sending {
            let sent = sending.await;
            self.sending = None;
            sent?;
        }
        Ok(())
    }
}

async fn next_input<T>(line: &mut Line<T>) -> Result<RepairInput, ScrubError> {
    Ok(match line.next().await? {
        Some(Part::Frames(bytes)) => {
            metrics::scrub_received(bytes.len());
            RepairInput::Received(bytes.into())
        }
        Some(_) => return Err(ScrubError::Nonsense("something else between frames".to_owned())),
        None => RepairInput::Closed,
    })
}

fn options(member: &Member, image: &ComparedImage, table: &ResidueTable) -> RepairOptions {
    RepairOptions {
        shape_id: image.shape_id(table),
        domain: member.identity().cluster.to_le_bytes(),
        nonce: member.seed().number(Purpose::Scrub),
        limits: RepairLimits::of(table),
    }
}
