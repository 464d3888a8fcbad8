//! What machines are called, and where their nodes are reached.

/// Port of every node.
pub(crate) const PORT: u16 = 7300;

/// Port of every node for the Redis protocol.
pub(crate) const RESP_PORT: u16 = 6379;

/// The name of a node's host.
pub(crate) fn host_name(number: u32) -> String {
    format!("n{number}")
}

/// Where others reach a node.
pub(crate) fn address_of(number: u32) -> String {
    format!("{}:{PORT}", host_name(number))
}

/// Where clients of the Redis protocol reach a node.
pub(crate) fn resp_address_of(number: u32) -> String {
    format!("{}:{RESP_PORT}", host_name(number))
}
