//! Jobs that are taken, and never opened.

use tokio::runtime::Handle;
use umbel_engine::JobId;
use umbel_engine::meta::ClusterVersion;
use umbel_jobs::{JobSite, OpenJob, WorkshopError, Workshops};
use umbel_ports::PortFuture;

/// Takes every description of a job, as one that nodes can read since this version of the cluster.
pub struct DescribedSince(pub ClusterVersion);

impl Workshops for DescribedSince {
    fn check(&self, _: &[u8], _: bool) -> Result<ClusterVersion, String> {
        Ok(self.0)
    }

    fn open(&self, _: JobSite) -> PortFuture<'_, Result<OpenJob, WorkshopError>> {
        let cause = "no job is opened here".to_owned();
        Box::pin(async { Err(WorkshopError { cause, resumable: false }) })
    }

    fn stored(&self) -> Vec<JobId> {
        Vec::new()
    }

    fn discard(&self, _: JobId) {}

    fn cell_tasks(&self) -> (u32, Option<Handle>) {
        (1, None)
    }
}
