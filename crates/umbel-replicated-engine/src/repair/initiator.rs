//! The side of a repair that asks and decodes.

use umbel_sketch::{BLOCK_BITS, BLOCK_WORDS, Estimator};

use super::core::{Core, out_of_order};
use super::error::{RepairError, RepairRefusal, Result};
use super::event::{Out, RepairOutput};
use super::finder::{Finder, estimated_dirty, pays};
use super::keys::RepairKey;
use super::message::{Message, VERSION, Verdict, policy_byte, refusal_of};
use super::options::{BlockDifference, Policy};
use super::table::{BitBlocks, ResidueTable, block_code};
use super::window::Window;
use super::windows::Windows;
use crate::limits::REPAIR_PUSH_BITS_MAX;
use umbel_reconcile_engine::{SessionFrameError, SessionInput};

/// The phase of the session.
#[derive(Debug)]
enum State {
    Greeting,
    Finding(Box<Finder>),
    Comparing,
    Closing,
}

/// An initiator between two frames.
#[derive(Debug)]
pub(crate) struct Initiator {
    policy: Policy,
    state: State,
    /// The other copy's table, as far as it is known. Its root is `their_root`.
    theirs: Option<ResidueTable>,
    their_root: u128,
    pub(crate) windows: Windows,
    /// Bits that the responder lacks and that have not been sent yet.
    push: Vec<u64>,
    done: u128,
}

