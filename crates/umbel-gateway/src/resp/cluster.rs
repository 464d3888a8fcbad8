//! `CLUSTER`: what clients of Redis clusters ask.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use umbel_engine::NodeId;
use umbel_node::config::ClusterAnswers;
use umbel_resp::{ClusterQuery, Refusal, Reply, slot};

use super::nodes::{RespNode, SeenNodes};
use super::session::Session;

/// The cluster's id and a node's number in forty digits: that of the node for clients of a Redis cluster.
fn id_of(cluster: u128, node: NodeId) -> String {
    // Each node that joins gets the next number: there are no larger ones.
    format!("{:08x}{cluster:032x}", node.0 & 0xffff_ffff)
}

/// The id of this node. Where clients see one node, it is the same whichever node answers.
pub(super) fn own_id(session: &Session) -> String {
    let coordinator = &session.shared.coordinator;
    let node = match session.shared.cluster_answers {
        ClusterAnswers::Spread => coordinator.node(),
        ClusterAnswers::Single | ClusterAnswers::Off => NodeId(0),
    };
    id_of(coordinator.cluster_id(), node)
}

/// Whether this node answers as one of a Redis cluster.
pub(super) fn is_enabled(session: &Session) -> bool {
    session.shared.cluster_answers != ClusterAnswers::Off
}

/// What this node is by its own account. One node that has all slots can be used like a single server, too.
pub(super) fn mode(session: &Session) -> &'static str {
    match session.shared.cluster_answers {
        ClusterAnswers::Spread => "cluster",
        ClusterAnswers::Single | ClusterAnswers::Off => "standalone",
    }
}

/// What is answered to a query of the cluster.
pub(super) async fn answer(session: &Session, query: ClusterQuery<'_>) -> Result<Reply, Refusal> {
    let shared = &session.shared;
    let is_about_others = match query {
        ClusterQuery::MyId
        | ClusterQuery::MyShardId
        | ClusterQuery::KeySlot(_)
        | ClusterQuery::Links => false,
        ClusterQuery::Slots | ClusterQuery::Shards | ClusterQuery::Nodes | ClusterQuery::Info => {
            true
        }
    };
    let view = match shared.cluster_answers {
        ClusterAnswers::Off => return Err(Refusal::NoCluster),
        ClusterAnswers::Spread if is_about_others => {
            let (coordinator, own) = (&shared.coordinator, &shared.announced);
            let seen = SeenNodes::now(coordinator, &shared.addresses, own).await;
            ShownCluster::spread(coordinator.cluster_id(), coordinator.node(), seen)
        }
        ClusterAnswers::Spread | ClusterAnswers::Single => {
            ShownCluster::single(own_id(session), shared.announced.clone())
        }
    };
    Ok(view.answer(query))
}

/// The cluster as clients of a Redis cluster see it.
struct ShownCluster {
    /// In the order of their slots.
    nodes: Vec<ShownNode>,
    /// The id of the node that answers.
    own: String,
    /// Whether that node hears a majority.
    has_majority: bool,
}

/// A node that clients see.
struct ShownNode {
    id: String,
    /// Host and port at which clients reach it.
    reached_at: (String, u16),
    /// Whether the node that answers hears it.
    is_alive: bool,
    /// The first and the last one of its slots.
    slots: Option<(u16, u16)>,
}

impl ShownCluster {
    /// One node that has all slots.
    fn single(id: String, reached_at: (String, u16)) -> Self {
        let slots = slot::deal(1).next();
        let node = ShownNode { id: id.clone(), reached_at, is_alive: true, slots };
        Self { nodes: vec![node], own: id, has_majority: true }
    }

