//! A cluster's jobs on one node: turns a job's description into a worker's data, within the folders that
//! the node allows.

use crate::cluster_client::Credentials;
use crate::commands::dedup::{described_since, page_of, spec_of, start_cell_tasks};
use crate::exit::UsageError;
use crate::stderr::eprint_line;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};
use umbel_client::TlsFiles;
use umbel_dedup::{
    FileWorkshop, JobSpec, Membership, Observer, OutputTarget, chain_text, identity, input_paths,
    rules, seed_of_first, spec_digest,
};
use umbel_engine::JobId;
use umbel_engine::meta::ClusterVersion;
use umbel_files::{PATH_BYTES_MAX, Roots};
use umbel_jobs::{JobSite, OpenJob, WorkshopError, Workshops};
use umbel_ports::PortFuture;

/// Permissions of the folder of jobs' scratch, which holds records.
const SCRATCH_MODE: u32 = 0o700;

/// Prefix of the names of jobs' scratch folders.
const FOLDER_PREFIX: &str = "job-";

/// Shows no progress, because nobody watches; writes warnings to the node's standard error.
struct Log;

impl Observer for Log {
    fn warn(&self, text: &str) {
        eprint_line(text);
    }
}

/// The limits of jobs on this node.
pub(crate) struct NodeJobs {
    /// Folders below which jobs may read and write.
    roots: Roots,
    /// Folder for their scratch files.
    scratch: PathBuf,
    memory_bytes: u64,
    /// Some until the drop.
    cell_tasks: Option<Runtime>,
    cell_task_count: u32,
    /// The node's certificate and key, with which it also connects to its own cluster.
    tls: Option<TlsFiles>,
}

impl NodeJobs {
    /// Creates the scratch folder and the runtime for cells.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if a root does not exist; if the scratch folder cannot be created.
    pub(crate) fn new(
        roots: &[String],
        scratch: PathBuf,
        memory_bytes: u64,
        tls: Option<TlsFiles>,
    ) -> Result<Self> {
        let root = |root: &String| {
            std::fs::canonicalize(root)
                .map_err(|error| UsageError(format!("job_roots: {root}: {error}")).into())
        };
        let roots = Roots::new(roots.iter().map(root).collect::<Result<_>>()?);
        DirBuilder::new()
            .recursive(true)
            .mode(SCRATCH_MODE)
            .create(&scratch)
            .with_context(|| format!("{}: cannot make the folder of jobs", scratch.display()))?;
        let (cell_task_count, cell_tasks) = start_cell_tasks(memory_bytes)?;
        let cell_tasks = Some(cell_tasks);
        Ok(Self { roots, scratch, memory_bytes, cell_tasks, cell_task_count, tls })
    }

    fn folder(&self, job: JobId) -> PathBuf {
        self.scratch.join(format!("{FOLDER_PREFIX}{}", job.0))
    }

    /// This node's specification for a description, and whether the user has given the seed.
    fn spec(&self, description: &[u8], node: u64, seed: u64) -> Result<(JobSpec, bool)> {
        let (mut spec, names_seed) = spec_of(description, node)?;
        (spec.seed, spec.memory_bytes) = (seed, self.memory_bytes);
        spec.scratch.clone_from(&self.scratch);
        spec.roots = Some(self.roots.clone());
        // The client gets the summary from the ledger and draws the page itself.
        (spec.summary, spec.page) = (None, None);
        let target = match &spec.output {
            OutputTarget::Stdout => {
                bail!("output: expected a file or a directory (DIR/) of the nodes, got none")
            }
            OutputTarget::File(path) | OutputTarget::Directory(path) => Some(path),
        };
        let outputs = [
            ("output", target),
            ("duplicates", spec.duplicates.as_ref()),
            ("groups", spec.groups.as_ref()),
            ("bad", spec.bad.as_ref()),
            ("save_index.path", spec.save_index.as_ref().map(|index| &index.path)),
        ];
        for (field, path) in outputs {
            path.map_or(Ok(()), |path| self.allow(field, path, "written"))?;
        }
        for path in &spec.references {
            self.allow("references", path, "read")?;
        }
        Ok((spec, names_seed))
    }

