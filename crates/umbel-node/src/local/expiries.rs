//! Filters whose time has come: the leader of the meta group drops them before it says what there is. Nobody who asks it is
//! shown one, however long ago its controller has looked.

use std::sync::Mutex;

use futures_util::future::try_join_all;
use umbel_engine::meta::{MetaCommand, MetaState};
use umbel_ports::{PortFuture, locked};
use umbel_raft::ProposeError;
use umbel_step::planted::{self, Planted};
use umbel_storage::types::LogCommand;

use super::Local;

/// The next expiry of a filter, and who drops what is due.
#[derive(Default)]
pub(super) struct Expiries {
    next: Mutex<NextExpiry>,
    /// Held while filters are dropped: of those who ask at once, one proposes it.
    dropping: tokio::sync::Mutex<()>,
}

/// The time of the next expiry, computed once for each entry of the catalogue: it takes a pass over all filters, and the
/// leader is asked more often than the catalogue changes.
#[derive(Clone, Copy, Default)]
struct NextExpiry {
    /// The last entry that was applied before it was computed; None until then.
    applied: Option<u64>,
    /// In milliseconds since 1970; None if no filter expires.
    at_ms: Option<u64>,
}

impl Expiries {
    fn next_ms(&self, applied: u64, compute: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let known = *locked(&self.next);
        if known.applied == Some(applied) {
            return known.at_ms;
        }
        let at_ms = compute();
        *locked(&self.next) = NextExpiry { applied: Some(applied), at_ms };
        at_ms
    }
}

impl Local {
    /// Waits until this node has been confirmed as the meta group's leader after the call began. It has then applied
    /// everything that was committed before, and no filter is left whose time had come by this node's clock; those
    /// excepted that have slices while shards are merged.
    pub(super) async fn confirm_meta(&self) -> Result<(), ProposeError> {
        self.meta.confirm().await?;
        if !self.is_expiry_due() || planted::on(Planted::ExpiryIsNotAsked) {
            return Ok(());
        }
        self.drop_due().await
    }

    fn is_expiry_due(&self) -> bool {
        // The index comes first, so that the state has that entry.
        let applied = self.meta.applied_index();
        let next_ms = self.expiries.next_ms(applied, || self.read_meta(MetaState::next_expiry_ms));
        next_ms.is_some_and(|at_ms| at_ms <= self.believed_ms())
    }

    /// Drops all filters whose time has come. Whoever waited for its turn finds none left.
    fn drop_due(&self) -> PortFuture<'_, Result<(), ProposeError>> {
        // Boxed: it is rare, and each call of the leader would reserve room for it.
        Box::pin(async move {
            let _dropping = self.expiries.dropping.lock().await;
            let now_ms = self.believed_ms();
            let due: Vec<MetaCommand> = self.read_meta(|state| state.due(now_ms).collect());
            let drops = due.into_iter().map(|command| self.meta.propose(LogCommand::Meta(command)));
            // One that is refused, because a merge of shards has begun, stays.
            try_join_all(drops).await.map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use umbel_engine::FilterId;
    use umbel_engine::meta::{Distribution, MetaReply};

    use super::*;
    use crate::leader_calls::LeaderCalls;
    use crate::testing::{SetClock, create_filter, deadline, start_alone_at};

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    async fn expire(calls: &LeaderCalls, filter: FilterId, at_ms: Option<u64>) {
        let command = MetaCommand::SetExpiry { filter, expires_ms: at_ms };
        assert_eq!(calls.meta_propose(command, deadline()).await, Ok(MetaReply::Done));
    }

    /// The controller would have dropped it a quarter of a second later.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_asks_the_leader_finds_no_filter_whose_time_has_come() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SetClock::new(DAY_MS));
        let node = start_alone_at(folder.path(), &clock).await;
        let calls = node.leader_calls(Arc::clone(&clock) as _);
        for distribution in [Distribution::Partitioned, Distribution::Replicated] {
            let filter = create_filter(&node, distribution, (10_000, 0.01)).await;
            let is_there = || calls.read_meta(|state| state.filter_by_name("seen").is_some());
            let now_ms = node.local().believed_ms();
            // One that was set before counts no longer.
            for at_ms in [Some(now_ms + 500), None, Some(now_ms + 1_000)] {
                expire(&calls, filter, at_ms).await;
            }
            clock.add(999);
            calls.meta_refresh(deadline()).await.unwrap();
            assert_eq!(is_there(), Ok(true), "{distribution:?}");
            clock.add(1);
            calls.meta_refresh(deadline()).await.unwrap();
            assert_eq!(is_there(), Ok(false), "{distribution:?}");
        }
        drop(calls);
        node.shutdown().await;
    }

    #[test]
    fn the_next_expiry_is_computed_once_for_each_entry() {
        let expiries = Expiries::default();
        assert_eq!(expiries.next_ms(0, || None), None);
        assert_eq!(expiries.next_ms(0, || panic!("nothing has changed")), None);
        assert_eq!(expiries.next_ms(1, || Some(7)), Some(7));
        assert_eq!(expiries.next_ms(1, || panic!("nothing has changed")), Some(7));
        assert_eq!(expiries.next_ms(2, || None), None);
    }
}
