//! Validates plans: numbers are in range, names exist.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use super::{Fault, FilterKind, FilterPlan, PLAN_FORMAT, Plan, Who};

mod access;
mod fault;
mod names;
mod op;
mod resp;
mod scenario;

/// How large plans may be.
#[derive(Debug)]
pub(crate) struct PlanLimits {
    /// Nodes that found the cluster.
    pub(crate) nodes: RangeInclusive<u32>,
    /// Founders and joiners together.
    pub(crate) nodes_and_joins: RangeInclusive<u32>,
    /// Shards.
    pub(crate) shards: RangeInclusive<u32>,
    /// Replicas a shard.
    pub(crate) replicas: RangeInclusive<u32>,
    /// Clients.
    pub(crate) clients: RangeInclusive<u32>,
    /// Simulated seconds between comparisons of copies.
    pub(crate) scrub_s: RangeInclusive<u32>,
    /// Cores of a node.
    pub(crate) cores: RangeInclusive<u32>,
    /// Machines whose zones are named.
    pub(crate) zones: RangeInclusive<usize>,
    /// Number that identifies a zone.
    pub(crate) zone: RangeInclusive<u32>,
    /// Simulated milliseconds of the phase with faults, and of one fault.
    pub(crate) run_ms: RangeInclusive<u64>,
    /// Filters.
    pub(crate) filters: RangeInclusive<usize>,
    /// Characters of a filter's name.
    pub(crate) name_chars: RangeInclusive<usize>,
    /// Capacity of a filter in items.
    pub(crate) capacity: RangeInclusive<u64>,
    /// A filter's rate of false positives, in millionths.
    pub(crate) rate_ppm: RangeInclusive<u32>,
    /// Operations.
    pub(crate) ops: RangeInclusive<usize>,
    /// Items of one operation.
    pub(crate) op_items: RangeInclusive<usize>,
    /// Number that identifies an item.
    pub(crate) item: RangeInclusive<u32>,
    /// Copies of one insert.
    pub(crate) copies: RangeInclusive<u32>,
    /// Seconds by which an expiry is before the latest one.
    pub(crate) turn: RangeInclusive<u32>,
    /// Filters that are intersected.
    pub(crate) sources: RangeInclusive<usize>,
    /// Jobs.
    pub(crate) jobs: RangeInclusive<usize>,
    /// Records of a machine in a job, and distinct items of all machines.
    pub(crate) job_records: RangeInclusive<u32>,
    /// Cells an owner of a job.
    pub(crate) job_cells: RangeInclusive<u32>,
    /// Changes of principals.
    pub(crate) access_changes: RangeInclusive<usize>,
    /// Calls of principals.
    pub(crate) access_asks: RangeInclusive<usize>,
    /// Changes of quotas.
    pub(crate) quota_limits: RangeInclusive<usize>,
    /// Calls of holders of quotas.
    pub(crate) quota_calls: RangeInclusive<usize>,
    /// Calls with wrong certificates.
    pub(crate) impostors: RangeInclusive<usize>,
    /// Certificates that lapse.
    pub(crate) lapses: RangeInclusive<usize>,
    /// Lifetime of a certificate in simulated milliseconds. Its last third is longer than a clock's skew.
    pub(crate) life_ms: RangeInclusive<u64>,
    /// How far a wall clock is ahead, in milliseconds.
    pub(crate) skew_ms: RangeInclusive<i64>,
    /// Number that identifies a principal.
    pub(crate) principal: RangeInclusive<u32>,
    /// Faults.
    pub(crate) faults: RangeInclusive<usize>,
    /// Hosts with sets that sessions reconcile.
    pub(crate) sets: RangeInclusive<usize>,
    /// Items that are added to a set at once.
    pub(crate) set_items: RangeInclusive<u32>,
    /// Sessions.
    pub(crate) scenarios: RangeInclusive<usize>,
    /// Bytes that a side of a session writes at once.
    pub(crate) chunk_bytes: RangeInclusive<u32>,
}

