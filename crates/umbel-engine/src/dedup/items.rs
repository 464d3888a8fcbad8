//! Level `bytes`: items whose hashes are equal are compared byte by byte.
//!
//! The sender splits the classes of equal hashes that it holds into variants of equal bytes and drops all but the
//! best of each. One item of each variant that another worker might hold too goes to the owner, which groups by
//! bytes alone: equal bytes have equal hashes.

use super::entry::{Item, Keep, Place};
use super::error::FrameError;
use super::frame::{Frame, FrameKind, flag, push_varint};
use super::payload::{VerdictList, expect_at_most};
use super::plan::Plan;
use super::sender::Draft;
use super::worker::Drops;
use crate::limits::FRAME_PAYLOAD_BYTES_CUT;

/// Items of one worker with equal bytes: the best of them, and the others.
#[derive(Debug)]
struct Variant {
    best: Place,
    others: Vec<Place>,
    shared: bool,
    bytes: Vec<u8>,
}

/// What a sender knows of its items in one cell.
#[derive(Debug, Default)]
pub(super) struct SenderItems {
    variants: Vec<Variant>,
    sent: u32,
    local_collisions: u64,
}

impl SenderItems {
    /// Splits items into variants, in the order of (hash, bytes).
    pub(super) fn split(mut items: Vec<Item>, keep: Keep) -> Self {
        items.sort_by(|a, b| (a.hash, &a.bytes, a.place).cmp(&(b.hash, &b.bytes, b.place)));
        let mut variants: Vec<Variant> = Vec::new();
        let mut hash = None;
        let mut local_collisions = 0;
        for Item { hash: item_hash, place, shared, bytes } in items {
            let same_hash = hash.replace(item_hash) == Some(item_hash);
            match variants.last_mut().filter(|variant| same_hash && variant.bytes == bytes) {
                Some(variant) if keep.prefers(place, variant.best) => {
                    variant.others.push(std::mem::replace(&mut variant.best, place));
                }
                Some(variant) => variant.others.push(place),
                None => {
                    // The owner counts the collisions of shared hashes: only it sees all their variants.
                    local_collisions += u64::from(same_hash && !shared);
                    variants.push(Variant { best: place, others: Vec::new(), shared, bytes });
                }
            }
        }
        let sent = variants.iter().filter(|variant| variant.shared).count();
        let sent = u32::try_from(sent).expect("at most one a list entry");
        Self { variants, sent, local_collisions }
    }

    /// How many items the owner is asked about.
    pub(super) fn sent_count(&self) -> usize {
        self.sent as usize
    }

    /// Different items with equal hashes that no other worker holds.
    pub(super) fn local_collisions(&self) -> u64 {
        self.local_collisions
    }

    /// The items for the owner, in frames of at least one item.
    pub(super) fn drafts(&self, plan: &Plan) -> Vec<Draft> {
        let mut payloads = Vec::new();
        let mut payload = Vec::new();
        let mut count = 0;
        for variant in self.variants.iter().filter(|variant| variant.shared) {
            if plan.place_bits.is_some() {
                payload.extend(variant.best.to_bits().to_le_bytes());
            }
            push_varint(&mut payload, variant.bytes.len() as u64);
            payload.extend_from_slice(&variant.bytes);
            count += 1;
            if payload.len() >= FRAME_PAYLOAD_BYTES_CUT {
                payloads.push((std::mem::take(&mut payload), std::mem::take(&mut count)));
            }
        }
        if count > 0 {
            payloads.push((payload, count));
        }
        let flags = if plan.place_bits.is_some() { flag::PLACE } else { 0 };
        Draft::stream(FrameKind::Items, flags, 0, payloads)
    }

    /// All dropped places, given the owner's verdict on the items that were sent.
    pub(super) fn decided(&self, plan: &Plan, verdict: &VerdictList) -> Drops {
        let mut drops = Drops::default();
        let mut sent = 0u32;
        let mut listed = 0usize;
        for variant in &self.variants {
            let mut keeper = variant.best;
            if variant.shared {
                if verdict.indexes.get(listed) == Some(&sent) {
                    drops.cross += 1;
                    drops.places.push(variant.best);
                    if let Some(&kept) = verdict.kept.get(listed) {
                        keeper = kept;
                        drops.kept.push(kept);
                    }
                    listed += 1;
                }
                sent += 1;
            }
            drops.places.extend(&variant.others);
            if plan.place_bits.is_some() {
                drops.kept.extend(variant.others.iter().map(|_| keeper));
            }
        }
        drops
    }
}

/// An item as the owner hears of it.
pub(super) struct HeardItem {
    pub(super) place: Option<Place>,
    pub(super) bytes: Vec<u8>,
}

/// Reads all items of a frame.
pub(super) fn read_items(frame: &Frame<'_>, plan: &Plan) -> Result<Vec<HeardItem>, FrameError> {
    let head_bytes = if plan.place_bits.is_some() { 9 } else { 1 };
    expect_at_most("count", frame.count as usize, frame.payload.len() / head_bytes)?;
    let mut rest = frame.payload;
    let mut items = Vec::with_capacity(frame.count as usize);
    for _ in 0..frame.count {
        let mut place = None;
        if plan.place_bits.is_some() {
            let (head, tail) = rest.split_first_chunk::<8>().ok_or(past_end(8, rest.len()))?;
            place = Some(Place::from_bits(u64::from_le_bytes(*head)));
            rest = tail;
        }
        let length = read_length(&mut rest)?;
        let (bytes, tail) = rest.split_at_checked(length).ok_or(past_end(length, rest.len()))?;
        items.push(HeardItem { place, bytes: bytes.to_vec() });
        rest = tail;
    }
    if rest.is_empty() { Ok(items) } else { Err(FrameError::TrailingBytes { extra: rest.len() }) }
}

fn past_end(needed_bytes: usize, left_bytes: usize) -> FrameError {
    FrameError::Truncated { needed: needed_bytes, got: left_bytes }
}

fn read_length(rest: &mut &[u8]) -> Result<usize, FrameError> {
    let mut length = 0usize;
    for shift in (0..35).step_by(7) {
        let (&byte, tail) = rest.split_first().ok_or(past_end(1, 0))?;
        *rest = tail;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(length);
        }
    }
    Err(FrameError::Header { field: "item length" })
}
