//! Replicas that agree with the reference, and every way in which they can disagree.

use umbel_engine::meta::{MetaCommand, MetaReply, SessionKey};
use umbel_engine::shard::{Bitmap, HashList, InsertPart, ShardCommand, ShardReply};
use umbel_engine::{FilterId, Generation, GroupId, NodeId, ShardId};
use umbel_node::ports::observer::{EntryId, Payload};

use super::bits::hash_of;
use super::fixture::Cluster;
use super::reference::{NAME, Reference};
use crate::plan::FilterKind;
use crate::violation::Violation;

const GROUP: GroupId = GroupId::of_shard(ShardId(0));

const fn entry(index: u64) -> EntryId {
    EntryId { term: 1, leader: NodeId(1), index }
}

/// Another node applies an entry of shard 0 and is asked for its digest when it is due.
fn second(
    reference: &mut Reference,
    entry: EntryId,
    command: &ShardCommand,
    reply: &ShardReply,
    digest: u64,
) -> Result<(), Violation> {
    let payload = Payload::Shard(command, reply);
    reference.applied(9, "node2", GROUP, entry, &payload, &|| digest)
}

/// A cluster whose shard 0 dropped filter 5, at index 1, and filter 6, at index 2.
fn two_drops() -> (Cluster, Vec<(ShardCommand, ShardReply, u64)>) {
    let mut cluster = Cluster::new();
    let applied = [5, 6].map(|filter| {
        let command = ShardCommand::DropSlice(FilterId(filter));
        let reply = cluster.shard(ShardId(0), &command).unwrap();
        (command, reply, cluster.shards[0].digest())
    });
    (cluster, applied.to_vec())
}

#[test]
fn a_second_replica_agrees() {
    let (mut cluster, log) = two_drops();
    let reference = &mut cluster.reference;
    // Twice: it restarted.
    for _ in 0..2 {
        for (index, (command, reply, digest)) in (1..).zip(&log) {
            assert_eq!(second(reference, entry(index), command, reply, *digest), Ok(()));
        }
    }
    let compared = reference.compared();
    assert_eq!((compared.entries, compared.states), (7, 6));
    assert_eq!(reference.committed(GROUP).collect::<Vec<_>>(), [entry(1), entry(2)]);
}

#[test]
fn other_names_commands_replies_and_states_are_found() {
    let (mut cluster, log) = two_drops();
    let (command, reply, digest) = &log[0];
    let reference = &mut cluster.reference;
    let mut broken = |entry, command: &ShardCommand, reply: &ShardReply, digest| {
        second(reference, entry, command, reply, digest).unwrap_err()
    };
    let other = EntryId { term: 2, ..entry(1) };
    let violation = broken(other, command, reply, *digest);
    assert_eq!((violation.invariant, violation.at_us), (NAME, 9));
    assert!(violation.what.starts_with("node2 at entry 1 of shard 0 (term 2, leader node 1)"));
    assert!(broken(entry(1), &log[1].0, reply, *digest).what.contains("another command"));
    let answer = broken(entry(1), command, &ShardReply::Merged(Ok(1)), *digest);
    assert!(answer.what.contains("it answered Merged(Ok(1)), expected Shard(Done(Ok(())))"));
    assert!(broken(entry(1), command, reply, digest ^ 1).what.contains("its state has digest"));
    // No node has applied entry 3.
    assert!(broken(entry(4), command, reply, *digest).what.contains("is before 3"));
    // The first replica that applies an entry is checked, too.
    let wrong = broken(entry(3), command, &ShardReply::Merged(Ok(1)), *digest);
    assert!(wrong.what.contains("it answered Merged(Ok(1))"));
    assert!(broken(entry(4), command, reply, digest ^ 1).what.contains("its state has digest"));
    let blank = Payload::Blank;
    let violation = reference.applied(9, "node2", GROUP, entry(1), &blank, &|| *digest);
    assert!(violation.unwrap_err().what.contains("another command"));
}