    /// All nodes. Those that may be used have all slots: they are heard, and not drained.
    fn spread(cluster: u128, own: NodeId, seen: SeenNodes) -> Self {
        let SeenNodes { nodes, has_majority } = seen;
        // If the node that answers is cut off, its clients should find those that are not.
        let may_have = |node: &&RespNode| !node.is_draining && (node.is_alive || !has_majority);
        let mut takers: Vec<NodeId> = nodes.iter().filter(may_have).map(|node| node.node).collect();
        if takers.is_empty() {
            takers.push(own);
        }
        let dealt = slot::deal(takers.len());
        let slots: BTreeMap<NodeId, (u16, u16)> = takers.into_iter().zip(dealt).collect();
        let shown = |node: RespNode| ShownNode {
            id: id_of(cluster, node.node),
            slots: slots.get(&node.node).copied(),
            reached_at: node.reached_at,
            is_alive: node.is_alive,
        };
        let nodes = nodes.into_iter().map(shown).collect();
        Self { nodes, own: id_of(cluster, own), has_majority }
    }

    /// The nodes that have slots, with these.
    fn slots(&self) -> impl Iterator<Item = (&ShownNode, (u16, u16))> {
        self.nodes.iter().filter_map(|node| Some((node, node.slots?)))
    }

    fn answer(&self, query: ClusterQuery<'_>) -> Reply {
        match query {
            ClusterQuery::Slots => Reply::Array(self.slots().map(range).collect()),
            ClusterQuery::Shards => Reply::Array(self.slots().map(shard).collect()),
            ClusterQuery::Nodes => Reply::Verbatim(self.lines()),
            ClusterQuery::MyId | ClusterQuery::MyShardId => Reply::bulk(&self.own),
            ClusterQuery::KeySlot(key) => Reply::number(slot::slot_of(key)),
            ClusterQuery::Info => Reply::Verbatim(self.info()),
            // Nodes are connected by a protocol of their own.
            ClusterQuery::Links => Reply::Array(Vec::new()),
        }
    }

    /// A line for each node, with the words of `CLUSTER NODES`.
    fn lines(&self) -> String {
        let mut lines = String::new();
        for node in &self.nodes {
            let ShownNode { id, reached_at: (host, port), slots, .. } = node;
            let (flags, link) = if node.is_alive {
                let flags = if *id == self.own { "myself,master" } else { "master" };
                (flags, "connected")
            } else {
                // Another node may hear it.
                let flags = if self.has_majority { "master,fail" } else { "master,fail?" };
                (flags, "disconnected")
            };
            let _ = write!(lines, "{id} {host}:{port}@0 {flags} - 0 0 1 {link}");
            if let Some((first, last)) = slots {
                let _ = write!(lines, " {first}-{last}");
            }
            lines.push('\n');
        }
        lines
    }

    fn info(&self) -> String {
        let state = if self.has_majority { "ok" } else { "fail" };
        let count = slot::SLOT_COUNT;
        let silent = self.slots().filter(|(node, _)| !node.is_alive);
        let silent_count: u16 = silent.map(|(_, (first, last))| last - first + 1).sum();
        let (known, size) = (self.nodes.len(), self.slots().count());
        format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:{count}\r\ncluster_slots_ok:{}\r\n\
             cluster_slots_pfail:{silent_count}\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{known}\r\n\
             cluster_size:{size}\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n",
            count - silent_count
        )
    }
}

/// A node with its slots, as `CLUSTER SLOTS` has them.
fn range((node, (first, last)): (&ShownNode, (u16, u16))) -> Reply {
    let (host, port) = &node.reached_at;
    let node = vec![
        Reply::bulk(host),
        Reply::number(*port),
        Reply::bulk(&node.id),
        Reply::Map(Vec::new()),
    ];
    Reply::Array(vec![Reply::number(first), Reply::number(last), Reply::Array(node)])
}

/// The same, as `CLUSTER SHARDS` has them.
fn shard((node, (first, last)): (&ShownNode, (u16, u16))) -> Reply {
    let (host, port) = &node.reached_at;
    let node = Reply::Map(vec![
        Reply::entry("id", Reply::bulk(&node.id)),
        Reply::entry("port", Reply::number(*port)),
        Reply::entry("ip", Reply::bulk(host)),
        Reply::entry("endpoint", Reply::bulk(host)),
        Reply::entry("role", Reply::bulk("master")),
        Reply::entry("replication-offset", Reply::Integer(0)),
        Reply::entry("health", Reply::bulk("online")),
    ]);
    let slots = vec![Reply::number(first), Reply::number(last)];
    Reply::Map(vec![
        Reply::entry("slots", Reply::Array(slots)),
        Reply::entry("nodes", Reply::Array(vec![node])),
    ])
}

