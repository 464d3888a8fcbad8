//! Delays the announcement of commits so that it travels with the next entries, if some follow soon.
//! Otherwise half of a busy shard's messages would carry nothing else.

use std::time::Duration;

use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use openraft::raft::AppendEntriesRequest;
use tokio::time::{Instant, timeout_at};
use umbel_storage::types::Types;

/// How long the commit of entries that followers already have is held back, unless more entries come.
/// No request waits for it: the leader answers reads, and a comparison of replicas waits for an entry
/// that it names.
pub(super) const COMMIT_HOLD: Duration = Duration::from_millis(20);

type Request = AppendEntriesRequest<Types>;

/// The requests to a follower, of which those without entries are held back.
struct HeldCommits<S> {
    input: S,
    is_first: bool,
    is_ended: bool,
}

/// Passes the requests on, without those that have no entries and are followed by another request
/// within `hold`, which carries the same information. The first request is never held: openraft uses it
/// to learn how far the follower is.
pub(super) fn hold_commits<S>(
    input: S,
    hold: Duration,
) -> impl Stream<Item = Request> + Send + Unpin
where
    S: Stream<Item = Request> + Send + Unpin + 'static,
{
    let held = HeldCommits { input, is_first: true, is_ended: false };
    Box::pin(unfold(held, move |mut held| async move {
        let request = held.take(hold).await?;
        Some((request, held))
    }))
}

impl<S: Stream<Item = Request> + Unpin> HeldCommits<S> {
    async fn take(&mut self, hold: Duration) -> Option<Request> {
        let mut request = self.receive().await?;
        if std::mem::take(&mut self.is_first) {
            return Some(request);
        }
        let until = Instant::now() + hold;
        while request.entries.is_empty() {
            match timeout_at(until, self.receive()).await {
                Ok(Some(later)) => request = later,
                Ok(None) | Err(_) => break,
            }
        }
        Some(request)
    }

    /// The input's next request; None at its end, also if called again after that.
    async fn receive(&mut self) -> Option<Request> {
        if self.is_ended {
            return None;
        }
        let request = self.input.next().await;
        self.is_ended = request.is_none();
        request
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;
    use umbel_engine::NodeId;
    use umbel_storage::testing::{entry as log_entry, id as log_id};
    use umbel_storage::types::Vote;

    use super::*;

    /// A request with `entry_count` entries after the entry `prev` and the commit index `commit`.
    fn request(prev: u64, entry_count: u64, commit: u64) -> Request {
        Request {
            vote: Vote::new(1, NodeId(1)),
            prev_log_id: Some(log_id(1, prev)),
            entries: (1..=entry_count).map(|step| log_entry(1, prev + step)).collect(),
            leader_commit: Some(log_id(1, commit)),
        }
    }

    /// The next request that comes out: its entry count, its commit index, and when it came in ms.
    async fn next(
        held: &mut (impl Stream<Item = Request> + Unpin),
        since: Instant,
    ) -> Option<(usize, u64, u128)> {
        let request = held.next().await?;
        let commit = request.leader_commit.map_or(0, |id| id.index);
        Some((request.entries.len(), commit, since.elapsed().as_millis()))
    }

    #[tokio::test(start_paused = true)]
    async fn commits_go_with_the_next_entries_or_alone_at_last() {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut held = hold_commits(UnboundedReceiverStream::new(receiver), COMMIT_HOLD);
        let since = Instant::now();
        let send = |prev, entry_count, commit| sender.send(request(prev, entry_count, commit));

        // The first request asks how far the follower is.
        send(5, 0, 5).unwrap();
        assert_eq!(next(&mut held, since).await, Some((0, 5, 0)));
        send(5, 2, 5).unwrap();
        assert_eq!(next(&mut held, since).await, Some((2, 5, 0)));
        // Two commits, then entries.
        send(7, 0, 6).unwrap();
        send(7, 0, 7).unwrap();
        send(7, 1, 7).unwrap();
        assert_eq!(next(&mut held, since).await, Some((1, 7, 0)));
        // A commit with no entries after it, and another that arrives while it is held.
        send(8, 0, 8).unwrap();
        let later = async {
            tokio::time::sleep(COMMIT_HOLD / 2).await;
            send(8, 0, 9).unwrap();
        };
        let (got, ()) = tokio::join!(next(&mut held, since), later);
        assert_eq!(got, Some((0, 9, COMMIT_HOLD.as_millis())));
        // A commit that is held when the input ends.
        send(9, 0, 10).unwrap();
        drop(sender);
        assert_eq!(next(&mut held, since).await, Some((0, 10, COMMIT_HOLD.as_millis())));
        assert_eq!(next(&mut held, since).await, None);
    }
}
