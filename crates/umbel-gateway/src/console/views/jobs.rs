//! Jobs of the ledger: phases, workers, progress, and the outcomes of finished ones.

use futures_util::{StreamExt, stream};
use tokio::time::{Duration, Instant};
use umbel_coordinator::Coordinator;
use umbel_engine::meta::{JobRecord, JobState, MetaState};
use umbel_engine::{JobId, NodeId};
use umbel_node::calls::JobStanding;

use super::job_outcome::{outcome, summary_of};
use super::job_repeats::repeats;
use crate::console::json::{self, Value};
use crate::errors::Result;

/// Jobs that are shown: the newest.
const ROWS_MAX: usize = 100;

/// Jobs whose workers are asked at the same time.
const JOBS_AT_ONCE_MAX: usize = 8;

/// Workers of a job that are asked at the same time.
const WORKERS_AT_ONCE_MAX: usize = 16;

/// How long the node waits for a worker's progress: without an answer it shows none.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest text of a failure that is shown.
const TEXT_CHARS_MAX: usize = 500;

/// The progress that a job's workers report, in the order of the ledger: the coordinator first.
type WorkersProgress = Vec<(NodeId, Option<JobStanding>)>;

/// Takes a sample; for the job with the number `open` also the repeats that it counted, if it is done.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(coordinator: &Coordinator, open: &str) -> Result<Value> {
    let newest = |state: &MetaState| {
        let has_more = state.jobs().count() > ROWS_MAX;
        let jobs = state.jobs().rev().take(ROWS_MAX);
        (jobs.map(|(job, record)| (job, record.clone())).collect::<Vec<_>>(), has_more)
    };
    let (jobs, has_more) = coordinator.read_meta(newest)?;
    let opened = jobs.iter().find(|(job, _)| job.0.to_string() == open);
    let opened = opened.map(|(job, record)| counted(*job, record));
    let rows = stream::iter(jobs)
        .map(async |(job, record)| {
            row(job, &record, &workers_progress(coordinator, job, &record).await)
        })
        .buffered(JOBS_AT_ONCE_MAX)
        .collect::<Vec<_>>();
    let rows = Value::Array(rows.await);
    Ok(json::object([("rows", rows), ("has_more", has_more.into()), ("opened", opened.into())]))
}

/// The repeats that a finished job has counted.
fn counted(job: JobId, record: &JobRecord) -> Value {
    let shown = match &record.state {
        JobState::Done { summary } => summary_of(summary).map(|summary| repeats(&summary)),
        _ => None,
    };
    json::object([("job", job.0.to_string().into()), ("repeats", shown.into())])
}

/// Requests the progress of a running job from its workers.
async fn workers_progress(
    coordinator: &Coordinator,
    job: JobId,
    record: &JobRecord,
) -> WorkersProgress {
    let workers = if record.state.is_active() { record.order.workers.clone() } else { Vec::new() };
    let asked = stream::iter(workers).map(async |node| {
        let deadline = Instant::now() + PROGRESS_TIMEOUT;
        (node, coordinator.jobs().progress(job, node, deadline).await)
    });
    asked.buffered(WORKERS_AT_ONCE_MAX).collect().await
}

fn row(job: JobId, record: &JobRecord, workers: &WorkersProgress) -> Value {
    let (cause, is_resumable) = match &record.state {
        JobState::Failed { cause, resumable } => (cut(cause).into(), *resumable),
        _ => (Value::Null, false),
    };
    let done = match &record.state {
        JobState::Done { summary } => outcome(summary),
        _ => Value::Null,
    };
    let coordinators = workers.iter().find(|(node, _)| Some(*node) == record.coordinator());
    let progress = coordinators.and_then(|(_, standing)| standing.as_ref()).map(progress);
    json::object([
        // Job numbers are random and have 64 bits, which JavaScript's numbers cannot hold.
        ("job", job.0.to_string().into()),
        ("run", record.run.into()),
        ("state", record.state.to_string().into()),
        ("is_active", record.state.is_active().into()),
        ("cause", cause),
        ("is_resumable", is_resumable.into()),
        ("workers", json::list(record.order.workers.iter().map(|node| node.0))),
        ("submitted_ms", record.order.submitted_ms.into()),
        ("progress", progress.into()),
        ("settled", json::list(workers.iter().map(worker_cells))),
        ("outcome", done),
    ])
}

/// The coordinator's report on the whole job.
fn progress(standing: &JobStanding) -> Value {
    let JobStanding { phase, attempt, trouble, away, decided_cells: _, cells: _ } = standing;
    json::object([
        ("phase", (&**phase).into()),
        ("attempt", (*attempt).into()),
        ("trouble", cut(trouble).into()),
        ("away", json::list(away.iter().map(|node| node.0))),
    ])
}

/// The cells that a worker has decided; nulls if it does not answer, or has no cells yet.
fn worker_cells((node, standing): &(NodeId, Option<JobStanding>)) -> Value {
    let known = standing.as_ref().filter(|standing| standing.cells > 0);
    json::object([
        ("node", node.0.into()),
        ("answers", standing.is_some().into()),
        ("settled_cells", known.map(|standing| standing.decided_cells).into()),
        ("cells", known.map(|standing| standing.cells).into()),
    ])
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> JobStanding {
        JobStanding {
            phase: "exchanging".to_owned(),
            attempt: 2,
            trouble: "x".repeat(2 * TEXT_CHARS_MAX),
            away: vec![NodeId(3)],
            decided_cells: 5,
            cells: 16,
        }
    }

    #[test]
    fn progress_names_absent_workers_and_is_cut_for_people() {
        let shown = progress(&standing());
        assert_eq!(shown["away"], json::list([3]));
        assert_eq!(shown["trouble"].as_str().unwrap(), "x".repeat(TEXT_CHARS_MAX));
    }

    #[test]
    fn each_running_worker_reports_its_own_cells() {
        let shown = worker_cells(&(NodeId(2), Some(standing())));
        assert_eq!((&shown["settled_cells"], &shown["cells"]), (&5.into(), &16.into()));
        let begins = JobStanding { cells: 0, ..standing() };
        for (standing, answers) in [(Some(begins), true), (None, false)] {
            let shown = worker_cells(&(NodeId(2), standing));
            assert_eq!((&shown["answers"], &shown["cells"]), (&answers.into(), &Value::Null));
        }
    }
}
