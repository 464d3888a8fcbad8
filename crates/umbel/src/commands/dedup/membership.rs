//! Runs one worker of a job over many machines as a process of its own: opens its data and joins the
//! other workers.

use super::page::page_of;
use super::summary;
use super::terminal::Terminal;
use crate::clock::unix_seconds;
use crate::exit::{Exit, UsageError, refuse};
use crate::stderr::eprint_line;
use anyhow::{Context, Error, Result};
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use umbel_dedup::{
    FOLDER_PREFIX, FileWorkshop, JobSpec, Membership, OutputTarget, agreed, chain_text,
    check_possible, ended_before, remove_old, rules, spec_digest,
};
use umbel_dedup_engine::job::{JobEvent, JobFailure};
use umbel_dedup_engine::{Route, WorkerId};
use umbel_filter::ItemHasher;
use umbel_jobs::{
    JobObserver, MemberConfig, MemberError, MemberPorts, OptionDigest, Workshop, run_member,
};
use umbel_ports::{RealDisk, RealNet, RealSeed, SecretNet, SecretRefusal, SecretTls};
use umbel_tls::Derived;

/// Threads for the network. Tasks that exchange cells have threads of their own, which may block.
const NETWORK_THREADS: usize = 2;

/// Most tasks that exchange cells at the same time, by the limit of cells ahead
/// ([`DEDUP_CELLS_AHEAD_MAX`](umbel_dedup_engine::limits::DEDUP_CELLS_AHEAD_MAX)).
const CELL_TASKS_MAX: u64 = 4;

/// Memory of such a task: two segments of cells of about 65,536 entries, as sender and as owner.
const CELL_TASK_BYTES: u64 = 32 << 20;

/// Most refused connections that are printed, so that strangers cannot fill a disk with log lines.
const REFUSALS_PRINTED_MAX: usize = 20;

/// How long threads may take to end after the end of the job.
const THREADS_END: Duration = Duration::from_secs(5);

/// Printed by a worker that was killed after the end of its job and started again.
const HAD_ENDED: &str = "the job had ended before this start, and its outputs stand";

/// A worker among others, as the user has specified it.
#[derive(Clone, Debug)]
pub(super) struct PeerSpec {
    /// Number of this worker, from 0.
    pub(super) rank: u16,
    /// Addresses of all workers, in order.
    pub(super) peers: Vec<String>,
    /// The address to listen at; `None`: the address that the others use.
    pub(super) listen: Option<String>,
    /// The folder of the job; `None`: one in the scratch directory.
    pub(super) job_dir: Option<PathBuf>,
    /// Keys derived from the secret of the job.
    pub(super) keys: Derived,
    /// How long the job waits for a disconnected worker.
    pub(super) worker_timeout: Duration,
}

impl PeerSpec {
    /// Number of the job, derived from its secret, because a resumed job may run on other machines.
    pub(super) fn job(&self) -> u64 {
        self.number("number")
    }

    /// A seed that every worker can derive from the secret, and nobody else.
    pub(super) fn seed(&self) -> u64 {
        self.number("seed")
    }

