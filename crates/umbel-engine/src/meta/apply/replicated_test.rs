//! What entries do with replicated filters.

use umbel_filter::Kind;

use super::apply_test::Cluster;
use super::*;
use crate::ids::{FilterId, Generation};
use crate::limits::REPLICATED_BYTES_MAX;
use crate::meta::FilterState;
use crate::meta::testing::create_replicated;

#[test]
fn replicated_filters_need_no_shard() {
    let mut cluster = Cluster::new(1, 2, 1);
    let filter = FilterId(10);
    let create = create_replicated("a", 1, false);
    assert_eq!(cluster.apply(&create), MetaReply::Filter(filter));
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Live));
    // The same request is retried; then a different one.
    assert_eq!(cluster.apply(&create), MetaReply::Filter(filter));
    let other = create_replicated("a", 2, false);
    assert!(matches!(cluster.error(&other), MetaError::NameTaken { .. }));

    let clear = MetaCommand::ClearFilter { filter, generation: Generation(1) };
    cluster.done(&clear);
    cluster.done(&clear);
    let record = cluster.state.filter(filter).unwrap();
    assert_eq!((record.state, record.generation), (FilterState::Live, Generation(2)));
    assert_eq!(cluster.apply(&create), MetaReply::Filter(filter));
    cluster.done(&MetaCommand::DropFilter { filter });
    cluster.done(&MetaCommand::DropFilter { filter });
    assert_eq!(cluster.state.filter(filter), None);

    let mut large = create_replicated("b", 3, false);
    let MetaCommand::CreateFilter { settings, .. } = &mut large else { panic!() };
    settings.memory_bytes = REPLICATED_BYTES_MAX + 1;
    assert!(matches!(cluster.error(&large), MetaError::Quota { .. }));
    let MetaCommand::CreateFilter { settings, .. } = &mut large else { panic!() };
    (settings.memory_bytes, settings.kind) = (64, Kind::Counting.id());
    let what = "a counting filter cannot be replicated, expected a blocked or a single-shot one, or a ring of \
                slices of time";
    assert_eq!(cluster.error(&large), MetaError::BadSettings { what: what.to_owned() });
}
