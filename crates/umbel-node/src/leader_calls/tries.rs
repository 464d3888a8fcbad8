//! How often, and how long, a call tries to reach a node that can answer it.

use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::shard::PartError;

use crate::calls::ShardRequest;
use crate::failure::CallFailure;
use crate::limits::{RETRY_WAIT_MAX, RETRY_WAIT_MIN, TRY_TIMEOUT};

/// The tries of one call.
pub struct Tries {
    deadline: Instant,
    began: Instant,
    wait: Duration,
    /// How many tries have failed.
    pub count: usize,
    /// Whether the next try, or the last one, follows a leader that was named or learned of before it.
    has_followed: bool,
    /// Why the last try that could have been answered was not, so that the outcome of a change is open.
    pub(crate) open: Option<String>,
}

impl Tries {
    /// Of a call that ends at this time.
    pub fn new(deadline: Instant) -> Self {
        let began = Instant::now();
        Self { deadline, began, wait: RETRY_WAIT_MIN, count: 0, has_followed: false, open: None }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.remaining().min(TRY_TIMEOUT)
    }

    /// Whether the next try is at the known leader: every other one, and one that follows it.
    pub(crate) fn is_at_leader(&self) -> bool {
        self.has_followed || self.count.is_multiple_of(2)
    }

    /// Waits before the next try, but not longer than until `learned`. Follows a newly named leader at once, but
    /// not twice in a row; and after a try that followed one in vain it waits for a moment whatever is learned, as two
    /// beliefs that contradict each other would else follow each other without a pause.
    pub async fn pause(&mut self, is_leader_named: bool, learned: impl Future<Output = ()>) {
        if is_leader_named && !self.has_followed {
            self.has_followed = true;
            return;
        }
        self.count += 1;
        let least = if self.has_followed { RETRY_WAIT_MIN } else { Duration::ZERO };
        let remaining = self.remaining();
        tokio::time::sleep(least.min(remaining)).await;
        let more = self.wait.saturating_sub(least).min(self.remaining());
        self.has_followed = tokio::time::timeout(more, learned).await.is_ok();
        self.wait = (self.wait * 2).min(RETRY_WAIT_MAX);
    }

    /// Whether the deadline is reached.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The error for a refusal. What refuses before the log does so without knowing of an earlier try whose outcome is
    /// open: that may still be applied, and the caller must not take it for undone. A shard that is
    /// being merged refuses without a look at the requests that it has answered; all other refusals of a part
    /// come after that look. `what` is the group.
    pub(crate) fn refusal(
        self,
        what: &str,
        request: &ShardRequest,
        refusal: CallFailure,
    ) -> CallFailure {
        let is_change = matches!(
            request,
            ShardRequest::Insert { .. }
                | ShardRequest::InsertAbsent { .. }
                | ShardRequest::Remove { .. }
                | ShardRequest::Sum { .. }
                | ShardRequest::Command(_)
        );
        let is_uncertain = match &refusal {
            CallFailure::Overloaded { .. } | CallFailure::DiskFull { .. } => is_change,
            // Whoever sends commands to a shard that is being merged sends them again.
            CallFailure::Part(PartError::Fenced { .. }) => {
                is_change && !matches!(request, ShardRequest::Command(_))
            }
            _ => false,
        };
        match self.open {
            Some(open) if is_uncertain => CallFailure::OutcomeUnknown {
                what: format!("{what}: {open}; then it was refused: {refusal}"),
            },
            _ => refusal,
        }
    }

    /// The error of a call of this group without an answer. A read leaves nothing behind whose outcome could be unknown.
    pub(crate) fn failure(self, what: &str, is_read: bool) -> CallFailure {
        let what = match self.open {
            Some(open) if !is_read => {
                return CallFailure::OutcomeUnknown { what: format!("{what}: {open}") };
            }
            Some(open) => format!("{what} ({open})"),
            None => what.to_owned(),
        };
        CallFailure::NoQuorum { what, within: self.began.elapsed() }
    }

