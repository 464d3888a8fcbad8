//! Deliberate bugs, to check that the simulations find them.
//!
//! Each bug is a switch that is tested at the place where the bug would be. Without the feature `planted`
//! every switch is the constant `false`, so a release contains nothing of them; with the feature, one bug
//! may be turned on for the whole process.

/// Whether bugs are compiled in.
pub const PLANTED: bool = cfg!(feature = "planted");

macro_rules! planted {
    ($($(#[doc = $doc:literal])+
        $variant:ident = $name:literal, $profile:literal, $caught_by:expr;)+) => {
        /// A bug.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Planted {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Planted {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name, as commands and plans write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it does, in one line.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// The simulation profile whose faults expose it best.
            #[must_use]
            pub const fn profile(self) -> &'static str {
                match self {
                    $(Self::$variant => $profile,)+
                }
            }

            /// The invariants that it violates, the most likely one first.
            #[must_use]
            pub const fn caught_by(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => $caught_by,)+
                }
            }
        }
    };
}

// Name, profile, invariants.
planted! {
    /// Entries count as durable before the disk was synced.
    AckBeforeSync = "ack_before_sync", "crash", END_LOST;
    /// A vote is kept only in memory, and answered at once.
    VoteNotSynced = "vote_not_synced", "crash", &["recovered_prefix", "election_safety"];
    /// After a failed sync, the log continues without syncing, as if nothing had happened.
    SyncErrorIgnored = "sync_error_ignored", "disk", END_LOST;
    /// A new segment of the log is used before its directory was synced.
    NoFolderSync = "no_folder_sync", "crash", END_LOST;
    /// Damage in the middle of the log is truncated like a torn end.
    CutMidLog = "cut_mid_log", "disk", &["damage_is_found", "recovered_prefix", "leader_completeness", ACKED];
    /// Checksums of log records are not verified.
    ChecksumIgnored = "checksum_ignored", "disk", DAMAGE_READ;
    /// A founder whose disk is empty continues under the number that it had.
    IdentityIgnored = "identity_ignored", "disk", LOG_FORGOTTEN;
    /// On start, a node drops entries that it does not know to be committed.
    DropUncommitted = "drop_uncommitted", "crash", END_LOST;
    /// The stored hint of the commit index names the last entry of the log.
    CommitHintAhead = "commit_hint_ahead", "crash", &["committed_on_quorum", "state_machine_safety", "replicas_agree", HEALS];
    /// A snapshot loses its last frame, so the last slice is loaded empty.
    SnapshotShort = "snapshot_short", "crash", &["replicas_agree", ACKED, BOUNDS, "answers_linearize"];
    /// Of the cache lines in which an insert changes something, the first is not kept for a reader that began before it.
    FormerWordLost = "former_word_lost", "crash", &["replicas_agree", "snapshots_are_one_moment"];
    /// Request ids are left out of snapshots.
    IdsNotInSnapshot = "ids_not_in_snapshot", "crash", &["replicas_agree", RETRY, "one_new_per_item"];
    /// A snapshot is used before it is durable.
    SnapshotNotSynced = "snapshot_not_synced", "crash", &["recovered_prefix", "damage_is_found", HEALS];
    /// A node that believes it is the leader answers queries without confirming its leadership.
    LocalRead = "local_read", "network", READ_EARLY;
    /// A confirmation of leadership is reused for later queries.
    ReuseReadIndex = "reuse_read_index", "network", READ_EARLY;
    /// A replica confirms a leader for reads although it has voted for another one.
    AnyLeaderConfirmed = "any_leader_confirmed", "network", READ_EARLY;
    /// A replica answers that an item is absent without asking the leader.
    AnyReplicaNo = "any_replica_no", "calm", READ_EARLY;
    /// Items that are waiting to be proposed are answered as present at once.
    PresentUnconfirmed = "present_unconfirmed", "network", &[RETRY, BOUNDS, ACKED, "answers_linearize", ADDED_ONCE, COUNTED];
    /// A node that gives up a replica forgets its vote and what it acknowledged.
    LeftForgotten = "left_forgotten", "moves", &["leader_completeness", "state_machine_safety", "replicas_agree", ACKED];
    /// The epoch of the shard map stays the same when the replicas of a shard have moved.
    EpochStays = "epoch_stays", "moves", &["epoch_rises"];
    /// Replicas are moved to nodes that drain, as if they did not.
    DrainedNodeGetsReplicas = "drained_node_gets_replicas", "churn", &["drained_gets_none"];
    /// The balancer spreads replicas over nodes as if none had a zone.
    ZonesIgnored = "zones_ignored", "churn", &["zones_apart"];
    /// A replica whose disk lost acknowledged entries votes and stands for election like any other.
    LostTailVotes = "lost_tail_votes", "images", &["leader_completeness", "state_machine_safety", "replicas_agree", ACKED];
    /// A copy whose folder is older than what other nodes know of it continues counting from there.
    OldImageJoins = "old_image_joins", "images", &[CONVERGE, FLUSHED, MAJORITY];
    /// A leader claims a group that it hears a majority of, although no majority answers its own beats.
    ClaimUnanswered = "claim_unanswered", "failover", &["leaders_reach_voters"];
    /// A restarted leader continues without an election.
    LeaderRestore = "leader_restore", "crash", &["one_log_id_one_payload", "state_machine_safety", ACKED];
    /// A request that is retried after a lost reply no longer has an id.
    RetryNewId = "retry_new_id", "network", ANSWERED_TWICE;
    /// An insert over the Redis protocol is carried out without the name that its request has.
    RespNameForgotten = "resp_name_forgotten", "calm", ANSWERED_TWICE;
    /// Request ids are kept only on the leader: followers apply without them.
    IdsOnLeaderOnly = "ids_on_leader_only", "calm", &["replicas_agree", RETRY, "one_new_per_item"];
    /// A node answers queries of a shard that it does not run as if the shard were empty.
    ForeignShardAbsent = "foreign_shard_absent", "churn", READ_EARLY;
    /// An insert that spans shards is acknowledged when the first shard has applied it.
    AckFirstShard = "ack_first_shard", "network", READ_EARLY;
    /// An attempt without effect discards the record of an earlier one whose outcome is open.
    OpenForgotten = "open_forgotten", "network", &["errors_change_nothing", "answers_linearize", BOUNDS, COUNTED];
    /// A write to a full disk counts as done.
    FullDiskAcks = "full_disk_acks", "disk", END_LOST;
    /// Inserts into a replicated filter are acknowledged before they are logged.
    CopyAckEarly = "copy_ack_early", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// A cleared copy keeps its bits.
    ClearKeepsBits = "clear_keeps_bits", "cube", &[COPY_BOUNDS];
    /// Deltas of another generation are merged.
    StaleDeltaMerged = "stale_delta_merged", "cube", &[COPY_BOUNDS];
    /// A copy that has merged the first frame of a delta assumes that it has all of it.
    FirstFrameIsAll = "first_frame_is_all", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// Changes received from others are not forwarded.
    MergedNotTold = "merged_not_told", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// A restarted copy does not repeat the inserts that its log has after the snapshot.
    CopyLogIgnored = "copy_log_ignored", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// A cell that one worker has decided is not exchanged any more, although others have not decided it.
    SettledSomewhere = "settled_somewhere", "jobs", &[DEDUP, "jobs_end"];
    /// An owner decides a cell before the last worker has sent its entries.
    CellClosedEarly = "cell_closed_early", "jobs", &[DEDUP, "jobs_end"];
    /// A job commits when the first worker has written its outputs.
    CommitEarly = "commit_early", "jobs", &[DEDUP, "jobs_end"];
    /// A worker reports all cells as decided before that is durable.
    UnsealedTold = "unsealed_told", "jobs", &[DEDUP, "jobs_end"];
    /// The last record that a verdict drops is kept.
    LastDropLost = "last_drop_lost", "jobs", &[DEDUP, "jobs_end"];
    /// A claim on a group counts as one dropped record, whatever its count.
    ClaimCountsOne = "claim_counts_one", "jobs", &[DEDUP, "jobs_end"];
    /// A frame that a relay of the grid forwards is taken for the relay's own.
    RelayedAsOwn = "relayed_as_own", "jobs", &[DEDUP, "jobs_end"];
    /// An owner reports the first kept part of a range in place of all of them.
    PartsNamedAlike = "parts_named_alike", "jobs", &[DEDUP, "jobs_end"];
    /// All workers are sent the first worker's file weights in place of each worker's own.
    WeightsAlike = "weights_alike", "jobs", &[DEDUP, "jobs_end"];
    /// A job ends when the first worker has added its kept records to the filter.
    FinishBeforeAdded = "finish_before_added", "jobs", &[DEDUP, "jobs_end"];
    /// A repair copies the leader's blocks to all replicas, whatever the others hold.
    ScrubTrustsLeader = "scrub_trusts_leader", "calm", &["replicas_agree", ACKED, BOUNDS, "answers_linearize"];
    /// A principal that may manage some filter may manage every filter.
    GateLeftOpen = "gate_left_open", "access", STRANGERS;
    /// A request in another principal's session is carried out.
    ForeignSessionAccepted = "foreign_session_accepted", "access", &["sessions_are_their_owners"];
    /// A link serves a node that was removed from the cluster.
    RemovedNodeAdmitted = "removed_node_admitted", "access", &["removed_stay_out"];
    /// A starting node authorises callers by the part of the catalogue that it has read so far.
    StartUnheard = "start_unheard", "access", STRANGERS;
    /// A token that a node does not know is refused without asking the majority.
    NewTokenUnasked = "new_token_unasked", "access", &["new_tokens_count_at_once"];
    /// A slice grows without a check of the quota.
    GrowthUncounted = "growth_uncounted", "access", &["quotas_hold"];
    /// A quota is checked before a create is proposed, but not when it is applied.
    QuotaRaced = "quota_raced", "access", &["quotas_hold"];
    /// A create is refused by the node's own copy of the catalogue, whatever has been dropped since.
    QuotaByOldCopy = "quota_by_old_copy", "access", &["room_is_given"];
    /// The identity in a hello is accepted, whatever the caller's certificate says.
    HelloUnproved = "hello_unproved", "access", &["identities_hold"];
    /// A clear counts as done before the slices are empty, and slices answer requests of any generation.
    FenceSkipped = "fence_skipped", "network", &["reset_is_atomic", BOUNDS, "answers_linearize"];
    /// A snapshot of a filter copies slices one by one, without a check that they are from the same moment.
    SnapshotUnsettled = "snapshot_unsettled", "network", NO_MOMENT;
    /// A shard that was split keeps serving the range that it gave away.
    SplitKeepsRange = "split_keeps_range", "churn", &["ranges_tile", BOUNDS, ACKED, "answers_linearize"];
    /// A shard that is split off has none of the recorded answers.
    SplitForgetsAnswers = "split_forgets_answers", "churn", ANSWERED_TWICE;
    /// A shard applies a part that overlaps a recorded one and is cut otherwise, as if it were new.
    OtherCutTaken = "other_cut_taken", "churn", ANSWERED_TWICE;
    /// A merge of filters does not notice that shards were split meanwhile.
    SplitUnnoticed = "split_unnoticed", "churn", NO_MOMENT;
    /// A shard that was fenced for a merge keeps applying commands.
    EndedShardServes = "ended_shard_serves", "churn", &["replicas_agree", ACKED, "answers_linearize"];
    /// A shard that absorbs another one takes over none of its recorded answers.
    AbsorbForgetsAnswers = "absorb_forgets_answers", "churn", ANSWERED_TWICE;
    /// A replica appends the entry that absorbs a shard without the final state of that shard.
    AbsorbUnready = "absorb_unready", "churn", &[HEALS, "heals_and_agrees"];
    /// The final state of an absorbed shard is removed before a snapshot covers the entry that absorbs it.
    FinalStateDropped = "final_state_dropped", "churn", &[HEALS, "heals_and_agrees"];
    /// A shard takes one that is split off after a merge for the one that it absorbed.
    ErasAlike = "eras_alike", "churn", &[HEALS, "heals_and_agrees", "ranges_tile"];
    /// The cluster's version is raised without asking the nodes which versions they support.
    RaiseUnasked = "raise_unasked", "churn", &["entries_are_known"];
    /// A command is written to the log before the cluster is at the version that introduced it.
    WrittenEarly = "written_early", "churn", &["entries_are_known"];
    /// A leader advances windows by its own clock, without a log entry.
    ReplicaClock = "replica_clock", "calm", &["replicas_agree", FORGET];
    /// A shard that is rotated stays in the same slice.
    RotationLost = "rotation_lost", "churn", FORGOTTEN;
    /// A window drops a slice before it ends.
    SliceFreedEarly = "slice_freed_early", "calm", FORGOTTEN;
    /// An aging filter drops its older generation before the newer one is full.
    AgesEarly = "ages_early", "calm", &["last_items_stay", "misses_are_few"];
    /// A stable filter forgets everything with each insert.
    StableForgetsAll = "stable_forgets_all", "calm", &["last_items_stay", "misses_are_few"];
    /// A replica of a stable filter counts inserts from 0 again, and lowers other cells than the others.
    StableCountLost = "stable_count_lost", "crash", &["replicas_agree", RETRY, "one_new_per_item"];
    /// An insert into a cuckoo filter loses a fingerprint that it moves.
    CuckooLosesMoved = "cuckoo_loses_moved", "calm", ITEM_LOST;
    /// An insert into a quotient filter shifts one slot too few, and overwrites an item.
    QuotientShiftsShort = "quotient_shifts_short", "calm", ITEM_LOST;
    /// An entry that inserts what is absent inserts what is present, too.
    AbsentIsNotLookedFor = "absent_is_not_looked_for", "calm", &[ADDED_ONCE, "one_new_per_item"];
    /// An expiry is replaced whatever it has become since it was seen.
    ExpiryNotCompared = "expiry_not_compared", "calm", &["expiry_is_set_once"];
    /// A filter that somebody else has taken counts as taken once more.
    TakenTwice = "taken_twice", "calm", &["filter_is_taken_once"];
    /// The leader of the catalogue says what there is without dropping filters whose time has come.
    ExpiryIsNotAsked = "expiry_is_not_asked", "calm", &["expired_filter_takes_nothing"];
    /// A removal takes two copies of an item where there are two.
    RemovalTakesTwo = "removal_takes_two", "calm", &[COUNTED];
    /// A windowed copy is queried as if its node's clock were three time slices ahead.
    CopyForgetsEarly = "copy_forgets_early", "cube", &["copies_forget", FLUSHED, MAJORITY];
    /// A query is answered by a window that was not advanced.
    WindowStandsStill = "window_stands_still", "calm", FORGOTTEN;
    /// A session succeeds without comparing the digests of the union.
    UnionUnchecked = "union_unchecked", "reconcile", &[EXACT, BOTH];
    /// A dry run reports differences before they are verified.
    ToldUnverified = "told_unverified", "reconcile", &["told_when_verified"];
    /// A restarted session keeps the key under which symbols collided, and the length of its symbols.
    RetryKeepsKey = "retry_keeps_key", "reconcile", &["honest_sessions_succeed"];
    /// A connection that ends counts as the other side's consent.
    CloseIsConsent = "close_is_consent", "reconcile", &[EXACT, BOTH];
    /// A session sends more bytes than its limit.
    ByteCapIgnored = "byte_cap_ignored", "reconcile", &["byte_cap_holds"];
    /// A resumed session continues at the other side's byte count without comparing hashes.
    ResumeTrustsOffset = "resume_trusts_offset", "reconcile", &[EXACT, BOTH, "honest_sessions_succeed"];
    /// A resumable session keeps sending without waiting until what it sent is durable.
    ResumeWindowIgnored = "resume_window_ignored", "reconcile", &["little_travels_again"];
    /// Differences from stored sketches are all attributed to the other side, without checking the own set.
    StoredSidesGuessed = "stored_sides_guessed", "reconcile", &[EXACT];
}

