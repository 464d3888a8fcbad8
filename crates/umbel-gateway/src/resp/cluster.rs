//! `CLUSTER`: what clients of Redis clusters ask.

use umbel_resp::{ClusterQuery, Refusal, Reply, slot};

use super::session::Session;

/// The cluster's id in forty digits.
pub(super) fn cluster_id(session: &Session) -> String {
    format!("{:040x}", session.shared.coordinator.cluster_id())
}

/// The cluster as clients of a Redis cluster see it: one node that has all slots.
pub(super) fn answer(session: &Session, query: ClusterQuery<'_>) -> Result<Reply, Refusal> {
    if !session.shared.answers_cluster {
        return Err(Refusal::NoCluster);
    }
    let last = i64::from(slot::SLOT_COUNT) - 1;
    let (host, port) = &session.shared.announced;
    let id = cluster_id(session);
    Ok(match query {
        ClusterQuery::Slots => {
            let node = vec![
                Reply::bulk(host),
                Reply::number(*port),
                Reply::bulk(id),
                Reply::Map(Vec::new()),
            ];
            let range = vec![Reply::Integer(0), Reply::Integer(last), Reply::Array(node)];
            Reply::Array(vec![Reply::Array(range)])
        }
        ClusterQuery::Shards => {
            let node = Reply::Map(vec![
                Reply::entry("id", Reply::bulk(id)),
                Reply::entry("port", Reply::number(*port)),
                Reply::entry("ip", Reply::bulk(host)),
                Reply::entry("endpoint", Reply::bulk(host)),
                Reply::entry("role", Reply::bulk("master")),
                Reply::entry("replication-offset", Reply::Integer(0)),
                Reply::entry("health", Reply::bulk("online")),
            ]);
            let slots = vec![Reply::Integer(0), Reply::Integer(last)];
            Reply::Array(vec![Reply::Map(vec![
                Reply::entry("slots", Reply::Array(slots)),
                Reply::entry("nodes", Reply::Array(vec![node])),
            ])])
        }
        ClusterQuery::Nodes => Reply::Verbatim(format!(
            "{id} {host}:{port}@0 myself,master - 0 0 1 connected 0-{last}\n"
        )),
        ClusterQuery::MyId | ClusterQuery::MyShardId => Reply::bulk(id),
        ClusterQuery::KeySlot(key) => Reply::number(slot::slot_of(key)),
        ClusterQuery::Info => {
            let count = slot::SLOT_COUNT;
            Reply::Verbatim(format!(
                "cluster_state:ok\r\ncluster_slots_assigned:{count}\r\ncluster_slots_ok:{count}\r\n\
                 cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n\
                 cluster_current_epoch:1\r\ncluster_my_epoch:1\r\n"
            ))
        }
    })
}

#[cfg(test)]
mod tests {
    use umbel_node::Config;

    use super::super::resp_test::{Client, node, node_with};

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

    /// StackExchange.Redis takes a server that answers `CLUSTER NODES` for a cluster.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_says_that_it_is_no_cluster_if_it_is_set_so() {
        let (_folder, node) = node_with(|config| config.resp_cluster = "off".into()).await;
        let mut client = Client::new(&node).await;
        for query in ["NODES", "SLOTS", "SHARDS", "INFO", "MYID", "KEYSLOT foo"] {
            let refused = "-ERR This instance has cluster support disabled\r\n";
            client.call(&format!("CLUSTER {query}"), refused).await;
        }
        // Levels of reads are not about clusters here.
        client.call("READONLY", "+OK\r\n").await;
        node.shutdown().await;
    }
}
