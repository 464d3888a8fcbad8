//! How a job connects to the clusters of its filters.

use std::fmt;
use std::sync::Arc;
use umbel_client::Client;
use umbel_files::UsageError;

/// Makes a client for the cluster at these addresses.
pub type Connect = dyn Fn(&str) -> Result<Client, UsageError> + Send + Sync;

/// How a job connects to the clusters of its filters.
#[derive(Clone)]
pub struct Reach {
    /// The addresses of the cluster that runs the job, if one does.
    pub own_cluster: Option<String>,
    /// Connects to any cluster, with this process's credentials.
    pub connect: Arc<Connect>,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("own_cluster", &self.own_cluster).finish_non_exhaustive()
    }
}
