//! Limits of connections.

use std::time::Duration;

/// Time limit to establish a connection: a handshake takes one round trip.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that is idle for this long is pinged.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// A connection whose ping is not answered within this time is dead.
pub(crate) const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// HTTP/2 window of a stream: enough for 1 Gbit/s at 16 ms, or 10 Gbit/s at 1.6 ms.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// HTTP/2 window of a connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Pause after a connection could not be accepted, so that a lack of file descriptors does not cause a
/// busy loop.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whatever a connection began to send (the HTTP/2 preface, a frame, a request's headers) must end
/// within this time: each fits into a few packets, which take seconds on the slowest line.
pub(crate) const OWED_TIMEOUT: Duration = Duration::from_secs(10);
