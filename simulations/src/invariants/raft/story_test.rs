//! For each invariant, a story that violates it, and a similar one that is legal.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{Event, GroupReport, VoteId};

use super::story::{GROUP, Story, id, report, set};

#[test]
fn forming_is_legal() {
    Story::formed().is_legal();
}

#[test]
fn one_log_id_has_one_payload() {
    let mut story = Story::formed();
    story.appended(1, id(1, 1, 2));
    story.appended(2, id(1, 1, 2));
    story.is_legal();
    let entry = id(1, 1, 2);
    story.record(3, &Event::Appended { group: GROUP, entry, checksum: 99, voters: None });
    story.breaks("one_log_id_one_payload");
}

#[test]
fn one_log_id_has_one_past() {
    let mut story = Story::formed();
    // Node 2 leads, and has an entry that no other node has.
    story.elected(2, 2, &[2, 3]);
    story.appended(2, id(2, 2, 2));
    story.appended(2, id(2, 2, 3));
    story.replicated(id(1, 1, 2), &[1, 3]);
    story.is_legal();
    story.appended(3, id(2, 2, 3));
    story.breaks("one_log_id_one_payload");
}

#[test]
fn leaders_rise_along_a_log() {
    let mut story = Story::formed();
    story.elected(2, 2, &[2, 3]);
    story.replicated(id(2, 2, 2), &[2, 3]);
    story.appended(1, id(1, 1, 2));
    story.appended(1, id(1, 1, 3));
    story.is_legal();
    story.appended(3, id(1, 1, 3));
    story.breaks("one_log_id_one_payload");
}

#[test]
fn one_index_is_applied_once() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2]);
    story.applied(1, id(1, 1, 2));
    story.applied(2, id(1, 1, 2));
    story.is_legal();
    // Node 3 appends an entry that an earlier leader of term 1 might have left.
    story.appended(3, id(1, 3, 2));
    story.durable(3, id(1, 3, 2));
    story.applied(3, id(1, 3, 2));
    story.breaks("state_machine_safety");
}

#[test]
fn only_what_the_log_holds_is_applied() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2]);
    story.applied(1, id(1, 1, 2));
    story.is_legal();
    story.applied(3, id(1, 1, 2));
    story.breaks("state_machine_safety");
}

#[test]
fn a_snapshot_holds_what_was_applied() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2]);
    story.applied(1, id(1, 1, 2));
    story.built(1, id(1, 1, 2));
    // Node 3 skips an index.
    story.loaded(3, id(1, 1, 2));
    story.purged(3, id(1, 1, 2));
    story.replicated(id(1, 1, 3), &[1, 3]);
    story.applied(3, id(1, 1, 3));
    story.is_legal();
    story.loaded(2, id(1, 1, 4));
    story.breaks("state_machine_safety");
}

#[test]
fn leaders_have_what_was_committed() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2]);
    story.applied(1, id(1, 1, 2));
    story.elected(2, 2, &[2, 3]);
    story.reported(2, GroupReport { is_leader: true, term: 2, last: Some(2), ..report() });
    story.is_legal();
    story.reported(2, GroupReport { is_leader: true, term: 2, ..report() });
    story.breaks("leader_completeness");
    story.elected(3, 3, &[1, 3]);
    story.breaks("leader_completeness");
}

#[test]
fn a_late_leader_may_lack_what_was_committed_after_its_votes() {
    let mut story = Story::formed();
    story.voted(2, 2, 2, false);
    story.voted(3, 2, 2, false);
    // Node 2 does not learn of its election until node 1 has been elected in a later term.
    story.elected(1, 3, &[1, 3]);
    story.replicated(id(3, 1, 2), &[1, 3]);
    story.applied(1, id(3, 1, 2));
    story.voted(2, 2, 2, true);
    story.is_legal();
}

#[test]
fn leaders_are_elected() {
    let mut story = Story::formed();
    story.elected(2, 2, &[2, 3]);
    // A second leader of the term, after the first one.
    story.elected(3, 2, &[3, 1]);
    story.is_legal();
    story.elected(1, 3, &[1]);
    story.breaks("election_safety");
}

#[test]
fn a_vote_that_a_log_opens_with_counts() {
    let mut story = Story::formed();
    story.voted(1, 2, 1, false);
    story.all_stopped();
    // The log of node 2 opens with this vote, which counts as granted although node 2 does not save it
    // again.
    let vote = VoteId { term: 2, node: NodeId(1), is_committed: false };
    let ends = [id(0, 0, 0), id(1, 1, 1)];
    story.opened(1, None, Some(id(1, 1, 1)), &ends, Some(vote));
    story.opened(2, None, Some(id(1, 1, 1)), &ends, Some(vote));
    story.voted(1, 2, 1, true);
    story.is_legal();
}

