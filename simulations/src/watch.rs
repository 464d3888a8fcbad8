//! The checks that observe the nodes while a run goes on: the reference, the invariants of Raft and
//! others.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_engine::GroupId;
use umbel_engine::meta::{MetaCommand, MetaError, MetaReply};
use umbel_engine::shard::{Bitmap, InsertPart, RepairPart, ShardCommand, ShardReply};
use umbel_node::ports::NodeObserver;
use umbel_node::ports::observer::{Event, GroupReport, Payload};

use crate::counters;
use crate::invariants::entries_are_known;
use crate::invariants::leaders_reach_voters::LeadersReach;
use crate::invariants::placements::Placements;
use crate::invariants::quotas_hold::Acknowledged;
use crate::invariants::raft::RaftInvariants;
use crate::now::now_us;
use crate::oracle::generations::Generations;
use crate::oracle::quotas::Quotas;
use crate::oracle::reference::Reference;
use crate::oracle::rights::RightsOracle;
use crate::oracle::seen::SeenRefusals;
use crate::trace;
use crate::violation::Violation;

/// Most violations that are kept; further ones tell nothing new.
const VIOLATIONS_MAX: usize = 16;

/// The state of all checks that run during a simulation.
pub(crate) struct Checks {
    pub(crate) reference: Reference,
    pub(crate) raft: RaftInvariants,
    pub(crate) placements: Placements,
    pub(crate) leaders_reach: LeadersReach,
    pub(crate) generations: Generations,
    pub(crate) rights: RightsOracle,
    pub(crate) quotas: Quotas,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) seen: SeenRefusals,
    pub(crate) violations: Vec<Violation>,
}

thread_local! {
    static CHECKS: RefCell<Option<Checks>> = const { RefCell::new(None) };
}

/// Starts the checks of a run.
pub(crate) fn begin() {
    let checks = Checks {
        reference: Reference::new(),
        raft: RaftInvariants::new(),
        placements: Placements::new(),
        leaders_reach: LeadersReach::default(),
        generations: Generations::default(),
        rights: RightsOracle::default(),
        quotas: Quotas::default(),
        acknowledged: Acknowledged::default(),
        seen: SeenRefusals::default(),
        violations: Vec::new(),
    };
    CHECKS.set(Some(checks));
}

/// Ends the checks of a run and returns their state.
pub(crate) fn end() -> Checks {
    CHECKS.take().expect("the checks began with the run")
}

/// Calls `look` with the checks of this run.
pub(crate) fn with<T>(look: impl FnOnce(&mut Checks) -> T) -> T {
    CHECKS.with_borrow_mut(|checks| look(checks.as_mut().expect("the checks began with the run")))
}

/// Records a violation that was found elsewhere.
pub(crate) fn violated(invariant: &'static str, what: String) {
    let at_us = now_us();
    with(|checks| checks.add(vec![Violation { invariant, at_us, what }]));
}

/// Passes the reports of a node's groups to the checks.
pub(crate) fn look(node: &str, reports: &[GroupReport]) {
    with(|checks| {
        let found = checks.raft.look(now_us(), node, reports);
        checks.add(found);
    });
}

impl Checks {
    pub(crate) fn add(&mut self, found: Vec<Violation>) {
        for violation in found {
            violation.trace();
            if self.violations.len() < VIOLATIONS_MAX {
                self.violations.push(violation);
            }
        }
    }
}

impl Checks {
    /// Records which state of the catalogue a host's node has reached.
    fn on_event(&mut self, now: u64, host: &str, event: &Event<'_>) {
        let newest = self.reference.meta();
        match *event {
            Event::LogOpened { group: GroupId::META, .. } => self.generations.started(now, host),
            Event::Applied { group: GroupId::META, entry, ref payload, .. } => {
                self.generations.applied_on(now, host, entry.index, newest);
                self.rights.applied_on(now, host, entry.index, newest);
                if let Payload::Meta(command, reply) = payload {
                    let seen = (*command, *reply);
                    let held = self.quotas.applied(now, entry.index, seen, newest).err();
                    let summed = self.quotas.add_up(entry.index, newest).err();
                    let placed = self.placements.applied(entry.index, newest).err();
                    let broken = held.into_iter().chain(summed).chain(placed);
                    self.add(
                        broken
                            .map(|(invariant, what)| Violation { invariant, at_us: now, what })
                            .collect(),
                    );
                }
            }
            Event::SnapshotLoaded { group: GroupId::META, through: Some(entry), .. } => {
                self.generations.applied_on(now, host, entry.index, newest);
                self.rights.applied_on(now, host, entry.index, newest);
            }
            _ => {}
        }
    }
}

/// Observes one incarnation of a host.
pub(crate) struct SimObserver {
    pub(crate) host: String,
    pub(crate) incarnation: u32,
    /// The host lost its disk: its events are traced but not checked.
    pub(crate) is_lost: bool,
    /// Counts the damages that the host's nodes have found.
    pub(crate) damage_count: Arc<AtomicU64>,
}

