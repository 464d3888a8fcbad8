//! Settings for jobs on a node.

use super::node_jobs::NodeJobs;
use super::settings::Settings;
use crate::exit::{UsageError, refuse};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_dedup::MEMORY_BYTES_MIN;

umbel_node::settings! {
    /// Settings of jobs on this node.
    pub(crate) struct JobSettings {
        /// Folders below which jobs may read and write files on this node, each an absolute path; links
        /// are resolved first. Without certificates and principals, anybody who reaches the node's port can run
        /// such jobs. Without any folder, the node takes no part in jobs.
        job_roots: Vec<String> = Vec::new(),
        /// Folder for temporary data of running jobs; by default `jobs` in the data folder.
        job_scratch: Option<String> = None,
        /// Bytes of memory that one job may use on this node, at least 67108864.
        job_memory_bytes: u64 = 1 << 30,
    }
}

impl JobSettings {
    /// Checks what can be checked without access to the disk.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] that names the setting that is wrong.
    pub(crate) fn validate(&self) -> Result<(), UsageError> {
        if let Some(root) = self.job_roots.iter().find(|root| !Path::new(root).is_absolute()) {
            refuse!("job_roots: \"{root}\": expected an absolute path");
        }
        if self.job_memory_bytes < MEMORY_BYTES_MIN {
            let (value, least) = (self.job_memory_bytes, MEMORY_BYTES_MIN);
            refuse!("job_memory_bytes = {value}: expected at least {least}");
        }
        Ok(())
    }
}

/// The limits of jobs on this node; None if the node takes no part in jobs.
///
/// # Errors
///
/// A [`UsageError`] if a root does not exist; if the scratch folder cannot be created.
pub(super) fn node_jobs(settings: &Settings) -> Result<Option<Arc<NodeJobs>>> {
    let jobs = &settings.jobs;
    if jobs.job_roots.is_empty() {
        return Ok(None);
    }
    let scratch = match &jobs.job_scratch {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&settings.node.data).join("jobs"),
    };
    let jobs = NodeJobs::new(
        &jobs.job_roots,
        scratch,
        jobs.job_memory_bytes,
        super::tls_files(&settings.node),
    )?;
    Ok(Some(Arc::new(jobs)))
}
