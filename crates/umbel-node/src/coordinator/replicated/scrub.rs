//! Copies of replicated filters compared with each other because somebody asks for it.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::hypercube::{Cube, Rank};
use umbel_engine::meta::{FilterState, MetaState};
use umbel_engine::{FilterId, Generation, GroupId, NodeId};

use crate::calls::{CopyAnswer, CopyRequest};
use crate::coordinator::Coordinator;
use crate::cube::{Compared, SESSION_TIME_MAX};
use crate::failure::CallFailure;

/// Pairs that are compared at once: each node asks for one comparison at a time and answers one, so
/// that more would only wait.
const PAIRS_AT_ONCE_MAX: usize = 8;

/// Two copies of a filter, and what they differed in or why they were not compared.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ScrubbedPair {
    pub(crate) filter: String,
    pub(crate) node: NodeId,
    pub(crate) partner: NodeId,
    pub(crate) compared: Result<Compared, String>,
}

#[derive(Clone)]
struct Wanted {
    name: String,
    filter: FilterId,
    generation: Generation,
}

impl Coordinator {
    /// Has the copies of a replicated filter, or of all of them, compared: each pair of partners in the
    /// cube once. The pairs come as they are done.
    ///
    /// # Errors
    /// If there is no such filter, or it is partitioned. Nothing was compared.
    pub(crate) async fn scrub(
        self: &Arc<Self>,
        name: Option<&str>,
        deadline: Instant,
    ) -> Result<impl Stream<Item = ScrubbedPair> + use<>, CallFailure> {
        let filters = match name {
            Some(name) => vec![self.wanted(name, deadline).await?],
            None => {
                self.meta_refresh(deadline).await?;
                self.read_meta(all_replicated)?
            }
        };
        let pairs = Arc::new(self.read_meta(partners)?);
        let of_filter = move |filter: Wanted| {
            let pairs = Arc::clone(&pairs);
            (0..pairs.len()).map(move |at| (filter.clone(), pairs[at]))
        };
        let coordinator = Arc::clone(self);
        let compared = stream::iter(filters.into_iter().flat_map(of_filter)).map(move |pair| {
            let coordinator = Arc::clone(&coordinator);
            async move { coordinator.scrub_pair(pair).await }
        });
        Ok(compared.buffer_unordered(PAIRS_AT_ONCE_MAX))
    }

    async fn wanted(&self, name: &str, deadline: Instant) -> Result<Wanted, CallFailure> {
        let filter = self.live_filter(name, deadline).await?;
        if !filter.record.is_replicated() {
            let what = format!("filter {name:?} is partitioned, expected a replicated one");
            return Err(CallFailure::Invalid { what });
        }
        let (name, generation) = (name.to_owned(), filter.record.generation);
        Ok(Wanted { name, filter: filter.id, generation })
    }

    async fn scrub_pair(
        &self,
        (wanted, (node, partner)): (Wanted, (NodeId, NodeId)),
    ) -> ScrubbedPair {
        let Wanted { name, filter, generation } = wanted;
        let compared = self.compare(filter, generation, node, partner).await;
        ScrubbedPair { filter: name, node, partner, compared }
    }

    async fn compare(
        &self,
        filter: FilterId,
        generation: Generation,
        node: NodeId,
        partner: NodeId,
    ) -> Result<Compared, String> {
        let local = self.local().map_err(|failure| failure.to_string())?;
        let group = GroupId::of_copy(filter).ok_or_else(|| format!("{filter} has no copies"))?;
        let request = CopyRequest::Scrub { generation, partner };
        // It waits for its turn there, and has it.
        let timeout = 2 * SESSION_TIME_MAX;
        match local.copy_call(node, group, &request, timeout).await {
            Ok(CopyAnswer::Compared(compared)) => compared,
            Ok(CopyAnswer::Failed(failure)) => Err(failure.to_string()),
            Ok(other) => Err(format!("{node} gave {other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The replicated filters that are live, by their numbers.
fn all_replicated(state: &MetaState) -> Vec<Wanted> {
    let replicated = state.filters().filter(|(_, record)| record.is_replicated());
    let live = replicated.filter(|(_, record)| record.state == FilterState::Live);
    let wanted = live.map(|(filter, record)| Wanted {
        name: record.name.to_string(),
        filter,
        generation: record.generation,
    });
    wanted.collect()
}

/// All pairs of partners in the cube of the live nodes, each once, the lower node first.
fn partners(state: &MetaState) -> Vec<(NodeId, NodeId)> {
    let nodes: Vec<NodeId> = state.live_nodes().into_iter().collect();
    let Ok(cube) = Cube::new(nodes.len()) else { return Vec::new() };
    let mut pairs = Vec::new();
    for (&node, rank) in nodes.iter().zip(0..) {
        let above = cube.partners(Rank(rank)).into_iter().filter(|partner| partner.0 > rank);
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
        // Node 5 is beyond the square of the others.
        assert_eq!(pairs, [(1, 2), (1, 3), (1, 5), (2, 4), (3, 4)]);
    }
}
