//! Jobs of the ledger: phases, workers, progress.

use futures_util::{StreamExt, stream};
use tokio::time::{Duration, Instant};
use umbel_engine::meta::{JobRecord, JobState, MetaState};
use umbel_engine::{JobId, NodeId};

use crate::calls::JobStanding;
use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::gateway::console::json::{self, Value};

/// Jobs that are shown, the newest.
const ROWS_MAX: usize = 100;

/// Coordinators of jobs that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 8;

/// How long a job's coordinator is asked: the job of one that does not answer is shown without progress.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest text of a failure that is shown.
const TEXT_CHARS_MAX: usize = 500;

/// Takes a sample.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(coordinator: &Coordinator) -> Result<Value, CallFailure> {
    let newest = |state: &MetaState| {
        let has_more = state.jobs().count() > ROWS_MAX;
        let jobs = state.jobs().rev().take(ROWS_MAX);
        (jobs.map(|(job, record)| (job, record.clone())).collect::<Vec<_>>(), has_more)
    };
    let (jobs, has_more) = coordinator.read_meta(newest)?;
    let rows = stream::iter(jobs)
        .map(async |(job, record)| {
            let deadline = Instant::now() + PROGRESS_TIMEOUT;
            let standing = match record.coordinator() {
                Some(node) if record.state.is_active() => {
                    coordinator.job_progress(job, node, deadline).await
                }
                _ => None,
            };
            row(job, &record, standing.as_ref())
        })
        .buffered(ASKED_AT_ONCE_MAX)
        .collect::<Vec<_>>();
    Ok(json::object([("rows", Value::Array(rows.await)), ("has_more", has_more.into())]))
}

fn row(job: JobId, record: &JobRecord, standing: Option<&JobStanding>) -> Value {
    let (cause, is_resumable) = match &record.state {
        JobState::Failed { cause, resumable } => (cut(cause).into(), *resumable),
        _ => (Value::Null, false),
    };
    json::object([
        // Drawn at random over 64 bits, which numbers of scripts do not have.
        ("job", job.0.to_string().into()),
        ("run", record.run.into()),
        ("state", record.state.to_string().into()),
        ("is_active", record.state.is_active().into()),
        ("cause", cause),
        ("is_resumable", is_resumable.into()),
        ("workers", numbers(&record.order.workers)),
        ("submitted_ms", record.order.submitted_ms.into()),
        ("progress", standing.map(progress).into()),
    ])
}

fn progress(standing: &JobStanding) -> Value {
    let JobStanding { phase, attempt, trouble, away, settled_cells, cells } = standing;
    json::object([
        ("phase", (&**phase).into()),
        ("attempt", (*attempt).into()),
        ("trouble", cut(trouble).into()),
        ("away", numbers(away)),
        ("settled_cells", (*settled_cells).into()),
        ("cells", (*cells).into()),
    ])
}

fn numbers(nodes: &[NodeId]) -> Value {
    json::list(nodes.iter().map(|node| node.0))
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_with_who_is_away_and_no_longer_than_people_read() {
        let standing = JobStanding {
            phase: "exchanging".to_owned(),
            attempt: 2,
            trouble: "x".repeat(2 * TEXT_CHARS_MAX),
            away: vec![NodeId(3)],
            settled_cells: 5,
            cells: 16,
        };
        let told = progress(&standing);
        assert_eq!(told["away"], json::list([3]));
        assert_eq!((&told["settled_cells"], &told["cells"]), (&5.into(), &16.into()));
        assert_eq!(told["trouble"].as_str().unwrap(), "x".repeat(TEXT_CHARS_MAX));
    }
}
