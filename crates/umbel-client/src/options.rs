//! How patient a client is.

use std::time::Duration;

use crate::limits::KEEP_ALIVE_TIMEOUT;
use crate::token::Token;

/// How long a client waits, how often it tries, how much it has in flight. Plain data.
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
    /// Give a request up after this time, all its attempts together; 30 s. A batch that is cut into
    /// several requests has it for each.
    pub timeout: Duration,
    /// Give an attempt up after this time and try another node; 10 s.
    pub attempt_timeout: Duration,
    /// Most attempts of one request, at least 1; 20.
    pub attempt_count_max: u32,
    /// Give a connection up that is not made within this time; 3 s.
    pub connect_timeout: Duration,
    /// Give a connection up on which a call waits, and a probe has had no answer for this time; 300 ms, in which nodes elect
    /// another leader. Longer where this process may stand still for so long, as in a container with little of a
    /// processor.
    pub probe_timeout: Duration,
    /// Give a request up after this time, once every node was tried, while no node has ever answered
    /// this client and none can be connected to, or hangs up; 30 s. Short for people who wait, long for programs
    /// that may start before the cluster does.
    pub first_contact_timeout: Duration,
    /// Pause after the first failed attempt; it doubles with each further one; 20 ms. A node that
    /// asks for a longer pause gets it.
    pub pause_first: Duration,
    /// Longest pause between two attempts that is not a node's wish; 1 s.
    pub pause_max: Duration,
    /// Requests of one batch that are in flight at once, at least 1; 8.
    pub parallel_requests: usize,
    /// Ask for nodes and leaders again after this time; 30 s.
    pub map_age_max: Duration,
    /// Use nodes beyond those of [`connect`](crate::Client::connect), as the cluster names them;
    /// true. False where the cluster's own addresses cannot be reached; then no call goes straight
    /// to a shard's leader either.
    pub learns_nodes: bool,
    /// Give an import or restore up after this time; 1 h. Exports and backups may last for ever,
    /// but each chunk must come within `timeout`.
    pub transfer_timeout: Duration,
    /// What every call proves itself by, if the cluster has principals; none. Who reads the network reads it, so
    /// it belongs on connections that are encrypted.
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
