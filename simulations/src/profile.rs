//! Profiles: the classes of faults from which a plan is drawn.

use std::fmt;
use std::str::FromStr;

use crate::plan::Fault;

/// A selection of fault classes from which a plan is drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Profile {
    /// No faults.
    Calm,
    /// Faults of links and messages.
    Network,
    /// Faults of disks, with the crashes and power losses that reveal them.
    Disk,
    /// Faults of processes.
    Crash,
    /// Changes of members, replicas and leaders, with crashes and cuts in between.
    Churn,
    /// Replicas that move between nodes and back; most shards have only one replica.
    Moves,
    /// Faults of clocks, and frozen nodes.
    Clock,
    /// Faults that replicated filters on many nodes must tolerate.
    Cube,
    /// Faults that jobs must tolerate. Nodes keep their disks, so that jobs can finish.
    Jobs,
    /// Sessions of set reconciliation alone, without nodes; the plan's scenarios contain their faults.
    Reconcile,
    /// All faults except the two that only the next profile has, and sometimes sessions of set
    /// reconciliation.
    Mixed,
    /// Disks that lose what was synced, and old images of disks, while the other nodes run on.
    Images,
    /// Principals that are added, changed and revoked, amid cuts, crashes and changes of members.
    Access,
    /// One node at a time crashes, is stopped, freezes, is cut off, or has its links closed one way, and has time to
    /// come back; calls must hardly wait.
    Failover,
}

/// Classes of [`Profile::Network`].
const OF_NETWORK: &[&str] = &[
    "isolate",
    "split",
    "one_way",
    "close_links",
    "bridge",
    "ring",
    "latency",
    "loss",
    "reset",
    "hold",
];

/// Classes of [`Profile::Failover`].
const OF_FAILOVER: &[&str] =
    &["crash", "power_loss", "freeze", "stop", "isolate", "close_links", "hand_over"];

/// Classes of [`Profile::Jobs`]. No disk is lost, because a worker's data of a job exists only on its
/// disk.
const OF_JOBS: &[&str] = &[
    "isolate",
    "split",
    "one_way",
    "bridge",
    "latency",
    "loss",
    "reset",
    "hold",
    "crash",
    "power_loss",
    "stop",
    "rolling_restart",
    "crash_storm",
    "freeze",
    "disk_full",
    "slow_disk",
    "hand_over",
    "snapshot",
];

/// Classes of [`Profile::Access`]. Wall clocks are right, so that it is known when rights expire.
const OF_ACCESS: &[&str] = &[
    "isolate",
    "split",
    "one_way",
    "latency",
    "loss",
    "reset",
    "hold",
    "crash",
    "power_loss",
    "stop",
    "rolling_restart",
    "freeze",
    "clock_jump",
    "clock_drift",
    "join",
    "replace",
    "move_replica",
    "split_shard",
    "merge_shard",
    "hand_over",
    "snapshot",
];

/// Classes of `Profile::Churn`: members and replicas change, shards are split and merged, nodes are upgraded.
const OF_CHURN: &[&str] = &[
    "join",
    "replace",
    "move_replica",
    "split_shard",
    "merge_shard",
    "upgrade",
    "hand_over",
    "snapshot",
    "crash",
    "stop",
    "isolate",
];

/// Classes of [`Profile::Mixed`]: all but the last two, whose guarantees require that the other nodes are
/// there.
const OF_MIXED: &[&str] = Fault::ALL_CLASSES.split_at(Fault::ALL_CLASSES.len() - 2).0;

/// A name that no profile has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no profile {name:?}, expected one of {}", names())]
pub(crate) struct ProfileError {
    /// The name that was given.
    pub(crate) name: String,
}

fn names() -> String {
    Profile::ALL.map(Profile::name).join(", ")
}

impl Profile {
    /// All profiles.
    pub(crate) const ALL: [Self; 14] = [
        Self::Calm,
        Self::Network,
        Self::Disk,
        Self::Crash,
        Self::Churn,
        Self::Clock,
        Self::Mixed,
        Self::Cube,
        Self::Jobs,
        Self::Moves,
        Self::Reconcile,
        Self::Images,
        Self::Access,
        Self::Failover,
    ];

