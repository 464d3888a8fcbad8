//! Comparisons of the copies of replicated filters, on request.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use umbel_engine::meta::MetaState;
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_replicated_engine::hypercube::{Cube, CubeRank};

use crate::Result;
use crate::scrub::FilterToScrub;
use umbel_node::calls::{CopyAnswer, CopyRequest};
use umbel_node::cube::{CopyComparison, SESSION_TIME_MAX};
use umbel_node::leader_calls::LeaderCalls;

/// Pairs that are compared at once: each node requests one comparison at a time and answers one, so that
/// more would only wait.
const PAIRS_AT_ONCE_MAX: usize = 8;

/// Two copies of a filter, and how they differed or why they were not compared.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrubbedPair {
    /// The name of the filter.
    pub filter: String,
    /// The node of one copy.
    pub node: NodeId,
    /// The node of the other one.
    pub partner: NodeId,
    /// The differences, or why they were not compared.
    pub compared: Result<CopyComparison, String>,
}

/// Compares copies of replicated filters: each pair of partners in the cube once. Results arrive as
/// comparisons end.
///
/// # Errors
/// If this node belongs to no cluster.
pub(crate) fn scrub_pairs(
    calls: &Arc<LeaderCalls>,
    filters: Vec<FilterToScrub>,
) -> Result<impl Stream<Item = ScrubbedPair> + use<>> {
    let pairs = Arc::new(calls.read_meta(partners)?);
    let of_filter = move |filter: FilterToScrub| {
        let pairs = Arc::clone(&pairs);
        (0..pairs.len()).map(move |at| (filter.clone(), pairs[at]))
    };
    let calls = Arc::clone(calls);
    let compared = stream::iter(filters.into_iter().flat_map(of_filter)).map(move |pair| {
        let calls = Arc::clone(&calls);
        async move { scrub_pair(&calls, pair).await }
    });
    Ok(compared.buffer_unordered(PAIRS_AT_ONCE_MAX))
}

async fn scrub_pair(
    calls: &LeaderCalls,
    (wanted, (node, partner)): (FilterToScrub, (NodeId, NodeId)),
) -> ScrubbedPair {
    let FilterToScrub { name, filter, generation } = wanted;
    let compared = compare(calls, (filter, generation), node, partner).await;
    ScrubbedPair { filter: name, node, partner, compared }
}

async fn compare(
    calls: &LeaderCalls,
    (filter, generation): (FilterId, Generation),
    node: NodeId,
    partner: NodeId,
) -> Result<CopyComparison, String> {
    let local = calls.local().map_err(|failure| failure.to_string())?;
    let group = GroupId::of_copy(filter).ok_or_else(|| format!("{filter} has no copies"))?;
    let request = CopyRequest::Scrub { generation, partner };
    // One session for the wait until it is this comparison's turn there, and one for the comparison.
    let timeout = 2 * SESSION_TIME_MAX;
    match local.copies().call(node, group, &request, timeout).await {
        Ok(CopyAnswer::Compared(compared)) => compared,
        Ok(CopyAnswer::Failed(failure)) => Err(failure.to_string()),
        Ok(other) => Err(format!("{node} gave {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// All pairs of partners in the cube of the live nodes, each once, the lower node first.
fn partners(state: &MetaState) -> Vec<(NodeId, NodeId)> {
    let nodes: Vec<NodeId> = state.live_nodes().into_iter().collect();
    let Ok(cube) = Cube::new(nodes.len()) else { return Vec::new() };
    let mut pairs = Vec::new();
    for (&node, rank) in nodes.iter().zip(0..) {
        let above = cube.partners(CubeRank(rank)).into_iter().filter(|partner| partner.0 > rank);
        pairs.extend(above.map(|partner| (node, nodes[partner.0 as usize])));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::MetaCommand;

    use super::*;

    #[test]
    fn pairs_are_the_edges_of_the_cube() {
        let mut state = MetaState::new();
        let nodes = (1..=5).map(|i| (NodeId(i), format!("node{i}:7070"))).collect();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
        let pairs: Vec<(u64, u64)> =
            partners(&state).into_iter().map(|(one, other)| (one.0, other.0)).collect();
        // Node 5 is outside the square of the others.
        assert_eq!(pairs, [(1, 2), (1, 3), (1, 5), (2, 4), (3, 4)]);
    }
}
