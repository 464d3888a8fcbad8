//! What all machines of a run share of jobs: the plans, and the filters beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_engine::JobId;

use crate::plan::JobPlan;

/// The jobs of a plan, and what they have added to the filters that they ask. No two jobs share a filter.
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

    /// What a job has added.
    pub(crate) fn added(&self, job: JobId) -> BTreeSet<u32> {
        self.lock().get(&job).cloned().unwrap_or_default()
    }

    pub(super) fn add(&self, job: JobId, item: u32) {
        self.lock().entry(job).or_default().insert(item);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, BTreeSet<u32>>> {
        // Whoever panicked has failed the run already.
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
