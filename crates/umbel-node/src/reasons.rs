//! What a node logs while it tries something again and again: it asks a cluster to take it, others to found one, or a
//! shard to change its slices.

use std::collections::BTreeMap;
use std::error::Error;
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

/// Tries in a row that break before a warning. A server that ends while it is asked breaks one or two, and then there is
/// none to connect to.
const BROKEN_MAX: u32 = 4;

/// Tries of a node without TLS whose connections broke, as those to a port that speaks TLS do: none succeeds before
/// somebody changes the settings.
#[derive(Default)]
pub(crate) struct BrokenTries {
    /// Since the last try that ended otherwise.
    in_a_row: u32,
}

impl BrokenTries {
    /// Takes a failed try. Returns whether to warn: once for all that break one after the other.
    pub(crate) fn warns(&mut self, lacks_tls: bool) -> bool {
        self.in_a_row = if lacks_tls { self.in_a_row.saturating_add(1) } else { 0 };
        self.in_a_row == BROKEN_MAX
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

/// Whether a try may have failed because this node does not speak TLS (`has_tls`): a server that does hangs up on one
/// that does not.
pub(crate) fn lacks_tls(status: &Status, has_tls: bool) -> bool {
    let is_unreached = || causes(status).any(<dyn Error + 'static>::is::<ConnectError>);
    !has_tls && status.source().is_some() && !is_unreached()
}

/// Why a try failed, with all that is known of a connection that broke. `has_tls` says whether this node speaks TLS.
pub(crate) fn reason_of(status: &Status, has_tls: bool) -> String {
    let mut reason = status.message().to_owned();
    for cause in causes(status) {
        let text = cause.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
    }
    if lacks_tls(status, has_tls) {
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
    fn tries_that_break_one_after_the_other_are_warned_of_once() {
        let mut tries = BrokenTries::default();
        let mut warnings = |broken: &[bool]| broken.iter().filter(|is| tries.warns(**is)).count();
        assert_eq!(warnings(&[true, true, true, false, true, true, true]), 0);
        assert_eq!(warnings(&[true; 20]), 1);
        // The address was that of another server, and is it again.
        assert_eq!(warnings(&[false, true, true, true, true, true]), 1);
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
