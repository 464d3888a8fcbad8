//! Encoding and decoding tables, and bytes that are not tables.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn table() -> SampleTable {
    let mut table = SampleTable::new(NodeId(2));
    let hashes: Vec<ItemHash> = [9, 5, 9].map(|lo| ItemHash::new(0, lo)).to_vec();
    table.insert(&hashes);
    let hashes = [7, 300].into_iter().collect();
    table.take(&NodeSample { node: NodeId(1), since: 0, count: 40, hashes }).unwrap();
    table
}

/// The bytes of the table with one byte changed.
fn changed(at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = table().to_bytes();
    bytes[at] = byte;
    bytes
}

#[test]
fn a_decoded_table_is_equal() {
    let table = table();
    let bytes = table.to_bytes();
    assert_eq!(bytes.len(), 21 + 2 * (18 + 2 * 8));
    let again = SampleTable::from_bytes(&bytes).unwrap();
    assert_eq!(again, table);
    assert_eq!((again.own_count(), again.estimates()), (3, table.estimates()));
    let nothing = VersionVector::new();
    assert_eq!(again.newer_than(&nothing, 1 << 20), table.newer_than(&nothing, 1 << 20));
    assert!(again.newer_than(&table.counts(), 1 << 20).is_empty());
}

#[test]
fn an_empty_table_comes_back() {
    let table = SampleTable::new(NodeId(7));
    assert_eq!(SampleTable::from_bytes(&table.to_bytes()), Ok(table));
}

#[test]
fn each_contradiction_is_refused_with_its_values() {
    for (at, byte, expected) in [
        (0, 2, "a table of version 2, expected 1"),
        (9, 1, "own sample at count 2, expected 1 at most"),
        (17, 1, "a table of 55 bytes in 89"),
        (17, 3, "0 bytes at byte 89 of a table, expected 8"),
        (18, 0x21, "samples of 8450 nodes, expected at most 8192"),
        (21, 3, "node 2 behind node 3 in a table, expected a higher number"),
        (29, 0, "a sample of node 1 at count 0, expected 1 at least"),
        (38, 1, "50 bytes at byte 39 of a table, expected 2064"),
        (
            41,
            1,
            "sample of node 1: hash 0x000000000000012c behind 0x0000000000010007 in a sample, \
             expected a greater one",
        ),
    ] {
        let error = SampleTable::from_bytes(&changed(at, byte)).unwrap_err();
        assert_eq!(error.to_string(), expected, "byte {at}");
    }
}

#[test]
fn every_cut_is_refused() {
    let bytes = table().to_bytes();
    for len in 0..bytes.len() {
        assert!(SampleTable::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
}

proptest! {
    /// Accepted bytes are a table: it encodes to the same bytes.
    #[test]
    fn damaged_bytes_are_refused_or_a_table(changes in vec((0_usize..89, any::<u8>()), 0..4)) {
        let mut bytes = table().to_bytes();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(table) = SampleTable::from_bytes(&bytes) {
            prop_assert_eq!(table.to_bytes(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_a_table(mut bytes in vec(any::<u8>(), 1..200)) {
        bytes[0] = 1;
        if let Ok(table) = SampleTable::from_bytes(&bytes) {
            prop_assert_eq!(table.to_bytes(), bytes);
        }
    }
}
