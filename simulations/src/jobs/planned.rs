//! What all machines of a run share about jobs: their plans, and the contents of the filters that they
//! ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_engine::JobId;

use crate::plan::JobPlan;

/// The jobs of a plan, and the items that each has added to the filter that it asks. No two jobs share a
/// filter.
#[derive(Default)]
pub(crate) struct PlannedJobs {
    plans: Vec<JobPlan>,
    added: Mutex<BTreeMap<JobId, BTreeSet<u32>>>,
}

impl PlannedJobs {
    pub(crate) fn new(plans: Vec<JobPlan>) -> Arc<Self> {
        Arc::new(Self { plans, added: Mutex::default() })
    }

    /// The plans, in their order.
    pub(super) fn plans(&self) -> &[JobPlan] {
        &self.plans
    }

    /// The items that a job has added to its filter.
    pub(crate) fn added(&self, job: JobId) -> BTreeSet<u32> {
        self.lock().get(&job).cloned().unwrap_or_default()
    }

    pub(super) fn add(&self, job: JobId, item: u32) {
        self.lock().entry(job).or_default().insert(item);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, BTreeSet<u32>>> {
        // A panic that poisoned the lock has already failed the run.
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
