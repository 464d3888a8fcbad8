//! Level `bytes`: items whose hashes are equal are compared byte by byte.
//!
//! The sender splits the classes of equal hashes that it holds into variants of equal bytes and drops all but the
//! best of each. One item of each variant that another worker might hold too goes to the owner, which groups by
//! bytes alone: equal bytes have equal hashes.

use super::drops::Drops;
use super::entry::{Item, Keep, Place, Rank, Standing};
use super::error::FrameError;
use super::frame::{Frame, FrameKind, push_varint};
use super::payload::{VerdictList, expect_at_most};
use super::plan::Plan;
use super::sender::Draft;
use crate::limits::FRAME_PAYLOAD_BYTES_CUT;

/// Items of one worker with equal bytes: the best of them, and the others.
#[derive(Debug)]
struct Variant {
    best: Standing,
    others: Vec<Standing>,
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
        let order = |item: &Item| {
            let rank = if keep == Keep::Best { item.rank } else { Rank::default() };
            Standing { rank, place: item.place }
        };
        items.sort_by(|a, b| (a.hash, &a.bytes, order(a)).cmp(&(b.hash, &b.bytes, order(b))));
        let mut variants: Vec<Variant> = Vec::new();
        let mut hash = None;
        let mut local_collisions = 0;
        for item in items {
            let standing = order(&item);
            let Item { hash: item_hash, shared, bytes, .. } = item;
            let same_hash = hash.replace(item_hash) == Some(item_hash);
            match variants.last_mut().filter(|variant| same_hash && variant.bytes == bytes) {
                Some(variant) if keep.prefers(standing, variant.best) => {
                    variant.others.push(std::mem::replace(&mut variant.best, standing));
                }
                Some(variant) => variant.others.push(standing),
                None => {
                    // The owner counts the collisions of shared hashes: only it sees all their variants.
                    local_collisions += u64::from(same_hash && !shared);
                    variants.push(Variant { best: standing, others: Vec::new(), shared, bytes });
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
        let bits = plan.item_standing_bits();
        let mut payloads = Vec::new();
        let mut payload = Vec::new();
        let mut count = 0;
        for variant in self.variants.iter().filter(|variant| variant.shared) {
            if bits.rank > 0 {
                payload.extend(variant.best.rank.0.to_le_bytes());
            }
            if bits.place.is_some() {
                payload.extend(variant.best.place.to_bits().to_le_bytes());
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
        Draft::stream(FrameKind::Items, bits.flags(), 0, payloads)
    }

    /// All dropped places, given the owner's verdict on the items that were sent.
    pub(super) fn decided(&self, plan: &Plan, verdict: &VerdictList) -> Drops {
        let mut drops = Drops::default();
        let reports_ranks = plan.place_bits.is_some() && plan.shape.keep == Keep::Best;
        let mut sent = 0u32;
        let mut listed = 0usize;
        for variant in &self.variants {
            let mut keeper = variant.best.place;
            if variant.shared {
                if verdict.indexes.get(listed) == Some(&sent) {
                    drops.cross += 1;
                    drops.places.push(variant.best.place);
                    drops.ranks.extend(reports_ranks.then_some(variant.best.rank));
                    if let Some(&kept) = verdict.kept.get(listed) {
                        keeper = kept;
                        drops.kept.push(kept);
                    }
                    listed += 1;
                }
                sent += 1;
            }
            drops.places.extend(variant.others.iter().map(|other| other.place));
            if reports_ranks {
                drops.ranks.extend(variant.others.iter().map(|other| other.rank));
            }
            if plan.place_bits.is_some() {
                drops.kept.extend(variant.others.iter().map(|_| keeper));
            }
        }
        drops
    }
}

/// An item as the owner hears of it.
pub(super) struct HeardItem {
    pub(super) standing: Standing,
    pub(super) bytes: Vec<u8>,
}

/// Reads all items of a frame.
pub(super) fn read_items(frame: &Frame<'_>, plan: &Plan) -> Result<Vec<HeardItem>, FrameError> {
    let bits = plan.item_standing_bits();
    let word_bytes = |travels: bool| if travels { 8 } else { 0 };
    let head_bytes = 1 + word_bytes(bits.rank > 0) + word_bytes(bits.place.is_some());
    expect_at_most("count", frame.count as usize, frame.payload.len() / head_bytes)?;
    let mut rest = frame.payload;
    let mut items = Vec::with_capacity(frame.count as usize);
    for _ in 0..frame.count {
        let mut standing = Standing::default();
        if bits.rank > 0 {
            standing.rank = Rank(read_word(&mut rest)?);
        }
        if bits.place.is_some() {
            standing.place = Place::from_bits(read_word(&mut rest)?);
        }
        let length = read_length(&mut rest)?;
        let (bytes, tail) = rest.split_at_checked(length).ok_or(past_end(length, rest.len()))?;
        items.push(HeardItem { standing, bytes: bytes.to_vec() });
        rest = tail;
    }
    if rest.is_empty() { Ok(items) } else { Err(FrameError::TrailingBytes { extra: rest.len() }) }
}

fn past_end(needed_bytes: usize, left_bytes: usize) -> FrameError {
    FrameError::Truncated { needed: needed_bytes, got: left_bytes }
}

fn read_word(rest: &mut &[u8]) -> Result<u64, FrameError> {
    let (head, tail) = rest.split_first_chunk::<8>().ok_or(past_end(8, rest.len()))?;
    *rest = tail;
    Ok(u64::from_le_bytes(*head))
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