    /// The error of a call of this group that nobody will lead while this node stops.
    pub(crate) fn stopped(self, what: &str, is_read: bool) -> CallFailure {
        if self.open.is_some() && !is_read {
            return self.failure(what, is_read);
        }
        let what =
            format!("{what}: this node stops, and no other one can lead it: try again later");
        CallFailure::Overloaded { what }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use umbel_engine::shard::{HashList, ShardCommand};
    use umbel_engine::{FilterId, Generation, GroupId, ShardId};

    use super::*;
    use crate::testing::deadline;

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_early_for_a_leader_that_is_named_or_learned_of() {
        let mut tries = Tries::new(Instant::now() + Duration::from_secs(1));
        let began = Instant::now();
        tries.pause(true, pending()).await;
        assert!(began.elapsed().is_zero() && tries.is_at_leader());
        // One that is named twice in a row may be a belief that two nodes have of one another.
        tries.pause(true, pending()).await;
        assert_eq!((began.elapsed(), tries.is_at_leader()), (RETRY_WAIT_MIN, false));
        tries.pause(false, ready(())).await;
        assert_eq!((began.elapsed(), tries.is_at_leader(), tries.count), (RETRY_WAIT_MIN, true, 2));
        tries.pause(false, pending()).await;
        assert_eq!((began.elapsed(), tries.is_at_leader()), (RETRY_WAIT_MIN * 5, false));
    }

    /// The replica of this node may believe in a leader that is no member by the map that this node has.
    #[tokio::test(start_paused = true)]
    async fn what_is_learned_in_vain_again_and_again_does_not_keep_a_call_busy() {
        let mut tries = Tries::new(Instant::now() + Duration::from_secs(1));
        let (began, mut try_count) = (Instant::now(), 0);
        while !tries.is_over() {
            tries.pause(false, ready(())).await;
            try_count += 1;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert!(try_count <= 101, "{try_count}");
    }

    #[test]
    fn a_refusal_behind_a_try_that_is_open_is_uncertain() {
        let tries = |is_open: bool| {
            let open = is_open.then(|| "it did not answer".to_owned());
            Tries { open, ..Tries::new(Instant::now()) }
        };
        let change = ShardRequest::Command(ShardCommand::Advance { now_ms: 1 });
        let read = ShardRequest::Describe { filter: FilterId(1), generation: Generation(1) };
        for refusal in [
            CallFailure::Overloaded { what: "too much waits".to_owned() },
            CallFailure::DiskFull { free_bytes: 5, is_partial: false },
        ] {
            let text = refusal.to_string();
            let uncertain = tries(true).refusal("shard 3", &change, refusal.clone());
            let CallFailure::OutcomeUnknown { what } = &uncertain else { panic!("{uncertain}") };
            assert_eq!(*what, format!("shard 3: it did not answer; then it was refused: {text}"));
            assert_eq!(tries(true).refusal("shard 3", &read, refusal.clone()).to_string(), text);
            assert_eq!(tries(false).refusal("shard 3", &change, refusal).to_string(), text);
        }
    }

    #[test]
    fn a_read_without_an_answer_has_no_outcome() {
        let tries = |open: Option<&str>| Tries {
            open: open.map(str::to_owned),
            ..Tries::new(Instant::now())
        };
        let silent = || tries(Some("node 2: no answer"));
        let CallFailure::OutcomeUnknown { what } = silent().failure("shard 3", false) else {
            panic!("it may have been applied");
        };
        assert_eq!(what, "shard 3: node 2: no answer");
        let CallFailure::NoQuorum { what, .. } = silent().failure("shard 3", true) else {
            panic!("a read was applied");
        };
        assert_eq!(what, "shard 3 (node 2: no answer)");
        for is_read in [false, true] {
            let never_sent = tries(None).failure("shard 3", is_read);
            assert!(matches!(&never_sent, CallFailure::NoQuorum { what, .. } if what == "shard 3"));
        }
    }

    #[test]
    fn a_node_that_stops_tells_what_may_be_done_and_what_is_not() {
        let told = |open: Option<&str>, is_read| {
            let open = open.map(str::to_owned);
            Tries { open, ..Tries::new(deadline()) }.stopped("shard 3", is_read)
        };
        let is_retryable = |failure| matches!(failure, CallFailure::Overloaded { .. });
        assert!(is_retryable(told(None, false)) && is_retryable(told(Some("it stopped"), true)));
        let unknown = told(Some("it stopped"), false);
        assert!(matches!(unknown, CallFailure::OutcomeUnknown { .. }), "{unknown}");
    }

    #[test]
    fn a_merged_shard_may_have_done_what_it_refuses() {
        let tries = || {
            let open = Some("it did not answer".to_owned());
            Tries { open, ..Tries::new(Instant::now()) }
        };
        let (filter, generation) = (FilterId(1), Generation(1));
        let hashes = HashList::from_hashes(&[]);
        let removal = ShardRequest::Remove { filter, generation, request: None, hashes };
        let shard = ShardId(3);
        let into = GroupId::of_shard(ShardId(1));
        let fenced = || CallFailure::from(PartError::Fenced { shard, into });
        let uncertain = tries().refusal("shard 3", &removal, fenced());
        assert!(matches!(uncertain, CallFailure::OutcomeUnknown { .. }), "{uncertain}");
        // The shard has looked for an answer to the request before.
        let gone = || CallFailure::from(PartError::UnknownSlice { filter, shard });
        assert_eq!(tries().refusal("shard 3", &removal, gone()), gone());
        let change = ShardRequest::Command(ShardCommand::Advance { now_ms: 1 });
        assert_eq!(tries().refusal("shard 3", &change, fenced()), fenced());
    }
}
