//! The state machine of both sides of a repair.

use super::core::Core;
use super::error::{RepairError, Result};
use super::event::{RepairInput, RepairOutput};
use super::initiator::Initiator;
use super::message::Message;
use super::options::{Policy, RepairOptions};
use super::responder::Responder;
use super::table::{BitBlocks, ResidueTable};
use umbel_reconcile_engine::wire::FrameBuffer;
use umbel_step::Outbox;

/// One side of a repair.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_replicated_engine::repair::{
///     Policy, RepairInput, RepairLimits, RepairOptions, RepairOutput, RepairSession, ResidueTable,
/// };
///
/// let (ours, theirs) = (vec![0b0101u64; 600], vec![0b0101u64; 600]);
/// let mut theirs = theirs;
/// theirs[599] = 0b0110;
/// let table = |words: &[u64]| ResidueTable::of_words(words, 64 * 600);
/// let options = |table: &ResidueTable, nonce| RepairOptions {
///     shape_id: 7, domain: [0; 16], nonce, limits: RepairLimits::of(table),
/// };
/// let (a, b) = (table(&ours)?, table(&theirs)?);
/// let (ours_options, theirs_options) = (options(&a, 1), options(&b, 2));
/// let mut initiator = RepairSession::initiator(ours_options, Policy::Mirror, a);
/// let mut responder = RepairSession::responder(theirs_options, false, b);
/// let mut out = Outbox::new();
/// let mut inputs = vec![(true, RepairInput::Start)];
/// let mut flips = Vec::new();
/// while let Some((is_ours, input)) = inputs.pop() {
///     match is_ours {
///         true => initiator.step(input, &ours, &mut out),
///         false => responder.step(input, &theirs, &mut out),
///     }
///     for output in out.take() {
///         match output {
///             RepairOutput::Send(bytes) => inputs.insert(0, (!is_ours, RepairInput::Received(bytes))),
///             RepairOutput::Differs(difference) => flips.push((difference.block, difference.flips)),
///             RepairOutput::Finish(result) => assert!(result.is_ok()),
///         }
///     }
/// }
/// // Words 512 to 599 are in block 1.
/// assert_eq!(flips, [(1, vec![64 * 87, 64 * 87 + 1])]);
/// # Ok::<(), umbel_replicated_engine::repair::TableError>(())
/// ```
#[derive(Debug)]
pub struct RepairSession {
    core: Core,
    half: Half,
    inbox: FrameBuffer,
}

#[derive(Debug)]
enum Half {
    Initiator(Box<Initiator>),
    Responder(Box<Responder>),
}

impl RepairSession {
    /// The side that starts, asks and decodes. `table` is that of its copy.
    #[must_use]
    pub fn initiator(options: RepairOptions, policy: Policy, table: ResidueTable) -> Self {
        let half = Half::Initiator(Box::new(Initiator::new(policy)));
        Self { core: Core::new(options, table), half, inbox: FrameBuffer::default() }
    }

    /// The side that answers. `accept_bits` is whether the initiator may set bits of this copy.
    #[must_use]
    pub fn responder(options: RepairOptions, accept_bits: bool, table: ResidueTable) -> Self {
        let half = Half::Responder(Box::new(Responder::new(accept_bits)));
        Self { core: Core::new(options, table), half, inbox: FrameBuffer::default() }
    }

    /// Uses smaller windows, so that a short test has many of them.
    #[cfg(test)]
    pub(crate) fn with_window_blocks(mut self, window_blocks: [usize; 2]) -> Self {
        if let Half::Initiator(half) = &mut self.half {
            half.windows.window_blocks = window_blocks;
        }
        self
    }

    /// Handles one event, and outputs the orders that follow. `blocks` is this copy, which nothing else may
    /// change during the step. A frame takes at most about 100 ms.
    pub fn step(
        &mut self,
        input: RepairInput,
        blocks: &dyn BitBlocks,
        out: &mut Outbox<RepairOutput>,
    ) {
        if self.core.is_over {
            return;
        }
        if let Err(error) = self.advance(input, blocks, out) {
            self.fail(error, out);
        }
    }

    fn advance(
        &mut self,
        input: RepairInput,
        blocks: &dyn BitBlocks,
        out: &mut Outbox<RepairOutput>,
    ) -> Result<()> {
        match input {
            RepairInput::Start => {
                if let Half::Initiator(half) = &self.half {
                    half.start(&mut self.core, out);
                }
            }
            RepairInput::Received(bytes) => self.inbox.push(&bytes),
            RepairInput::Closed => {
                return Err(RepairError::Disconnected { phase: self.core.phase });
            }
            RepairInput::Cancel => return Err(RepairError::Cancelled),
        }
        self.core.step_begins();
        while !self.core.is_over
            && let Some(frame) = self.inbox.next_frame()?
        {
            let message = Message::read(&frame, &self.core.message_limits())?;
            self.core.received(&message, frame.wire_bytes)?;
            if let Message::Abort { text } = message {
                return Err(RepairError::Aborted { text });
            }
            match &mut self.half {
                Half::Initiator(half) => half.on_message(&mut self.core, message, blocks, out)?,
                Half::Responder(half) => half.on_message(&mut self.core, message, blocks, out)?,
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: RepairError, out: &mut Outbox<RepairOutput>) {
        let is_known_to_peer = matches!(
            error,
            RepairError::Aborted { .. }
                | RepairError::Disconnected { .. }
                | RepairError::Refused(_)
                | RepairError::RefusedHere
        );
        if !is_known_to_peer {
            self.core.send(&Message::Abort { text: error.to_string() }, out);
        }
        self.core.is_over = true;
        out.push(RepairOutput::Finish(Err(error)));
    }
}
