//! Starts whose logs have what the node has promised, and starts whose logs do not.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{Event, VoteId};

use super::story::{GROUP, Story, id};

const VOTE: Option<VoteId> = Some(VoteId { term: 1, node: NodeId(1), is_committed: false });

#[test]
fn a_start_finds_what_was_durable() {
    let mut story = Story::formed();
    story.voted(2, 1, 1, true);
    story.replicated(id(1, 1, 2), &[1, 2, 3]);
    story.appended(1, id(1, 1, 3));
    story.appended(2, id(1, 1, 3));
    story.all_stopped();
    // The log has less than was appended, and more than was applied.
    let vote = Some(VoteId { is_committed: true, ..VOTE.unwrap() });
    let ends = [id(0, 0, 0), id(1, 1, 2)];
    story.opened(2, None, Some(id(1, 1, 2)), &ends, vote);
    story.is_legal();
    story.opened(2, None, Some(id(1, 1, 2)), &ends, VOTE);
    story.breaks("recovered_prefix");
    story.opened(2, None, Some(id(1, 1, 1)), &[id(0, 0, 0), id(1, 1, 1)], vote);
    story.breaks("recovered_prefix");
}

#[test]
fn a_start_finds_the_entries_that_were_written() {
    let mut story = Story::formed();
    story.all_stopped();
    // An entry that no node has appended.
    let ends = [id(0, 0, 0), id(1, 1, 1), id(5, 2, 2)];
    story.opened(2, None, Some(id(5, 2, 2)), &ends, VOTE);
    story.breaks("recovered_prefix");
    // The right number of entries, but of another leader.
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 3]);
    story.elected(2, 2, &[2, 1]);
    story.appended(2, id(2, 2, 2));
    story.is_legal();
    story.all_stopped();
    let ends = [id(0, 0, 0), id(1, 1, 1), id(2, 2, 2)];
    story.opened(3, None, Some(id(2, 2, 2)), &ends, None);
    story.breaks("recovered_prefix");
}

#[test]
fn a_start_finds_the_snapshot() {
    let mut story = Story::formed();
    story.built(2, id(1, 1, 1));
    story.purged(2, id(0, 0, 0));
    story.all_stopped();
    let ends = [id(1, 1, 1)];
    story.opened(2, Some(id(0, 0, 0)), Some(id(1, 1, 1)), &ends, VOTE);
    story.loaded(2, id(1, 1, 1));
    story.is_legal();
    story.opened(2, Some(id(0, 0, 0)), Some(id(1, 1, 1)), &ends, VOTE);
    story.loaded(2, id(0, 0, 0));
    story.breaks("recovered_prefix");
}

#[test]
fn a_power_loss_in_the_middle_of_an_install_is_legal() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2]);
    story.applied(1, id(1, 1, 2));
    story.built(1, id(1, 1, 2));
    // Node 3 had adopted the snapshot, but stopped before it reported that.
    story.all_stopped();
    story.opened(3, Some(id(1, 1, 2)), Some(id(1, 1, 2)), &[], None);
    story.loaded(3, id(1, 1, 2));
    story.is_legal();
    // No node has applied entry 3.
    story.opened(3, Some(id(1, 1, 3)), Some(id(1, 1, 3)), &[], None);
    story.breaks("recovered_prefix");
}

#[test]
fn a_replica_that_was_moved_away_promises_nothing() {
    let mut story = Story::formed();
    story.forgotten(2);
    // A call that was still in flight.
    story.durable(2, id(1, 1, 1));
    story.opened(2, None, None, &[], None);
    story.loaded(2, id(1, 1, 1));
    story.purged(2, id(1, 1, 1));
    story.voted(2, 1, 1, true);
    story.is_legal();
    story.all_stopped();
    story.opened(2, None, None, &[], None);
    story.breaks("recovered_prefix");
}

#[test]
fn a_lost_disk_comes_back_under_another_number() {
    let mut story = Story::formed();
    story.lost_disk(2);
    story.all_stopped();
    let opened = |node| {
        let (purged, last, vote) = (None, None, None);
        Event::LogOpened { group: GROUP, node, purged, last, ends: &[], vote }
    };
    story.record(2, &opened(NodeId(4)));
    story.loaded(2, id(1, 1, 1));
    story.purged(2, id(1, 1, 1));
    story.voted(2, 1, 1, true);
    story.is_legal();
    story.all_stopped();
    story.record(2, &opened(NodeId(2)));
    story.voted(2, 1, 1, true);
    story.breaks("recovered_prefix");
}

#[test]
fn a_disk_that_lost_something_is_believed_once() {
    let mut story = Story::formed();
    story.damaged_disk(2);
    story.all_stopped();
    story.opened(2, None, Some(id(0, 0, 0)), &[id(0, 0, 0)], None);
    story.appended(2, id(1, 1, 1));
    story.durable(2, id(1, 1, 1));
    story.is_legal();
    // Its disk must have what it has confirmed since.
    story.all_stopped();
    story.opened(2, None, Some(id(0, 0, 0)), &[id(0, 0, 0)], None);
    story.breaks("recovered_prefix");
}