    /// Refuses a path outside of the roots; the error names the field of the job.
    fn allow(&self, field: &str, path: &Path, what: &str) -> Result<()> {
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            // Not quoted, because it may be as long as the description.
            bail!("{field}: a path of {bytes} bytes: at most {PATH_BYTES_MAX} are allowed");
        }
        if !path.is_absolute() {
            bail!("{field}: {}: nodes need absolute paths", path.display());
        }
        if path.components().any(|part| part == Component::ParentDir) {
            // A path that does not exist yet cannot be resolved, and could be created before it is
            // opened.
            bail!("{field}: {}: nodes need paths without \"..\"", path.display());
        }
        let place = identity(path);
        if self.roots.above(&place).is_some() {
            return Ok(());
        }
        let roots = &self.roots;
        bail!(
            "{field}: {}: may not be {what} by jobs here: it is not below {roots} (job_roots)",
            path.display()
        )
    }

    /// Leaves out inputs that match nothing on this node, since each node has different files.
    fn present(&self, spec: &mut JobSpec) -> Result<()> {
        let mut present = Vec::new();
        let inputs = std::mem::take(&mut spec.inputs);
        for input in inputs {
            let is_pattern = input.to_string_lossy().contains(['*', '?', '[']);
            if !is_pattern && !Path::new(&input).exists() {
                continue;
            }
            // Checked before anything below is read or named.
            self.allow("inputs", &identity(&fixed_part(&input)), "read")?;
            if !is_pattern {
                check_content(Path::new(&input))?;
            }
            match input_paths(spec, &input, &Log) {
                Ok(places) => {
                    places.iter().try_for_each(|place| self.allow("inputs", place, "read"))?;
                }
                Err(error) if error.is_usage() => continue,
                Err(error) => return Err(error.into()),
            }
            present.push(input);
        }
        spec.inputs = present;
        Ok(())
    }

    fn open_now(&self, site: &JobSite) -> Result<OpenJob> {
        let (mut spec, names_seed) = self.spec(&site.spec, site.node.0, site.seed)?;
        self.present(&mut spec)?;
        for reference in &spec.references {
            check_content(reference)?;
        }
        spec.rank = Some(site.worker.0);
        let credentials = Credentials { tls: self.tls.clone(), token: None };
        spec.reach = credentials.reach(Some(site.address.clone()));
        if !names_seed {
            spec.seed = seed_of_first(&spec)?.unwrap_or(spec.seed);
        }
        let rules = rules(&spec);
        let digest = spec_digest(&spec);
        let member = Membership { worker: site.worker.0, job: site.job.0, spec_digest: digest };
        let folder = self.folder(site.job);
        let workshop = FileWorkshop::open(spec, member, &folder, Arc::new(Log), page_of)?;
        Ok(OpenJob { workshop: Arc::new(workshop), rules, route: None })
    }
}

impl Drop for NodeJobs {
    /// The last owner is a task of the node, and a runtime that is dropped there panics, because it waits
    /// for its threads.
    fn drop(&mut self) {
        if let Some(cell_tasks) = self.cell_tasks.take() {
            cell_tasks.shutdown_background();
        }
    }
}

/// The folder that contains all matches of a pattern; the path itself if it is no pattern.
fn fixed_part(pattern: &OsStr) -> PathBuf {
    let is_fixed = |part: &Component| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    Path::new(pattern).components().take_while(is_fixed).collect()
}

/// Refuses devices, pipes and sockets: they may be endless, or block the process that opens them.
fn check_content(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
            bail!("{}: neither a regular file nor a directory", path.display())
        }
        // A missing file is reported when it is opened.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A node's access to jobs on its files.
pub(crate) struct FileWorkshops(pub(crate) Arc<NodeJobs>);

impl Workshops for FileWorkshops {
    fn check(&self, spec: &[u8], gives_seed: bool) -> Result<ClusterVersion, String> {
        let checked = self.0.spec(spec, 0, 0);
        let (_, names_seed) = checked.map_err(|error| format!("{error:#}"))?;
        if names_seed != gives_seed {
            return Err(format!("names_seed: expected true exactly with a seed, got {names_seed}"));
        }
        Ok(described_since(spec))
    }