#[test]
fn only_leaders_make_entries() {
    let mut story = Story::formed();
    story.appended(1, id(1, 1, 2));
    story.appended(3, id(1, 1, 2));
    story.is_legal();
    story.appended(3, id(1, 1, 3));
    story.breaks("election_safety");
}

#[test]
fn learners_commit_nothing_and_lost_logs_what_they_had() {
    let mut story = Story::formed();
    story.opened(4, None, None, &[], None);
    story.loaded(4, id(1, 1, 1));
    story.purged(4, id(1, 1, 1));
    story.replicated(id(1, 1, 2), &[1, 4]);
    story.is_legal();
    story.applied(1, id(1, 1, 2));
    story.breaks("committed_on_quorum");

    story.replicated(id(1, 1, 3), &[1]);
    story.appended(2, id(1, 1, 2));
    story.replicated(id(1, 1, 3), &[2]);
    story.replicated(id(1, 1, 4), &[1]);
    story.lost_disk(2);
    story.lost_disk(2);
    // Node 2 may have confirmed 3 before its disk was lost, but never had 4.
    story.applied(1, id(1, 1, 3));
    story.is_legal();
    story.applied(1, id(1, 1, 4));
    story.breaks("committed_on_quorum");
}

#[test]
fn what_is_only_written_commits_nothing() {
    let mut story = Story::formed();
    story.appended(1, id(1, 1, 2));
    story.appended(2, id(1, 1, 2));
    story.durable(2, id(1, 1, 2));
    story.is_legal();
    story.applied(1, id(1, 1, 2));
    story.breaks("committed_on_quorum");
}

#[test]
fn a_joint_configuration_needs_both_majorities() {
    for (holders, is_enough) in [(&[1_u64, 2, 4, 5][..], true), (&[1, 2, 3], false)] {
        let mut story = Story::formed();
        for node in [4, 5] {
            story.opened(node, None, None, &[], None);
            story.loaded(node, id(1, 1, 1));
            story.purged(node, id(1, 1, 1));
        }
        let joint = [set(&[1, 2, 3]), set(&[3, 4, 5])];
        for &node in holders {
            story.members(node, id(1, 1, 2), &joint);
            story.durable(node, id(1, 1, 2));
        }
        story.is_legal();
        story.applied_members(1, id(1, 1, 2), &joint);
        if is_enough { story.is_legal() } else { story.breaks("committed_on_quorum") }
    }
}

#[test]
fn newer_voters_may_commit_what_is_before_them() {
    let mut story = Story::formed();
    let (joint, next) = ([set(&[1, 2, 3]), set(&[1])], [set(&[1])]);
    for node in [1, 2] {
        story.members(node, id(1, 1, 2), &joint);
        story.durable(node, id(1, 1, 2));
    }
    story.applied_members(1, id(1, 1, 2), &joint);
    story.appended(1, id(1, 1, 3));
    story.members(1, id(1, 1, 4), &next);
    story.durable(1, id(1, 1, 4));
    story.applied(1, id(1, 1, 3));
    story.applied_members(1, id(1, 1, 4), &next);
    story.is_legal();
}

#[test]
fn a_group_of_one_node_commits_alone() {
    let mut story = Story::default();
    story.opened(1, None, None, &[], None);
    story.members(1, id(0, 0, 0), &[set(&[1])]);
    story.durable(1, id(0, 0, 0));
    story.elected(1, 1, &[1]);
    story.replicated(id(1, 1, 1), &[1]);
    story.applied_members(1, id(0, 0, 0), &[set(&[1])]);
    story.applied(1, id(1, 1, 1));
    story.is_legal();
}

#[test]
fn what_was_applied_stays() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2, 3]);
    story.replicated(id(1, 1, 3), &[1, 3]);
    story.applied(1, id(1, 1, 2));
    // Entry 3 was not committed.
    story.truncated(3, 2);
    story.is_legal();
    story.truncated(3, 1);
    story.breaks("committed_is_immutable");
}

#[test]
fn an_entry_in_the_place_of_an_applied_one_takes_it_back() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2, 3]);
    story.applied(1, id(1, 1, 2));
    story.elected(2, 2, &[2, 3]);
    story.is_legal();
    story.appended(2, id(2, 2, 2));
    story.breaks("committed_is_immutable");
}

