//! What a node logs while it tries something again and again: it asks a cluster to take it, others to found one, or a
//! shard to change its slices.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, ConnectError, Status};
use umbel_ports::causes;

/// Time after which a reason is logged again: whoever looks sees it soon, and hours of waiting fill no log.
const SAME_AGAIN: Duration = Duration::from_secs(10);

/// The reasons that were logged of late, and when.
#[derive(Default)]
pub(crate) struct Reasons(BTreeMap<String, Instant>);

impl Reasons {
    /// Whether a reason is to be logged now: it was not for a while.
    pub(crate) fn is_due(&mut self, reason: &str, now: Instant) -> bool {
        self.0.retain(|_, logged| now < *logged + SAME_AGAIN);
        let is_due = !self.0.contains_key(reason);
        if is_due {
            self.0.insert(reason.to_owned(), now);
        }
        is_due
    }
}

/// Whether the next try may succeed.
pub(crate) fn passes(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Unknown
            // tonic's codes for a connection that broke in the middle of a response.
            | Code::Cancelled
            | Code::Internal
    )
}

/// Why a try failed, with all that is known of a connection that broke. `has_tls` says whether this node speaks
/// TLS: a server that does hangs up on one that does not.
pub(crate) fn reason_of(status: &Status, has_tls: bool) -> String {
    let mut reason = status.message().to_owned();
    let mut is_broken = status.source().is_some();
    for cause in causes(status) {
        let text = cause.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        is_broken &= !cause.is::<ConnectError>();
    }
    if is_broken && !has_tls {
        reason += "; if the cluster speaks TLS, this node needs tls_cert, tls_key and tls_ca, or join_token_file";
    }
    reason
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_reason_is_logged_once_in_a_while() {
        let (mut reasons, start) = (Reasons::default(), Instant::now());
        let mut is_due =
            |reason, seconds| reasons.is_due(reason, start + Duration::from_secs(seconds));
        assert!(is_due("a", 0) && is_due("b", 1));
        assert!(!is_due("a", 9) && !is_due("b", 9));
        assert!(is_due("a", 10) && !is_due("b", 10) && is_due("b", 11));
    }

    #[test]
    fn a_broken_connection_has_its_cause_and_what_may_be_missing() {
        let reset = || Box::new(io::Error::from(io::ErrorKind::ConnectionReset));
        let broken = Status::from_error(reset());
        let text = reason_of(&broken, false);
        assert!(text.contains("reset") && text.ends_with("or join_token_file"), "{text}");
        assert!(!reason_of(&broken, true).contains("TLS"));
        let unreached = Status::from_error(Box::new(ConnectError(reset())));
        let text = reason_of(&unreached, false);
        assert!(text.contains("reset") && !text.contains("TLS"), "{text}");
        assert_eq!(reason_of(&Status::unavailable("no leader"), false), "no leader");
    }
}