    /// Those that a sweep takes in turn unless it is told one: all but [`Profile::Failover`], which comes last. One fault at a
    /// time finds nothing in these but long waits, so it has sweeps of its own.
    pub(crate) const fn in_turn() -> &'static [Self] {
        Self::ALL.split_at(Self::ALL.len() - 1).0
    }

    /// Its name, as commands and plans write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Crash => "crash",
            Self::Churn => "churn",
            Self::Moves => "moves",
            Self::Clock => "clock",
            Self::Cube => "cube",
            Self::Jobs => "jobs",
            Self::Reconcile => "reconcile",
            Self::Mixed => "mixed",
            Self::Images => "images",
            Self::Access => "access",
            Self::Failover => "failover",
        }
    }

    /// What it is for, in one line.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Calm => "no faults: what fails here fails without any",
            Self::Network => {
                "cuts, one-way cuts and closed links, delays, losses, resets and held messages"
            }
            Self::Disk => "errors, full, slow and damaged disks, crashes and power losses",
            Self::Crash => "crashes, storms of them, power losses, stops, frozen nodes",
            Self::Churn => {
                "nodes join and are replaced, replicas and leaders move, amid crashes and cuts"
            }
            Self::Moves => "replicas move to and fro, amid crashes and cuts",
            Self::Clock => "clocks leap and drift, wall clocks are off, nodes stand still",
            Self::Cube => {
                "replicated filters on 2 to 13 nodes: cuts, heavy losses, crashes, clocks a little off, nodes come and go"
            }
            Self::Jobs => "duplicate-detection jobs: crashes, cuts, losses, full and slow disks",
            Self::Reconcile => {
                "sessions of set reconciliation: losses, crashes at every step, growing sets, lying peers"
            }
            Self::Mixed => "all classes of faults, but lost tails and old images of disks",
            Self::Images => {
                "disks that lose synced data, old images of disks, amid cuts and slow disks"
            }
            Self::Access => {
                "principals come, change and are revoked, amid cuts and crashes; nodes come and go, shards are split"
            }
            Self::Failover => {
                "one node at a time dies, is stopped, stands still, is cut off or can open no links: calls hardly wait"
            }
        }
    }

    /// Its fault classes, as [`Fault::class`] names them.
    pub(crate) const fn classes(self) -> &'static [&'static str] {
        match self {
            Self::Calm | Self::Reconcile => &[],
            Self::Network => OF_NETWORK,
            Self::Disk => &[
                "crash",
                "power_loss",
                "slow_disk",
                "stall_disk",
                "sync_fails",
                "read_fails",
                "write_fails",
                "disk_full",
                "bit_rot",
                "misdirect",
                "swap_disks",
                "wipe_disk",
            ],
            Self::Crash => {
                &["crash", "power_loss", "freeze", "stop", "rolling_restart", "crash_storm"]
            }
            Self::Churn => OF_CHURN,
            Self::Moves => &[
                "move_replica",
                "split_shard",
                "merge_shard",
                "hand_over",
                "snapshot",
                "crash",
                "isolate",
            ],
            Self::Clock => &["clock_jump", "clock_drift", "wall_clock", "freeze"],
            Self::Cube => &[
                "isolate",
                "split",
                "one_way",
                "ring",
                "latency",
                "loss",
                "reset",
                "hold",
                "crash",
                "power_loss",
                "stop",
                "rolling_restart",
                "crash_storm",
                "freeze",
                "wall_clock",
                "join",
                "replace",
                "snapshot",
            ],
            Self::Jobs => OF_JOBS,
            Self::Mixed => OF_MIXED,
            Self::Access => OF_ACCESS,
            Self::Failover => OF_FAILOVER,
            // No fault restarts another node: what a node knows about the others is only in its memory.
            Self::Images => &[
                "isolate",
                "bridge",
                "slow_disk",
                "hand_over",
                "snapshot",
                "lose_tail",
                "old_image",
            ],
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(name: &str) -> Result<Self, ProfileError> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == name);
        found.ok_or_else(|| ProfileError { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
        let error = "doomed".parse::<Profile>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no profile \"doomed\", expected one of calm, network, disk, crash, churn, clock, mixed, cube, jobs, moves, reconcile, images, access, failover"
        );
    }

    #[test]
    fn classes_exist_and_none_is_left_out() {
        for profile in Profile::ALL {
            for class in profile.classes() {
                assert!(Fault::ALL_CLASSES.contains(class), "{profile}: {class}");
            }
        }
        let single: Vec<Profile> =
            Profile::ALL.into_iter().filter(|profile| *profile != Profile::Mixed).collect();
        for class in Fault::ALL_CLASSES {
            assert!(single.iter().any(|profile| profile.classes().contains(class)), "{class}");
        }
    }
}
