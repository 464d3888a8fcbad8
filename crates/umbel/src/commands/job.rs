//! `umbel job`: the jobs that were submitted to a cluster.

use super::cluster::connect::{ClusterArgs, block_on};
use super::dedup::{options_of, page_of};
use crate::clock::age_text;
use crate::exit::{Exit, refuse};
use crate::printer::{Rows, facts, numbers, print};
use crate::waiting::Waiting;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use umbel_client::Client;
use umbel_client::proto::{DescribeJobResponse, Job};
use umbel_dedup::write_file;

/// How often a waiting command polls the job.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `umbel job`.
#[derive(Args)]
#[command(after_help = "Jobs are submitted with `umbel dedup --cluster`.\n\n\
    Examples:\n  \
      umbel job list\n  \
      umbel job wait 7\n  \
      umbel job status 7 --json\n\n\
    docs/dedup.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")]
pub(crate) struct JobArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    verb: JobVerb,
}

#[derive(Subcommand)]
enum JobVerb {
    /// List jobs, the newest last
    List,
    /// Show the progress or the result of a job
    Status {
        /// Its number
        #[arg(value_parser = job_number)]
        job: u64,
    },
    /// Follow a job to its end; fails if the job fails
    Wait {
        /// Its number
        #[arg(value_parser = job_number)]
        job: u64,
    },
    /// Write the report page of a finished job, as `umbel dedup --report` does
    Report {
        /// Its number
        #[arg(value_parser = job_number)]
        job: u64,
        /// The page, as HTML; - is standard output
        #[arg(value_name = "FILE.html")]
        file: PathBuf,
        /// Replace a file that exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Cancel a job; its temporary files are removed
    Cancel {
        /// Its number
        #[arg(value_parser = job_number)]
        job: u64,
    },
    /// Resume a failed job, once the cause of the failure is fixed
    Resume {
        /// Its number
        #[arg(value_parser = job_number)]
        job: u64,
    },
}

/// Parses the number of a job.
fn job_number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "expected the number of a job, as `umbel job list` shows it".to_owned())
}

/// Runs the command.
///
/// # Errors
///
/// If a call to the cluster fails, a file cannot be written, or the job that was waited for has failed.
pub(crate) fn run(args: &JobArgs) -> Result<Exit> {
    block_on(args.run())?;
    Ok(Exit::Done)
}

impl JobArgs {
    async fn run(&self) -> Result<()> {
        let json = self.cluster.json;
        if let (JobVerb::Report { file, .. }, true) = (&self.verb, json)
            && is_dash(file)
        {
            refuse!(
                "the page and --json would both go to standard output: name a file for the page"
            );
        }
        let client = self.cluster.client()?;
        match &self.verb {
            JobVerb::List => {
                let jobs = client.jobs().await?;
                let rows: Vec<Value> = jobs.iter().map(row_json).collect();
                print(json, &json!({ "jobs": rows }), || list(&jobs).text())
            }
            JobVerb::Status { job } => {
                let found = client.job(*job).await?;
                print(json, &status_json(&found), || status_text(&found))
            }
            JobVerb::Wait { job } => {
                let found = wait(&client, *job, true).await?;
                print(json, &status_json(&found), || status_text(&found))?;
                check_done(&found)
            }
            JobVerb::Report { job, file, overwrite } => {
                let found = client.job(*job).await?;
                check_done(&found)?;
                let page = page_of(&kept_summary(&found)?);
                if is_dash(file) {
                    return print(false, &Value::Null, || page);
                }
                write_file(file, *overwrite, page.as_bytes())?;
                print(json, &json!({ "job": job }), String::new)
            }
            JobVerb::Cancel { job } => {
                client.cancel_job(*job).await?;
                print(json, &json!({ "job": job }), String::new)
            }
            JobVerb::Resume { job } => {
                // The cluster takes the order twice, for callers that repeat it.
                check_stopped(&client.job(*job).await?)?;
                client.resume_job(*job).await?;
                print(json, &json!({ "job": job }), String::new)
            }
        }
    }
}

