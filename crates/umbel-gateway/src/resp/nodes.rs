//! The nodes that clients in cluster mode can use, and where such clients reach them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use umbel_coordinator::Coordinator;
use umbel_engine::NodeId;
use umbel_engine::meta::{MetaState, NodeRecord};

/// How long what another node says of itself is used without a further question: a node that has restarted may listen
/// at another address, and clients in cluster mode ask again about once a minute.
const ADDRESS_AGE_MAX: Duration = Duration::from_secs(10);

/// How long a node may take to say where clients reach it: less than clients wait for an answer to `CLUSTER`.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(500);

/// A node with a port of the Redis protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RespNode {
    pub(super) node: NodeId,
    /// Host and port at which clients reach it.
    pub(super) reached_at: (String, u16),
    /// Whether this node hears it.
    pub(super) is_alive: bool,
    pub(super) is_draining: bool,
}

/// The nodes as this one sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeenNodes {
    /// Those with a port of the Redis protocol, this one included, in ascending order.
    pub(super) nodes: Vec<RespNode>,
    /// Whether this node hears a majority of all members. Otherwise it may be the one that is cut off.
    pub(super) has_majority: bool,
}

impl SeenNodes {
    /// As this node sees them now; clients reach it at `own`.
    pub(super) async fn now(
        coordinator: &Coordinator,
        addresses: &RespAddresses,
        own: &(String, u16),
    ) -> Self {
        let this = coordinator.node();
        let ask = |node, address: String| async move {
            coordinator.resp_address_of(node, &address).await
        };
        let mut reached_at = addresses.of(this, &members(coordinator), ask).await;
        // Read behind the questions: a node that fell silent meanwhile gets no slots.
        let mut members = members(coordinator);
        // A node that is being started, or removed, is not in its catalogue.
        members.entry(this).or_insert(ClusterMember {
            address: String::new(),
            is_alive: true,
            is_draining: false,
        });
        reached_at.insert(this, own.clone());
        Self::of(&members, reached_at)
    }

    fn of(
        members: &BTreeMap<NodeId, ClusterMember>,
        mut reached_at: BTreeMap<NodeId, (String, u16)>,
    ) -> Self {
        let alive_count = members.values().filter(|member| member.is_alive).count();
        let node = |(&node, member): (&NodeId, &ClusterMember)| {
            let ClusterMember { is_alive, is_draining, .. } = *member;
            Some(RespNode { node, reached_at: reached_at.remove(&node)?, is_alive, is_draining })
        };
        let nodes = members.iter().filter_map(node).collect();
        Self { nodes, has_majority: 2 * alive_count > members.len() }
    }
}

/// A member of the cluster.
struct ClusterMember {
    /// Where other nodes reach it.
    address: String,
    is_alive: bool,
    is_draining: bool,
}

fn members(coordinator: &Coordinator) -> BTreeMap<NodeId, ClusterMember> {
    let this = coordinator.node();
    let address = |(node, record): (NodeId, &NodeRecord)| match record {
        NodeRecord::Live { address, is_draining, .. } => {
            Some((node, address.clone(), *is_draining))
        }
        NodeRecord::Removed => None,
    };
    let read = |state: &MetaState| state.nodes().filter_map(address).collect::<Vec<_>>();
    let addresses = coordinator.read_meta(read).unwrap_or_default();
    let member = |(node, address, is_draining)| {
        let is_alive = node == this || coordinator.is_alive(node);
        (node, ClusterMember { address, is_alive, is_draining })
    };
    addresses.into_iter().map(member).collect()
}

/// Where clients reach the ports of the Redis protocol of other nodes, as these have answered. They are asked when a
/// client asks.
#[derive(Default)]
pub(super) struct RespAddresses {
    // Held while nodes are asked, so that clients that ask at once cause one question.
    known: Mutex<BTreeMap<NodeId, KnownAddress>>,
}

/// What a node has answered.
#[derive(Default)]
struct KnownAddress {
    reached_at: Option<(String, u16)>,
    /// When it was asked; None if it was silent since, because it may have restarted.
    asked: Option<Instant>,
}

