//! Nodes that join with tokens, and the certificates that the cluster issues to them.

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use umbel_client::{
    Client, ClientError, ClientOptions, ErrorCode, KeyPairFiles, NewFilter, TlsConnector, TlsFiles,
};
use umbel_tls::{Authority, NodeIdentity, Subject};

use crate::secure::{client, impatient, node, put, put_pair};
use crate::servers::{Cluster, Server, options, umbel, until};

/// A cluster of one node, which has the authority's key, and the certificate of an administrator.
struct Founded {
    cluster: Cluster,
    authority: Authority,
    alice: KeyPairFiles,
}

impl Founded {
    async fn new() -> Self {
        let mut cluster = Cluster::none().await;
        let (authority, own) = Authority::new("cluster", 30).unwrap();
        let folder = cluster.folder.path().to_owned();
        put(&folder.join("ca.pem"), &own.certificate);
        let key = folder.join("ca.key");
        put(&key, &own.key);
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        let pair = put_pair(&folder, "node", &authority.issue(&node(), 30).unwrap());
        let alice = put_pair(&folder, "alice", &authority.issue(&client("alice"), 30).unwrap());
        let mut first = cluster.another(&[]);
        let address = first.address.clone();
        first.set_args(&["--initial-cluster", &address]);
        let set = [
            ("UMBEL_TLS_CA", folder.join("ca.pem")),
            ("UMBEL_TLS_CA_KEY", key),
            ("UMBEL_TLS_CERT", pair.certificate),
            ("UMBEL_TLS_KEY", pair.key),
        ];
        set.iter().for_each(|(name, path)| first.set(name, path.to_str().unwrap()));
        first.start();
        first.listening().await;
        cluster.nodes.push(first);
        Self { cluster, authority, alice }
    }

    fn folder(&self) -> &Path {
        self.cluster.folder.path()
    }

    /// `umbel` with alice's certificate.
    fn command(&self, args: &[&str]) -> Output {
        self.command_to(0, args)
    }

    /// Likewise; it asks this node.
    fn command_to(&self, node: usize, args: &[&str]) -> Output {
        let mut command = umbel(args);
        command.env("UMBEL_CLUSTER", &self.cluster.nodes[node].address);
        command.env("UMBEL_TLS_CA", self.folder().join("ca.pem"));
        command.env("UMBEL_TLS_CERT", &self.alice.certificate);
        command.env("UMBEL_TLS_KEY", &self.alice.key);
        command.output().unwrap()
    }

