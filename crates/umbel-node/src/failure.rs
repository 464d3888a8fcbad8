//! Why a client's call failed, by what the client should do.

use std::time::Duration;

use umbel_engine::ShardId;
use umbel_engine::meta::MetaError;
use umbel_engine::shard::PartError;

/// Why a client's call failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CallFailure {
    /// Nothing was changed. Create the filter, or correct the name.
    #[error("there is no filter named {name:?}")]
    UnknownFilter {
        /// The name.
        name: String,
    },
    /// Nothing was changed. Wait until the filter is live.
    #[error("filter {name:?} is {state}")]
    FilterBusy {
        /// The name.
        name: String,
        /// What the filter is busy with.
        state: String,
    },
    /// Nothing was changed. Read the filter's information again.
    #[error("filter {name:?} has been emptied or made anew since you saw it")]
    Changed {
        /// The name.
        name: String,
    },
    /// Nothing was changed. Correct the request.
    #[error("{what}")]
    Invalid {
        /// The field, what was expected, and what was received.
        what: String,
    },
    /// A shard refused its part of the request.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A part of the request was done, and a shard refused the rest for good: the same request, sent again,
    /// will be refused again. Call `contains` to see what was done.
    #[error("a part of the request was done, and the rest refused: {0}")]
    Partly(PartError),
    /// The failure of a request for one filter, whose text has the filter's name where that of the cause has its number:
    /// shards know only this, and users only the name.
    #[error("{what}")]
    OfFilter {
        /// The text.
        what: String,
        /// Why.
        cause: Box<CallFailure>,
    },
    /// The meta group refused the command. Nothing was changed.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// Nothing was changed. Correct the number.
    #[error("there is no {shard}")]
    UnknownShard {
        /// The shard that was named.
        shard: ShardId,
    },
    /// Nothing was changed. Retry, and check the nodes if it persists.
    #[error("{what} did not answer within {} ms: has it lost its majority?", within.as_millis())]
    NoQuorum {
        /// The group.
        what: String,
        /// How long it was tried.
        within: Duration,
    },
    /// Nothing was changed. Slow down and retry.
    #[error("{what}")]
    Overloaded {
        /// The queue that is full.
        what: String,
    },
    /// Nothing was changed. Send faster, or less; the connection may be too slow.
    #[error("{what}")]
    TooSlow {
        /// What took too long, and the limit.
        what: String,
    },
    /// Nothing was changed. Retry after that time, or have an administrator raise the rate.
    #[error(
        "principal {principal} has a quota of {limit} {what} a second over all nodes, and has used up this \
         node's share: try again after {} ms, send {} or to more nodes, or have an administrator \
         raise it (umbel access quota {principal} --{what}-per-second N)", retry_after.as_millis(), fitting(what)
    )]
    RateExceeded {
        /// The principal that called.
        principal: String,
        /// The limit per second.
        limit: u64,
        /// What is limited: calls, items, bytes.
        what: &'static str,
        /// The time until the principal may call again.
        retry_after: Duration,
    },
    /// The disk of a shard's leader is nearly full; queries still work. Nothing was changed in that
    /// shard.
    #[error(
        "the disk of a shard's leader is nearly full: {free_bytes} bytes are left; make room there (`umbel cluster top` \
         names the node), or lower its disk_reserve_bytes"
    )]
    DiskFull {
        /// The free bytes.
        free_bytes: u64,
        /// Whether items of other shards were inserted; sending them again under the same request id
        /// does no harm.
        is_partial: bool,
    },
    /// The request may have been applied, or may be applied later. Retry under the same request id, or
    /// call `contains`.
    #[error("{what}; the outcome is unknown")]
    OutcomeUnknown {
        /// What happened.
        what: String,
    },
    /// A restore broke off. What was restored stays: when the cause is mended, restore the same backup again.
    #[error("{what}")]
    RestoreBroken {
        /// The filter that was not restored and why, those that were restored before it, and what to do.
        what: String,
        /// Whether any were restored.
        is_partial: bool,
        /// Why.
        cause: Box<CallFailure>,
    },
    /// Nothing was changed. Wait until the cluster is formed.
    #[error("this node does not belong to a formed cluster yet")]
    NotFormed,
    /// Nothing was changed. Start the nodes that the text names, and wait until the cluster is formed.
    #[error("{}: {what}", CallFailure::NotFormed)]
    Forming {
        /// What the node waits for.
        what: String,
    },
    /// Nothing was changed. Retry, or ask another node: what this one knows of the cluster's grants may be old.
    #[error(
        "this node reaches no majority of its cluster, and cannot know who may do what: try again, or another node"
    )]
    GrantsUnknown,
    /// Nothing was changed. Have the right granted, or do something else.
    #[error("{what}")]
    Denied {
        /// Which principal lacks which right.
        what: String,
    },
    /// A node's storage failed. Replace the node.
    #[error("{what}")]
    Storage {
        /// What failed.
        what: String,
    },
}

impl CallFailure {
    /// The failure of a request for the filter of this name, with the name in its text.
    #[must_use]
    pub fn of_filter(self, name: &str) -> Self {
        let (Self::Part(error) | Self::Partly(error)) = &self else { return self };
        let Some(filter) = error.filter() else { return self };
        let what = self.to_string().replacen(&filter.to_string(), &format!("filter {name:?}"), 1);
        Self::OfFilter { what, cause: Box::new(self) }
    }

    /// The failure of a node's storage that has this cause.
    pub fn storage(cause: impl std::fmt::Display) -> Self {
        Self::Storage { what: cause.to_string() }
    }
}

/// The batches that help against a limit of this: larger ones need fewer calls, smaller ones are paid for sooner.
fn fitting(limited: &str) -> &'static str {
    if limited == "calls" { "larger batches" } else { "smaller batches" }
}

#[cfg(test)]
mod tests {
    use umbel_engine::FilterId;

    use super::*;

    #[test]
    fn the_advice_fits_the_limit() {
        for (what, advice) in [("calls", "send larger"), ("items", "send smaller")] {
            let (principal, retry_after) = ("p".to_owned(), Duration::from_millis(250));
            let failure = CallFailure::RateExceeded { principal, limit: 9, what, retry_after };
            let text = failure.to_string();
            assert!(text.contains(&format!("after 250 ms, {advice} batches or to")), "{text}");
        }
    }

    #[test]
    fn what_a_shard_refuses_names_the_filter() {
        let filter = FilterId(23);
        let slice = PartError::UnknownSlice { filter, shard: ShardId(2) };
        let full = PartError::Full { filter, what: "no room".to_owned() };
        let refused = CallFailure::from(slice).of_filter("seen");
        assert_eq!(refused.to_string(), "shard 2 has no slice of filter \"seen\"");
        let refused = CallFailure::Partly(full).of_filter("seen");
        assert!(refused.to_string().ends_with("refused: filter \"seen\" is full: no room"));
        // The texts of these have no number.
        let wrong = PartError::WrongKind { what: "no".to_owned() };
        for other in [CallFailure::from(wrong), CallFailure::NotFormed] {
            assert_eq!(other.clone().of_filter("seen"), other);
        }
    }
}