    /// Derives a number from the secret that does not reveal it, since numbers are sent and appear in
    /// names.
    fn number(&self, purpose: &str) -> u64 {
        let bytes = self.keys.bytes(&format!("{purpose} with {} workers", self.peers.len()));
        u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
    }

    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(UsageError(text).into());
        let count = self.peers.len();
        if usize::from(self.rank) >= count {
            return refuse(format!("--rank {}: --peers names {count}, from 0", self.rank));
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            if peer
                .rsplit_once(':')
                .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
            {
                return refuse(format!("--peers: `{peer}`: expected host:port"));
            }
            if let Some(other) = self.peers[..rank].iter().position(|other| other == peer) {
                return refuse(format!("--peers: {peer} is worker {other} and worker {rank}"));
            }
        }
        Ok(())
    }

    /// The address to listen at. A peer's name may resolve to an address that is not one of this machine.
    fn listen(&self) -> String {
        let own = &self.peers[usize::from(self.rank)];
        let (host, port) = own.rsplit_once(':').unwrap_or((own, "0"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match (&self.listen, host.parse::<IpAddr>()) {
            (Some(listen), _) => listen.clone(),
            (None, Ok(_)) => own.clone(),
            (None, Err(_)) => format!("0.0.0.0:{port}"),
        }
    }

    /// Adds the host to a text that begins with a worker.
    fn with_host(&self, text: &str) -> String {
        let named = text.strip_prefix("worker ").and_then(|rest| {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let peer = self.peers.get(rest[..digits].parse::<usize>().ok()?)?;
            Some(format!("worker {} at {peer}{}", &rest[..digits], &rest[digits..]))
        });
        named.unwrap_or_else(|| text.to_owned())
    }
}

/// Prints what the coordinator does, and for whom a worker waits.
struct EventPrinter {
    quiet: bool,
    peers: Vec<String>,
    refusals: Arc<Refusals>,
}

impl EventPrinter {
    /// A text for the workers that the job waits for; if there are none, it states that all are
    /// connected.
    fn away_text(&self, workers: &[WorkerId]) -> String {
        if workers.is_empty() {
            return "all workers are there".to_owned();
        }
        let named = workers.iter().map(|worker| match self.peers.get(worker.index()) {
            Some(peer) => format!("worker {} at {peer}", worker.0),
            None => format!("worker {}", worker.0),
        });
        format!("waits for {}", named.collect::<Vec<_>>().join(", "))
    }
}

impl JobObserver for EventPrinter {
    fn event(&self, event: &JobEvent) {
        if let (JobEvent::Attempt { attempt, cause }, false) = (event, self.quiet) {
            eprint_line(format_args!("the exchange begins again, attempt {attempt}: {cause}"));
        }
    }

    fn away(&self, workers: &[WorkerId]) {
        if !self.quiet {
            eprint_line(self.away_text(workers));
        }
    }

    fn refused(&self, cause: &str) {
        self.refusals.print_line(format_args!("refused: {cause}; its own messages say more"));
    }

    fn coordinator_away(&self, cause: Option<&str>) {
        let coordinator = format!("worker 0 at {}", self.peers[0]);
        match cause {
            _ if self.quiet => {}
            Some(cause) => eprint_line(format_args!("waits for {coordinator}: {cause}")),
            None => eprint_line(format_args!("{coordinator} is there")),
        }
    }
}

/// Prints refused connections, even with `--quiet`, because one may be a worker that was started with another secret
/// or other options.
#[derive(Default)]
struct Refusals {
    printed: AtomicUsize,
}

impl Refusals {
    fn print(&self, from: &str, why: &SecretRefusal) {
        // A broken connection may belong to a worker that has ended.
        if let SecretRefusal::Broken(_) = why {
            return;
        }
        self.print_line(format_args!(
            "{from} was not let in: {why}; if it is a worker of this job, start it with the same secret"
        ));
    }

    /// Prints a line, up to a number of lines.
    fn print_line(&self, line: impl Display) {
        match self.printed.fetch_add(1, Ordering::Relaxed) {
            printed if printed < REFUSALS_PRINTED_MAX => eprint_line(line),
            REFUSALS_PRINTED_MAX => eprint_line("who else is not let in is not told any more"),
            _ => {}
        }
    }
}

/// Runs a worker until its job has ended.
///
/// # Errors
///
/// A [`UsageError`] if the command is not possible; otherwise the cause why the job or this worker has no result, with
/// worker, host, and file and record or path.
pub(super) fn run_as_member(mut spec: JobSpec, peers: &PeerSpec, quiet: bool) -> Result<Exit> {
    peers.check()?;
    if matches!(spec.output, OutputTarget::Stdout) {
        refuse!(
            "a worker of a job over many machines needs an --output FILE or DIR/: nothing is written before \
             all workers are done"
        );
    }
    check_possible(&spec)?;
    spec.rank = Some(peers.rank);
    if peers.rank != 0 {
        // Worker 0 writes them for all workers.
        (spec.summary, spec.page) = (None, None);
    }
    let (rules, spec_digest, options) = (rules(&spec), spec_digest(&spec), option_digests(&spec));
    let member = Membership { worker: peers.rank, job: peers.job(), spec_digest };
    let folder = job_folder(&spec, peers);
    if let Some(bad) = ended_before(&spec, &member, &folder)? {
        if !quiet {
            eprint_line(HAD_ENDED);
        }
        return Ok(if bad > 0 { Exit::BadSkipped } else { Exit::Done });
    }
    let (cell_tasks, tasks_runtime) = start_cell_tasks(spec.memory_bytes)?;
    let terminal = Arc::new(Terminal::new(quiet));
    let workshop = FileWorkshop::open(spec, member, &folder, terminal, page_of)?.removing_last();
    let workshop = Arc::new(workshop);
    let had_ended = workshop.has_ended();
    let network = runtime(NETWORK_THREADS, "network")?;
    let config = MemberConfig {
        worker: peers.rank,
        peers: peers.peers.clone(),
        nodes: Vec::new(),
        listen: peers.listen(),
        job: peers.job(),
        spec_digest,
        options,
        secret: peers.keys.bytes("hellos").to_vec(),
        rules,
        route: Route::for_workers(u32::try_from(peers.peers.len()).unwrap_or(u32::MAX)),
        worker_timeout: peers.worker_timeout,
        cell_tasks,
        runtime: Some(tasks_runtime.handle().clone()),
    };
    // Takes the permissions of others from the folder; the workshop accesses its files itself.
    RealDisk::open(&folder).with_context(|| folder.display().to_string())?;
    let tls = SecretTls::new(&peers.keys).context("TLS")?;
    let refusals = Arc::<Refusals>::default();
    let refused = Arc::clone(&refusals);
    let net = SecretNet::new(Arc::new(RealNet), tls, move |from, why| refused.print(from, why));
    let ports = MemberPorts { net: Arc::new(net), seed: Arc::new(RealSeed) };
    let data = Arc::clone(&workshop);
    let printer = Arc::new(EventPrinter { quiet, peers: peers.peers.clone(), refusals });
    let outcome = network.block_on(run_member(config, &ports, data, printer));
    let is_void = discard_void(outcome.as_ref().err(), &workshop);
    network.shutdown_timeout(THREADS_END);
    tasks_runtime.shutdown_timeout(THREADS_END);
    // Only the coordinator has the summary, once it is written.
    if let Ok(found) = serde_json::from_slice(&workshop.summary()) {
        summary::show(&found, quiet);
    }
    workshop.remove_done();
    if outcome.is_ok() && !quiet {
        print_end(had_ended, &workshop, &folder);
    }
    match outcome {
        Ok(Some(result)) if result.counts.iter().any(|counts| counts.bad > 0) => {
            Ok(Exit::BadSkipped)
        }
        Ok(None) if workshop.bad_count() > 0 => Ok(Exit::BadSkipped),
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(explain(&error, peers, (!is_void).then_some(&*folder))),
    }
}

/// Whether a worker was refused before it did a step. Nothing would go on from its folder, which would be in the way
/// of the corrected command, so it is removed at the end.
fn discard_void(error: Option<&MemberError>, workshop: &FileWorkshop) -> bool {
    let is_refused = matches!(error, Some(MemberError::Refused { .. }));
    let is_void = is_refused && workshop.journal_records().is_ok_and(|records| records.is_empty());
    if is_void {
        workshop.end(false);
    }
    is_void
}

/// The folder of the job, which outlives the process. If the user has not named it, old folders are removed first.
fn job_folder(spec: &JobSpec, peers: &PeerSpec) -> PathBuf {
    peers.job_dir.clone().unwrap_or_else(|| {
        let name = format!("{FOLDER_PREFIX}{:016x}-{}", peers.job(), peers.rank);
        let folder = spec.scratch.join(name);
        remove_old(&spec.scratch, &folder, Duration::from_secs(unix_seconds()));
        folder
    })
}

/// Prints how a worker has ended, if that differs from the usual end.
fn print_end(had_ended: bool, workshop: &FileWorkshop, folder: &Path) {
    if had_ended {
        eprint_line(HAD_ENDED);
    } else if !workshop.has_ended() {
        eprint_line(format_args!(
            "the outputs of this worker stand; whether those of all do is not known, for the coordinator was away: \
             {} stays, in case it is started again",
            folder.display()
        ));
    }
}

/// Digests of the options that workers must agree on.
fn option_digests(spec: &JobSpec) -> Vec<OptionDigest> {
    let digest = |(name, value): (&'static str, String)| {
        let hash = ItemHasher::Xxh3 { seed: 0 }.hash(value.as_bytes()).lo();
        OptionDigest { name, digest: u32::try_from(hash >> 32).expect("32 bits") }
    };
    agreed(spec).into_iter().map(digest).collect()
}

/// The number of tasks that exchange cells, as many as the memory allows, and a runtime with a thread for each.
pub(in crate::commands) fn start_cell_tasks(memory_bytes: u64) -> Result<(u32, Runtime)> {
    let tasks = (memory_bytes / 2 / CELL_TASK_BYTES).clamp(1, CELL_TASKS_MAX);
    let tasks = u32::try_from(tasks).expect("a handful");
    Ok((tasks, runtime(tasks as usize, "cells")?))
}

fn runtime(threads: usize, name: &str) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// The error of a worker, with the folder that it goes on from if there is one.
fn explain(error: &MemberError, peers: &PeerSpec, folder: Option<&Path>) -> Error {
    let text = match error {
        MemberError::Config { what } => return UsageError(what.clone()).into(),
        MemberError::Job(failure @ JobFailure::NothingToDo) => {
            return UsageError(failure.to_string()).into();
        }
        MemberError::Aborted { cause, .. } if *cause == JobFailure::NothingToDo.to_string() => {
            return UsageError(cause.clone()).into();
        }
        MemberError::Job(failure) => peers.with_host(&failure.to_string()),
        MemberError::Aborted { cause, .. } => peers.with_host(cause),
        MemberError::Workshop(error) => {
            peers.with_host(&format!("worker {}: {}", peers.rank, error.cause))
        }
        other => chain_text(other),
    };
    match folder {
        Some(folder) if error.is_resumable() => Error::msg(format!(
            "{text}; nothing is lost: the same command goes on from {}",
            folder.display()
        )),
        Some(_) => Error::msg(text),
        None => Error::msg(format!("{text}; nothing was begun here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_tls::{Secret, SecretUse};

    fn keys(secret: &str) -> Derived {
        Secret::new(secret).unwrap().derive(SecretUse::Job)
    }

    fn peers() -> PeerSpec {
        PeerSpec {
            rank: 1,
            peers: vec!["10.0.0.1:7400".into(), "node-b:7400".into()],
            listen: None,
            job_dir: None,
            keys: keys("8f14e45fceea167a5a36dedd4bea2543"),
            worker_timeout: Duration::from_secs(600),
        }
    }

    #[test]
    fn job_and_seed_come_from_the_secret_and_the_number_of_peers() {
        let moved = vec!["10.0.0.9:1".into(), "c:2".into()];
        let (first, second) = (PeerSpec { rank: 0, peers: moved, ..peers() }, peers());
        assert_eq!((first.job(), first.seed()), (second.job(), second.seed()));
        let other = PeerSpec { keys: keys("9f14e45fceea167a5a36dedd4bea2543"), ..peers() };
        assert!(other.seed() != first.seed() && other.job() != first.job());
    }

    #[test]
    fn names_are_listened_on_everywhere_and_addresses_as_they_are() {
        assert_eq!(peers().listen(), "0.0.0.0:7400");
        assert_eq!(PeerSpec { rank: 0, ..peers() }.listen(), "10.0.0.1:7400");
        let listen = Some("127.0.0.1:9".into());
        assert_eq!(PeerSpec { listen, ..peers() }.listen(), "127.0.0.1:9");
    }

    #[test]
    fn failures_name_the_host_and_bad_peers_are_refused() {
        assert_eq!(peers().with_host("worker 1: disk full"), "worker 1 at node-b:7400: disk full");
        assert_eq!(peers().with_host("worker 7: x"), "worker 7: x");
        peers().check().unwrap();
        assert!(PeerSpec { rank: 2, ..peers() }.check().is_err());
        for list in [["a:1", "a:1"], ["a", "b:1"], ["a:1", ":2"]] {
            let peers = PeerSpec { peers: list.map(str::to_owned).to_vec(), ..peers() };
            assert!(peers.check().unwrap_err().is::<UsageError>());
        }
    }
}
