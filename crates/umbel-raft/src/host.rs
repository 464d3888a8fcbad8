//! What the Raft groups of a node share, and how they start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use umbel_engine::liveness::Timing;
use umbel_engine::meta::VersionRange;
use umbel_engine::{GroupId, NodeId};
use umbel_filter::HashRange;
use umbel_ports::{Net, Pacer, Purpose, Rare, Seed};
use umbel_storage::Storage;

use crate::beats::Beats;
use crate::group::Group;
use crate::known_members::known_members;
use crate::network::{Moves, Network, SLOW_MOVE_BYTES_PER_SECOND};
use crate::peer::{Links, LocalIdentity};
use crate::read_rounds::ReadRounds;
use crate::recall::{LATER_TIMEOUT, Recollection, START_TIMEOUT};
use crate::state_machine::GroupReplica;
use crate::witness::Witness;

/// What the Raft groups of a node share: storage, links, failure detector, and what nodes know of each
/// other's replicas.
pub struct GroupHost {
    node: NodeId,
    seed: Arc<dyn Seed>,
    storage: Storage,
    links: Arc<Links>,
    beats: Arc<Beats>,
    witness: Arc<Witness>,
    rounds: ReadRounds,
    recollection: Arc<Recollection>,
    /// The rate at which snapshots are sent to replicas that are added.
    move_pacer: Arc<Pacer>,
}

/// What a node remembers of its groups and of other nodes' replicas.
pub struct GroupMemory {
    /// Logs, snapshots and votes, on its disk.
    pub storage: Storage,
    /// What replicas have confirmed to it since it runs.
    pub witness: Arc<Witness>,
}

/// Why a node's groups cannot start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError {
    /// Another node reports that this one was removed from the cluster: with this folder it is in none for ever.
    #[error("{0}")]
    Removed(String),
    /// The log, a snapshot or openraft refuses it; the text says what to do.
    #[error("{0}")]
    Failed(String),
}

/// The groups that run on a node, for what serves and drives them.
pub trait RunningGroups: Send + Sync + 'static {
    /// All groups of the node, the meta group first.
    fn groups(&self) -> Vec<Arc<Group>>;

    /// The node's replica of a group.
    fn group(&self, id: GroupId) -> Option<Arc<Group>>;

    /// The addresses of the cluster's nodes, as far as this node's catalogue knows.
    fn addresses(&self) -> BTreeMap<NodeId, String>;

    /// The node that should lead each shard's group, by this node's shard map; groups that are missing have
    /// a home by their number. Asked at every beat, so that it has to be at hand.
    fn homes(&self) -> Arc<BTreeMap<GroupId, NodeId>>;

    /// Takes the report of another node that this one was removed from the cluster, so that it cannot continue.
    fn fail_as_removed(&self, why: String);
}

impl GroupHost {
    /// Asks other nodes what they know of this one: those that the disk names as members of the meta
    /// group, and `founders`. Groups may start after that.
    ///
    /// To replicas that are added to shards, the node sends at most `move_bytes_per_second_max` bytes of
    /// snapshots per second, at least [`MOVE_BYTES_PER_SECOND_MIN`](crate::MOVE_BYTES_PER_SECOND_MIN); 0 is
    /// no limit.
    ///
    /// # Errors
    /// If the meta group's log cannot be read, or a node reports that this one was removed from the
    /// cluster.
    pub async fn start(
        identity: LocalIdentity,
        timing: Timing,
        net: Arc<dyn Net>,
        seed: Arc<dyn Seed>,
        memory: GroupMemory,
        founders: BTreeMap<NodeId, String>,
        move_bytes_per_second_max: u64,
    ) -> Result<Self, HostError> {
        let GroupMemory { storage, witness } = memory;
        let node = identity.node;
        let links = Arc::new(Links::new(net, Arc::clone(&seed), identity));
        let beats = Arc::new(Beats::new(node, seed.number(Purpose::Incarnation), timing));
        let rounds = ReadRounds::start(node, Arc::clone(&links), Arc::clone(&beats));
        let mut nodes = founders;
        nodes.extend(
            known_members(&storage, GroupId::META).await.map_err(|error| meta_failed(&error))?,
        );
        let recollection = Arc::new(Recollection::default());
        let queried = recollection.query(&links, node, nodes, START_TIMEOUT).await;
        queried.map_err(HostError::Removed)?;
        let move_rate = if seed.provokes(Rare::SlowMoves) {
            SLOW_MOVE_BYTES_PER_SECOND
        } else {
            move_bytes_per_second_max
        };
        let move_pacer = Arc::new(Pacer::new(move_rate));
        Ok(Self { node, seed, storage, links, beats, witness, rounds, recollection, move_pacer })
    }

    /// Starts the meta group from its state on disk; `versions` are the cluster versions that this node
    /// supports.
    ///
    /// # Errors
    /// If the log, a snapshot or openraft refuses it.
    pub async fn start_meta(&self, versions: VersionRange) -> Result<Arc<Group>, HostError> {
        let id = GroupId::META;
        self.recollection.restore(&self.storage, id).await.map_err(|error| meta_failed(&error))?;
        self.start_group(id, GroupReplica::meta(versions)).await.map_err(HostError::Failed)
    }

    /// Starts a shard's group from its state on disk. `first_range` is the hash range with which the shard
    /// began.
    ///
    /// # Errors
    /// If the log, a snapshot or openraft refuses it.
    pub async fn start_shard(
        &self,
        id: GroupId,
        first_range: HashRange,
    ) -> Result<Arc<Group>, String> {
        self.storage.claim(id).await;
        let restored = self.recollection.restore(&self.storage, id).await;
        restored.map_err(|error| error.to_string())?;
        self.start_group(id, GroupReplica::shard(id, first_range)).await
    }

    async fn start_group(&self, id: GroupId, replica: GroupReplica) -> Result<Arc<Group>, String> {
        let (links, witness) = (Arc::clone(&self.links), Arc::clone(&self.witness));
        let moves = Moves::new(Arc::clone(&self.move_pacer), Arc::clone(&self.beats));
        let network = Network::new(links, witness, self.rounds.clone(), id, moves);
        let (seed, beats) = (Arc::clone(&self.seed), Arc::clone(&self.beats));
        Group::start(id, self.node, replica, &self.storage, network, seed, beats).await
    }

    /// Asks those of these nodes that have not answered yet what they know of this one, before more
    /// replicas start.
    ///
    /// # Errors
    /// If one of them reports that this node was removed from the cluster.
    pub async fn query_again(&self, nodes: BTreeMap<NodeId, String>) -> Result<(), String> {
        self.recollection.query(&self.links, self.node, nodes, LATER_TIMEOUT).await
    }

    /// Drops what is remembered of nodes that are no longer members.
    pub fn retain_members(&self, members: &BTreeSet<NodeId>) {
        self.witness.retain(members);
    }

    /// This node's number.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Whether the disk keeps the log waiting for so long that others must take over what this node leads. It can
    /// confirm no entry and give no vote, so it sends and answers no beats.
    pub fn is_stalled(&self) -> bool {
        self.storage.disk_wait() >= self.beats.disk_patience()
    }

    /// This node's links to the others.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// This node's failure detector.
    pub fn beats(&self) -> &Beats {
        &self.beats
    }

    /// What other nodes answered when this node asked what they know of it.
    pub fn recollection(&self) -> &Arc<Recollection> {
        &self.recollection
    }
}

fn meta_failed(error: &std::io::Error) -> HostError {
    HostError::Failed(format!("{}: {error}", GroupId::META))
}
