//! Shards that are split, and merged again.

use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
use umbel_engine::{GroupId, NodeId};
use umbel_node::ports::observer::EntryId;

use super::{Applied, Log, NAME, Observation, RANGES, Reference, Reply};
use crate::counters;
use crate::oracle::slice_models;
use crate::violation::Violation;

impl Reference {
    /// A shard was split: the other half starts as if from a snapshot of the state before. Returns a
    /// description if the halves do not match the shard map.
    pub(super) fn split(
        &mut self,
        (group, into): (GroupId, GroupId),
        upper: ShardState,
    ) -> Option<String> {
        let lower = self.shards.get(&group)?;
        let wanted = [group, into].map(|group| self.meta.shard_map().range(group.shard()?));
        let got = [Some(lower.range()), Some(upper.range())];
        let torn = (wanted != got).then(|| {
            format!(
                "{group:#} was split and has {:?}, {into:#} has {:?}, expected {wanted:?}",
                got[0], got[1]
            )
        });
        counters::checked(RANGES, 1);
        let halves = [(group, lower.range()), (into, upper.range())];
        slice_models::split(&mut self.windows, halves);
        slice_models::split(&mut self.last_items, halves);
        slice_models::split(&mut self.misses, halves);
        let answered = self.answered.get(&group).cloned().unwrap_or_default();
        self.answered.insert(into, answered);
        let id = EntryId { term: 0, leader: NodeId(0), index: 0 };
        let (content, reply, digest) = (0, Reply::None, Some(upper.digest()));
        let begun = Applied { id, content, reply, digest };
        self.logs.insert(into, Log { first: 0, entries: vec![begun] });
        self.shards.insert(into, upper);
        torn
    }

    /// A shard absorbs the final state of another one.
    pub(super) fn absorb(
        &mut self,
        seen: &Observation<'_>,
        from: GroupId,
        fence_index: u64,
    ) -> Result<(ShardReply, Result<(), Violation>), Violation> {
        let group = seen.group;
        let state = self.shards.get_mut(&group).expect("the caller has inserted it");
        if state.has_decided(from, fence_index) {
            let command = ShardCommand::Absorb { from, fence_index };
            return Ok((state.apply_at(seen.entry.index, &command), Ok(())));
        }
        let ended = self.shards.get(&from).cloned();
        let Some(upper) = ended.filter(|upper| upper.fence().is_some()) else {
            return Err(seen.violation(NAME, &format!("it absorbs {from}, which has not ended")));
        };
        let fenced = upper.fence().map(|fence| (fence.into, fence.index));
        let mut broken = Ok(());
        if fenced != Some((group, fence_index)) {
            let what =
                format!("it absorbs {from} as of entry {fence_index}, which ended as {fenced:?}");
            broken = Err(seen.violation(NAME, &what));
        }
        let upper_range = upper.range();
        let state = self.shards.get_mut(&group).expect("the caller has inserted it");
        let lower_range = state.range();
        let reply = state.absorb(seen.entry.index, from, upper);
        let range = state.range();
        if reply == ShardReply::Done(Ok(())) {
            counters::checked(RANGES, 1);
            if (range.start(), range.end()) != (lower_range.start(), upper_range.end()) {
                let what = format!("{lower_range:?} and {upper_range:?} became {range:?}");
                broken = Err(seen.violation(RANGES, &what));
            }
            slice_models::join(&mut self.windows, (group, from), range);
            slice_models::join(&mut self.last_items, (group, from), range);
            slice_models::join(&mut self.misses, (group, from), range);
            let answered = self.answered.get(&from).cloned().unwrap_or_default();
            self.answered.entry(group).or_default().extend(answered);
            self.absorbed.insert(from);
        }
        Ok((reply, broken))
    }
}
