//! Commands of any form: whoever sends them, replicas answer alike and do not panic.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::ItemHash;

use super::shard_test::{FIRST, item, list, merge_of, stamp, state};
use super::*;
use crate::ids::{FilterId, Generation};

/// Parts of any form.
fn hostile_part() -> impl Strategy<Value = InsertPart> {
    // Mostly parts that are consistent, or nothing would get far.
    let bytes = vec(any::<u8>(), 0..5);
    let unchecked = |(len, bytes): (u32, Vec<u8>)| Bitmap::unchecked(len, bytes.into());
    let bitmap = prop_oneof![
        1 => (any::<u32>(), bytes.clone()).prop_map(unchecked),
        1 => (0..40u32, bytes).prop_map(unchecked),
        4 => (0..6u32).prop_map(Bitmap::ones),
    ];
    let hash = |(number, is_ours): (u64, bool)| {
        if is_ours { item(number) } else { ItemHash::new(number, number) }
    };
    let ours = proptest::bool::weighted(0.9);
    let hashes = prop_oneof![
        1 => vec(any::<u8>(), 0..50).prop_map(|bytes| HashList::unchecked(bytes.into())),
        4 => vec((any::<u64>(), ours), 0..6).prop_map(move |hashes| {
            HashList::from_hashes(&hashes.into_iter().map(hash).collect::<Vec<_>>())
        }),
    ];
    let request = proptest::option::of((0..3u64, any::<u64>(), any::<u64>(), 0..2u64));
    (
        prop_oneof![0..130u64, (1..13u64).prop_map(|kind| 10 * kind)],
        0..3u64,
        request,
        bitmap,
        hashes,
    )
        .prop_map(|(filter, generation, request, proposed, hashes)| InsertPart {
            filter: FilterId(filter),
            generation: Generation(generation),
            request: request.map(|(session, sequence, acknowledged_below, digest)| RequestStamp {
                acknowledged_below,
                digest,
                ..stamp(session, sequence, &list(&[]))
            }),
            proposed,
            hashes,
            growth_bytes: u64::MAX,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any command gets a reply; another replica gives the same one; and a refused command changes
    /// nothing.
    #[test]
    fn hostile_commands_are_answered(
        parts in vec(hostile_part(), 0..20), frame in vec(any::<u8>(), 0..200), filter in 0..70u64,
    ) {
        let (mut state, mut other) = (state(), state());
        let (filter, generation) = (FilterId(filter), FIRST);
        for part in parts {
            let InsertPart { filter, generation, request, hashes, .. } = part.clone();
            let _ = state.prepare_insert(filter, generation, request, hashes.clone(), SliceGrowth::ANY);
            let _ =
                state.prepare_insert_absent(filter, generation, request, &hashes, SliceGrowth::ANY);
            let _ = state.prepare_remove(filter, generation, request, hashes.clone());
            let _ = state.contains(filter, generation, &hashes);
            let removal = RemovePart { filter, generation, request, hashes };
            let at_ms = part.hashes.len().checked_sub(3).map(|at| 1_000 * at as u64);
            let now_ms = part.hashes.digest() >> (generation.0 * 8);
            let inserts = vec![TimedInsert { part: part.clone(), at_ms }];
            let timed = ShardCommand::InsertTimed { now_ms, inserts };
            let absent = ShardCommand::InsertAbsent(vec![part.clone()]);
            let insert = ShardCommand::Insert(vec![part]);
            for command in [insert, absent, ShardCommand::Remove(removal), timed] {
                let before = state.digest();
                let reply = state.apply(&command);
                let refused = match &reply {
                    ShardReply::Inserted(answers) => answers[0].is_err(),
                    ShardReply::Removed(answer) => answer.is_err(),
                    _ => false,
                };
                prop_assert_eq!(reply, other.apply(&command));
                // Windows advance even with the time of a refused insert.
                let may_move = matches!(command, ShardCommand::InsertTimed { .. });
                prop_assert!(!refused || may_move || state.digest() == before);
            }
        }
        let sources = vec![(filter, generation), (FilterId(21), generation)];
        for command in [
            ShardCommand::LoadFrame { filter, generation, frame: frame.into() },
            merge_of(filter, generation, &sources, SetOperation::Union),
            merge_of(filter, generation, &sources, SetOperation::Intersection),
            ShardCommand::ClearSlice { filter, generation: Generation(u64::MAX) },
            ShardCommand::DropSlice(filter),
        ] {
            prop_assert_eq!(state.apply(&command), other.apply(&command));
        }
        prop_assert_eq!(state.digest(), other.digest());
    }
}
