//! Which positions inserts and removals change, and what keeping them takes.

use std::sync::Arc;

use umbel_filter::Kind;

use super::changed_positions::{WordAt, arrays, changed_kind, for_each_changed};
use super::kept_positions::KeptPositions;
use super::undo_log_test::{
    FILTER, Owner, insert_command, items, owner, read_kinds, remove_command,
};

fn words_now(owner: &Owner) -> Vec<Vec<u64>> {
    let state = owner.0.lock().unwrap();
    arrays(&state.slices[&FILTER].filter).into_iter().map(<[u64]>::to_vec).collect()
}

/// Number of positions that differ.
fn changed_count(kind: Kind, before: &[Vec<u64>], after: &[Vec<u64>]) -> usize {
    let words = before.iter().flatten().zip(after.iter().flatten());
    let changed = words.map(|(before, after)| match before ^ after {
        bits if kind.has_counters() => {
            (bits | bits >> 1 | bits >> 2 | bits >> 3) & 0x1111_1111_1111_1111
        }
        bits => bits,
    });
    changed.map(|changed| changed.count_ones() as usize).sum()
}

/// The law of `for_each_changed`.
#[test]
fn items_change_what_is_visited_and_nothing_else() {
    for kind in read_kinds() {
        let owner = owner(kind, 200_000, 20_000);
        let insert = insert_command(&owner.0.lock().unwrap(), 20_000, 2_000);
        let removal = kind.removes().then(|| (10_000, remove_command(10_000, 2_000)));
        for (first, command) in [(20_000, insert)].into_iter().chain(removal) {
            let before = words_now(&owner);
            let views: Vec<&[u64]> = before.iter().map(Vec::as_slice).collect();
            let mut visited = KeptPositions::new(changed_kind(kind).unwrap(), &views);
            for hash in items(first, 2_000) {
                let state = owner.0.lock().unwrap();
                for_each_changed(&state.slices[&FILTER].filter, hash, |at| visited.keep(at));
            }
            owner.apply(&command);
            let mut after = words_now(&owner);
            assert_eq!(visited.len(), changed_count(kind, &before, &after), "{kind}");
            assert!(visited.len() > 2_000, "{kind}");
            for (array, words) in after.iter_mut().enumerate() {
                visited.restore(WordAt::new(array, 0), words);
            }
            assert!(after == before, "{kind}");
        }
    }
}

/// A full filter at 1 %, in which an item sets 6 bits, and 3.3 of them newly: at two bytes to two and a half a bit,
/// seven to eight an insert.
#[test]
fn an_insert_takes_two_bytes_for_each_bit_that_it_sets_newly() {
    let owner = owner(Kind::Blocked, 200_000, 200_000);
    let before = words_now(&owner);
    let copy = owner.read();
    let log = Arc::clone(copy.log().unwrap());
    owner.insert(200_000, 5_000);
    let bit_count = changed_count(Kind::Blocked, &before, &words_now(&owner));
    assert!((15_000..18_000).contains(&bit_count), "{bit_count}");
    assert_eq!(log.kept_count(), bit_count);
    // A list for each 8 KiB: its place, its allocation and the least room.
    let list_count = before[0].len().div_ceil(1024);
    let bytes = log.kept_bytes();
    let most = 2 * bit_count + bit_count / 2 + (24 + 16 + 16) * list_count;
    assert!((2 * bit_count..=most).contains(&bytes), "{bytes} for {bit_count}");
    assert!((6..=8).contains(&(bytes / 5_000)), "{bytes}");
}