#[cfg(test)]
mod tests {
    use umbel_node::Config;
    use umbel_resp::{Arguments, Command, Decoder, Protocol, table};

    use super::super::resp_test::{Client, node, node_with, steps};
    use super::*;

    const CLUSTER: u128 = 0xc1;

    /// A node at `node-N:6379` that is heard.
    fn alive(node: u64) -> RespNode {
        let reached_at = (format!("node-{node}"), 6379);
        RespNode { node: NodeId(node), reached_at, is_alive: true, is_draining: false }
    }

    fn silent(node: u64) -> RespNode {
        RespNode { is_alive: false, ..alive(node) }
    }

    fn draining(node: u64) -> RespNode {
        RespNode { is_draining: true, ..alive(node) }
    }

    /// What node 1 answers.
    fn seen(nodes: Vec<RespNode>, has_majority: bool) -> ShownCluster {
        ShownCluster::spread(CLUSTER, NodeId(1), SeenNodes { nodes, has_majority })
    }

    /// The numbers of the nodes with slots, with these.
    fn dealt(view: &ShownCluster) -> Vec<(&str, u16, u16)> {
        view.slots().map(|(node, (first, last))| (&*node.reached_at.0, first, last)).collect()
    }

    #[test]
    fn answers_follow_the_transcripts_in_both_protocols() {
        let single =
            || ShownCluster::single(id_of(CLUSTER, NodeId(0)), ("cache.example".to_owned(), 6379));
        let spread = || seen(vec![alive(1), alive(2), silent(3), draining(4)], true);
        let cut_off = || seen(vec![alive(1), silent(2)], false);
        for (view, protocol, transcript) in [
            (single(), Protocol::Two, include_str!("../../testdata/resp/cluster_single.txt")),
            (single(), Protocol::Three, include_str!("../../testdata/resp/cluster_single3.txt")),
            (spread(), Protocol::Two, include_str!("../../testdata/resp/cluster_spread.txt")),
            (spread(), Protocol::Three, include_str!("../../testdata/resp/cluster_spread3.txt")),
            (cut_off(), Protocol::Two, include_str!("../../testdata/resp/cluster_cut_off.txt")),
        ] {
            let steps = steps(transcript, "");
            assert!(steps.len() >= 4, "{transcript}");
            for (request, expected) in steps {
                let line = format!("{request}\r\n");
                let decoded = Decoder::new(true).decode(&mut line.as_bytes()).unwrap().unwrap();
                let arguments = Arguments::new(&decoded);
                let parsed = table::find(arguments).unwrap().parse(arguments).unwrap();
                let Command::Cluster(query) = parsed else { panic!("{request}: {parsed:?}") };
                let mut answer = Vec::new();
                view.answer(query).encode(protocol, &mut answer);
                assert_eq!(String::from_utf8(answer).unwrap(), expected, "{request}");
            }
        }
    }

    #[test]
    fn nodes_that_may_be_used_share_all_slots() {
        let all = seen(vec![alive(1), alive(2), alive(3)], true);
        let thirds = [("node-1", 0, 5_460), ("node-2", 5_461, 10_921), ("node-3", 10_922, 16_383)];
        assert_eq!(dealt(&all), thirds);
        let halves = [("node-1", 0, 8_191), ("node-3", 8_192, 16_383)];
        assert_eq!(dealt(&seen(vec![alive(1), silent(2), alive(3)], true)), halves);
        assert_eq!(dealt(&seen(vec![alive(1), draining(2), alive(3)], true)), halves);
        // Those that a node does not hear, if it is cut off itself, may be those that work.
        assert_eq!(dealt(&seen(vec![alive(1), silent(2), silent(3)], false)), thirds);
        // Somebody must have the slots: clients connect to nothing else.
        let last = [("node-1", 0, 16_383)];
        assert_eq!(dealt(&seen(vec![draining(1), draining(2), silent(3)], true)), last);
    }