impl Initiator {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Greeting,
            theirs: None,
            their_root: 0,
            windows: Windows::new(),
            push: Vec::new(),
            done: 0,
        }
    }

    pub(crate) fn start(&self, core: &mut Core, out: &mut Out) {
        core.phase = "greeting";
        let hello = Message::Hello {
            version: VERSION,
            policy: policy_byte(self.policy),
            shape_id: core.options.shape_id,
            bits: core.outcome.table.bit_count(),
            nonce: core.options.nonce,
            check: core.key.check(),
            root: core.key.root(&core.outcome.table),
        };
        core.send(&hello, out);
    }

    pub(crate) fn on_message(
        &mut self,
        core: &mut Core,
        message: Message,
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<()> {
        match (&mut self.state, message) {
            (State::Greeting, Message::Welcome(verdict)) => {
                self.welcome(core, verdict, blocks, out)
            }
            (State::Finding(finder), Message::Find(bytes)) => {
                let mut send = Vec::new();
                finder.step(SessionInput::Received(bytes), &core.outcome.table, &mut send);
                send.iter().for_each(|message| core.send(message, out));
                self.found(core, blocks, out)
            }
            // Belongs to a search that this side has given up.
            (State::Comparing, Message::Find(_)) => Ok(()),
            (State::Comparing, Message::Answer { first, payload }) => {
                let is_whole = self.windows.answered(core, first, &payload, blocks)?;
                if is_whole { self.advance(core, blocks, out) } else { Ok(()) }
            }
            (State::Closing, Message::Done { root }) => {
                if root != self.done {
                    return Err(RepairError::NotConverged);
                }
                core.finish(out);
                Ok(())
            }
            (_, message) => Err(out_of_order(&message, core.phase)),
        }
    }

    fn welcome(
        &mut self,
        core: &mut Core,
        verdict: Verdict,
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<()> {
        let options = core.options;
        let (nonce, check, root, estimator) = match verdict {
            Verdict::Equal => {
                core.finish(out);
                return Ok(());
            }
            Verdict::Refused { reason, theirs } => {
                let bits = core.outcome.table.bit_count();
                let refusal = refusal_of((reason, theirs), options.shape_id, bits);
                let unknown = SessionFrameError::Field { field: "reason", got: reason.into() };
                return Err(refusal.map_or(unknown.into(), RepairError::Refused));
            }
            Verdict::Differs { nonce, check, root, estimator } => (nonce, check, root, estimator),
        };
        core.key = RepairKey::derive(&options.domain, options.shape_id, [options.nonce, nonce]);
        if core.key.check() != check {
            return Err(RepairError::Refused(RepairRefusal::Key));
        }
        let block_count = core.outcome.table.block_count();
        let theirs = Estimator::from_bytes(&estimator, block_count.into());
        let malformed =
            SessionFrameError::Field { field: "estimator", got: estimator.len() as u64 };
        let theirs = theirs.map_err(|_| malformed)?;
        self.their_root = root;
        self.theirs = Some(core.outcome.table.clone());
        let dirty = estimated_dirty(&core.key.estimator(&core.outcome.table), &theirs, block_count);
        if !pays(dirty, block_count) {
            return self.compare_blocks((0..block_count).collect(), core, blocks, out);
        }
        core.phase = "finding blocks";
        let mut finder = Finder::initiator(&options, block_count, dirty);
        let mut send = Vec::new();
        finder.step(SessionInput::Start, &core.outcome.table, &mut send);
        send.iter().for_each(|message| core.send(message, out));
        self.state = State::Finding(Box::new(finder));
        self.found(core, blocks, out)
    }

    /// Continues once the search is over. If the search failed, every block is treated as dirty.
    fn found(&mut self, core: &mut Core, blocks: &dyn BitBlocks, out: &mut Out) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Comparing) {
            State::Finding(finder) if finder.result().is_some() => {
                let dirty = finder.dirty().filter(|dirty| !dirty.is_empty());
                let all = || (0..core.outcome.table.block_count()).collect();
                self.compare_blocks(dirty.unwrap_or_else(all), core, blocks, out)
            }
            state => {
                self.state = state;
                Ok(())
            }
        }
    }

    fn compare_blocks(
        &mut self,
        dirty: Vec<u32>,
        core: &mut Core,
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) -> Result<()> {
        self.windows.over(dirty);
        self.state = State::Comparing;
        core.phase = "settling blocks";
        self.advance(core, blocks, out)
    }

    /// Reports repaired windows, and asks the next questions.
    fn advance(&mut self, core: &mut Core, blocks: &dyn BitBlocks, out: &mut Out) -> Result<()> {
        while let Some(window) = self.windows.advance(core, blocks, out)? {
            self.hand_out(&window, core, blocks, out);
        }
        if self.windows.is_empty() { self.close(core, out) } else { Ok(()) }
    }

    /// Reports the differences of a window that is repaired and verified.
    fn hand_out(
        &mut self,
        window: &Window,
        core: &mut Core,
        blocks: &dyn BitBlocks,
        out: &mut Out,
    ) {
        let members = &window.members;
        let mut words = [0; BLOCK_WORDS];
        for (block, differing) in
            members.iter().filter_map(|m| Some((m.block, m.differing.as_ref()?)))
        {
            let positions = differing.positions();
            if positions.is_empty() {
                continue;
            }
            if let Some(theirs) = &mut self.theirs {
                let residues = theirs.of_block_mut(block);
                positions.iter().for_each(|&at| block_code().flip(residues, at));
            }
            let flips: Vec<u32> = match self.policy {
                Policy::Compare => Vec::new(),
                Policy::Mirror => positions.clone(),
                Policy::Union => {
                    blocks.read(block, &mut words);
                    let is_set = |at: &u32| words[*at as usize / 64] >> (at % 64) & 1 == 1;
                    let (surplus, missing) = positions.iter().partition(|at| is_set(at));
                    self.push(block, surplus, core, out);
                    missing
                }
            };
            let residues = core.outcome.table.of_block_mut(block);
            flips.iter().for_each(|&at| block_code().flip(residues, at));
            core.note_differing(true, positions.len(), flips.len());
            let narrow = |bits: Vec<u32>| {
                let narrow = |&at: &u32| u16::try_from(at).expect("a bit of a block");
                bits.iter().map(narrow).collect()
            };
            let (differing, flips) = (narrow(positions), narrow(flips));
            out.push(RepairOutput::Differs(BlockDifference { block, differing, flips }));
        }
        self.send_push(core, out);
    }

    /// Collects bits of a block that the responder lacks.
    fn push(&mut self, block: u32, positions: Vec<u32>, core: &mut Core, out: &mut Out) {
        let begin = u64::from(block) * u64::from(BLOCK_BITS);
        for position in positions {
            self.push.push(begin + u64::from(position));
            if self.push.len() == REPAIR_PUSH_BITS_MAX {
                self.send_push(core, out);
            }
        }
    }

    fn send_push(&mut self, core: &mut Core, out: &mut Out) {
        if !self.push.is_empty() {
            core.send(&Message::Push(std::mem::take(&mut self.push)), out);
        }
    }

    /// Compares the roots, and sends the responder the root that its copy should have now.
    fn close(&mut self, core: &mut Core, out: &mut Out) -> Result<()> {
        let theirs = self.theirs.as_ref().map(|theirs| core.key.root(theirs));
        if theirs != Some(self.their_root) {
            return Err(RepairError::NotConverged);
        }
        self.done = match self.policy {
            Policy::Union => core.key.root(&core.outcome.table),
            Policy::Compare | Policy::Mirror => self.their_root,
        };
        core.send(&Message::Done { root: self.done }, out);
        core.phase = "comparing roots";
        self.state = State::Closing;
        Ok(())
    }
}
