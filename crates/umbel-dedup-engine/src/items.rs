//! Exactness `bytes`: items with equal hashes are compared byte by byte.
//!
//! The sender groups its items with equal hashes into *variants* of equal bytes, and keeps one item per
//! variant. If another worker has the hash, too, that item is sent to the owner. The owner compares only the
//! bytes, since equal bytes have equal hashes, and its verdict lists the sent items to drop.

use super::drops::Drops;
use super::entry::{Keep, Priority, Rank, RecordId, SuspectItem};
use super::error::ExchangeFrameError;
use super::frame::{Frame, FrameKind, VARINT_BYTES_MAX};
use super::payload::{VerdictList, expect_at_most};
use super::plan::Plan;
use super::sender::Draft;
use crate::FrameResult;
use crate::limits::FRAME_PAYLOAD_BYTES_CUT;
use umbel_bits::{Leb128, put_leb128};

/// One worker's items with equal bytes: the priority of the kept one, and those of the others.
#[derive(Debug)]
struct Variant {
    best: Priority,
    others: Vec<Priority>,
    shared: bool,
    bytes: Vec<u8>,
}

/// A sender's items in one cell.
#[derive(Debug, Default)]
pub(super) struct SenderItems {
    variants: Vec<Variant>,
    sent: u32,
    local_collisions: u64,
}

impl SenderItems {
    /// Groups items into variants, ordered by (hash, bytes).
    pub(super) fn split(mut items: Vec<SuspectItem>, keep: Keep) -> Self {
        let order = |item: &SuspectItem| {
            let rank = if keep == Keep::Best { item.rank } else { Rank::default() };
            Priority { rank, record_id: item.record_id }
        };
        items.sort_by(|a, b| (a.hash, &a.bytes, order(a)).cmp(&(b.hash, &b.bytes, order(b))));
        let mut variants: Vec<Variant> = Vec::new();
        let mut hash = None;
        let mut local_collisions = 0;
        for item in items {
            let priority = order(&item);
            let SuspectItem { hash: item_hash, shared, bytes, .. } = item;
            let same_hash = hash.replace(item_hash) == Some(item_hash);
            match variants.last_mut().filter(|variant| same_hash && variant.bytes == bytes) {
                Some(variant) if keep.prefers(priority, variant.best) => {
                    variant.others.push(std::mem::replace(&mut variant.best, priority));
                }
                Some(variant) => variant.others.push(priority),
                None => {
                    // Collisions of shared hashes are counted by the owner, which gets all their variants.
                    local_collisions += u64::from(same_hash && !shared);
                    variants.push(Variant { best: priority, others: Vec::new(), shared, bytes });
                }
            }
        }
        let sent = variants.iter().filter(|variant| variant.shared).count();
        let sent = u32::try_from(sent).expect("at most one a list entry");
        Self { variants, sent, local_collisions }
    }

    /// How many items are sent to the owner.
    pub(super) fn sent_count(&self) -> usize {
        self.sent as usize
    }

    /// Different items with equal hashes that no other worker has.
    pub(super) fn local_collisions(&self) -> u64 {
        self.local_collisions
    }

    /// The frames for the owner, each with at least one item.
    pub(super) fn drafts(&self, plan: &Plan) -> Vec<Draft> {
        let bits = plan.item_priority_bits();
        let mut payloads = Vec::new();
        let mut payload = Vec::new();
        let mut count = 0;
        for variant in self.variants.iter().filter(|variant| variant.shared) {
            if bits.rank > 0 {
                payload.extend(variant.best.rank.0.to_le_bytes());
            }
            if bits.record_id.is_some() {
                payload.extend(variant.best.record_id.to_bits().to_le_bytes());
            }
            put_leb128(&mut payload, variant.bytes.len() as u64);
            payload.extend_from_slice(&variant.bytes);
            count += 1;
            if payload.len() >= FRAME_PAYLOAD_BYTES_CUT {
                payloads.push((std::mem::take(&mut payload), std::mem::take(&mut count)));
            }
        }
        if count > 0 {
            payloads.push((payload, count));
        }
        Draft::stream(FrameKind::Items, bits.flags(), 0, payloads)
    }

