//! What machines are called, and where their nodes are reached.

/// Port of every node.
pub(crate) const PORT: u16 = 7300;

/// The name of a node's host.
pub(crate) fn host_name(number: u32) -> String {
    format!("n{number}")
}

/// Where others reach a node.
pub(crate) fn address_of(number: u32) -> String {
    format!("{}:{PORT}", host_name(number))
}