impl Planted {
    /// The bug with this name, or None.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }

    /// Rare choices of a node that a simulation must make often to expose the bug.
    #[must_use]
    pub const fn provoked(self) -> &'static [&'static str] {
        match self {
            Self::NoFolderSync => &["small_segments"],
            Self::SnapshotShort
            | Self::FormerWordLost
            | Self::IdsNotInSnapshot
            | Self::SnapshotNotSynced => &["snapshots_often"],
            Self::ForeignShardAbsent | Self::OtherCutTaken => &["old_map"],
            Self::FirstFrameIsAll => &["small_pieces"],
            _ => &[],
        }
    }
}

/// What breaks when callers without rights are served.
const STRANGERS: &[&str] = &["nothing_ungranted_is_done", "refusals_tell_nothing"];
/// What breaks when a table loses an item.
const ITEM_LOST: &[&str] = &[ACKED, "answers_linearize", "one_new_per_item", ADDED_ONCE, COUNTED];
/// What breaks when a log ends before entries that it acknowledged.
const END_LOST: &[&str] =
    &["recovered_prefix", "committed_on_quorum", "leader_completeness", ACKED];
/// What breaks when a query is answered too early, or without the entries that it must see.
const READ_EARLY: &[&str] = &[ACKED, BOUNDS, "answers_linearize", COUNTED];
/// What breaks when shards answer as of different moments.
const NO_MOMENT: &[&str] = &["snapshots_are_one_moment", "merged_is_contained"];
/// What breaks when a retried request is taken for a new one.
const ANSWERED_TWICE: &[&str] = &[BOUNDS, RETRY, "answers_linearize", "one_new_per_item"];
/// What breaks when damage is read as entries. A node that cannot decode an entry stops without reporting
/// damage, so it is not replaced.
const DAMAGE_READ: &[&str] = &[
    "recovered_prefix",
    "one_log_id_one_payload",
    "state_machine_safety",
    "replicas_agree",
    HEALS,
    "heals_and_agrees",
];
/// What breaks when a node continues without its log.
const LOG_FORGOTTEN: &[&str] =
    &["identity_holds", "recovered_prefix", "leader_completeness", "committed_on_quorum"];