    /// Writes a join token to a file with this name.
    fn token(&self, name: &str) -> String {
        let output = self.command(&["cluster", "token", "--join", "--expires", "10m"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let token = String::from_utf8(output.stdout).unwrap();
        put(&self.folder().join(name), &token);
        token
    }

    /// A node that joins through one of the cluster's nodes with the token in this file.
    fn joiner(&self, through: usize, token: &str) -> Server {
        let (address, file) = (&self.cluster.nodes[through].address, self.folder().join(token));
        let args = ["--join", address, "--join-token-file", file.to_str().unwrap()];
        self.cluster.another(&args)
    }

    fn client(&self, pair: KeyPairFiles, options: ClientOptions) -> Client {
        let addresses: Vec<&str> =
            self.cluster.nodes.iter().map(|node| node.address.as_str()).collect();
        self.client_through(addresses.join(","), pair, options)
    }

    fn client_through(
        &self,
        addresses: String,
        pair: KeyPairFiles,
        options: ClientOptions,
    ) -> Client {
        let tls = TlsFiles { ca: self.folder().join("ca.pem"), pair: Some(pair) };
        let tls = TlsConnector::open(tls).unwrap();
        Client::connect_through(addresses, options, tls).unwrap()
    }

    /// How many calls a node has denied.
    async fn denied_count(&self, node: usize) -> u64 {
        let options = ClientOptions { learns_nodes: false, ..options() };
        let address = self.cluster.nodes[node].address.clone();
        let client = self.client_through(address, self.alice.clone(), options);
        let text = client.measurements().await.unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("umbel_calls_denied_total "));
        count.map_or(0, |count| count.parse().unwrap())
    }

    async fn join(&mut self, through: usize, token: &str) -> u64 {
        let mut joiner = self.joiner(through, token);
        joiner.start();
        joiner.listening().await;
        let (number, cluster) = joiner.membership();
        assert_eq!(cluster, self.cluster.nodes[0].membership().1);
        self.cluster.nodes.push(joiner);
        number
    }
}

/// The paths of the certificate that the cluster has issued to a node.
fn issued(server: &Server) -> KeyPairFiles {
    let folder = server.data.join("tls");
    KeyPairFiles { certificate: folder.join("node.pem"), key: folder.join("node.key") }
}

fn denial(error: &ClientError) -> String {
    let failure = error.failure().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(failure.cause, ErrorCode::Denied, "{error}");
    failure.message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_join_by_tokens_and_a_token_is_good_for_one() {
    let mut founded = Founded::new().await;
    let token = founded.token("second.token");
    founded.join(0, "second.token").await;
    // The second node does not have the authority's key, and forwards the request.
    founded.token("third.token");
    let third = founded.join(1, "third.token").await;

    let before = [founded.denied_count(0).await, founded.denied_count(1).await];
    let mut late = founded.joiner(0, "second.token");
    let log = late.refused().await;
    assert!(log.contains("has been used: each node needs one of its own"), "{log}");
    let (secret, pin) = token.trim_end().rsplit_once('.').unwrap();
    put(&founded.folder().join("other-pin"), &format!("{secret}.{}", "0f".repeat(32)));
    let log = founded.joiner(0, "other-pin").refused().await;
    assert!(log.contains("no certificate of the authority that the token names"), "{log}");
    put(&founded.folder().join("other"), &format!("umbel-join-1.{}.{pin}", "0f".repeat(32)));
    let log = founded.joiner(1, "other").refused().await;
    assert!(log.contains("unknown or expired"), "{log}");
    for (node, before) in before.into_iter().enumerate() {
        assert!(founded.denied_count(node).await > before, "node {node} counts what it denies");
        let log = founded.cluster.nodes[node].log();
        let denied = |line: &str| {
            ["umbel::audit", "/umbel.v1.Enrolment/Enrol", "from=", "outcome=\"refused\""]
                .iter()
                .all(|text| line.contains(text))
        };
        assert!(log.lines().any(denied), "{log}");
    }
    put(&founded.folder().join("torn"), &token[..40]);
    assert!(founded.joiner(0, "torn").refused_with(2).await.contains("no token for joining"));

    let alice = founded.client(founded.alice.clone(), options());
    alice.create("seen", &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    assert_eq!(alice.filter("seen").insert(["a", "b"]).await.unwrap().new_count(), 2);
    let three_live = || async {
        let status = alice.status().await.ok()?;
        let is_up =
            |node: &umbel_client::proto::NodeStatus| node.is_reachable && node.state == "live";
        (status.nodes.len() == 3 && status.nodes.iter().all(is_up)).then_some(())
    };
    until("three nodes that reach each other", three_live).await;

    // It finds its files, so it does not need the token any more.
    fs::remove_file(founded.folder().join("second.token")).unwrap();
    founded.cluster.nodes[1].stop().await;
    founded.cluster.nodes[1].start();
    founded.cluster.nodes[1].listening().await;
    founded.cluster.nodes[1].stop().await;
    founded.cluster.nodes[1].set_args(&[]);
    founded.cluster.nodes[1].start();
    founded.cluster.nodes[1].listening().await;
    until("three nodes that reach each other again", three_live).await;

    // A removed node is refused, although its certificate is still valid.
    let as_third = founded.client(issued(&founded.cluster.nodes[2]), impatient());
    assert_eq!(as_third.status().await.unwrap().nodes.len(), 3);
    alice.drain(third, false).await.unwrap();
    until("the third node has no replicas", || async {
        let status = alice.status().await.ok()?;
        let line = status.nodes.iter().find(|node| node.node == third)?;
        (line.replica_count == 0).then_some(())
    })
    .await;
    until("the third node removed", || async { alice.remove_node(third).await.ok() }).await;
    founded.cluster.nodes[2].kill();
    let why = until("the third node's certificate refused", || async {
        as_third.status().await.err().filter(|error| error.failure().is_some())
    })
    .await;
    assert!(denial(&why).contains("was removed from the cluster"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_drawn_where_no_node_has_the_authoritys_key() {
    let draw = ["cluster", "token", "--join"];
    let mut founded = Founded::new().await;
    founded.token("second.token");
    founded.join(0, "second.token").await;
    // The second node does not have the key, and hears that the first one may have it.
    let output = founded.command_to(1, &draw);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let first = &mut founded.cluster.nodes[0];
    first.set("UMBEL_TLS_CA_KEY", "");
    first.stop().await;
    first.start();
    first.listening().await;
    for node in 0..2 {
        let refused = || async {
            let output = founded.command_to(node, &draw);
            (!output.status.success()).then_some(output)
        };
        // The other node may take a moment until it reaches the one that was restarted.
        let output = until("a refusal", refused).await;
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("set tls_ca_key on one node") && output.stdout.is_empty(), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_and_those_of_nobody_in_particular_can_be_refused() {
    let mut founded = Founded::new().await;
    founded.token("second.token");
    let second = founded.join(0, "second.token").await;
    let cluster = founded.cluster.nodes[0].membership().1;
    let cluster = u128::from_str_radix(cluster.trim(), 16).unwrap();
    let subject = |node| {
        let identity = NodeIdentity { cluster, node };
        Subject::Member { identity, hosts: vec!["127.0.0.1".to_owned()] }
    };

    // A certificate as if nobody had looked for months.
    founded.cluster.nodes[1].stop().await;
    let files = issued(&founded.cluster.nodes[1]);
    let old = founded.authority.issue_aged(&subject(second), 60, 20).unwrap();
    put(&files.key, &old.key);
    put(&files.certificate, &old.certificate);
    founded.cluster.nodes[1].start();
    founded.cluster.nodes[1].listening().await;
    until("the next certificate", || async {
        (fs::read_to_string(&files.certificate).unwrap() != old.certificate).then_some(())
    })
    .await;
    assert_eq!(fs::read_to_string(&files.key).unwrap(), old.key);
    until("the node takes it", || async {
        founded.cluster.nodes[1].log().contains("new certificates were read").then_some(())
    })
    .await;

    // Both nodes have certificates with their identity, so that others can be refused.
    let folder = founded.folder().to_owned();
    put_pair(&folder, "node", &founded.authority.issue(&subject(1), 30).unwrap());
    for server in &mut founded.cluster.nodes {
        server.set("UMBEL_REQUIRE_NODE_IDENTITY", "true");
        server.stop().await;
        server.start();
    }
    for server in &mut founded.cluster.nodes {
        server.listening().await;
    }
    let alice = founded.client(founded.alice.clone(), options());
    until("both nodes reach each other", || async {
        let status = alice.status().await.ok()?;
        status.nodes.iter().all(|node| node.is_reachable).then_some(())
    })
    .await;
    let generic = put_pair(&folder, "generic", &founded.authority.issue(&node(), 30).unwrap());
    let error = founded.client(generic, impatient()).status().await.unwrap_err();
    let failure = error.failure().unwrap();
    assert!(failure.message.contains("require_node_identity"), "{error}");
}