    /// All dropped records, given the owner's verdict on the items that were sent.
    pub(super) fn decided(&self, plan: &Plan, verdict: &VerdictList) -> Drops {
        let mut drops = Drops::default();
        let reports_ranks = plan.record_id_bits.is_some() && plan.shape.keep == Keep::Best;
        let mut sent = 0u32;
        let mut listed = 0usize;
        for variant in &self.variants {
            let mut kept_for_others = variant.best.record_id;
            if variant.shared {
                if verdict.indexes.get(listed) == Some(&sent) {
                    drops.cross += 1;
                    drops.record_ids.push(variant.best.record_id);
                    drops.ranks.extend(reports_ranks.then_some(variant.best.rank));
                    if let Some(&kept) = verdict.kept.get(listed) {
                        kept_for_others = kept;
                        drops.kept.push(kept);
                    }
                    listed += 1;
                }
                sent += 1;
            }
            drops.record_ids.extend(variant.others.iter().map(|other| other.record_id));
            if reports_ranks {
                drops.ranks.extend(variant.others.iter().map(|other| other.rank));
            }
            if plan.record_id_bits.is_some() {
                drops.kept.extend(variant.others.iter().map(|_| kept_for_others));
            }
        }
        drops
    }
}

/// An item at the owner.
pub(super) struct ReceivedItem {
    pub(super) priority: Priority,
    pub(super) bytes: Vec<u8>,
}

/// Reads all items of a frame.
pub(super) fn read_items(frame: &Frame<'_>, plan: &Plan) -> FrameResult<Vec<ReceivedItem>> {
    let bits = plan.item_priority_bits();
    let word_bytes = |travels: bool| if travels { 8 } else { 0 };
    let head_bytes = 1 + word_bytes(bits.rank > 0) + word_bytes(bits.record_id.is_some());
    expect_at_most("count", frame.count as usize, frame.payload.len() / head_bytes)?;
    let mut rest = frame.payload;
    let mut items = Vec::with_capacity(frame.count as usize);
    for _ in 0..frame.count {
        let mut priority = Priority::default();
        if bits.rank > 0 {
            priority.rank = Rank(read_word(&mut rest)?);
        }
        if bits.record_id.is_some() {
            priority.record_id = RecordId::from_bits(read_word(&mut rest)?);
        }
        let length = read_length(&mut rest)?;
        let (bytes, tail) = rest.split_at_checked(length).ok_or(past_end(length, rest.len()))?;
        items.push(ReceivedItem { priority, bytes: bytes.to_vec() });
        rest = tail;
    }
    if rest.is_empty() {
        Ok(items)
    } else {
        Err(ExchangeFrameError::TrailingBytes { extra: rest.len() })
    }
}

fn past_end(needed_bytes: usize, left_bytes: usize) -> ExchangeFrameError {
    ExchangeFrameError::Truncated { needed: needed_bytes, got: left_bytes }
}

fn read_word(rest: &mut &[u8]) -> FrameResult<u64> {
    let (head, tail) = rest.split_first_chunk::<8>().ok_or(past_end(8, rest.len()))?;
    *rest = tail;
    Ok(u64::from_le_bytes(*head))
}

fn read_length(rest: &mut &[u8]) -> FrameResult<usize> {
    let malformed = ExchangeFrameError::Header { field: "item length" };
    match Leb128::padded(VARINT_BYTES_MAX).take(rest) {
        Ok(Some(length)) => usize::try_from(length).map_err(|_| malformed),
        Ok(None) => Err(past_end(1, 0)),
        Err(_) => Err(malformed),
    }
}
