//! How a job reaches the clusters of filters beside it.

use std::fmt;
use std::sync::Arc;
use umbel_client::Client;
use umbel_files::UsageError;

/// Makes a client of the cluster at these addresses.
pub type Connect = dyn Fn(&str) -> Result<Client, UsageError> + Send + Sync;

/// How a job reaches the clusters of online filters.
#[derive(Clone)]
pub struct Reach {
    /// Where the cluster is reached that does the job, if one does.
    pub own_cluster: Option<String>,
    /// How any is, and what this process proves itself by.
    pub connect: Arc<Connect>,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("own_cluster", &self.own_cluster).finish_non_exhaustive()
    }
}
