//! Measurements of connections: names, and one function per measurement. Units and help texts are where
//! a node describes all of its measurements.

use std::time::Duration;

use metrics::{counter, gauge};

/// Connections that were closed, by cause.
pub const CONNECTIONS_REFUSED: &str = "umbel_connections_refused_total";

/// Connections that were closed because the other end did not prove an identity.
pub const HANDSHAKES_FAILED: &str = "umbel_tls_handshakes_failed_total";

/// When this node's certificate expires.
pub const CERTIFICATE_EXPIRES: &str = "umbel_tls_certificate_expires_timestamp_seconds";

/// A connection was closed or not accepted, for this cause.
pub fn connection_refused(cause: &'static str) {
    counter!(CONNECTIONS_REFUSED, "cause" => cause).increment(1);
}

/// When this node's certificate expires, as time since 1970.
pub(crate) fn certificate_expires(since_1970: Duration) {
    gauge!(CERTIFICATE_EXPIRES).set(since_1970.as_secs_f64());
}

/// A connection was closed because its peer did not prove an identity.
pub(crate) fn handshake_failed() {
    counter!(HANDSHAKES_FAILED).increment(1);
}