/// What breaks when windows do not advance as they should.
const FORGOTTEN: &[&str] = &[FORGET, "rotations_forget"];

const ACKED: &str = "acked_is_contained";
const ADDED_ONCE: &str = "absent_is_added_once";
const CONVERGE: &str = "copies_converge";
const COUNTED: &str = "copies_are_counted";
const FLUSHED: &str = "flushed_is_everywhere";
const MAJORITY: &str = "majority_finds_majority";
const COPY_BOUNDS: &str = "copies_hold_what_was_tried";
const DEDUP: &str = "dedup_matches_reference";
const EXACT: &str = "difference_is_exact";
const BOTH: &str = "success_means_both";
const BOUNDS: &str = "attempted_bounds_bits";
const RETRY: &str = "retry_is_first_answer";
const FORGET: &str = "windows_forget";
const HEALS: &str = "heals_and_serves";

#[cfg(feature = "planted")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Planted;

    /// Number of the bug that is on, counted from 1; 0 if none is.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Turns on one bug for the whole process, or turns off all.
    pub fn plant(bug: Option<Planted>) {
        let number = bug.map_or(0, |bug| bug as u8 + 1);
        ON.store(number, Ordering::Relaxed);
    }

    /// Whether a bug is on.
    #[must_use]
    pub fn on(bug: Planted) -> bool {
        ON.load(Ordering::Relaxed) == bug as u8 + 1
    }
}