#[test]
fn logs_begin_at_their_begin() {
    let (mut cluster, log) = two_drops();
    let (command, reply, digest) = &log[0];
    let late = second(&mut cluster.reference, entry(0), command, reply, *digest);
    assert!(late.unwrap_err().what.contains("begins behind it"));
    let payload = Payload::Shard(command, reply);
    let other = GroupId::of_shard(ShardId(1));
    let mut applied = |group, index| {
        cluster.reference.applied(9, "node2", group, entry(index), &payload, &|| *digest)
    };
    assert!(applied(other, 2).is_err());
    assert!(applied(GroupId::of_shard(ShardId(2)), 1).unwrap_err().what.contains("2 shards"));
    assert!(applied(GroupId::META, 2).unwrap_err().what.contains("another kind of group"));
}

#[test]
fn the_meta_group_agrees_by_its_replies() {
    let mut cluster = Cluster::new();
    let key = SessionKey::new([7; 16]);
    let command = MetaCommand::OpenSession { key, owner: String::new() };
    let reply = cluster.meta(&command).unwrap();
    let mut second = |reply: &MetaReply| {
        let payload = Payload::Meta(&command, reply);
        cluster.reference.applied(9, "node2", GroupId::META, entry(2), &payload, &|| 0)
    };
    assert_eq!(second(&reply), Ok(()));
    assert!(second(&MetaReply::Done).is_err());
}

#[test]
fn snapshots_hold_what_was_applied() {
    let (mut cluster, log) = two_drops();
    let reference = &mut cluster.reference;
    let digest = log[1].2;
    let mut loaded =
        |index, digest| reference.loaded(9, "node3", GROUP, Some(entry(index)), &|| digest);
    assert_eq!(loaded(2, digest), Ok(()));
    assert_eq!(loaded(1, log[0].2), Ok(()));
    assert!(loaded(2, digest ^ 1).unwrap_err().what.contains("its state has digest"));
    assert!(loaded(3, digest).unwrap_err().what.contains("which nobody has applied"));
    assert_eq!(reference.compared().snapshots, 3);
    let other = Some(EntryId { term: 7, ..entry(2) });
    assert!(reference.loaded(9, "node3", GROUP, other, &|| digest).is_err());
    assert!(reference.built(9, "node3", GROUP, other).is_err());
    assert_eq!(reference.built(9, "node3", GROUP, None), Ok(()));
    assert_eq!(reference.built(9, "node3", GROUP, Some(entry(1))), Ok(()));
    assert!(reference.built(9, "node3", GROUP, Some(entry(3))).is_err());
}

/// Digests of large states are computed for some entries only, but always for snapshots.
#[test]
fn large_states_are_digested_now_and_then() {
    let mut cluster = Cluster::new();
    for number in 0..300 {
        cluster.create(&format!("f{number}"), FilterKind::Counting);
    }
    assert!(cluster.shards[0].memory_bytes() > 8 << 12);
    let before = cluster.reference.compared().states;
    let mut without = None;
    for filter in 0..200 {
        let states = cluster.reference.compared().states;
        cluster.shard(ShardId(0), &ShardCommand::DropSlice(FilterId(9_000 + filter))).unwrap();
        if cluster.reference.compared().states == states {
            without = cluster.reference.committed(GROUP).last();
            break;
        }
    }
    let through = without.expect("not every state is digested");
    let digest = cluster.shards[0].digest();
    let reference = &mut cluster.reference;
    let mut load = |digest: u64| reference.loaded(9, "node3", GROUP, Some(through), &|| digest);
    assert_eq!(load(digest ^ 1), Ok(()));
    cluster.reference.built(9, "node1", GROUP, Some(through)).unwrap();
    let reference = &mut cluster.reference;
    let mut load = |digest: u64| reference.loaded(9, "node3", GROUP, Some(through), &|| digest);
    assert_eq!(load(digest), Ok(()));
    assert!(load(digest ^ 1).is_err());
    for filter in 0..200 {
        cluster.shard(ShardId(0), &ShardCommand::DropSlice(FilterId(9_000 + filter))).unwrap();
    }
    assert!(cluster.reference.compared().states >= before + 3);
}

