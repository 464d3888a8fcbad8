//! Deadlines of calls.

use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::Instant;
use tonic::Request;
use umbel_node::limits::{CALL_TIMEOUT_DEFAULT, CALL_TIMEOUT_MAX};

use super::limits::{ANSWER_MARGIN_MAX, LONG_CALL_TIMEOUT_DEFAULT};

/// When a request came: its client, and tonic, count its timeout from then at the latest. In its extensions, where the gate
/// puts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came(pub(super) Instant);

/// Computes deadlines; no timeout is longer than `timeout_max`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    timeout_max: Duration,
}

impl Deadlines {
    /// Limits timeouts to `timeout_max` or [`CALL_TIMEOUT_MAX`], whichever is less.
    pub(super) fn new(timeout_max: Duration) -> Self {
        Self { timeout_max: timeout_max.min(CALL_TIMEOUT_MAX) }
    }

    /// The deadline of a call about items; `timeout_ms` is the timeout in its message, 0 for none.
    pub(super) fn of_items<T>(self, request: &Request<T>, timeout_ms: u32) -> Instant {
        self.before(client_end(request), named(timeout_ms), CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of one request of a stream: the stream's own time limit is none of its requests.
    pub(super) fn of_streamed(self, timeout_ms: u32) -> Instant {
        self.before(None, named(timeout_ms), CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of a call to the meta group.
    pub(super) fn of_meta<T>(self, request: &Request<T>) -> Instant {
        self.before(client_end(request), None, CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of a call that waits until all shards have done something.
    pub(super) fn of_all_shards<T>(self, request: &Request<T>) -> Instant {
        self.before(client_end(request), None, LONG_CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of a command of a protocol in which clients set no timeout.
    pub(super) fn of_command(self) -> Instant {
        Instant::now() + CALL_TIMEOUT_DEFAULT.min(self.timeout_max)
    }

    /// The deadline of such a command that waits until all shards have done something.
    pub(super) fn of_long_command(self) -> Instant {
        Instant::now() + LONG_CALL_TIMEOUT_DEFAULT.min(self.timeout_max)
    }

    /// The deadline of a call whose client waits until `client_end` for the answer.
    fn before(
        self,
        client_end: Option<Instant>,
        named: Option<Duration>,
        default: Duration,
    ) -> Instant {
        let timeout = match (named, client_end) {
            (Some(named), _) => named,
            (None, Some(_)) => self.timeout_max,
            (None, None) => default,
        };
        let latest = Instant::now() + timeout.min(self.timeout_max);
        client_end.map_or(latest, |end| latest.min(end))
    }
}

/// The timeout in a message, where 0 is none.
fn named(timeout_ms: u32) -> Option<Duration> {
    (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into()))
}

/// When an answer has to be sent, so that it reaches the client within the timeout in the header.
fn client_end<T>(request: &Request<T>) -> Option<Instant> {
    let header = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let came = request.extensions().get::<Came>().map_or_else(Instant::now, |came| came.0);
    came.checked_add(before_client(parse_timeout(header)?))
}

/// The timeout that the client sets in the header `grpc-timeout`.
pub(super) fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    parse_timeout(headers.get("grpc-timeout")?.to_str().ok()?)
}

/// The timeout less the time that the response needs to reach the client.
fn before_client(timeout: Duration) -> Duration {
    timeout.saturating_sub(ANSWER_MARGIN_MAX.min(timeout / 8))
}

/// Parses the header's value: at most eight digits and a unit
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). A malformed value counts as
/// absent.
fn parse_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let digits = text.strip_suffix(unit)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read() {
        let parsed = |text| parse_timeout(text).map(|timeout| timeout.as_nanos());
        assert_eq!(parsed("1H"), Some(3_600_000_000_000));
        assert_eq!(parsed("2M"), Some(120_000_000_000));
        assert_eq!(parsed("99999999S"), Some(99_999_999_000_000_000));
        assert_eq!(parsed("100m"), Some(100_000_000));
        assert_eq!((parsed("7u"), parsed("7n")), (Some(7000), Some(7)));
        for wrong in ["", "S", "1", "1s", "123456789m", "-1S", "+1S", "1.5S", " 1S", "1é"] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_shortest_counts() {
        let deadlines = Deadlines::new(Duration::from_secs(20));
        let none = Request::new(());
        let mut header = Request::new(());
        header.metadata_mut().insert("grpc-timeout", "4S".parse().unwrap());
        let now = Instant::now();
        let ms = |deadline: Instant| (deadline - now).as_millis();
        assert_eq!(ms(deadlines.of_items(&none, 0)), 10_000);
        assert_eq!(ms(deadlines.of_items(&none, 700)), 700);
        assert_eq!(ms(deadlines.of_items(&none, 90_000)), 20_000);
        assert_eq!(ms(deadlines.of_items(&header, 0)), 3750);
        assert_eq!(ms(deadlines.of_items(&header, 700)), 700);
        assert_eq!(ms(deadlines.of_items(&header, 9000)), 3750);
        assert_eq!(ms(deadlines.of_streamed(0)), 10_000);
        assert_eq!(ms(deadlines.of_meta(&none)), 10_000);
        assert_eq!(ms(deadlines.of_all_shards(&none)), 20_000);
        assert_eq!(before_client(Duration::from_millis(80)), Duration::from_millis(70));
        header.metadata_mut().insert("grpc-timeout", "99999999H".parse().unwrap());
        assert_eq!(ms(deadlines.of_meta(&header)), 20_000);
    }

    /// It may have waited at the gate, and its client has waited since.
    #[tokio::test(start_paused = true)]
    async fn a_timeout_counts_from_when_the_request_came() {
        let deadlines = Deadlines::new(Duration::from_secs(20));
        let mut request = Request::new(());
        request.metadata_mut().insert("grpc-timeout", "4S".parse().unwrap());
        let came = Instant::now();
        request.extensions_mut().insert(Came(came));
        tokio::time::advance(Duration::from_secs(1)).await;
        let ms = |deadline: Instant| (deadline - came).as_millis();
        assert_eq!(ms(deadlines.of_meta(&request)), 3750);
        assert_eq!(ms(deadlines.of_all_shards(&request)), 3750);
        assert_eq!(ms(deadlines.of_items(&request, 0)), 3750);
        assert_eq!(ms(deadlines.of_items(&request, 700)), 1700);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(deadlines.of_meta(&request) < Instant::now());
    }
}
