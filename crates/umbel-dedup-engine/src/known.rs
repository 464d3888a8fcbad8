//! References at a cell's owner: entries that equal a hash of an earlier job are dropped for it, before the remaining
//! entries are compared with each other.

use super::owner::{Decision, Member, OwnerCell};
use super::payload::VerdictList;
use super::plan::{Mode, Plan};
use umbel_filter::ItemHash;

impl OwnerCell {
    /// Processes the references' hashes in the cell; `None` if they were given before, or the plan has no
    /// references.
    pub(super) fn take_references(
        &mut self,
        plan: &Plan,
        cell: u32,
        hashes: Vec<ItemHash>,
    ) -> Option<Option<Decision>> {
        let stream = self.streams.get_mut(plan.shape.workers as usize)?;
        if stream.ended {
            return None;
        }
        self.references = known_hashes(plan, hashes);
        if plan.mode == Mode::Filter {
            let shape = plan.cell_shape(cell);
            let position = |hash: &ItemHash| shape.position(hash.hi());
            stream.positions = self.references.iter().map(position).collect();
        }
        stream.ended = true;
        Some(self.decide_if_complete(plan, cell))
    }
}

/// The references' hashes as the plan compares them: ascending, each once.
fn known_hashes(plan: &Plan, mut hashes: Vec<ItemHash>) -> Vec<ItemHash> {
    for hash in &mut hashes {
        *hash = counted(plan, *hash);
        if let Some(truncation) = plan.truncation {
            *hash = truncation.apply(*hash);
        }
    }
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// A hash with every bit cleared that the references do not store.
fn counted(plan: &Plan, hash: ItemHash) -> ItemHash {
    plan.references.map_or(hash, |references| references.bits.apply(hash))
}

/// Removes the members that equal a reference, and returns their indexes by sender, ascending.
pub(super) fn take_known(
    plan: &Plan,
    known: &[ItemHash],
    members: &mut Vec<Member<ItemHash>>,
    senders: usize,
) -> Vec<Vec<u32>> {
    let mut taken = vec![Vec::new(); senders];
    // At exactness `approximate`, keys can be (group, refinement bits) instead of hashes: these are compared as
    // they are.
    let key = |hash| if plan.truncation.is_some() { hash } else { counted(plan, hash) };
    if !known.is_empty() {
        members.retain(|member| {
            let is_known = known.binary_search(&key(member.key)).is_ok();
            if is_known {
                taken[usize::from(member.sender)].push(member.index);
            }
            !is_known
        });
    }
    taken.iter_mut().for_each(|indexes| indexes.sort_unstable());
    taken
}

impl VerdictList {
    /// Adds the drops that are for a reference; `known` is ascending.
    pub(super) fn add_known(&mut self, known: &[u32]) {
        let input = self.indexes.iter().map(|&index| (index, false));
        let mut all: Vec<(u32, bool)> =
            input.chain(known.iter().map(|&index| (index, true))).collect();
        all.sort_unstable();
        (self.indexes, self.by_reference) = {
            let (indexes, causes) = all.into_iter().unzip();
            (indexes, Some(causes))
        };
    }
}
