//! Jobs that a cluster runs: their arguments, their submission, and their description in the ledger.

use super::page::page_of;
use super::{DedupArgs, job_words, summary};
use crate::commands::cluster::connect::{block_on, tell_waits};
use crate::commands::job;
use crate::exit::{Exit, refuse};
use crate::printer::print;
use crate::stderr::eprint_line;
use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use umbel_client::proto::SubmitJobRequest;
use umbel_client::{Client, ClientError};
use umbel_dedup::{JOB_MESSAGES_SINCE, JobSpec, OutputTarget, PageOutput, SentJob, is_object};
use umbel_dedup_engine::job::JobFailure;
use umbel_engine::meta::ClusterVersion;
use umbel_files::{FileRoles, refuse_existing_file};

/// How nodes of builds that read only words refuse the message of a job.
const REFUSED_BY_OLDER: &str = "this is no description of a job";

/// Arguments of a job of a cluster.
#[derive(Args, Default)]
#[command(next_help_heading = "On a cluster, each node with its own disk, memory and scratch")]
pub(super) struct ClusterJobArgs {
    /// Run the job there; UMBEL_TLS_*, UMBEL_TOKEN_FILE apply
    #[arg(long, value_name = "ADDRS", conflicts_with_all = ["rank", "workers", "memory", "scratch", "plan"])]
    pub(super) cluster: Option<String>,
    /// What this node reads, instead of INPUT; repeatable
    #[arg(long, value_name = "NODE=GLOB", requires = "cluster", value_parser = parse_on)]
    pub(super) on: Vec<(u64, String)>,
    /// Print the job's number and do not wait
    #[arg(long, requires = "cluster")]
    detach: bool,
}

fn parse_on(text: &str) -> Result<(u64, String), String> {
    let parts = text.split_once('=').and_then(|(node, glob)| Some((node.parse().ok()?, glob)));
    match parts {
        Some((node, glob)) if !glob.is_empty() => Ok((node, glob.to_owned())),
        _ => Err(format!("`{text}`: expected NODE=GLOB, like 2=/data/*.jsonl")),
    }
}

/// The cluster version whose nodes can read a description. Once a field or value of the message comes with a later
/// version, this returns the highest version that one which is set needs.
pub(crate) fn described_since(description: &[u8]) -> ClusterVersion {
    if job_words::are_words(description) { ClusterVersion::FIRST } else { JOB_MESSAGES_SINCE }
}

/// A node's specification of a job in the ledger, and whether the user has given the seed.
///
/// # Errors
///
/// If the description is malformed, has a wrong value, or has fields of a later release.
pub(crate) fn spec_of(description: &[u8], node: u64) -> Result<(JobSpec, bool)> {
    let SentJob { mut spec, own_inputs, names_seed } = sent_job(description)?;
    let own = own_inputs.into_iter().filter(|(of, _)| *of == node);
    let own: Vec<OsString> = own.map(|(_, input)| input.into()).collect();
    if !own.is_empty() {
        spec.inputs = own;
    }
    Ok((spec, names_seed))
}

fn sent_job(description: &[u8]) -> Result<SentJob> {
    if job_words::are_words(description) {
        job_words::read(description)
    } else {
        Ok(SentJob::decode(description)?)
    }
}

/// The options of a job in the ledger, as JSON; None if this release cannot read them.
pub(crate) fn options_of(description: &[u8]) -> Option<Value> {
    sent_job(description).ok().map(|job| job.options())
}

/// Refuses objects in a cluster's job, which reads and writes files only.
pub(super) fn check_objects(args: &DedupArgs) -> Result<()> {
    let files = [
        ("--output", &args.output),
        ("--annotate", &args.annotate),
        ("--duplicates", &args.duplicates),
        ("--groups", &args.groups),
        ("--bad", &args.bad),
        ("--save-index", &args.save_index),
        ("--summary", &args.summary),
        ("--report", &args.report),
    ];
    if args.on_cluster.cluster.is_none() {
        return Ok(());
    }
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, &**path.as_ref()?)));
    let references = args.reference.iter().map(|name| ("--reference", Path::new(name)));
    match files.chain(references).find(|(_, path)| is_object(path)) {
        None => Ok(()),
        Some((flag, path)) => {
            refuse!(
                "{flag} {}: jobs of a cluster read and write no objects, for whoever reaches a node would do so \
                 with its credentials; start workers with --peers, or one process",
                path.display()
            )
        }
    }
}

