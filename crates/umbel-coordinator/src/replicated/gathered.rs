//! Combines the answers of copies about a batch.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::NodeId;
use umbel_engine::shard::Bitmap;

/// The answers about a batch so far.
pub(super) struct Gathered {
    /// One bit for each item.
    pub(super) bits: Vec<bool>,
    /// Whether ones win where answers differ; otherwise zeros do.
    ones_win: bool,
    /// The nodes that answered, and whether their copies count towards a majority.
    answered: BTreeMap<NodeId, bool>,
}

impl Gathered {
    /// The answer of the asking node's own copy.
    pub(super) fn begin(
        bits: Vec<bool>,
        ones_win: bool,
        (node, is_in_sync): (NodeId, bool),
    ) -> Self {
        Self { bits, ones_win, answered: BTreeMap::from([(node, is_in_sync)]) }
    }

    /// Whether a node has answered.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.answered.contains_key(&node)
    }

    /// How many of these nodes have answered. A node that was removed since its answer no longer counts: nobody
    /// will ask its copy again, and its items may be on no other.
    pub(super) fn count(&self, of: &BTreeSet<NodeId>) -> usize {
        self.answered.keys().filter(|node| of.contains(node)).count()
    }

    /// How many of these nodes have answered from copies that count towards a majority.
    pub(super) fn in_sync_count(&self, of: &BTreeSet<NodeId>) -> usize {
        self.answered.iter().filter(|(node, is_in_sync)| **is_in_sync && of.contains(node)).count()
    }

    /// Adds a node's answer that has a bit for every item. Any other answer tells nothing about some items, and
    /// must count for none.
    ///
    /// # Errors
    /// What is wrong with the answer; nothing was changed.
    pub(super) fn take(
        &mut self,
        node: NodeId,
        bits: &Bitmap,
        is_in_sync: bool,
    ) -> Result<(), String> {
        bits.check().map_err(|error| error.to_string())?;
        let (got, expected) = (bits.len() as usize, self.bits.len());
        if got != expected {
            return Err(format!("it has {got} bits, expected {expected}"));
        }
        for (ours, theirs) in self.bits.iter_mut().zip(bits.iter()) {
            *ours = if self.ones_win { *ours | theirs } else { *ours & theirs };
        }
        self.answered.insert(node, is_in_sync);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use umbel_ports::encoding::{decode, encode};

    use super::*;

    fn gathered(ones_win: bool) -> Gathered {
        Gathered::begin(vec![true, false, true], ones_win, (NodeId(1), true))
    }

    fn counts(gathered: &Gathered, nodes: &[u64]) -> (usize, usize) {
        let nodes = nodes.iter().map(|&node| NodeId(node)).collect();
        (gathered.count(&nodes), gathered.in_sync_count(&nodes))
    }

    #[test]
    fn answers_are_put_together_item_by_item() {
        for (ones_win, expected) in [(false, [true, false, false]), (true, [true; 3])] {
            let mut gathered = gathered(ones_win);
            let answer = Bitmap::from_bools([true, true, false]);
            assert_eq!(gathered.take(NodeId(2), &answer, false), Ok(()));
            assert_eq!(gathered.bits, expected);
            assert_eq!(counts(&gathered, &[1, 2, 3]), (2, 1));
            assert_eq!([1, 2, 3].map(|node| gathered.has(NodeId(node))), [true, true, false]);
        }
    }

    /// Otherwise a majority of the nodes of today would be said to have what fewer of them have.
    #[test]
    fn an_answer_of_a_node_that_was_removed_does_not_count() {
        let mut gathered = gathered(false);
        for (node, is_in_sync) in [(2, true), (3, false)] {
            gathered.take(NodeId(node), &Bitmap::ones(3), is_in_sync).unwrap();
        }
        assert_eq!(counts(&gathered, &[1, 2, 3]), (3, 2));
        assert_eq!(counts(&gathered, &[1, 3, 4]), (2, 1));
        assert_eq!(counts(&gathered, &[4, 5]), (0, 0));
    }

    /// If it were counted, an item about which no node was asked would be absent on a majority.
    #[test]
    fn an_answer_about_other_items_is_none() {
        // As a peer may send it: the length is three bits, and no byte follows.
        let torn: Bitmap = decode(&encode(&(3_u32, Bytes::new()))).unwrap();
        let padded: Bitmap = decode(&encode(&(3_u32, Bytes::from_static(&[0xff])))).unwrap();
        for (answer, expected) in [
            (Bitmap::from_bools([true, true]), "it has 2 bits, expected 3"),
            (Bitmap::zeros(0), "it has 0 bits, expected 3"),
            (Bitmap::ones(4), "it has 4 bits, expected 3"),
            (torn, "0 bytes for 3 bits, expected 1"),
            (padded, "bits are set behind the last of 3"),
        ] {
            for ones_win in [false, true] {
                let mut gathered = gathered(ones_win);
                assert_eq!(gathered.take(NodeId(2), &answer, true), Err(expected.to_owned()));
                assert_eq!(counts(&gathered, &[1, 2]), (1, 1));
                assert_eq!(gathered.bits, [true, false, true]);
            }
        }
    }
}