    #[test]
    fn each_node_answers_the_same() {
        let of = |own| {
            let nodes = vec![alive(1), alive(2), draining(3)];
            ShownCluster::spread(CLUSTER, NodeId(own), SeenNodes { nodes, has_majority: true })
        };
        for query in [ClusterQuery::Slots, ClusterQuery::Shards, ClusterQuery::Info] {
            assert_eq!(of(1).answer(query), of(2).answer(query), "{query:?}");
            assert_eq!(of(1).answer(query), of(3).answer(query), "{query:?}");
        }
        let lines = of(3).lines();
        assert_eq!(lines.replace("myself,", ""), of(1).lines().replace("myself,", ""));
        let own = lines.lines().find(|line| line.contains("myself")).unwrap();
        assert!(own.starts_with(&of(3).own) && own.ends_with(" 0 0 1 connected"), "{own}");
        assert_eq!(of(3).answer(ClusterQuery::MyId), Reply::bulk(id_of(CLUSTER, NodeId(3))));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_node_has_all_slots() {
        let (_folder, node) = node().await;
        let mut client = Client::new(&node).await;
        let port = node.resp_address().unwrap().rsplit_once(':').unwrap().1.to_owned();
        client.send(b"CLUSTER SLOTS\r\n").await;
        let head = "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n";
        client.expect(&format!("{head}:{port}\r\n$40\r\n"), "the slots").await;
        node.shutdown().await;
    }

    /// Clients leave the address that they were given for the one in the answer.
    #[tokio::test(flavor = "multi_thread")]
    async fn clients_learn_the_address_that_is_announced() {
        let announce = |config: &mut Config| config.resp_announce = Some("cache.example:7".into());
        let (_folder, node) = node_with(announce).await;
        let mut client = Client::new(&node).await;
        let port = node.resp_address().unwrap().rsplit_once(':').unwrap().1.to_owned();
        client.send(b"CLUSTER SLOTS\r\n").await;
        let head = "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$13\r\ncache.example\r\n:7\r\n$40\r\n";
        client.expect(head, "the slots").await;
        client.line().await;
        client.expect("*0\r\n", "what else is known of the node").await;
        client.send(b"CLUSTER NODES\r\n").await;
        client.line().await;
        let nodes = client.line().await;
        assert!(nodes.contains(" cache.example:7@0 myself,master "), "{nodes}");
        // The listener's own port is told to people.
        client.send(b"INFO server\r\n").await;
        while client.line().await != format!("tcp_port:{port}") {}
        node.shutdown().await;
    }

    /// RedisCluster of redis-py 4.1 to 5.0 connects to no server whose `INFO` does not say that it is enabled.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_says_what_it_is() {
        for (answers, enabled, mode) in
            [("single", 1, "standalone"), ("spread", 1, "cluster"), ("off", 0, "standalone")]
        {
            let (_folder, node) = node_with(|config| config.resp_cluster = answers.into()).await;
            let mut client = Client::new(&node).await;
            let text = format!("# Cluster\r\ncluster_enabled:{enabled}\r\n");
            client.call("INFO cluster", &format!("${}\r\n{text}\r\n", text.len())).await;
            client.send(b"INFO server\r\n").await;
            while client.line().await != format!("redis_mode:{mode}") {}
            client.send(b"HELLO 3\r\n").await;
            while client.line().await != "mode" {}
            client.expect(&format!("${}\r\n{mode}\r\n", mode.len()), answers).await;
            node.shutdown().await;
        }
    }

    /// StackExchange.Redis takes a server that answers `CLUSTER NODES` for a cluster.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_says_that_it_is_no_cluster_if_it_is_set_so() {
        let (_folder, node) = node_with(|config| config.resp_cluster = "off".into()).await;
        let mut client = Client::new(&node).await;
        let refused = "-ERR This instance has cluster support disabled\r\n";
        for query in ["NODES", "SLOTS", "SHARDS", "INFO", "MYID", "KEYSLOT foo", "LINKS"] {
            client.call(&format!("CLUSTER {query}"), refused).await;
        }
        client.call("ASKING", refused).await;
        // Levels of reads are not about clusters here, and clients have no other words for them.
        for level in ["READONLY", "READWRITE"] {
            client.call(level, "+OK\r\n").await;
        }
        node.shutdown().await;
    }
}