/// Submits the job, and follows it to its end unless the user does not want to wait.
pub(super) fn run(args: &DedupArgs, addresses: &str) -> Result<Exit> {
    let spec = args.spec()?;
    if matches!(spec.output, OutputTarget::Stdout) {
        refuse!(
            "a job of a cluster needs an --output FILE or DIR/, which each node writes on its own disk"
        );
    }
    if args.inputs.is_empty() && args.on_cluster.on.is_empty() {
        refuse!(
            "name what the nodes read: paths or globs for all of them, or --on NODE=GLOB for one"
        );
    }
    let globs = args.on_cluster.on.iter().map(|(_, glob)| Path::new(glob));
    let mut inputs = args.inputs.iter().map(Path::new).chain(globs);
    if let Some(object) = inputs.find(|input| is_object(input)) {
        refuse!(
            "{}: jobs of a cluster read no objects, for whoever reaches a node would read with its credentials; \
             start workers with --peers, or one process",
            object.display()
        );
    }
    let named = args.on_cluster.on.iter().map(|(node, _)| *node);
    let workers = if args.inputs.is_empty() { named.collect() } else { Vec::new() };
    let (own_inputs, names_seed) = (args.on_cluster.on.clone(), args.seed.is_some());
    let job = SentJob { spec, own_inputs, names_seed };
    let spec = job.encode()?.into();
    let here = open_here(args)?;
    // Credentials come from the environment only: the message has none.
    let client = (job.spec.reach.connect)(addresses)?;
    if !args.quiet {
        tell_waits(&client, addresses, || true);
    }
    let request = SubmitJobRequest { nonce: nonce(), spec, workers, seed: args.seed };
    block_on(follow(&client, request, here, args))
}

/// The error of a submission, with what to do if a node of an older build refuses the job.
fn not_submitted(error: ClientError) -> anyhow::Error {
    let is_of_older_node = error.to_string().contains(REFUSED_BY_OLDER);
    let error = anyhow::Error::from(error);
    if is_of_older_node {
        error.context(format!(
            "the node is of an older release, which takes jobs only from the command of its own: submit the job with \
             that one, or have all nodes run release {} and raise the cluster (umbel cluster upgrade)",
            env!("CARGO_PKG_VERSION")
        ))
    } else {
        error
    }
}

/// The error of a job; if no node has found a record, with what they were told to read.
fn with_inputs(error: anyhow::Error, args: &DedupArgs) -> anyhow::Error {
    let text = error.to_string();
    if !text.contains(&JobFailure::NothingToDo.to_string()) {
        return error;
    }
    let own = args.on_cluster.on.iter().map(|(node, glob)| format!("{node}={glob}"));
    let inputs = args.inputs.iter().map(|input| input.display().to_string());
    let inputs: Vec<String> = inputs.chain(own).collect();
    anyhow!("{text} in {}", inputs.join(", "))
}

/// The outputs that this process writes after the job; none if it does not wait for that.
#[derive(Default)]
struct OutputsHere {
    summary: Option<PageOutput>,
    page: Option<PageOutput>,
}

/// Before the job begins, checks and opens the outputs that this process writes after the job.
fn open_here(args: &DedupArgs) -> Result<OutputsHere> {
    if args.on_cluster.detach {
        return Ok(OutputsHere::default());
    }
    let named = [("--summary", args.summary.as_deref()), ("--report", args.report.as_deref())];
    let named = named.into_iter().filter_map(|(flag, path)| Some((flag, path?)));
    let (streams, files): (Vec<_>, Vec<_>) = named.partition(|(_, path)| *path == Path::new("-"));
    let mut roles = FileRoles::default();
    match streams.len() {
        0 => {}
        1 => roles.add_standard_output()?,
        _ => refuse!("two outputs would go to standard output: name a file for one of them"),
    }
    for (flag, path) in files {
        roles.add_output(flag, path)?;
        if !args.overwrite {
            refuse_existing_file(path)?;
        }
    }
    let open = |path: Option<&Path>, stands| {
        path.map(|path| PageOutput::opened(path, args.overwrite, stands)).transpose()
    };
    let summary = "the job is done and its outputs on the nodes stand, but not the --summary";
    let page = "the job is done and its outputs on the nodes stand, but not the --report";
    Ok(OutputsHere {
        summary: open(args.summary.as_deref(), summary)?,
        page: open(args.report.as_deref(), page)?,
    })
}

async fn follow(
    client: &Client,
    request: SubmitJobRequest,
    here: OutputsHere,
    args: &DedupArgs,
) -> Result<Exit> {
    let quiet = args.quiet;
    let number = client.submit_job(request).await.map_err(not_submitted)?;
    if args.on_cluster.detach {
        print(false, &Value::Null, || format!("{number}\n"))?;
        if let Some(path) = args.report.as_ref().filter(|_| !quiet) {
            let path = path.display();
            eprint_line(format_args!(
                "once it is done, `umbel job report {number} {path}` draws its page, unless its summary was too long for the \
                 ledger"
            ));
        }
        if args.summary.is_some() && !quiet {
            eprint_line(format_args!(
                "once it is done, `umbel job status {number} --json` has its summary, unless it was too long for the ledger"
            ));
        }
        return Ok(Exit::Done);
    }
    if !quiet {
        eprint_line(format_args!(
            "job {number}; `umbel job cancel {number}` ends it, leaving does not"
        ));
    }
    let found = job::wait(client, number, !quiet).await?;
    job::check_done(&found).map_err(|error| with_inputs(error, args))?;
    let value = job::kept_summary(&found)?;
    if let Some(summary) = here.summary {
        let mut text = serde_json::to_string_pretty(&value)?;
        text.push('\n');
        summary.write(&text)?;
    }
    summary::show(&value, quiet);
    if let Some(page) = here.page {
        page.write(&page_of(&value))?;
    }
    Ok(summary::exit(&value))
}

/// A number that distinguishes this request from all others.
#[expect(clippy::disallowed_methods, reason = "nothing but the identity of a request rests on it")]
fn nonce() -> u64 {
    rand::random()
}