/// Whether a path stands for standard output.
fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Polls a job until it ends; writes its progress to standard error if `shows`.
///
/// # Errors
///
/// If a call to the cluster fails.
pub(crate) async fn wait(client: &Client, job: u64, shows: bool) -> Result<DescribeJobResponse> {
    let mut waiting = Waiting::start();
    loop {
        let found = client.job(job).await?;
        let is_over = found
            .job
            .as_ref()
            .is_none_or(|row| !matches!(row.state.as_str(), "running" | "being cancelled"));
        if is_over {
            return Ok(found);
        }
        if shows {
            waiting.show(&format!("job {job}: {}", progress_text(&found)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Checks that a job has ended with a result.
///
/// # Errors
///
/// If it has not; the error gives its state, and the cause of a failure.
pub(crate) fn check_done(found: &DescribeJobResponse) -> Result<()> {
    let row = found.job.clone().unwrap_or_default();
    let job = row.job;
    match row.state.as_str() {
        "done" => Ok(()),
        "failed" if row.resumable => bail!(
            "job {job} failed: {}; `umbel job resume {job}` takes it up once that is mended",
            row.cause
        ),
        "failed" => bail!("job {job} failed: {}", row.cause),
        state => bail!("job {job} is {state}"),
    }
}

/// The summary of a job that has ended with a result.
///
/// # Errors
///
/// If the ledger did not take it.
pub(crate) fn kept_summary(found: &DescribeJobResponse) -> Result<Value> {
    summary(found).with_context(|| {
        let job = found.job.as_ref().map_or(0, |row| row.job);
        format!(
            "job {job} is done and its outputs on the nodes stand, but its summary was too long for the ledger, which \
             keeps none of it: there is nothing to make a --summary or a --report of"
        )
    })
}

/// Checks that a job is not running, so that there is something to resume.
///
/// # Errors
///
/// If it is running.
fn check_stopped(found: &DescribeJobResponse) -> Result<()> {
    match &found.job {
        Some(row) if row.state == "running" => bail!("job {} is running", row.job),
        _ => Ok(()),
    }
}

fn row_json(job: &Job) -> Value {
    json!({
        "job": job.job,
        "run": job.run,
        "state": job.state,
        "cause": (!job.cause.is_empty()).then_some(&job.cause),
        "resumable": job.resumable,
        "nodes": job.workers,
        "submitted_ms": job.submitted_ms,
    })
}

fn list(jobs: &[Job]) -> Rows {
    let mut rows = Rows::new(&["job", "state", "run", "nodes", "submitted", "cause"], &[0, 2]);
    for job in jobs {
        rows.push(vec![
            job.job.to_string(),
            job.state.clone(),
            job.run.to_string(),
            numbers(&job.workers),
            age_text(job.submitted_ms),
            job.cause.clone(),
        ]);
    }
    rows
}

/// The summary of a finished job, as JSON; None if the cluster has none.
fn summary(found: &DescribeJobResponse) -> Option<Value> {
    serde_json::from_slice(&found.summary).ok()
}

fn status_json(found: &DescribeJobResponse) -> Value {
    let mut value = row_json(&found.job.clone().unwrap_or_default());
    value["spec"] = options_of(&found.spec).into();
    value["summary"] = summary(found).into();
    value["progress"] = found.progress.as_ref().map_or(Value::Null, |progress| {
        json!({
            "phase": progress.phase,
            "attempt": progress.attempt,
            "trouble": (!progress.trouble.is_empty()).then_some(&progress.trouble),
            "away": progress.away,
        })
    });
    value
}

pub(super) fn progress_text(found: &DescribeJobResponse) -> String {
    let Some(progress) = &found.progress else {
        return "its coordinator does not answer".to_owned();
    };
    let mut text = progress.phase.clone();
    if progress.attempt > 1 {
        text += &format!(", attempt {} ({})", progress.attempt, progress.trouble);
    }
    if !progress.away.is_empty() {
        text += &format!(", waits for node {}", numbers(&progress.away));
    }
    text
}

fn status_text(found: &DescribeJobResponse) -> String {
    let row = found.job.clone().unwrap_or_default();
    let mut lines = vec![
        ("job", row.job.to_string()),
        ("state", row.state.clone()),
        ("run", row.run.to_string()),
        ("nodes", numbers(&row.workers)),
        ("submitted", age_text(row.submitted_ms)),
    ];
    if !row.cause.is_empty() {
        lines.push(("cause", row.cause.clone()));
        let again =
            if row.resumable { "can be taken up again" } else { "cannot be taken up again" };
        lines.push(("scratch", again.to_owned()));
    }
    if row.state == "running" || row.state == "being cancelled" {
        lines.push(("progress", progress_text(found)));
    }
    if let Some(summary) = summary(found) {
        for name in ["records", "distinct", "dropped"] {
            let part = summary.get(name).map(|part| part.get("input").unwrap_or(part).to_string());
            lines.extend(part.map(|part| (name, part)));
        }
    }
    facts(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_client::proto::JobProgress;

    fn failed() -> DescribeJobResponse {
        let row = Job {
            job: 7,
            run: 2,
            state: "failed".to_owned(),
            cause: "worker 1: disk full".to_owned(),
            resumable: true,
            workers: vec![1, 2],
            submitted_ms: 0,
        };
        DescribeJobResponse { job: Some(row), ..DescribeJobResponse::default() }
    }

    #[test]
    fn a_failed_job_says_why_and_what_to_do() {
        let text = check_done(&failed()).unwrap_err().to_string();
        assert_eq!(
            text,
            "job 7 failed: worker 1: disk full; `umbel job resume 7` takes it up once that is mended"
        );
        check_stopped(&failed()).unwrap();
        let mut running = failed();
        running.job.as_mut().unwrap().state = "running".to_owned();
        assert_eq!(check_stopped(&running).unwrap_err().to_string(), "job 7 is running");
        let lines = list(&[failed().job.unwrap()]).lines();
        assert!(lines.starts_with("7\tfailed\t2\t1,2\t"), "{lines}");
    }

    #[test]
    fn a_job_without_a_summary_says_that_it_is_done() {
        let mut found = failed();
        let text = kept_summary(&found).unwrap_err().to_string();
        let expected =
            "job 7 is done and its outputs on the nodes stand, but its summary was too long";
        assert!(text.starts_with(expected), "{text}");
        found.summary = b"{\"records\":7}".to_vec().into();
        assert_eq!(kept_summary(&found).unwrap(), json!({ "records": 7 }));
    }

    #[test]
    fn progress_names_attempts_and_nodes_that_are_missing() {
        let mut found = failed();
        assert_eq!(progress_text(&found), "its coordinator does not answer");
        found.progress = Some(JobProgress {
            phase: "exchanging".to_owned(),
            attempt: 3,
            trouble: "worker 1: its connection broke".to_owned(),
            away: vec![2],
        });
        let expected = "exchanging, attempt 3 (worker 1: its connection broke), waits for node 2";
        assert_eq!(progress_text(&found), expected);
        assert_eq!(status_json(&found)["progress"]["attempt"], 3);
    }
}