#[cfg(feature = "planted")]
pub use switch::{on, plant};

/// Whether a bug is on. Always false in this build.
#[cfg(not(feature = "planted"))]
#[must_use]
pub const fn on(_: Planted) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        let names: BTreeSet<&str> = Planted::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), Planted::ALL.len());
        assert!(Planted::ALL.len() >= 20);
        for &bug in Planted::ALL {
            let name = bug.name();
            assert_eq!(Planted::parse(name), Some(bug));
            let words: Vec<&str> = name.split('_').collect();
            let is_word = |word: &&str| {
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
            };
            assert!(words.iter().all(is_word), "{name}");
            // The name is the variant's name in snake case.
            let capital = |word: &&str| word[..1].to_uppercase() + &word[1..];
            assert_eq!(words.iter().map(capital).collect::<String>(), format!("{bug:?}"));
        }
        assert_eq!(Planted::parse("AckBeforeSync"), None);
        assert_eq!(Planted::parse(""), None);
    }

    #[test]
    fn each_says_what_it_does_and_what_sees_it() {
        for bug in Planted::ALL {
            assert!(bug.about().ends_with('.'), "{bug:?}");
            let caught_by: BTreeSet<&&str> = bug.caught_by().iter().collect();
            assert!(!caught_by.is_empty() && caught_by.len() == bug.caught_by().len(), "{bug:?}");
            let profiles = [
                "access",
                "moves",
                "images",
                "calm",
                "network",
                "disk",
                "crash",
                "churn",
                "clock",
                "mixed",
                "cube",
                "jobs",
                "reconcile",
                "failover",
            ];
            assert!(profiles.contains(&bug.profile()), "{bug:?}");
        }
    }

    #[cfg(feature = "planted")]
    #[test]
    fn one_is_on_at_a_time() {
        // No other test of this process uses this bug.
        let bug = Planted::IdentityIgnored;
        assert!(!on(bug));
        plant(Some(bug));
        assert!(on(bug) && !on(Planted::AckBeforeSync));
        plant(None);
        assert!(!on(bug));
    }

    #[cfg(not(feature = "planted"))]
    #[test]
    fn none_is_ever_on() {
        const { assert!(!PLANTED) };
        assert!(Planted::ALL.iter().all(|&bug| !on(bug)));
    }
}
