//! Filters into another one, shard by shard.

use tokio::time::Instant;
use umbel_engine::meta::{FilterName, FilterRecord};
use umbel_engine::shard::{PartError, ShardCommand};
use umbel_filter::Kind;

use crate::calls::{ShardAnswer, ShardRequest};
use crate::coordinator::{Coordinator, unexpected};
use crate::failure::CallFailure;

/// Most filters that one call merges into another.
const MERGE_SOURCES_MAX: usize = 64;

impl Coordinator {
    /// ORs filters into another one; answers the number of positions that were newly set. Doing it
    /// again does no harm.
    pub(crate) async fn merge(
        &self,
        target: &FilterName,
        sources: &[FilterName],
        deadline: Instant,
    ) -> Result<u64, CallFailure> {
        check_sources(target, sources)?;
        self.meta_refresh(deadline).await?;
        let into = self.live_filter(target.as_str(), deadline).await?;
        let mut from = Vec::with_capacity(sources.len());
        for name in sources {
            let source = self.live_filter(name.as_str(), deadline).await?;
            check_mergeable(&into.record, &source.record)?;
            from.push((source.id, source.record.generation));
        }
        let command = ShardCommand::MergeSlices {
            target: into.id,
            generation: into.record.generation,
            sources: from,
        };
        let request = |_| ShardRequest::Command(command.clone());
        let answers = self.ask_every_shard(into.cells, request, deadline).await;
        let (shard_count, mut done_count, mut new_count) = (answers.len(), 0, 0_u64);
        let mut failure = None;
        for (_, answer) in answers {
            match answer {
                Ok(ShardAnswer::Done(count)) => {
                    done_count += 1;
                    new_count = new_count.saturating_add(count);
                }
                Ok(other) => failure = Some(unexpected(&other)),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            None => Ok(new_count),
            Some(error) if done_count == 0 => Err(error),
            Some(error) => Err(CallFailure::OutcomeUnknown {
                what: format!(
                    "{done_count} of {shard_count} shards have merged, and merging again does no \
                     harm: {error}"
                ),
            }),
        }
    }
}

fn check_sources(target: &FilterName, sources: &[FilterName]) -> Result<(), CallFailure> {
    let invalid = |what| Err(CallFailure::Invalid { what });
    let count = sources.len();
    if !(1..=MERGE_SOURCES_MAX).contains(&count) {
        return invalid(format!("sources has {count} names, expected 1 to {MERGE_SOURCES_MAX}"));
    }
    for (index, name) in sources.iter().enumerate() {
        if name == target {
            return invalid(format!("sources[{index}] is the target itself"));
        }
        if sources[..index].contains(name) {
            return invalid(format!("sources[{index}] is named twice"));
        }
    }
    Ok(())
}

/// Whether the bits of one filter mean the same in the other.
fn check_mergeable(into: &FilterRecord, from: &FilterRecord) -> Result<(), CallFailure> {
    let (ours, theirs) = (&into.settings, &from.settings);
    for record in [into, from] {
        let kind = Kind::from_id(record.settings.kind);
        if let Some(kind @ (Kind::Counting | Kind::Scalable)) = kind {
            let what = format!("filter {:?} is {kind}, which does not merge", record.name.as_str());
            return Err(PartError::WrongKind { what }.into());
        }
    }
    let (into, from) = (into.name.as_str(), from.name.as_str());
    let hint = "make one with --like the other";
    if ours.shape != theirs.shape {
        let (ours, theirs) = (ours.shape, theirs.shape);
        let what = format!("filters {into:?} and {from:?} differ: {ours:?}, {theirs:?}; {hint}");
        return Err(PartError::ShapeMismatch { what }.into());
    }
    if ours.key != theirs.key {
        let (ours, theirs) = (ours.key.key_name(), theirs.key.key_name());
        let what = format!(
            "filters {into:?} and {from:?} hash items differently: {ours}, {theirs}; {hint}"
        );
        return Err(PartError::ShapeMismatch { what }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use umbel_engine::Generation;
    use umbel_engine::meta::{FilterState, HashKey};
    use umbel_filter::CellCount;

    use super::*;
    use crate::coordinator::sizes::{FilterSize, planned};

    fn record(name: &str, kind: Kind, capacity: u64, key: HashKey) -> FilterRecord {
        let cells = CellCount::new(4).unwrap();
        FilterRecord {
            name: FilterName::new(name).unwrap(),
            settings: planned(kind, capacity, FilterSize::Rate(0.01), cells, key).unwrap(),
            generation: Generation(1),
            state: FilterState::Live,
        }
    }

    const KEY: HashKey = HashKey::SipHash { key_id: 7, secret: [9; 16] };

    #[test]
    fn only_equals_merge() {
        let ours = record("a", Kind::Blocked, 1000, KEY);
        let same = record("b", Kind::Blocked, 1000, KEY);
        assert_eq!(check_mergeable(&ours, &same), Ok(()));
        let larger = record("b", Kind::Blocked, 9000, KEY);
        let error = check_mergeable(&ours, &larger).unwrap_err();
        assert!(matches!(error, CallFailure::Part(PartError::ShapeMismatch { .. })));
        let other = HashKey::SipHash { key_id: 8, secret: [9; 16] };
        let error = check_mergeable(&ours, &record("b", Kind::Blocked, 1000, other)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "filters \"a\" and \"b\" hash items differently: function 2 under key 0x7, \
             function 2 under key 0x8; make one with --like the other"
        );
        for kind in [Kind::Counting, Kind::Scalable] {
            let same = record("b", kind, 1000, KEY);
            let error = check_mergeable(&same, &same).unwrap_err();
            assert!(matches!(error, CallFailure::Part(PartError::WrongKind { .. })));
        }
    }

    #[test]
    fn sources_are_others() {
        let name = |name: &str| FilterName::new(name).unwrap();
        let message = |sources: &[FilterName]| {
            check_sources(&name("t"), sources).map_err(|error| error.to_string())
        };
        assert_eq!(message(&[name("a"), name("b")]), Ok(()));
        assert_eq!(message(&[]), Err("sources has 0 names, expected 1 to 64".to_owned()));
        let many = vec![name("a"); 65];
        assert_eq!(message(&many), Err("sources has 65 names, expected 1 to 64".to_owned()));
        let itself = message(&[name("a"), name("t")]);
        assert_eq!(itself, Err("sources[1] is the target itself".to_owned()));
        let twice = message(&[name("a"), name("a")]);
        assert_eq!(twice, Err("sources[1] is named twice".to_owned()));
    }
}