    fn open(&self, site: JobSite) -> PortFuture<'_, Result<OpenJob, WorkshopError>> {
        let jobs = Arc::clone(&self.0);
        Box::pin(async move {
            let opened = tokio::task::spawn_blocking(move || jobs.open_now(&site)).await;
            let failed = |cause: String| WorkshopError { cause, resumable: true };
            let opened =
                opened.map_err(|error| failed(format!("opening the job broke: {error}")))?;
            opened.map_err(|error| failed(format!("{error:#}")))
        })
    }

    fn stored(&self) -> Vec<JobId> {
        let Ok(entries) = std::fs::read_dir(&self.0.scratch) else { return Vec::new() };
        let number = |entry: std::fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix(FOLDER_PREFIX)?.parse().ok().map(JobId)
        };
        let mut jobs: Vec<JobId> = entries.filter_map(Result::ok).filter_map(number).collect();
        jobs.sort_unstable();
        jobs
    }

    fn discard(&self, job: JobId) {
        let folder = self.0.folder(job);
        if let Err(error) = FileWorkshop::discard(&folder, &self.0.roots) {
            let cause = chain_text(&error);
            eprint_line(format_args!("what {job} left cannot be removed: {cause}"));
        }
    }

    fn cell_tasks(&self) -> (u32, Option<Handle>) {
        let handle = self.0.cell_tasks.as_ref().map(|tasks| tasks.handle().clone());
        (self.0.cell_task_count, handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node_jobs(root: &Path) -> NodeJobs {
        let roots = [root.display().to_string()];
        NodeJobs::new(&roots, root.join("scratch"), 64 << 20, None).unwrap()
    }

    #[test]
    fn a_task_of_the_node_may_drop_them() {
        let folder = tempfile::tempdir().unwrap();
        let node = tokio::runtime::Builder::new_current_thread().build().unwrap();
        node.block_on(async { drop(node_jobs(folder.path())) });
    }

    #[test]
    fn paths_of_many_parts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = node_jobs(folder.path());
        let deep = folder.path().join("a/".repeat(30_000));
        let error = jobs.allow("output", &deep, "written").unwrap_err().to_string();
        assert!(error.starts_with("output: a path of "), "{error}");
        assert!(error.ends_with("at most 4095 are allowed"), "{error}");
        // A path as deep as allowed, of which nothing exists.
        let missing = folder.path().join("a/".repeat(1_900));
        jobs.allow("output", &missing, "written").unwrap();
    }

    #[test]
    fn no_path_leaves_its_root() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = node_jobs(folder.path());
        for path in ["missing/../../elsewhere", "../elsewhere"] {
            let error = jobs.allow("output", &folder.path().join(path), "written");
            let error = error.unwrap_err().to_string();
            assert!(error.contains("without \"..\""), "{error}");
        }
    }

    #[test]
    fn a_seed_is_given_with_the_job_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("kept/").display().to_string();
        let jobs = FileWorkshops(Arc::new(node_jobs(folder.path())));
        let check = |seed: &[&str], gives_seed| {
            let words = [&["/a", "--output", &output][..], seed].concat();
            let description = json!({ "release": env!("CARGO_PKG_VERSION"), "words": words });
            jobs.check(description.to_string().as_bytes(), gives_seed)
        };
        assert_eq!(check(&[], false), Ok(ClusterVersion::FIRST));
        assert_eq!(check(&["--seed", "7"], true), Ok(ClusterVersion::FIRST));
        for (seed, gives_seed) in [(&[][..], true), (&["--seed", "7"][..], false)] {
            let error = check(seed, gives_seed).unwrap_err();
            assert!(error.starts_with("names_seed: expected true exactly with a seed"), "{error}");
        }
    }

    #[test]
    fn nothing_of_a_pattern_is_read_or_named_outside_of_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let path = |below: &str| folder.path().join(below).display().to_string();
        for sub in ["root", "outside"] {
            std::fs::create_dir(path(sub)).unwrap();
        }
        std::fs::write(path("outside/a"), "x\n").unwrap();
        std::fs::write(path("root/b"), "x\n").unwrap();
        std::os::unix::fs::symlink(path("outside/a"), path("root/link")).unwrap();
        let jobs = node_jobs(Path::new(&path("root")));
        let present = |inputs: &[String]| {
            let output = path("root/out");
            let options = ["--output", &output, "--skip-bad"].map(str::to_owned);
            let words = [&options[..], inputs].concat();
            let description = json!({ "release": env!("CARGO_PKG_VERSION"), "words": words });
            let mut spec = spec_of(description.to_string().as_bytes(), 0).unwrap().0;
            spec.roots = Some(jobs.roots.clone());
            jobs.present(&mut spec).map(|()| spec.inputs.len())
        };
        assert_eq!(present(&[path("root/b"), path("root/?")]).unwrap(), 2);
        for outside in ["outside/*", "outside/nothing*", "root/l*", "root/link", "*/a", "root/*"] {
            let error = format!("{:#}", present(&[path(outside)]).unwrap_err());
            assert!(error.contains("may not be read by jobs here"), "{outside}: {error}");
        }
    }

    #[test]
    fn only_files_with_an_end_are_read() {
        let error = check_content(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: neither a regular file nor a directory");
        let folder = tempfile::tempdir().unwrap();
        check_content(folder.path()).unwrap();
        check_content(&folder.path().join("missing")).unwrap();
    }
}
