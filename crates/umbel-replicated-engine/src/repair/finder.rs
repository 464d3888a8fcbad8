//! Finds the blocks that differ, by a reconciliation session over block numbers with their residues.

use umbel_sketch::Estimator;

use super::keys::block_item;
use super::message::Message;
use super::options::RepairOptions;
use super::table::ResidueTable;
use crate::limits::REPAIR_FRAME_BODY_BYTES_CUT;
use umbel_reconcile_engine::{
    Aim, Direction, Item, ItemIndex, ItemRef, Limits, OnConflict, Options, Session, SessionError,
    SessionInput, SessionOutput, SessionRole, SymbolKind,
};
use umbel_step::Outbox;

/// Bytes that reconciliation costs per dirty block, measured: two symbols, and the block's number for the
/// responder.
const FOUND_BYTES: f64 = 12.0;

/// Fixed cost of reconciliation in bytes.
const SESSION_BYTES: f64 = 300.0;

/// Bytes that each clean block costs without a search for dirty ones: one syndrome, and its share of a
/// hash.
const CLEAN_BYTES: f64 = 2.125;

/// Bytes per block after which a session is given up.
const BYTES_PER_BLOCK_MAX: u64 = 128;

/// Estimated number of dirty blocks. Each of them differs as one item on either side.
pub(crate) fn estimated_dirty(ours: &Estimator, theirs: &Estimator, block_count: u32) -> f64 {
    (ours.estimate(theirs) / 2.0).clamp(1.0, block_count.into())
}

/// Whether searching for the dirty blocks first is worthwhile. If not, all blocks are treated as dirty.
pub(crate) fn pays(dirty: f64, block_count: u32) -> bool {
    SESSION_BYTES + FOUND_BYTES * dirty < CLEAN_BYTES * (f64::from(block_count) - dirty)
}

/// One side of the reconciliation session.
#[derive(Debug)]
pub(crate) struct Finder {
    session: Session,
    only_here: Option<Vec<ItemIndex>>,
    result: Option<bool>,
}

impl Finder {
    pub(crate) fn initiator(options: &RepairOptions, blocks: u32, estimated: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "few blocks")]
        let expected = (2.0 * estimated).round() as u64;
        let aim = Aim { expected_difference: Some(expected), ..Aim::new(Direction::Compare) };
        Self::new(SessionRole::Initiator(aim), options, blocks)
    }

    pub(crate) fn responder(options: &RepairOptions, blocks: u32) -> Self {
        let role = SessionRole::Responder { accept_items: false, on_conflict: OnConflict::Report };
        Self::new(role, options, blocks)
    }

    fn new(role: SessionRole, options: &RepairOptions, blocks: u32) -> Self {
        let limits = Limits {
            bytes_max: (1 << 16) + BYTES_PER_BLOCK_MAX * u64::from(blocks),
            diff_max: 2 * u64::from(blocks),
            ..Limits::default()
        };
        let session = Session::new(Options {
            role,
            kind: SymbolKind::Hashed,
            dataset_id: options.shape_id,
            domain: options.domain,
            nonce: options.nonce,
            limits,
        });
        Self { session, only_here: None, result: None }
    }

    /// Whether the session succeeded; None while it is running.
    pub(crate) const fn result(&self) -> Option<bool> {
        self.result
    }

    /// The blocks that differ; None if the session failed.
    pub(crate) fn dirty(self) -> Option<Vec<u32>> {
        let found = self.only_here.filter(|_| self.result == Some(true))?;
        found.into_iter().map(|index| u32::try_from(index.0).ok()).collect()
    }

    /// Handles an input, and everything that the session orders until it waits for the peer.
    pub(crate) fn step(
        &mut self,
        input: SessionInput,
        table: &ResidueTable,
        send: &mut Vec<Message>,
    ) {
        let mut inputs = vec![input];
        let mut out = Outbox::new();
        while let Some(input) = inputs.pop() {
            self.session.step(input, &mut out);
            let mut answers = Vec::new();
            for output in out.take() {
                answers.extend(self.follow(output, table, send));
            }
            answers.reverse();
            inputs.extend(answers);
        }
    }

    fn follow(
        &mut self,
        output: SessionOutput,
        table: &ResidueTable,
        send: &mut Vec<Message>,
    ) -> Option<SessionInput> {
        match output {
            SessionOutput::Send(bytes) => {
                send.extend(
                    bytes
                        .chunks(REPAIR_FRAME_BODY_BYTES_CUT)
                        .map(|part| Message::Find(part.to_vec())),
                );
                None
            }
            SessionOutput::RunPass(mut pass) => {
                for block in 0..table.block_count() {
                    let item = block_item(table, block);
                    pass.add(ItemIndex(block.into()), ItemRef::Bytes(&item));
                }
                Some(SessionInput::PassDone(pass))
            }
            SessionOutput::Fetch(indexes) => {
                let item = |index: &ItemIndex| {
                    let block = u32::try_from(index.0).expect("a block of ours");
                    Item::Bytes(block_item(table, block).to_vec())
                };
                Some(SessionInput::Items(indexes.iter().map(item).collect()))
            }
            SessionOutput::Pause => Some(SessionInput::Resume),
            SessionOutput::OnlyHere(indexes) => {
                self.only_here = Some(indexes);
                None
            }
            SessionOutput::OnlyThere(_) => Some(SessionInput::Applied),
            SessionOutput::Phase(_) => None,
            SessionOutput::Finish(result) => {
                self.result = Some(matches!(&result, Ok(outcome) if outcome.verified));
                debug_assert!(!matches!(result, Err(SessionError::Driver { .. })), "{result:?}");
                None
            }
        }
    }
}
