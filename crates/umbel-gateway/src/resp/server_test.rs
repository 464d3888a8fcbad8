//! Commands about the server and its connections whose answers depend on the node or the moment, so that
//! transcripts cannot express them.

use tokio::io::AsyncReadExt as _;

use super::resp_test::{Client, node};

/// The text of an answer that is a bulk string.
async fn text(client: &mut Client, request: &str) -> String {
    client.send(format!("{request}\r\n").as_bytes()).await;
    let line = client.line().await;
    let length: usize = line.strip_prefix('$').expect("a bulk string").parse().unwrap();
    let mut text = vec![0; length];
    client.stream.read_exact(&mut text).await.unwrap();
    client.expect("\r\n", request).await;
    String::from_utf8(text).unwrap()
}

/// The number in an answer.
async fn number(client: &mut Client, request: &str) -> u64 {
    client.send(format!("{request}\r\n").as_bytes()).await;
    client.line().await[1..].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_listed_by_type_and_id() {
    let (_folder, node) = node().await;
    let mut one = Client::new(&node).await;
    let first = number(&mut one, "CLIENT ID").await;
    let mut other = Client::new(&node).await;
    let second = number(&mut other, "CLIENT ID").await;
    one.call("CLIENT SETNAME me", "+OK\r\n").await;
    one.call("CLIENT SETINFO LIB-NAME lib", "+OK\r\n").await;
    let mut ids = async |request: &str| -> Vec<u64> {
        let lines = text(&mut one, request).await;
        let id =
            |line: &str| line["id=".len()..].split(' ').next().unwrap().parse::<u64>().unwrap();
        lines.lines().map(id).collect()
    };
    assert_eq!(ids("CLIENT LIST").await, [first, second]);
    assert_eq!(ids("CLIENT LIST TYPE normal").await, [first, second]);
    assert_eq!(ids("CLIENT LIST TYPE replica").await, [0_u64; 0]);
    assert_eq!(ids(&format!("CLIENT LIST ID {second} 99 -1 {first}")).await, [second, first]);
    let own = text(&mut one, "CLIENT INFO").await;
    let (before, since) = (format!("id={first} addr=127.0.0.1:"), " db=0 sub=0 ");
    assert!(own.starts_with(&before) && own.contains(" name=me ") && own.contains(since), "{own}");
    let end = " cmd=NULL user=default redir=-1 resp=2 lib-name=lib lib-ver=\n";
    assert!(own.ends_with(end), "{own}");
    // Some libraries read them by their places.
    let fields = "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem \
                  multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver";
    let names: Vec<&str> =
        own.split(' ').filter_map(|field| Some(field.split_once('=')?.0)).collect();
    assert_eq!(names.join(" "), fields);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_reset() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("BF.ADD k x", ":1\r\n").await;
    client.call("BF.EXISTS k x", ":1\r\n").await;
    client.call("BF.EXISTS none x", ":0\r\n").await;
    let counted = text(&mut client, "INFO stats").await;
    assert!(counted.contains("keyspace_hits:1\r\nkeyspace_misses:1\r\n"), "{counted}");
    client.call("CONFIG RESETSTAT", "+OK\r\n").await;
    let counted = text(&mut client, "INFO stats").await;
    let expected = "total_commands_processed:1\r\nrejected_connections:0\r\nkeyspace_hits:0\r\nkeyspace_misses:0\r\n";
    assert!(counted.contains(expected), "{counted}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_one_node_with_all_slots() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let address = node.resp_address().unwrap().to_owned();
    let port = address.strip_prefix("127.0.0.1:").unwrap();
    let id = format!("{:040x}", node.coordinator().cluster_id());
    let (host, own) = ("$9\r\n127.0.0.1\r\n", format!("$40\r\n{id}\r\n"));
    client.call("CLUSTER MYID", &own).await;
    client.call("CLUSTER MYSHARDID", &own).await;
    let slots = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n{host}:{port}\r\n{own}*0\r\n");
    client.call("CLUSTER SLOTS", &slots).await;
    let shards = format!(
        "*1\r\n*4\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n*14\r\n\
         $2\r\nid\r\n{own}$4\r\nport\r\n:{port}\r\n$2\r\nip\r\n{host}$8\r\nendpoint\r\n{host}\
         $4\r\nrole\r\n$6\r\nmaster\r\n$18\r\nreplication-offset\r\n:0\r\n\
         $6\r\nhealth\r\n$6\r\nonline\r\n"
    );
    client.call("CLUSTER SHARDS", &shards).await;
    let nodes = text(&mut client, "CLUSTER NODES").await;
    let all = format!("{id} {address}@0 myself,master - 0 0 1 connected 0-16383\n");
    assert_eq!(nodes, all);
    let info = text(&mut client, "CLUSTER INFO").await;
    assert!(info.starts_with("cluster_state:ok\r\ncluster_slots_assigned:16384\r\n"), "{info}");
    assert!(info.contains("\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n"), "{info}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_describes_itself() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let info = text(&mut client, "INFO").await;
    let sections: Vec<&str> = info.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    for section in ["Server", "Clients", "Memory", "Persistence", "Stats", "Replication"] {
        assert!(sections.contains(&section), "{section}: {sections:?}");
    }
    let is_blank_or_head = |line: &&str| line.is_empty() || line.starts_with("# ");
    let numbers = info.lines().filter(|line| !is_blank_or_head(line));
    assert!(
        numbers.clone().count() > 10 && numbers.clone().all(|line| line.contains(':')),
        "{info}"
    );
    let two = text(&mut client, "INFO replication CLIENTS").await;
    assert!(two.starts_with("# Clients\r\n") && two.contains("\r\n\r\n# Replication\r\n"), "{two}");

    client.send(b"TIME\r\n").await;
    let mut lines = Vec::new();
    for _ in 0..5 {
        lines.push(client.line().await);
    }
    assert_eq!((&*lines[0], &*lines[1]), ("*2", "$10"));
    assert!(lines[4].parse::<u32>().unwrap() < 1_000_000, "{lines:?}");

    // A text for people in the later version.
    client.send(b"HELLO 3\r\nINFO clients\r\n").await;
    while !client.line().await.starts_with('=') {}
    client.expect("txt:# Clients\r\n", "INFO").await;
    node.shutdown().await;
}
