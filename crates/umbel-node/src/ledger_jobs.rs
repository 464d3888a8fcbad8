//! The cluster's jobs on this node: what its workers run with, and their progress. `node/ledger.rs` starts and
//! ends them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use umbel_dedup_engine::WorkerId;
use umbel_dedup_engine::job::JobEvent;
use umbel_engine::{JobId, NodeId};
use umbel_jobs::{
    JobHost, JobObserver, JobProgress, Member, MemberConfig, MemberError, MemberPorts, Workshop,
    Workshops,
};
use umbel_ports::locked;

use crate::calls::JobStanding;
use crate::ports::Ports;

/// A node's state about jobs.
pub struct LedgerJobs {
    host: Arc<JobHost>,
    ports: MemberPorts,
    workshops: Option<Arc<dyn Workshops>>,
    /// Progress of the workers on this node and, if it runs the coordinator, of the job.
    boards: Mutex<BTreeMap<JobId, Arc<Board>>>,
}

impl LedgerJobs {
    pub(crate) fn new(host: Arc<JobHost>, ports: &Ports) -> Self {
        let workshops = ports.workshops.clone();
        let ports = MemberPorts { net: Arc::clone(&ports.net), seed: Arc::clone(&ports.seed) };
        Self { host, ports, workshops, boards: Mutex::default() }
    }

    /// The node's data of jobs; None if it takes part in no job.
    pub fn workshops(&self) -> Option<&Arc<dyn Workshops>> {
        self.workshops.as_ref()
    }

    /// The progress of a job that has a worker here; with the phase and the absent workers if it is
    /// coordinated here.
    pub(crate) fn standing(&self, job: JobId) -> Option<JobStanding> {
        let board = locked(&self.boards).get(&job).cloned()?;
        Some(board.standing())
    }

    /// Starts this node's worker of a job, and keeps its reports for requests.
    ///
    /// # Errors
    /// As of [`Member::start`].
    pub(crate) fn start(
        &self,
        job: JobId,
        config: MemberConfig,
        data: Arc<dyn Workshop>,
    ) -> Result<Member, MemberError> {
        let board = Arc::new(Board::new(config.nodes.clone()));
        locked(&self.boards).insert(job, Arc::clone(&board));
        Member::start(config, &self.ports, data, board, &self.host)
    }

    /// Forgets the reports of jobs that do not run here any more.
    pub(crate) fn retain(&self, is_running: impl Fn(JobId) -> bool) {
        locked(&self.boards).retain(|&job, _| is_running(job));
    }
}

/// Keeps the latest reports about a job, for requests.
struct Board {
    workers: Vec<NodeId>,
    standing: Mutex<JobStanding>,
}

impl Board {
    fn new(workers: Vec<NodeId>) -> Self {
        let phase = "joining".to_owned();
        Self { workers, standing: Mutex::new(JobStanding { phase, ..JobStanding::default() }) }
    }

    fn standing(&self) -> JobStanding {
        locked(&self.standing).clone()
    }
}

impl JobObserver for Board {
    fn event(&self, event: &JobEvent) {
        let mut standing = locked(&self.standing);
        match event {
            JobEvent::Phase(phase) => (*phase).clone_into(&mut standing.phase),
            JobEvent::Attempt { attempt, cause } => {
                standing.attempt = *attempt;
                standing.trouble.clone_from(cause);
            }
        }
    }

    fn progress(&self, progress: JobProgress) {
        let mut standing = locked(&self.standing);
        (standing.decided_cells, standing.cells) = (progress.decided, progress.cells);
    }

    fn away(&self, workers: &[WorkerId]) {
        let nodes = workers.iter().filter_map(|worker| self.workers.get(worker.index()));
        locked(&self.standing).away = nodes.copied().collect();
    }
}