/// How large plans may be.
pub(crate) const PLAN_LIMITS: PlanLimits = PlanLimits {
    nodes: 1..=16,
    nodes_and_joins: 1..=16,
    shards: 1..=16,
    replicas: 1..=9,
    clients: 1..=64,
    scrub_s: 0..=3_600,
    cores: 0..=8,
    zones: 0..=16,
    zone: 1..=16,
    run_ms: 1..=600_000,
    filters: 0..=64,
    name_chars: 1..=64,
    capacity: 1..=10_000_000,
    rate_ppm: 1..=500_000,
    ops: 0..=100_000,
    op_items: 1..=1000,
    item: 0..=9_999_999,
    copies: 1..=8,
    turn: 0..=9_999_999,
    sources: 2..=8,
    jobs: 0..=16,
    job_records: 0..=10_000,
    job_cells: 1..=64,
    access_changes: 0..=1000,
    access_asks: 0..=10_000,
    quota_limits: 0..=1000,
    quota_calls: 0..=10_000,
    impostors: 0..=10_000,
    lapses: 0..=16,
    life_ms: 3_100..=600_000,
    skew_ms: -1_000..=1_000,
    principal: 0..=63,
    faults: 0..=1000,
    sets: 2..=8,
    set_items: 0..=100_000,
    scenarios: 0..=1000,
    chunk_bytes: 16..=65_536,
};

/// A part of a plan that no world can carry out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: expected {expected}, got {found}")]
pub(crate) struct Misfit {
    /// Its place: a path of fields, such as `ops[3].op.items`; elements are counted from 0.
    pub(crate) place: String,
    /// What is allowed there.
    pub(crate) expected: String,
    /// What was found there.
    pub(crate) found: String,
}

impl Misfit {
    fn new(
        place: impl fmt::Display,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        let [place, expected, found] = [place.to_string(), expected.to_string(), found.to_string()];
        Self { place, expected, found }
    }
}

fn in_range<T: PartialOrd + fmt::Display>(
    place: impl fmt::Display,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<(), Misfit> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Misfit::new(place, format!("{} to {}", range.start(), range.end()), value))
}

fn in_order(list: &str, times_ms: impl Iterator<Item = u64>, run_ms: u64) -> Result<(), Misfit> {
    let mut before_ms = 0;
    for (index, at_ms) in times_ms.enumerate() {
        let place = format!("{list}[{index}].at_ms");
        if at_ms < before_ms {
            let expected = format!("the order of time, {before_ms} or later");
            return Err(Misfit::new(place, expected, at_ms));
        }
        in_range(place, at_ms, &(0..=run_ms))?;
        before_ms = at_ms;
    }
    Ok(())
}

/// Names from a list, as `"a", "b" or "c"`.
fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "nothing".to_owned(),
    }
}

impl Plan {
    /// Checks that a world can carry out the plan.
    ///
    /// # Errors
    /// Names the first place that does not fit.
    pub(crate) fn check(&self) -> Result<(), Misfit> {
        in_range("plan", self.plan, &(PLAN_FORMAT..=PLAN_FORMAT))?;
        let (limits, world) = (PLAN_LIMITS, self.world);
        in_range("run_ms", self.run_ms, &limits.run_ms)?;
        if world.nodes > 0 || self.sets.is_none() {
            in_range("world.nodes", world.nodes, &limits.nodes)?;
        }
        in_range("world.shards", world.shards, &limits.shards)?;
        in_range("world.replicas", world.replicas, &limits.replicas)?;
        in_range("world.clients", world.clients, &limits.clients)?;
        in_range("world.scrub_s", world.scrub_s, &limits.scrub_s)?;
        if world.rot_every > 0 && world.scrub_s == 0 {
            let expected = "0 where nothing is compared (world.scrub_s) that would mend the bits";
            return Err(Misfit::new("world.rot_every", expected, world.rot_every));
        }
        in_range("world.cores", world.cores, &limits.cores)?;
        in_range("world.resp_from", world.resp_from, &(0..=world.clients))?;
        in_range("number of zones", self.zones.len(), &limits.zones)?;
        self.zones.iter().enumerate().try_for_each(|(index, &zone)| {
            in_range(format!("zones[{index}]"), zone, &limits.zone)
        })?;
        in_range("number of filters", self.filters.len(), &limits.filters)?;
        in_range("number of ops", self.ops.len(), &limits.ops)?;
        in_range("number of faults", self.faults.len(), &limits.faults)?;
        self.check_jobs()?;
        self.check_scenarios()?;
        self.check_access()?;
        self.check_names()?;
        self.check_filters()?;
        in_order("ops", self.ops.iter().map(|op| op.at_ms), self.run_ms)?;
        in_order("faults", self.faults.iter().map(|fault| fault.at_ms), self.run_ms)?;
        if world.nodes > 0 {
            in_range("world.nodes with joins", self.node_count(), &limits.nodes_and_joins)?;
        }
        self.check_ops()?;
        self.check_resp()?;
        self.faults.iter().enumerate().try_for_each(|(index, fault)| {
            in_range(format!("faults[{index}].for_ms"), fault.for_ms, &(0..=*limits.run_ms.end()))?;
            fault::check(&format!("faults[{index}].fault"), self, &fault.fault)
        })
    }

