//! A snapshot is the filter at one moment of the call, over all shards: there is a moment such that
//! every insert that the snapshot contains began before it, and every insert that it lacks ended after
//! it.

use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{HashList, ShardCommand, ShardReply, ShardState};

use super::checked::Checked;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::bits::{FirstSet, NEVER_US, hash_of};
use crate::oracle::view::{FilterView, Life, View};

/// Name of the invariant.
pub(crate) const NAME: &str = "snapshots_are_one_moment";

/// Checks every snapshot of a filter that is never emptied and never forgets.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in view.filters.iter().filter(|filter| filter.only_grows()) {
        let Some(life) = filter.only_life() else { continue };
        let Some(now) = view.reference.meta().shard_map().ranges() else { continue };
        let is_copied = |call: &&Call| {
            call.verb == Verb::Snapshot
                && call.filter == filter.facts.name
                && matches!(call.outcome, Outcome::Done(_))
        };
        for call in view.calls.iter().filter(is_copied) {
            let end_us = call.end_us.unwrap_or(NEVER_US);
            let ranges = call.ranges.unwrap_or(now);
            let broken = match load(call, life, ranges) {
                Ok(shards) => torn(filter, life, call, &|item| holds(&shards, life, ranges, item)),
                Err(why) => Some(format!("call {} copied {}: {why}", call.id, call.filter)),
            };
            checked.record(end_us, broken);
        }
    }
    checked
}

/// Loads the snapshot as an import does.
fn load(call: &Call, life: &Life<'_>, ranges: ShardRanges) -> Result<Vec<ShardState>, String> {
    let record = &life.incarnation.record;
    let empty = |shard| {
        let range = ranges.range(shard).expect("a shard of the map");
        let mut state = ShardState::new(shard, range);
        state.apply(&ShardCommand::CreateSlice(record.slice_spec(life.id)));
        state
    };
    let mut shards: Vec<ShardState> = ranges.shards().map(empty).collect();
    let (filter, generation) = (life.id, record.generation);
    for (shard, frame) in &call.frames {
        let state = shards.get_mut(*shard as usize).ok_or_else(|| format!("shard {shard}"))?;
        let frame = frame.clone().into();
        let command = ShardCommand::LoadFrame { filter, generation, frame };
        match state.apply(&command) {
            ShardReply::Merged(Ok(_)) => {}
            other => return Err(format!("a frame of shard {shard} does not load: {other:?}")),
        }
    }
    Ok(shards)
}

fn holds(shards: &[ShardState], life: &Life<'_>, ranges: ShardRanges, item: u32) -> bool {
    let record = &life.incarnation.record;
    let hash = hash_of(record.settings.key, item);
    let place = record.settings.shape.place().unwrap_or(hash.hi());
    let state = &shards[ranges.shard_of(place).0 as usize];
    let found = state.contains(life.id, record.generation, &HashList::from_hashes(&[hash]));
    found.is_ok_and(|found| found.get(0))
}

/// Why no moment fits, if none does.
fn torn(
    filter: &FilterView<'_>,
    life: &Life<'_>,
    call: &Call,
    shows: &dyn Fn(u32) -> bool,
) -> Option<String> {
    // Before when no position of an item can have been set; of kinds that grow that is not known.
    let mut set = life.probes.as_ref().map(|probes| FirstSet::new(probes.position_count()));
    for insert in &filter.inserts {
        if let (Some(set), Some(probes)) = (&mut set, &life.probes) {
            for &item in &insert.call.items {
                set.set(probes.of(item), insert.start_us, insert.call.id);
            }
        }
    }
    let mut earliest = (call.start_us, format!("it began at {} us", call.start_us));
    let end_us = call.end_us.unwrap_or(NEVER_US);
    let mut latest = (end_us, format!("it ended at {end_us} us"));
    for insert in &filter.inserts {
        for &item in &insert.call.items {
            if !shows(item) {
                if insert.answers.is_some() && insert.end_us < latest.0 {
                    let (id, at_us) = (insert.call.id, insert.end_us);
                    latest =
                        (at_us, format!("item {item} lacks, answered to call {id} at {at_us} us"));
                }
            } else if let (Some(set), Some(probes)) = (&set, &life.probes) {
                let (at_us, _) = set.all_set(probes.of(item));
                if at_us > earliest.0 {
                    earliest =
                        (at_us, format!("item {item} is there, asked for at {at_us} us at first"));
                }
            }
        }
    }
    let is_torn = earliest.0 > latest.0;
    is_torn.then(|| {
        format!(
            "call {} copied {} at no moment: {}, but {}",
            call.id, call.filter, earliest.1, latest.1
        )
    })
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::HashKey;
    use umbel_engine::{Generation, ShardId};

    use super::*;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;

    /// Items 1 and 2, in two shards, are inserted one after the other; `has` tells for each whether its
    /// shard was copied after the insert.
    fn broken(has: [bool; 2], called_us: (u64, u64)) -> usize {
        let mut cluster = Cluster::new();
        let filter = cluster.create("f", FilterKind::Blocked);
        let (key, ranges) = (HashKey::Xxh3 { seed: 7 }, ShardRanges::new(2, 2).unwrap());
        let of = |shard: u32| {
            (0..).find(|&item| ranges.shard_of(hash_of(key, item).hi()) == ShardId(shard))
        };
        let items = [of(0).unwrap(), of(1).unwrap()];
        let mut history = History::of(FilterKind::Blocked);
        let mut frames = Vec::new();
        for (shard, (item, has)) in (0_u32..).zip(items.into_iter().zip(has)) {
            let copy = |cluster: &Cluster| {
                let state = &cluster.shards[shard as usize];
                let frames = state.export_frames(filter, Generation(1), 1 << 20).unwrap();
                frames.map(|frame| (shard, frame.unwrap())).collect::<Vec<_>>()
            };
            let before = copy(&cluster);
            let bits = cluster.insert("f", &[item]);
            let start_us = u64::from(100 + 100 * shard);
            history.insert("f", &[item], start_us, start_us + 50, &bits);
            frames.extend(if has { copy(&cluster) } else { before });
        }
        let (start_us, end_us) = called_us;
        history.done(Verb::Snapshot, "f", &[], start_us, end_us, &[]).frames = frames;
        let view = View::new(&history.calls, &history.facts, &cluster.reference);
        let checked = check(&view);
        assert_eq!(checked.count, 1);
        checked.violations.len()
    }

    #[test]
    fn what_is_shown_without_what_came_before_is_found() {
        assert_eq!(broken([true, true], (50, 300)), 0);
        assert_eq!(broken([true, false], (50, 300)), 0);
        assert_eq!(broken([false, false], (50, 300)), 0);
        assert_eq!(broken([false, true], (50, 300)), 1);
    }

    #[test]
    fn the_moment_is_one_of_the_call() {
        assert_eq!(broken([true, true], (260, 300)), 0);
        assert_eq!(broken([true, false], (260, 300)), 1);
        assert_eq!(broken([true, true], (50, 90)), 1);
        assert_eq!(broken([false, false], (50, 90)), 0);
    }
}
