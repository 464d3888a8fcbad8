//! Rotations in the catalogue: one generation at a time, and only for manually rotated windows.

use umbel_filter::CellCount;

use super::apply_test::Cluster;
use super::*;
use crate::ids::Generation;
use crate::meta::testing::create;
use crate::meta::{FilterSettings, FilterState};
use crate::shard::{LateItems, SliceShape, WindowRules, WindowTime};

#[test]
fn windows_by_hand_are_rotated_one_generation_at_a_time() {
    let mut cluster = Cluster::new(1, 2, 1);
    let rules = WindowRules {
        slice_ms: 0,
        slice_count: 2,
        time: WindowTime::Manual,
        late: LateItems::Reject,
        refresh: false,
    };
    let shape = SliceShape::plan_window(1_000, 0.01, CellCount::new(2).unwrap(), rules).unwrap();
    let MetaCommand::CreateFilter { name, settings, importing, owner } = create("a", 1, false)
    else {
        panic!()
    };
    let settings = FilterSettings { shape, ..settings };
    let MetaReply::Filter(filter) =
        cluster.apply(&MetaCommand::CreateFilter { name, settings, importing, owner })
    else {
        panic!()
    };
    let rotate = |from| MetaCommand::RotateFilter { filter, generation: Generation(from) };
    assert!(matches!(cluster.error(&rotate(1)), MetaError::Busy { .. }));
    cluster.done(&MetaCommand::FilterCreated { filter });
    cluster.done(&rotate(1));
    cluster.done(&rotate(1));
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Rotating { to: Generation(2) }));
    let clear = MetaCommand::ClearFilter { filter, generation: Generation(1) };
    let busy = MetaError::Busy { name: "a".to_owned(), state: "being rotated".to_owned() };
    assert_eq!(cluster.error(&clear), busy);
    cluster.done(&MetaCommand::FilterCleared { filter, generation: Generation(2) });
    // The same request is retried.
    cluster.done(&rotate(1));
    let record = cluster.state.filter(filter).unwrap();
    assert_eq!((record.state, record.generation), (FilterState::Live, Generation(2)));
    // A clearing that comes when the rotation is over would do nothing.
    let late =
        MetaError::Busy { name: "a".to_owned(), state: "at generation 2 already".to_owned() };
    assert_eq!(cluster.error(&clear), late);
    let clear = MetaCommand::ClearFilter { filter, generation: Generation(2) };
    cluster.done(&clear);
    cluster.done(&clear);
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Clearing { to: Generation(3) }));
    // A filter without slices cannot be rotated.
    let MetaReply::Filter(filter) = cluster.apply(&create("b", 1, false)) else { panic!() };
    cluster.done(&MetaCommand::FilterCreated { filter });
    let refused = cluster.error(&MetaCommand::RotateFilter { filter, generation: Generation(1) });
    assert!(matches!(refused, MetaError::BadSettings { .. }), "{refused:?}");
}
