//! Bugs that are put in on purpose, to see that the simulations find them.
//!
//! Each is a switch that is asked at the place where the bug would be. Without the feature `planted`
//! every switch is the constant `false`, so nothing of them is left in what ships; with it, one may
//! be turned on for the whole process.

/// Whether bugs were compiled in.
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

            /// What it does, in a line.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// The profile of a simulation whose faults bring it out best.
            #[must_use]
            pub const fn profile(self) -> &'static str {
                match self {
                    $(Self::$variant => $profile,)+
                }
            }

            /// The invariants that it breaks, the most likely one first.
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
    /// A vote is kept in memory alone, and answered at once.
    VoteNotSynced = "vote_not_synced", "crash", &["recovered_prefix", "election_safety"];
    /// After a failed sync the log goes on without syncing, as if nothing had happened.
    SyncErrorIgnored = "sync_error_ignored", "disk", END_LOST;
    /// A new segment of the log is used without syncing its folder.
    NoFolderSync = "no_folder_sync", "crash", END_LOST;
    /// Damage in the middle of the log is cut off like a torn end.
    CutMidLog = "cut_mid_log", "disk", &["damage_is_found", "recovered_prefix", "leader_completeness", ACKED];
    /// Checksums of records in the log are not looked at.
    ChecksumIgnored = "checksum_ignored", "disk", DAMAGE_READ;
    /// A founder whose disk is empty goes on under the number that it had.
    IdentityIgnored = "identity_ignored", "disk", LOG_FORGOTTEN;
    /// A start drops entries that this node did not hear to be committed.
    DropUncommitted = "drop_uncommitted", "crash", END_LOST;
    /// The hint of what is committed names the last entry of the log.
    CommitHintAhead = "commit_hint_ahead", "crash", &["committed_on_quorum", "state_machine_safety", "replicas_agree", HEALS];
    /// A snapshot loses its last frame: the last slice comes out empty.
    SnapshotShort = "snapshot_short", "crash", &["replicas_agree", ACKED, BOUNDS, "answers_linearize"];
    /// Request ids are left out of snapshots.
    IdsNotInSnapshot = "ids_not_in_snapshot", "crash", &["replicas_agree", RETRY, "one_new_per_item"];
    /// A snapshot is used before it is durable.
    SnapshotNotSynced = "snapshot_not_synced", "crash", &["recovered_prefix", "damage_is_found", HEALS];
    /// Queries are answered by whoever believes to lead, without confirming it.
    LocalRead = "local_read", "network", READ_EARLY;
    /// A confirmation of leadership is used again for later queries.
    ReuseReadIndex = "reuse_read_index", "network", READ_EARLY;
    /// What a replica does not have is answered as absent without asking the leader.
    AnyReplicaNo = "any_replica_no", "calm", READ_EARLY;
    /// Items that wait to be proposed already are answered as present at once.
    PresentUnconfirmed = "present_unconfirmed", "network", &[RETRY, BOUNDS, ACKED, "answers_linearize"];
    /// A replica that leaves a node forgets what it has voted and acknowledged.
    LeftForgotten = "left_forgotten", "moves", &["leader_completeness", "state_machine_safety", "replicas_agree", ACKED];
    /// A replica that stands for election waits for the answer of the node that it suspects.
    SuspectAsked = "suspect_asked", "failover", &["failover_is_short"];
    /// A replica whose disk lost what it confirmed votes and stands for election as any other.
    LostTailVotes = "lost_tail_votes", "images", &["leader_completeness", "state_machine_safety", "replicas_agree", ACKED];
    /// A copy whose folder is older than what others know of it goes on counting from there.
    OldImageJoins = "old_image_joins", "images", &[CONVERGE, FLUSHED, MAJORITY];
    /// A restarted leader goes on without an election.
    LeaderRestore = "leader_restore", "crash", &["one_log_id_one_payload", "state_machine_safety", ACKED];
    /// A request that is sent again after a lost reply has no id any more.
    RetryNewId = "retry_new_id", "network", ANSWERED_TWICE;
    /// Request ids are kept on the leader only: a follower applies without them.
    IdsOnLeaderOnly = "ids_on_leader_only", "calm", &["replicas_agree", RETRY, "one_new_per_item"];
    /// A node answers queries of a shard that it does not run as if the shard were empty.
    ForeignShardAbsent = "foreign_shard_absent", "churn", READ_EARLY;
    /// An insert that spans shards is acknowledged when the first shard has it.
    AckFirstShard = "ack_first_shard", "network", READ_EARLY;
    /// A try that did nothing makes an earlier one with an open outcome forgotten.
    OpenForgotten = "open_forgotten", "network", &["errors_change_nothing", "answers_linearize", BOUNDS];
    /// A full disk is taken for a written record.
    FullDiskAcks = "full_disk_acks", "disk", END_LOST;
    /// Inserts into a replicated filter are acknowledged before the log has them.
    CopyAckEarly = "copy_ack_early", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// A copy that is cleared keeps its bits.
    ClearKeepsBits = "clear_keeps_bits", "cube", &[COPY_BOUNDS];
    /// Deltas of another generation are merged.
    StaleDeltaMerged = "stale_delta_merged", "cube", &[COPY_BOUNDS];
    /// A copy that merged the first frame of a delta takes itself to have all of it.
    FirstFrameIsAll = "first_frame_is_all", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// What others sent is not told on.
    MergedNotTold = "merged_not_told", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// A restarted copy does not insert again what its log has behind the snapshot.
    CopyLogIgnored = "copy_log_ignored", "cube", &[CONVERGE, FLUSHED, MAJORITY];
    /// A cell that one worker has settled is exchanged no more, although others have not.
    SettledSomewhere = "settled_somewhere", "jobs", &[DEDUP, "jobs_end"];
    /// An owner decides on a cell when all workers but one have been heard.
    CellClosedEarly = "cell_closed_early", "jobs", &[DEDUP, "jobs_end"];
    /// A job commits when the first worker has written.
    CommitEarly = "commit_early", "jobs", &[DEDUP, "jobs_end"];
    /// A worker says that it has settled everything before that is durable.
    UnsealedTold = "unsealed_told", "jobs", &[DEDUP, "jobs_end"];
    /// The last record that a verdict drops stays.
    LastDropLost = "last_drop_lost", "jobs", &[DEDUP, "jobs_end"];
    /// A claim on a group counts as one dropped record, for however many it is.
    ClaimCountsOne = "claim_counts_one", "jobs", &[DEDUP, "jobs_end"];
    /// What a relay of the grid brings is taken for its own.
    RelayedAsOwn = "relayed_as_own", "jobs", &[DEDUP, "jobs_end"];
    /// A keeper tells that all kept pieces of a range are the first one.
    PartsNamedAlike = "parts_named_alike", "jobs", &[DEDUP, "jobs_end"];
    /// All workers are told the first one's weights of files as those of every one.
    WeightsAlike = "weights_alike", "jobs", &[DEDUP, "jobs_end"];
    /// A job ends when the first worker has added what it kept to the filter.
    FinishBeforeAdded = "finish_before_added", "jobs", &[DEDUP, "jobs_end"];
    /// What a shard's leader holds of a block is given to all replicas, whatever the others hold.
    ScrubTrustsLeader = "scrub_trusts_leader", "calm", &["replicas_agree", ACKED, BOUNDS, "answers_linearize"];
    /// Who may create, clear and drop some filter may do so with every one.
    GateLeftOpen = "gate_left_open", "access", STRANGERS;
    /// A request in a session that another principal has opened is carried out.
    ForeignSessionAccepted = "foreign_session_accepted", "access", &["sessions_are_their_owners"];
    /// A link serves a node that was removed from the cluster.
    RemovedNodeAdmitted = "removed_node_admitted", "access", &["removed_stay_out"];
    /// Who calls a node that starts is judged by however much of the catalogue that has read already.
    StartUnheard = "start_unheard", "access", STRANGERS;
    /// A token that a node does not know is refused without asking the majority.
    NewTokenUnasked = "new_token_unasked", "access", &["new_tokens_count_at_once"];
    /// A slice grows without asking whether a quota has room for it.
    GrowthUncounted = "growth_uncounted", "access", &["quotas_hold"];
    /// A quota is looked at before a create is proposed, and not again when that is applied.
    QuotaRaced = "quota_raced", "access", &["quotas_hold"];
    /// A create is refused by the node's own copy of the catalogue, whatever was dropped since.
    QuotaByOldCopy = "quota_by_old_copy", "access", &["room_is_given"];
    /// What a hello says counts, whatever the caller's certificate says.
    HelloUnproved = "hello_unproved", "access", &["identities_hold"];
    /// A clearing counts as done before shards have emptied their slices, which answer whatever generation is asked for.
    FenceSkipped = "fence_skipped", "network", &["reset_is_atomic", BOUNDS, "answers_linearize"];
    /// A snapshot copies each slice when its turn comes, and nobody looks whether they are of one moment.
    SnapshotUnsettled = "snapshot_unsettled", "network", NO_MOMENT;
    /// A shard that was split goes on with what it gave away.
    SplitKeepsRange = "split_keeps_range", "churn", &["ranges_tile", BOUNDS, ACKED, "answers_linearize"];
    /// A shard that is split off knows no answer that was given before.
    SplitForgetsAnswers = "split_forgets_answers", "churn", ANSWERED_TWICE;
    /// A shard takes a part that is cut for the range that it is yet to have for one of its own range.
    OtherCutTaken = "other_cut_taken", "churn", ANSWERED_TWICE;
    /// Who merges filters does not look whether shards were split meanwhile.
    SplitUnnoticed = "split_unnoticed", "churn", NO_MOMENT;
    /// The cluster's version is raised without asking nodes what they can run.
    RaiseUnasked = "raise_unasked", "churn", &["entries_are_known"];
    /// What came with a version is written to the log before the cluster is at it.
    WrittenEarly = "written_early", "churn", &["entries_are_known"];
    /// A leader moves windows on by its own clock, and by no entry of the log.
    ReplicaClock = "replica_clock", "calm", &["replicas_agree", FORGET];
    /// A shard that has rotated stays in the slice that it was in.
    RotationLost = "rotation_lost", "churn", FORGOTTEN;
    /// A window lets go of a slice before it ends.
    SliceFreedEarly = "slice_freed_early", "calm", FORGOTTEN;
    /// An aging filter drops its older generation before the newer is full.
    AgesEarly = "ages_early", "calm", &["last_items_stay", "misses_are_few"];
    /// A stable filter forgets everything with each insert.
    StableForgetsAll = "stable_forgets_all", "calm", &["last_items_stay", "misses_are_few"];
    /// A copy of a stable filter counts its inserts from 0 on, and lowers other cells.
    StableCountLost = "stable_count_lost", "crash", &["replicas_agree", RETRY, "one_new_per_item"];
    /// An insert into a cuckoo filter loses a fingerprint that it moves.
    CuckooLosesMoved = "cuckoo_loses_moved", "calm", ITEM_LOST;
    /// What an insert into a quotient filter shifts ends a slot early, and an item is overwritten.
    QuotientShiftsShort = "quotient_shifts_short", "calm", ITEM_LOST;
    /// A copy that forgets is asked as if its node's clock were three slices of time further.
    CopyForgetsEarly = "copy_forgets_early", "cube", &["copies_forget", FLUSHED, MAJORITY];
    /// A question is answered by a window that has not moved on.
    WindowStandsStill = "window_stands_still", "calm", FORGOTTEN;
    /// A session ends well without comparing the digests of the union.
    UnionUnchecked = "union_unchecked", "reconcile", &[EXACT, BOTH];
    /// What a dry run found is told before it is verified.
    ToldUnverified = "told_unverified", "reconcile", &["told_when_verified"];
    /// A session that begins again keeps the key under which symbols collided.
    RetryKeepsKey = "retry_keeps_key", "reconcile", &["honest_sessions_succeed"];
    /// A connection that ends is taken for the other side's consent.
    CloseIsConsent = "close_is_consent", "reconcile", &[EXACT, BOTH];
    /// A session spends more bytes than it may.
    ByteCapIgnored = "byte_cap_ignored", "reconcile", &["byte_cap_holds"];
    /// A resumed session goes on at the other side's count of bytes, whatever their hash.
    ResumeTrustsOffset = "resume_trusts_offset", "reconcile", &[EXACT, BOTH, "honest_sessions_succeed"];
    /// A resumable session sends on without waiting until what it sent is durable.
    ResumeWindowIgnored = "resume_window_ignored", "reconcile", &["little_travels_again"];
    /// What stored sketches tell is taken to be the other side's, without a look into the own set.
    StoredSidesGuessed = "stored_sides_guessed", "reconcile", &[EXACT];
}

