//! Limits the links that a node serves: a few per node number, however many sockets there are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use umbel_engine::NodeId;
use umbel_ports::locked;

use super::limits::{LINKS_PER_NODE_MAX, UNKNOWN_NODES_MAX};
use crate::metrics;

/// The links that are being served.
#[derive(Default)]
pub(super) struct LinkSlots(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    nodes: BTreeMap<NodeId, LinksOfNode>,
}

/// The links of one node, oldest first; dropping a sender ends its link.
struct LinksOfNode {
    links: VecDeque<(u64, oneshot::Sender<()>)>,
    is_known: bool,
}

/// A link's slot. The link must end when the receiver is notified; dropping the slot frees it.
pub(super) struct LinkSlot {
    slots: Arc<LinkSlots>,
    from: NodeId,
    number: u64,
}

impl LinkSlots {
    /// Acquires a slot for one more link of a node. If that is one too many, an older link ends.
    pub(super) fn enter(
        self: &Arc<Self>,
        from: NodeId,
        is_known: bool,
    ) -> (LinkSlot, oneshot::Receiver<()>) {
        let mut table = locked(&self.0);
        table.last += 1;
        let number = table.last;
        if !is_known && !table.nodes.contains_key(&from) {
            table.end_unknown();
        }
        let (sender, ended) = oneshot::channel();
        let of_node = table
            .nodes
            .entry(from)
            .or_insert_with(|| LinksOfNode { links: VecDeque::new(), is_known });
        of_node.is_known = is_known;
        of_node.links.push_back((number, sender));
        if of_node.links.len() > LINKS_PER_NODE_MAX {
            of_node.links.pop_front();
            metrics::link_replaced();
        }
        (LinkSlot { slots: Arc::clone(self), from, number }, ended)
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        locked(&self.0).nodes.values().map(|of_node| of_node.links.len()).sum()
    }
}

impl Table {
    /// Makes room for a node number that is unknown.
    fn end_unknown(&mut self) {
        let unknown = self.nodes.iter().filter(|(_, of_node)| !of_node.is_known);
        let ages = unknown.map(|(&node, of_node)| (of_node.links.front().map(|link| link.0), node));
        let ages: Vec<_> = ages.collect();
        if ages.len() >= UNKNOWN_NODES_MAX
            && let Some((_, oldest)) = ages.into_iter().min()
        {
            self.nodes.remove(&oldest);
            metrics::link_replaced();
        }
    }
}

impl Drop for LinkSlot {
    fn drop(&mut self) {
        let mut table = locked(&self.slots.0);
        let Some(of_node) = table.nodes.get_mut(&self.from) else { return };
        of_node.links.retain(|(number, _)| *number != self.number);
        if of_node.links.is_empty() {
            table.nodes.remove(&self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(ended: &mut oneshot::Receiver<()>) -> bool {
        ended.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn an_old_link_of_a_node_yields_to_its_successor() {
        let slots = Arc::new(LinkSlots::default());
        let mut links: Vec<_> =
            (0..=LINKS_PER_NODE_MAX).map(|_| slots.enter(NodeId(1), true)).collect();
        let mut other = slots.enter(NodeId(2), true);
        let ended: Vec<bool> = links.iter_mut().map(|(_, ended)| is_ended(ended)).collect();
        assert_eq!(ended, [true, false, false, false]);
        assert!(!is_ended(&mut other.1));
        drop((links, other));
        assert_eq!(slots.count(), 0);
    }

    #[test]
    fn numbers_that_nobody_knows_push_each_other_out_and_no_member() {
        let slots = Arc::new(LinkSlots::default());
        let mut member = slots.enter(NodeId(1), true);
        let mut first = slots.enter(NodeId(1000), false);
        let count = 2 * UNKNOWN_NODES_MAX as u64;
        let strangers: Vec<_> =
            (0..count).map(|number| slots.enter(NodeId(2000 + number), false)).collect();
        assert!(!is_ended(&mut member.1) && is_ended(&mut first.1));
        assert_eq!(slots.count(), UNKNOWN_NODES_MAX + 1);
        drop((first, strangers));
        assert_eq!(slots.count(), 1);
    }
}
