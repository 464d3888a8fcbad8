//! Timeouts, retries and concurrency of a client.

use std::time::Duration;

use crate::limits::{KEEP_ALIVE_TIMEOUT, TIME_MAX};
use crate::token::Token;

/// Timeouts of a client, its number of retries, and its requests in flight. Plain data. A time above a year counts as a year.
///
/// ```
/// use std::time::Duration;
/// use umbel_client::ClientOptions;
///
/// let options = ClientOptions { timeout: Duration::from_secs(5), ..ClientOptions::default() };
/// assert_eq!(options.attempt_timeout, Duration::from_secs(10));
/// assert_eq!(options.parallel_requests, 8);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// Time limit of a request over all its attempts; 30 s. It applies to each request of a batch that is
    /// split into several. [`Filter::insert_one`](crate::Filter::insert_one) and `contains_one` may take twice as long, as an
    /// item can wait for a batch before its own.
    pub timeout: Duration,
    /// Time limit of an attempt, after which another node is tried; 10 s.
    pub attempt_timeout: Duration,
    /// Most attempts of a request, at least 1; 20.
    pub attempt_count_max: u32,
    /// Time limit to establish a connection; 3 s.
    pub connect_timeout: Duration,
    /// How long a probe may stay unanswered before a connection with a waiting call is dropped; 300 ms,
    /// in which nodes elect another leader. Use more if this process may be suspended that long, as in a
    /// container with a small share of a processor.
    pub probe_timeout: Duration,
    /// Time limit of a request as long as no node has ever answered this client, all nodes were tried,
    /// and none accepts a connection or all hang up; 30 s. Use less for interactive use, more for
    /// programs that may start before the cluster.
    pub first_contact_timeout: Duration,
    /// Pause after the first failed attempt; it doubles with each further one; 20 ms. A longer pause that
    /// a node asks for is respected.
    pub pause_first: Duration,
    /// Longest pause between two attempts, unless a node asks for more; 1 s.
    pub pause_max: Duration,
    /// Requests of a batch in flight concurrently, at least 1; 8.
    pub parallel_requests: usize,
    /// Age after which nodes and leaders are requested again; 30 s.
    pub map_age_max: Duration,
    /// Whether to use other nodes than those given to [`connect`](crate::Client::connect), by the
    /// addresses that the cluster reports; true. Use false if those addresses cannot be reached from
    /// here; then calls do not go straight to a shard's leader either.
    pub learns_nodes: bool,
    /// Time limit of an import or restore; 1 h. Exports and backups have no limit, but each chunk must
    /// arrive within `timeout`.
    pub transfer_timeout: Duration,
    /// The token that every call carries, if the cluster has principals; none. It can be read on
    /// connections that are not encrypted, so use it on encrypted ones only.
    pub token: Option<Token>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(10),
            attempt_count_max: 20,
            connect_timeout: Duration::from_secs(3),
            probe_timeout: KEEP_ALIVE_TIMEOUT,
            first_contact_timeout: Duration::from_secs(30),
            pause_first: Duration::from_millis(20),
            pause_max: Duration::from_secs(1),
            parallel_requests: 8,
            map_age_max: Duration::from_secs(30),
            learns_nodes: true,
            transfer_timeout: Duration::from_secs(3600),
            token: None,
        }
    }
}

impl ClientOptions {
    /// The same, with no time above [`TIME_MAX`].
    pub(crate) fn within_limits(self) -> Self {
        Self {
            timeout: self.timeout.min(TIME_MAX),
            attempt_timeout: self.attempt_timeout.min(TIME_MAX),
            connect_timeout: self.connect_timeout.min(TIME_MAX),
            probe_timeout: self.probe_timeout.min(TIME_MAX),
            first_contact_timeout: self.first_contact_timeout.min(TIME_MAX),
            pause_first: self.pause_first.min(TIME_MAX),
            pause_max: self.pause_max.min(TIME_MAX),
            map_age_max: self.map_age_max.min(TIME_MAX),
            transfer_timeout: self.transfer_timeout.min(TIME_MAX),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, ClientError, Connecting, Connector};

    /// Whatever is called, nobody answers.
    struct Nobody;

    impl Connector for Nobody {
        fn connect(&self, _: &str) -> Connecting {
            Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
        }
    }

    #[tokio::test]
    async fn times_without_end_are_times() {
        let options = ClientOptions {
            timeout: Duration::MAX,
            attempt_timeout: Duration::MAX,
            attempt_count_max: 2,
            connect_timeout: Duration::MAX,
            probe_timeout: Duration::MAX,
            first_contact_timeout: Duration::MAX,
            map_age_max: Duration::MAX,
            transfer_timeout: Duration::MAX,
            ..ClientOptions::default()
        };
        let client = Client::connect_through("nobody:1", options, Nobody).unwrap();
        let error = client.filter("seen").insert(["alice"]).await.unwrap_err();
        assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    }
}
