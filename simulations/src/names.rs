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

/// The number of the node at an address, if it is one that [`address_of`] makes.
pub(crate) fn node_at(address: &str) -> Option<u32> {
    let (host, _) = address.split_once(':')?;
    host.strip_prefix('n')?.parse().ok()
}

/// Where clients of the Redis protocol reach a node.
pub(crate) fn resp_address_of(number: u32) -> String {
    format!("{}:{RESP_PORT}", host_name(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_their_addresses() {
        assert_eq!(node_at(&address_of(12)), Some(12));
        assert_eq!(node_at("clients:7300"), None);
        assert_eq!(node_at("n1"), None);
    }
}