impl RespAddresses {
    /// Where clients reach the members other than `this` one, which `ask` asks. A member that does not answer in time is
    /// where it was before.
    async fn of<Answer>(
        &self,
        this: NodeId,
        members: &BTreeMap<NodeId, ClusterMember>,
        ask: impl Fn(NodeId, String) -> Answer,
    ) -> BTreeMap<NodeId, (String, u16)>
    where
        Answer: Future<Output = Result<Option<(String, u16)>, String>>,
    {
        let mut known = self.known.lock().await;
        known.retain(|node, _| members.contains_key(node));
        let mut due = Vec::new();
        for (&node, member) in members.iter().filter(|&(&node, _)| node != this) {
            let of_node = known.entry(node).or_default();
            if !member.is_alive {
                of_node.asked = None;
            } else if of_node.asked.is_none_or(|asked| asked.elapsed() >= ADDRESS_AGE_MAX) {
                due.push((node, member.address.clone()));
            }
        }
        let ask = &ask;
        let asked = due.into_iter().map(|(node, address)| async move {
            let answer = timeout(ADDRESS_TIMEOUT, ask(node, address)).await;
            (node, answer.unwrap_or_else(|_| Err("no answer in time".to_owned())))
        });
        for (node, answer) in join_all(asked).await {
            let of_node = known.entry(node).or_default();
            of_node.asked = Some(Instant::now());
            match answer {
                Ok(reached_at) => of_node.reached_at = reached_at,
                Err(why) => tracing::debug!(%node, why, "no address of the Redis protocol"),
            }
        }
        let address =
            |(&node, of_node): (&NodeId, &KnownAddress)| Some((node, of_node.reached_at.clone()?));
        known.iter().filter_map(address).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn member(is_alive: bool) -> ClusterMember {
        ClusterMember { address: "n:1".to_owned(), is_alive, is_draining: false }
    }

    /// The nodes whose ports node 1 knows once it has asked nodes 2 to 4, which answer after so long, and the nodes that
    /// it has asked.
    async fn known_and_asked(addresses: &RespAddresses, after: [Duration; 3]) -> [Vec<u64>; 2] {
        let members = (1..=4).map(|node| (NodeId(node), member(true))).collect();
        let asked = RefCell::new(Vec::new());
        let ask = |node: NodeId, _: String| {
            asked.borrow_mut().push(node.0);
            let after = after[asked.borrow().len() - 1];
            async move {
                tokio::time::sleep(after).await;
                Ok(Some((format!("n{}", node.0), 6379)))
            }
        };
        let known = timeout(2 * ADDRESS_TIMEOUT, addresses.of(NodeId(1), &members, ask)).await;
        let known = known.expect("all are asked at once, and nobody is waited for longer");
        [known.into_keys().map(|node| node.0).collect(), asked.into_inner()]
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_answer_in_time_is_where_it_was_before() {
        let (soon, late) = (ADDRESS_TIMEOUT / 2, 3 * ADDRESS_TIMEOUT / 2);
        let never = Duration::from_secs(3600);
        let addresses = RespAddresses::default();
        let first = known_and_asked(&addresses, [soon, late, never]).await;
        assert_eq!(first, [vec![2], vec![2, 3, 4]]);
        // Clients that ask soon afterwards do not wait for them again.
        let second = known_and_asked(&addresses, [never; 3]).await;
        assert_eq!(second, [vec![2], vec![]]);
        tokio::time::advance(ADDRESS_AGE_MAX).await;
        let third = known_and_asked(&addresses, [never, soon, soon]).await;
        assert_eq!(third, [vec![2, 3, 4], vec![2, 3, 4]]);
    }

    #[test]
    fn nodes_without_the_port_count_only_for_the_majority() {
        let reached_at = |nodes: &[u64]| {
            let at = |&node| (NodeId(node), (format!("n{node}"), 6379));
            nodes.iter().map(at).collect::<BTreeMap<_, _>>()
        };
        let seen = |alive: [bool; 4], nodes: &[u64]| {
            let members = (1..).map(NodeId).zip(alive.map(member)).collect();
            let seen = SeenNodes::of(&members, reached_at(nodes));
            let nodes: Vec<_> =
                seen.nodes.iter().map(|node| (node.node.0, node.is_alive)).collect();
            (nodes, seen.has_majority)
        };
        let alive = seen([true, true, true, false], &[1, 2, 4]);
        assert_eq!(alive, (vec![(1, true), (2, true), (4, false)], true));
        let alive = seen([true, false, true, false], &[1, 2]);
        assert_eq!(alive, (vec![(1, true), (2, false)], false));
        // Nodes that have left since they were asked.
        assert_eq!(seen([true; 4], &[1, 9]), (vec![(1, true)], true));
    }
}