    /// The largest possible number of nodes: founders and joiners.
    pub(crate) fn node_count(&self) -> u32 {
        let is_join = |fault: &&super::FaultPlan| matches!(fault.fault, Fault::Join { .. });
        let joins = self.faults.iter().filter(is_join).count();
        self.world.nodes.saturating_add(u32::try_from(joins).unwrap_or(u32::MAX))
    }

    fn check_filters(&self) -> Result<(), Misfit> {
        let mut names = BTreeSet::new();
        for (index, filter) in self.filters.iter().enumerate() {
            let FilterPlan { name, kind, capacity, rate_ppm, public: _, replicated } = filter;
            let place = |field: &str| format!("filters[{index}].{field}");
            in_range(place("capacity"), *capacity, &PLAN_LIMITS.capacity)?;
            in_range(place("rate_ppm"), *rate_ppm, &PLAN_LIMITS.rate_ppm)?;
            let has_copies =
                matches!(kind, FilterKind::Blocked | FilterKind::SingleShot | FilterKind::Window);
            if *replicated && !has_copies || !*replicated && *kind == FilterKind::SingleShot {
                let expected = "blocked, single-shot or a window where it is replicated, and else not single-shot";
                return Err(Misfit::new(place("kind"), expected, format!("{kind:?}")));
            }
            let is_plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-');
            let lengths = PLAN_LIMITS.name_chars;
            if !lengths.contains(&name.chars().count()) || !name.chars().all(is_plain) {
                let (least, most) = (lengths.start(), lengths.end());
                let expected = format!("{least} to {most} characters of a-z, 0-9, _ and -");
                return Err(Misfit::new(place("name"), expected, format!("{name:?}")));
            }
            if !names.insert(name) {
                let found = format!("{name:?} a second time");
                return Err(Misfit::new(place("name"), "a name of its own", found));
            }
        }
        Ok(())
    }

    fn check_jobs(&self) -> Result<(), Misfit> {
        in_range("number of jobs", self.jobs.len(), &PLAN_LIMITS.jobs)?;
        in_order("jobs", self.jobs.iter().map(|job| job.at_ms), self.run_ms)?;
        for (index, job) in self.jobs.iter().enumerate() {
            let place = |field: &str| format!("jobs[{index}].{field}");
            for (machine, &records) in job.records.iter().enumerate() {
                let place = place(&format!("records[{machine}]"));
                in_range(place, records, &PLAN_LIMITS.job_records)?;
            }
            in_range(place("distinct"), job.distinct, &(1..=*PLAN_LIMITS.job_records.end()))?;
            in_range(place("cells"), job.cells, &PLAN_LIMITS.job_cells)?;
            let most = *PLAN_LIMITS.nodes.end() as usize;
            in_range(place("number of records"), job.records.len(), &(0..=most))?;
        }
        Ok(())
    }
}

impl Fault {
    /// Whether it has no field besides its class.
    pub(crate) const fn has_no_field(&self) -> bool {
        matches!(
            self,
            Self::Ring | Self::RollingRestart | Self::SplitShard | Self::MergeShard | Self::Upgrade
        )
    }

    /// The node that it affects; `None` if it names no node, or names nodes in other fields.
    pub(crate) const fn who(&self) -> Option<Who> {
        match self {
            Self::Split { .. }
            | Self::Bridge { .. }
            | Self::Ring
            | Self::RollingRestart
            | Self::SplitShard
            | Self::MergeShard
            | Self::Upgrade
            | Self::SwapDisks { .. } => None,
            Self::Isolate { who }
            | Self::OneWay { who, .. }
            | Self::CloseLinks { who, .. }
            | Self::Latency { who, .. }
            | Self::Loss { who, .. }
            | Self::Reset { who }
            | Self::Hold { who }
            | Self::Crash { who }
            | Self::PowerLoss { who, .. }
            | Self::Freeze { who }
            | Self::Stop { who }
            | Self::CrashStorm { who, .. }
            | Self::SlowDisk { who, .. }
            | Self::StallDisk { who }
            | Self::SyncFails { who }
            | Self::ReadFails { who }
            | Self::WriteFails { who }
            | Self::DiskFull { who, .. }
            | Self::BitRot { who, .. }
            | Self::Misdirect { who }
            | Self::WipeDisk { who }
            | Self::ClockJump { who, .. }
            | Self::ClockDrift { who, .. }
            | Self::WallClock { who, .. }
            | Self::Join { via: who }
            | Self::Replace { who }
            | Self::MoveReplica { who, .. }
            | Self::HandOver { who }
            | Self::Snapshot { who }
            | Self::LoseTail { who, .. }
            | Self::OldImage { who } => Some(*who),
        }
    }
}
