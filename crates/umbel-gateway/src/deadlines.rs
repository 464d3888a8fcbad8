//! Deadlines of calls.

use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use umbel_node::limits::{CALL_TIMEOUT_DEFAULT, CALL_TIMEOUT_MAX};

use super::limits::{ANSWER_MARGIN_MAX, LONG_CALL_TIMEOUT_DEFAULT};

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
    pub(super) fn of_items(self, metadata: &MetadataMap, timeout_ms: u32) -> Instant {
        let named = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into()));
        self.after(named, metadata, CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of one request of a stream: the stream's own time limit is none of its requests.
    pub(super) fn of_streamed(self, timeout_ms: u32) -> Instant {
        self.of_items(&MetadataMap::new(), timeout_ms)
    }

    /// The deadline of a call to the meta group.
    pub(super) fn of_meta(self, metadata: &MetadataMap) -> Instant {
        self.after(None, metadata, CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of a call that waits until all shards have done something.
    pub(super) fn of_all_shards(self, metadata: &MetadataMap) -> Instant {
        self.after(None, metadata, LONG_CALL_TIMEOUT_DEFAULT)
    }

    /// The deadline of a command of a protocol in which clients set no timeout.
    pub(super) fn of_command(self) -> Instant {
        Instant::now() + CALL_TIMEOUT_DEFAULT.min(self.timeout_max)
    }

    /// The deadline of such a command that waits until all shards have done something.
    pub(super) fn of_long_command(self) -> Instant {
        Instant::now() + LONG_CALL_TIMEOUT_DEFAULT.min(self.timeout_max)
    }

    fn after(self, named: Option<Duration>, metadata: &MetadataMap, default: Duration) -> Instant {
        let header = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
        let header = header.and_then(parse_timeout).map(before_client);
        let timeout = match (named, header) {
            (Some(named), Some(header)) => named.min(header),
            (Some(timeout), None) | (None, Some(timeout)) => timeout,
            (None, None) => default,
        };
        Instant::now() + timeout.min(self.timeout_max)
    }
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
        let none = MetadataMap::new();
        let mut header = MetadataMap::new();
        header.insert("grpc-timeout", "4S".parse().unwrap());
        let now = Instant::now();
        let ms = |deadline: Instant| (deadline - now).as_millis();
        assert_eq!(ms(deadlines.of_items(&none, 0)), 10_000);
        assert_eq!(ms(deadlines.of_items(&none, 700)), 700);
        assert_eq!(ms(deadlines.of_items(&none, 90_000)), 20_000);
        assert_eq!(ms(deadlines.of_items(&header, 0)), 3950);
        assert_eq!(ms(deadlines.of_items(&header, 700)), 700);
        assert_eq!(ms(deadlines.of_items(&header, 9000)), 3950);
        assert_eq!(ms(deadlines.of_meta(&none)), 10_000);
        assert_eq!(ms(deadlines.of_all_shards(&none)), 20_000);
        assert_eq!(before_client(Duration::from_millis(80)), Duration::from_millis(70));
    }
}