#[test]
fn filters_are_remembered_with_their_ends() {
    let mut cluster = Cluster::new();
    let first = cluster.create("f", FilterKind::Blocked);
    let source = cluster.create("g", FilterKind::Blocked);
    cluster.clear("f", 10);
    cluster.merge("f", "g");
    cluster.drop_filter("f", 20);
    let second = cluster.create("f", FilterKind::Classic);
    let reference = &cluster.reference;
    let of_name: Vec<_> = reference.incarnations("f").map(|(id, _)| id).collect();
    assert_eq!(of_name, [first, second]);
    let incarnation = reference.incarnation(first).unwrap();
    // Two slices were cleared; then a drop was decided and two slices were dropped.
    assert_eq!(incarnation.erased_at_us, [10, 10, 20, 20, 20]);
    assert!(incarnation.merged.contains(&source) && incarnation.merged.len() == 1);
    assert_eq!(incarnation.record.generation, Generation(1));
    assert_eq!((incarnation.created_at_us, incarnation.gone_at_us), (0, 20));
    let incarnation = reference.incarnation(second).unwrap();
    assert!(incarnation.erased_at_us.is_empty());
    assert_eq!((incarnation.created_at_us, incarnation.gone_at_us), (20, u64::MAX));
    assert!(reference.meta().filter_by_name("f").is_some());
    assert!(reference.shard(ShardId(1)).unwrap().summary(second).is_some());
    assert_eq!(reference.shards().count(), 2);
}

#[test]
fn a_filter_ends_at_its_time_and_not_at_an_older_one() {
    let mut cluster = Cluster::newest_of(FilterKind::Blocked);
    let (filter, _) = cluster.meta.filter_by_name("f").unwrap();
    for expires_ms in [500, 700] {
        let expires = MetaCommand::SetExpiry { filter, expires_ms: Some(expires_ms) };
        assert_eq!(cluster.meta(&expires).unwrap(), MetaReply::Done);
    }
    let set = cluster.reference.incarnation(filter).unwrap().expiry_index;
    cluster.meta(&MetaCommand::DropExpired { filter, expires_ms: 500 }).unwrap();
    let incarnation = cluster.reference.incarnation(filter).unwrap();
    assert!(incarnation.erased_at_us.is_empty() && !incarnation.has_expired);
    assert_eq!((incarnation.expires_ms, incarnation.expiry_index), (Some(700), set));
    cluster.drop_expired("f", 40);
    let incarnation = cluster.reference.incarnation(filter).unwrap();
    assert!(incarnation.has_expired);
    assert_eq!((incarnation.expires_ms, incarnation.expiry_index), (Some(700), set));
    assert_eq!((&incarnation.erased_at_us[..], incarnation.gone_at_us), (&[40; 3][..], 40));
}

/// Parts of an older generation are refused: the engine does this, and the reference checks it.
#[test]
fn parts_of_an_older_generation_change_nothing() {
    let mut cluster = Cluster::new();
    let filter = cluster.create("f", FilterKind::Blocked);
    let key = cluster.meta.filter(filter).unwrap().settings.key;
    cluster.clear("f", 10);
    let of_shard_0 = |hash: &umbel_filter::ItemHash| hash.hi() >> 63 == 0;
    let hashes = (0..).map(|item| hash_of(key, item)).filter(of_shard_0);
    let hashes = HashList::from_hashes(&hashes.take(1).collect::<Vec<_>>());
    let (generation, proposed) = (Generation(1), Bitmap::ones(1));
    let growth_bytes = u64::MAX;
    let part = InsertPart { filter, generation, request: None, proposed, hashes, growth_bytes };
    let command = ShardCommand::Insert(vec![part]);
    let reply = cluster.shard(ShardId(0), &command).unwrap();
    assert!(matches!(reply, ShardReply::Inserted(parts) if parts[0].is_err()));
}