/// A payload in short form, for the trace.
struct Short<'a>(&'a Payload<'a>);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Payload::Blank => f.write_str("blank"),
            Payload::Members { voters, learners } => {
                write!(f, "voters {voters:?} learners {learners:?}")
            }
            Payload::Meta(command, _) => write!(f, "{command:?}"),
            Payload::Shard(ShardCommand::Insert(parts), _) => {
                for part in parts {
                    let InsertPart { filter, generation, request, hashes, .. } = part;
                    let id = request.as_ref().map(|stamp| stamp.id);
                    write!(f, "insert {} into {filter} {generation} {id:?} ", hashes.len())?;
                }
                Ok(())
            }
            Payload::Shard(ShardCommand::LoadFrame { filter, .. }, _) => write!(f, "load {filter}"),
            Payload::Shard(ShardCommand::Repair(part), _) => {
                let RepairPart { filter, generation, read_at, blocks, .. } = part;
                let blocks: Vec<u32> = blocks.iter().map(|&(block, _)| block).collect();
                write!(f, "repair {filter} {generation} as of {read_at} {blocks:?}")
            }
            Payload::Shard(command, _) => write!(f, "{command:?}"),
        }
    }
}

/// The state that an entry shows: its proposer was right about an item, an expiry or a filter, and others were faster; or it
/// drops a filter whose time has come.
fn shown_by(payload: &Payload<'_>) -> Option<&'static str> {
    match payload {
        Payload::Shard(ShardCommand::InsertAbsent(..), ShardReply::Inserted(answers)) => {
            let has_lost = |bits: &Bitmap| bits.count_ones() < bits.len();
            answers.iter().flatten().any(has_lost).then_some("absent_lost_race")
        }
        Payload::Meta(_, MetaReply::Refused(MetaError::ExpiryChanged { .. })) => {
            Some("expiry_lost_race")
        }
        Payload::Meta(command, MetaReply::Refused(MetaError::UnknownFilter { .. })) => {
            let is_take = matches!(*command.bare(), MetaCommand::TakeFilter { .. });
            is_take.then_some("take_lost_race")
        }
        Payload::Meta(MetaCommand::DropExpired { .. }, MetaReply::Done) => Some("filter_expired"),
        _ => None,
    }
}

impl NodeObserver for SimObserver {
    fn observe(&self, event: &Event<'_>) {
        let now = now_us();
        self.trace(now, event);
        if self.is_lost {
            return;
        }
        with(|checks| {
            let found = checks.raft.observe(now, &self.host, self.incarnation, event);
            checks.add(found);
            let found = match event {
                Event::Applied { group, entry, payload, digest } => {
                    checks.reference.applied(now, &self.host, *group, *entry, payload, *digest)
                }
                Event::SnapshotBuilt { group, through } => {
                    checks.reference.built(now, &self.host, *group, *through)
                }
                Event::SnapshotLoaded { group, through, digest } => {
                    checks.reference.loaded(now, &self.host, *group, *through, *digest)
                }
                _ => Ok(()),
            };
            let known = entries_are_known::check(now, &self.host, event);
            checks.add(found.err().into_iter().chain(known.err()).collect());
            checks.on_event(now, &self.host, event);
        });
    }
}

impl SimObserver {
    fn trace(&self, now: u64, event: &Event<'_>) {
        let host = &self.host;
        match event {
            Event::LogOpened { group, purged, last, vote, .. } => {
                trace::line(
                    now,
                    host,
                    "log",
                    format_args!("{group:#} {purged:?} {last:?} {vote:?}"),
                );
            }
            Event::Appended { group, entry, checksum, .. } => {
                trace::line(
                    now,
                    host,
                    "append",
                    format_args!("{group:#} {entry:?} {checksum:08x}"),
                );
            }
            Event::Durable { group, through } => {
                trace::line(now, host, "durable", format_args!("{group:#} {through:?}"));
            }
            Event::Truncated { group, after } => {
                counters::state("log_truncated");
                trace::line(now, host, "truncate", format_args!("{group:#} {after:?}"));
            }
            Event::Purged { group, through } => {
                counters::state("log_purged");
                trace::line(now, host, "purge", format_args!("{group:#} {through:?}"));
            }
            Event::VoteSaved { group, vote } => {
                trace::line(now, host, "vote", format_args!("{group:#} {vote:?}"));
            }
            Event::Applied { group, entry, payload, .. } => {
                if let Payload::Members { voters, .. } = payload
                    && voters.len() > 1
                {
                    counters::state("joint_configuration");
                }
                shown_by(payload).into_iter().for_each(counters::state);
                trace::line(
                    now,
                    host,
                    "apply",
                    format_args!("{group:#} {entry:?} {}", Short(payload)),
                );
            }
            Event::SnapshotBuilt { group, through } => {
                counters::state("snapshot_built");
                trace::line(now, host, "snapshot", format_args!("{group:#} {through:?}"));
            }
            Event::SnapshotLoaded { group, through, .. } => {
                counters::state("snapshot_loaded");
                trace::line(now, host, "load", format_args!("{group:#} {through:?}"));
            }
            Event::DamageFound { what } => {
                self.damage_count.fetch_add(1, Ordering::Relaxed);
                counters::state("damage_found");
                trace::line(now, host, "damage", format_args!("{what}"));
            }
            Event::EntryUnknown { entry } => {
                trace::line(now, host, "unknown", format_args!("{entry:?}"));
            }
            Event::Forgotten { group } => {
                trace::line(now, host, "forget", format_args!("{group:#}"));
            }
        }
    }
}