impl Planted {
    /// The bug of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }

    /// Rare choices of a node that must be made often to bring it out.
    #[must_use]
    pub const fn provoked(self) -> &'static [&'static str] {
        match self {
            Self::NoFolderSync => &["small_segments"],
            Self::SnapshotShort | Self::IdsNotInSnapshot | Self::SnapshotNotSynced => {
                &["snapshots_often"]
            }
            Self::ForeignShardAbsent | Self::OtherCutTaken => &["old_map"],
            Self::FirstFrameIsAll => &["small_pieces"],
            _ => &[],
        }
    }
}

/// What strangers may not hear.
const STRANGERS: &[&str] = &["nothing_ungranted_is_done", "refusals_tell_nothing"];
/// A table of an item less.
const ITEM_LOST: &[&str] = &[ACKED, "answers_linearize", "one_new_per_item"];
/// What breaks when a log ends before what it confirmed.
const END_LOST: &[&str] =
    &["recovered_prefix", "committed_on_quorum", "leader_completeness", ACKED];
/// What breaks when a question is answered before, or without, what it should see.
const READ_EARLY: &[&str] = &[ACKED, BOUNDS, "answers_linearize"];
/// What breaks when shards answer of different moments.
const NO_MOMENT: &[&str] = &["snapshots_are_one_moment", "merged_is_contained"];
/// What breaks when a request that comes again is taken for another one.
const ANSWERED_TWICE: &[&str] = &[BOUNDS, RETRY, "answers_linearize", "one_new_per_item"];
/// What breaks when damage is read as entries. A node that cannot decode one stops without a word of damage, so that nobody
/// replaces it.
const DAMAGE_READ: &[&str] = &[
    "recovered_prefix",
    "one_log_id_one_payload",
    "state_machine_safety",
    "replicas_agree",
    HEALS,
    "heals_and_agrees",
];
/// What breaks when a node goes on without the log that it had.
const LOG_FORGOTTEN: &[&str] =
    &["identity_holds", "recovered_prefix", "leader_completeness", "committed_on_quorum"];

/// What breaks when windows do not move on as they should.
const FORGOTTEN: &[&str] = &[FORGET, "rotations_forget"];

const ACKED: &str = "acked_is_contained";
const CONVERGE: &str = "copies_converge";
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

    /// The number of the bug that is on, from 1; 0 for none.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Turns one bug on for the whole process, or all off.
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

/// Whether a bug is on: never, in this build.
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
            // The name is the variant's, in the other spelling.
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
        // No other test of this process asks for this one.
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