#[test]
fn a_snapshot_replaces_a_log_that_conflicts() {
    let mut story = Story::formed();
    story.replicated(id(1, 1, 2), &[1, 2, 3]);
    // Entry 3 of node 1 reaches no other node; the others continue in term 2.
    story.replicated(id(1, 1, 3), &[1]);
    story.elected(2, 2, &[2, 3]);
    story.replicated(id(2, 2, 3), &[2, 3]);
    for node in [2, 3] {
        story.applied(node, id(1, 1, 2));
        story.applied(node, id(2, 2, 3));
    }
    story.built(2, id(2, 2, 3));
    // Node 1 does not know that 2 is committed.
    story.truncated(1, 1);
    story.loaded(1, id(2, 2, 3));
    story.purged(1, id(2, 2, 3));
    story.is_legal();
}

#[test]
fn purged_snapshot_applied_last_are_in_order() {
    let mut story = Story::formed();
    story.built(1, id(1, 1, 1));
    story.purged(1, id(0, 0, 0));
    let (purged, snapshot) = (Some(id(0, 0, 0)), Some(id(1, 1, 1)));
    story.reported(1, GroupReport { purged, snapshot, ..report() });
    story.is_legal();
    story.reported(1, GroupReport { purged, ..report() });
    story.breaks("order");
    story.reported(1, GroupReport { snapshot: Some(id(1, 1, 2)), ..report() });
    story.breaks("order");
    story.reported(1, GroupReport { last: Some(0), ..report() });
    story.breaks("order");
    story.purged(2, id(0, 0, 0));
    story.breaks("order");
    story.replicated(id(1, 1, 2), &[1, 2]);
    story.applied(1, id(1, 1, 2));
    story.built(2, id(1, 1, 2));
    story.breaks("order");
}

#[test]
fn a_log_is_opened_first() {
    let mut story = Story::formed();
    story.all_stopped();
    story.applied(1, id(0, 0, 0));
    story.breaks("order");
}

#[test]
fn votes_terms_and_applied_entries_rise() {
    let mut story = Story::formed();
    story.voted(3, 5, 2, false);
    story.voted(3, 5, 2, true);
    story.reported(3, GroupReport { term: 5, ..report() });
    story.reported(3, GroupReport { term: 5, ..report() });
    story.is_legal();
    story.voted(3, 5, 1, false);
    story.breaks("monotone");
    story.reported(3, report());
    story.breaks("monotone");
    story.reported(3, GroupReport { applied: Some(id(0, 0, 0)), ..report() });
    story.breaks("monotone");
    story.applied(3, id(1, 1, 1));
    story.breaks("monotone");
    story.loaded(3, id(0, 0, 0));
    story.breaks("monotone");
}

#[test]
fn entries_are_applied_again_after_a_start() {
    let mut story = Story::formed();
    story.reported(3, GroupReport { term: 5, ..report() });
    story.all_stopped();
    story.opened(3, None, Some(id(1, 1, 1)), &[id(0, 0, 0), id(1, 1, 1)], None);
    story.reported(3, GroupReport { applied: None, ..report() });
    story.applied_members(3, id(0, 0, 0), &[set(&[1, 2, 3])]);
    story.applied(3, id(1, 1, 1));
    story.is_legal();
    story.opened(3, None, Some(id(1, 1, 1)), &[id(0, 0, 0), id(1, 1, 1)], None);
    story.applied(3, id(1, 1, 1));
    story.breaks("monotone");
}

#[test]
fn voters_change_through_a_common_set() {
    let (old, new, third) = (set(&[1, 2, 3]), set(&[1, 2, 4]), set(&[1, 2, 5]));
    let mut story = Story::formed();
    story.members(1, id(1, 1, 2), &[old.clone(), new.clone()]);
    story.members(1, id(1, 1, 3), &[new.clone(), third.clone()]);
    story.members(1, id(1, 1, 4), &[set(&[1, 2, 5])]);
    // The same voters with other learners.
    story.members(1, id(1, 1, 5), &[third]);
    story.is_legal();
    story.members(1, id(1, 1, 6), &[set(&[1, 2, 3])]);
    story.breaks("membership");
    story.members(1, id(1, 1, 7), &[]);
    story.breaks("membership");
    // A change that was truncated is not the base of the next one.
    let mut story = Story::formed();
    story.members(1, id(1, 1, 2), &[old.clone(), new.clone()]);
    story.truncated(1, 1);
    story.members(1, id(1, 1, 2), &[old.clone(), new.clone()]);
    story.is_legal();
    story.durable(1, id(1, 1, 2));
    story.members(2, id(1, 1, 2), &[old.clone(), new]);
    story.durable(2, id(1, 1, 2));
    story.applied_members(1, id(1, 1, 2), &[old]);
    story.breaks("membership");
}
