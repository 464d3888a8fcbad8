//! Tests of what principals may do over the Redis protocol, and of a rule that it shares with gRPC.

use std::sync::Arc;

use tonic::{Code, Request};
use umbel_engine::meta::{
    ClusterVerb, FilterVerb, MetaCommand, PrincipalName, Quota, Rates, Rights,
};
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
use umbel_proto::v1::filters_client::FiltersClient;

use super::filters::MAY_NOT_CREATE;
use super::resp_test::{Client, node};
use crate::test_node::{SECRET, deadline, grant, put};

#[tokio::test(flavor = "multi_thread")]
async fn principals_do_what_is_granted_to_them() {
    use FilterVerb::{Insert, Manage, Read};
    let (_folder, node) = node().await;
    let mut early = Client::new(&node).await;
    early.call("BF.ADD a-seen x", ":1\r\n").await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "alice", grant("a-*", &[Insert, Read])).await;
    put(&node, "owner", grant("*", &[Insert, Read, Manage])).await;

    // A client that connected before there were principals has no proof now.
    early.call("BF.ADD a-seen y", "-NOAUTH Authentication required.\r\n").await;
    early.call("PING", "-NOAUTH Authentication required.\r\n").await;
    early
        .call("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
        .await;
    early.call("HELLO 3 SETNAME x", &format!("-{}\r\n", umbel_resp::Refusal::HelloNoAuth)).await;
    early.send(b"*20\r\n").await;
    let text = early.rest().await;
    assert_eq!(text, "-ERR Protocol error: unauthenticated multibulk length\r\n");

    let mut alice = Client::new(&node).await;
    alice.call(&format!("AUTH alice {SECRET}"), "+OK\r\n").await;
    alice.call("ACL WHOAMI", "$5\r\nalice\r\n").await;
    alice.call("BF.ADD a-seen y", ":1\r\n").await;
    alice.call("BF.EXISTS a-seen x", ":1\r\n").await;
    alice.call("SADD a-seen x z", ":1\r\n").await;
    alice.call("SMISMEMBER a-seen z none", "*2\r\n:1\r\n:0\r\n").await;
    let no_key = "-NOPERM No permissions to access a key\r\n";
    alice.call("BF.ADD b-seen x", no_key).await;
    alice.call("BF.EXISTS b-seen x", no_key).await;
    alice.call("SADD b-seen x", no_key).await;
    alice.call("SISMEMBER b-seen x", no_key).await;
    alice.call("SCARD b-seen", no_key).await;
    alice.call("CF.COUNT b-seen x", no_key).await;
    alice.call("EXISTS a-seen b-seen", no_key).await;
    // Alice may insert, but not create.
    let no_filter = format!("-NOPERM {MAY_NOT_CREATE}\r\n");
    for command in ["BF.ADD a-new x", "SADD a-new x", "CF.ADD a-new x"] {
        alice.call(command, &no_filter).await;
    }
    let refused = |command: &str| {
        format!("-NOPERM User alice has no permissions to run the '{command}' command\r\n")
    };
    alice.call("BF.RESERVE a-new 0.1 10", &refused("bf.reserve")).await;
    alice.call("DEL a-seen", &refused("del")).await;
    alice.call("CLIENT LIST", &refused("client|list")).await;
    alice.call("ACL USERS", &refused("acl|users")).await;
    alice.call("CONFIG RESETSTAT", &refused("config|resetstat")).await;
    alice.call("MULTI", "+OK\r\n").await;
    alice.call("DEL a-seen", &refused("del")).await;
    alice.call("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    // A refused EXEC ends the transaction: the next command is somebody else's.
    alice.call("MULTI", "+OK\r\n").await;
    alice.call("PING", "+QUEUED\r\n").await;
    let refused_exec = "-EXECABORT Transaction discarded because of: wrong number of arguments for \
                        'exec' command\r\n";
    alice.call("EXEC x", refused_exec).await;
    alice.call("PING", "+PONG\r\n").await;

    let mut root = Client::new(&node).await;
    root.call(&format!("AUTH root {SECRET}"), "+OK\r\n").await;
    root.call("ACL USERS", "*3\r\n$5\r\nalice\r\n$5\r\nowner\r\n$4\r\nroot\r\n").await;

    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner.{SECRET}"), "+OK\r\n").await;
    owner.call("BF.ADD b-new x", ":1\r\n").await;
    owner.call("DBSIZE", ":2\r\n").await;
    alice.call("DBSIZE", ":1\r\n").await;
    alice.call("KEYS *", "*1\r\n$6\r\na-seen\r\n").await;

    // Revoked rights are gone at once, also on an open connection.
    put(&node, "alice", grant("a-*", &[Read])).await;
    alice.call("BF.ADD a-seen z", &refused("bf.add")).await;
    alice.call("SADD a-seen z", &refused("sadd")).await;
    let name = PrincipalName::new("alice").unwrap();
    let command = MetaCommand::DropPrincipal { name };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
    alice.call("BF.EXISTS a-seen x", "-NOAUTH Authentication required.\r\n").await;
    node.shutdown().await;
}

/// It says something about the nodes, and about the secret hash of the item.
#[tokio::test(flavor = "multi_thread")]
async fn where_an_item_is_kept_is_for_who_may_look_at_the_cluster() {
    use FilterVerb::{Insert, Manage, Read};
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "alice", grant("a-*", &[Insert, Read, Manage])).await;
    let cluster = [ClusterVerb::Metrics].into();
    put(&node, "watcher", Rights { cluster, ..grant("a-*", &[Read]) }).await;
    let mut alice = Client::new(&node).await;
    alice.call(&format!("AUTH alice {SECRET}"), "+OK\r\n").await;
    alice.call("BF.ADD a-seen x", ":1\r\n").await;
    let refused = "-NOPERM User alice has no permissions to run the 'umbel.where' command\r\n";
    alice.call("UMBEL.WHERE a-seen x", refused).await;
    let mut watcher = Client::new(&node).await;
    watcher.call(&format!("AUTH watcher {SECRET}"), "+OK\r\n").await;
    watcher.call("UMBEL.WHERE b-seen x", "-NOPERM No permissions to access a key\r\n").await;
    watcher.call("UMBEL.WHERE a-seen x", "*12\r\n").await;
    node.shutdown().await;
}

/// Otherwise who may only manage a filter could read it under a name on which it has more rights.
#[tokio::test(flavor = "multi_thread")]
async fn a_rename_gives_nobody_a_verb_on_a_filter() {
    use FilterVerb::{Insert, Manage, Read};
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[Insert, Read, Manage])).await;
    let grants = [grant("crawl.*", &[Manage]).grants, grant("own.*", &FilterVerb::ALL).grants];
    put(&node, "mover", Rights { grants: grants.concat(), ..Rights::default() }).await;
    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    owner.call("BF.ADD crawl.de x", ":1\r\n").await;

    let mut mover = Client::new(&node).await;
    mover.call(&format!("AUTH mover {SECRET}"), "+OK\r\n").await;
    let no_key = "-NOPERM No permissions to access a key\r\n";
    mover.call("RENAME crawl.de own.x", no_key).await;
    mover.call("RENAMENX crawl.de own.x", no_key).await;
    // The answer does not say whether there is such a filter.
    mover.call("RENAME crawl.none own.x", no_key).await;
    mover.call("RENAME crawl.de crawl.fr", "+OK\r\n").await;
    // A name on which the caller has fewer verbs gives it none.
    mover.call("BF.ADD own.a y", ":1\r\n").await;
    mover.call("RENAME own.a crawl.a", "+OK\r\n").await;
    mover.call("RENAME crawl.a own.a", no_key).await;
    // Who has the same verbs on both names renames in both directions.
    owner.call("RENAME crawl.fr own.fr", "+OK\r\n").await;
    owner.call("RENAME own.fr crawl.fr", "+OK\r\n").await;

    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut filters = FiltersClient::new(channel_to(&net, node.address(), None).unwrap());
    let mut rename = async |name: &str, new_name: &str| {
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let mut request = Request::new(v1::RenameRequest { name, new_name, replace: false });
        let token = format!("Bearer mover.{SECRET}").parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        filters.rename(request).await.map(drop)
    };
    let refused = rename("crawl.fr", "own.x").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert!(refused.message().contains("a grant of read is needed"), "{refused}");
    rename("crawl.fr", "crawl.de").await.unwrap();
    owner.call("BF.EXISTS crawl.de x", ":1\r\n").await;
    drop(filters);
    node.shutdown().await;
}

/// The copy has the key of the filter: otherwise who may only export could read it under another name, and let others read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_gives_nobody_what_its_maker_may_not_read() {
    use FilterVerb::{Export, Insert, Manage, Read};
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[Insert, Read, Manage, Export])).await;
    for (name, verbs) in [("exporter", vec![Export]), ("reader", vec![Read])] {
        let grants = [grant("crawl.*", &verbs).grants, grant("own.*", &FilterVerb::ALL).grants];
        put(&node, name, Rights { grants: grants.concat(), ..Rights::default() }).await;
    }
    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    owner.call("BF.ADD crawl.de x", ":1\r\n").await;
    for name in ["exporter", "reader"] {
        let mut client = Client::new(&node).await;
        client.call(&format!("AUTH {name} {SECRET}"), "+OK\r\n").await;
        let no_key = "-NOPERM No permissions to access a key\r\n";
        client.call("COPY crawl.de own.x", no_key).await;
        // The answer does not say whether there is such a filter.
        client.call("COPY crawl.none own.x", no_key).await;
        client.call("EXISTS own.x", ":0\r\n").await;
    }
    owner.call("COPY crawl.de own.x", ":1\r\n").await;
    owner.call("BF.EXISTS own.x x", ":1\r\n").await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_count_commands_and_items() {
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    let granted = grant("*", &[FilterVerb::Insert, FilterVerb::Manage, FilterVerb::Read]);
    put(&node, "owner", Rights { cluster: [ClusterVerb::Metrics].into(), ..granted }).await;
    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    owner.call("BF.RESERVE k 0.000001 1000", "+OK\r\n").await;
    owner.call("BF.ADD k first", ":1\r\n").await;
    let of = PrincipalName::new("owner");
    let rates = Rates { items: Some(1), ..Rates::default() };
    let change = Quota { rates, ..Quota::default() };
    let command = MetaCommand::SetQuota { of, change, from_none: false };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
    // The first command may exceed a second's worth and leaves a debt, here of a minute, so that a slow machine does not
    // pay it meanwhile; each command of a pipeline is charged alone.
    let items: String = (0..60).map(|item| format!(" {item}")).collect();
    owner.send(format!("BF.MADD k{items}\r\nBF.ADD k g\r\nPING\r\n").repeat(2).as_bytes()).await;
    let answers = format!("*60\r\n{}-TRYAGAIN principal owner has", ":1\r\n".repeat(60));
    owner.expect(&answers, "rates").await;
    let mut other = Client::new(&node).await;
    other.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    other.call("UMBEL.WHERE k a", "-TRYAGAIN principal owner has").await;
    node.shutdown().await;
}

/// A merge of large filters would cost no more than a question about one item.
#[tokio::test(flavor = "multi_thread")]
async fn what_reads_whole_filters_pays_for_their_bytes() {
    use FilterVerb::{Export, Insert, Manage, Read};
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[Insert, Read, Manage, Export])).await;
    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    owner.call("UMBEL.CREATE a KIND blocked CAPACITY 1000 ERROR 0.01", "+OK\r\n").await;
    owner.call("UMBEL.CREATE b LIKE a", "+OK\r\n").await;
    // A filter has more than a kilobyte: after one of them nothing is free for minutes, however slow the machine is. Changed
    // rates begin anew.
    let calls = ["UMBEL.MERGE a b", "UMBEL.ESTIMATE UNION a b", "COPY a c REPLACE"];
    for (per_second, call) in (1..).zip(calls) {
        let rates = Rates { bytes: Some(per_second), ..Rates::default() };
        let change = Quota { rates, ..Quota::default() };
        let of = PrincipalName::new("owner");
        let command = MetaCommand::SetQuota { of, change, from_none: false };
        node.coordinator().meta_propose(command, deadline()).await.unwrap();
        for is_allowed in [true, false] {
            let mut owner = Client::new(&node).await;
            owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
            owner.send(format!("{call}\r\n").as_bytes()).await;
            let answer = owner.line().await;
            let is_refused = answer.starts_with("-TRYAGAIN principal owner has");
            assert!(is_refused != is_allowed && is_allowed != answer.starts_with('-'), "{answer}");
        }
    }
    node.shutdown().await;
}

/// Otherwise one mistake would keep a principal from merging until filters are paid for that nobody has read.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_its_filters_costs_no_bytes() {
    use FilterVerb::{Export, Insert, Manage, Read};
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[Insert, Read, Manage, Export])).await;
    let mut owner = Client::new(&node).await;
    owner.call(&format!("AUTH owner {SECRET}"), "+OK\r\n").await;
    owner.call("UMBEL.CREATE a KIND blocked CAPACITY 1000 ERROR 0.01", "+OK\r\n").await;
    owner.call("UMBEL.CREATE b LIKE a", "+OK\r\n").await;
    owner.call("UMBEL.CREATE other KIND classic CAPACITY 1000 ERROR 0.01", "+OK\r\n").await;
    let rates = Rates { bytes: Some(1), ..Rates::default() };
    let change = Quota { rates, ..Quota::default() };
    let of = PrincipalName::new("owner");
    let command = MetaCommand::SetQuota { of, change, from_none: false };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
    let refused = [
        "UMBEL.MERGE a other",
        "UMBEL.MERGE none a",
        "UMBEL.INTERSECT a b",
        "UMBEL.ESTIMATE UNION a other",
    ];
    for call in refused {
        owner.send(format!("{call}\r\n").as_bytes()).await;
        let answer = owner.line().await;
        let is_for_rates = answer.starts_with("-TRYAGAIN");
        assert!(answer.starts_with('-') && !is_for_rates, "{call}: {answer}");
    }
    owner.call("COPY a b", ":0\r\n").await;
    owner.call("COPY none c", ":0\r\n").await;
    owner.call("UMBEL.MERGE a b", ":0\r\n").await;
    owner.call("UMBEL.MERGE a b", "-TRYAGAIN principal owner has").await;
    node.shutdown().await;
}

/// Otherwise whoever has used up its calls could go on with these.
#[tokio::test(flavor = "multi_thread")]
async fn who_authenticates_pays_for_a_call() {
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[FilterVerb::Read])).await;
    let of = PrincipalName::new("owner");
    let rates = Rates { calls: Some(1), ..Rates::default() };
    let change = Quota { rates, ..Quota::default() };
    let command = MetaCommand::SetQuota { of, change, from_none: false };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
    let auth = format!("AUTH owner {SECRET}\r\n");
    let refused = "-TRYAGAIN principal owner has";
    // So many that no machine is slow enough for one a second.
    for command in [auth.as_str(), "HELLO 2\r\n"] {
        let mut owner = Client::new(&node).await;
        loop {
            owner.send(auth.as_bytes()).await;
            if owner.line().await == "+OK" {
                break;
            }
        }
        owner.send(format!("{}QUIT\r\n", command.repeat(100)).as_bytes()).await;
        let answers = owner.rest().await;
        assert!(answers.contains(refused) && answers.ends_with("+OK\r\n"), "{answers}");
    }
    let mut refused_count = 0;
    for _ in 0..100 {
        let mut owner = Client::new(&node).await;
        owner.send(auth.as_bytes()).await;
        if owner.line().await.starts_with(refused) {
            refused_count += 1;
            owner.call("PING", "-NOAUTH Authentication required.\r\n").await;
        }
    }
    assert!(refused_count > 0);
    node.shutdown().await;
}

/// Guesses cost the one who makes them a connection each, and refusals do not fill the log.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_end_a_connection_and_strangers_have_few_lines() {
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    let mut stranger = Client::new(&node).await;
    let guesses: String = (0..100).map(|guess| format!("AUTH root {guess}\r\n")).collect();
    stranger.send(guesses.as_bytes()).await;
    let text = stranger.rest().await;
    assert_eq!(text.matches("-WRONGPASS").count(), 16, "{text}");
    // Those that are refused without a guess stay, but are noted likewise.
    let mut stranger = Client::new(&node).await;
    stranger.send("BF.ADD k x\r\n".repeat(1_000).as_bytes()).await;
    for _ in 0..1_000 {
        assert_eq!(stranger.line().await, "-NOAUTH Authentication required.");
    }
    let coordinator = node.coordinator();
    let lines = &coordinator.callers().stranger_log().denied;
    let next = lines.take(tokio::time::Instant::now().into_std());
    assert!(next.is_none_or(|left_out| left_out.count().is_some()), "{next:?}");
    drop(coordinator);
    node.shutdown().await;
}

/// Commands in the same write as `AUTH` have the limits of the client that it makes known.
#[tokio::test(flavor = "multi_thread")]
async fn commands_behind_an_authentication_are_those_of_its_principal() {
    let (_folder, node) = node().await;
    put(&node, "root", Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() }).await;
    put(&node, "owner", grant("*", &[FilterVerb::Insert, FilterVerb::Manage])).await;
    let long = "x".repeat(20_000);
    let many: String = (0..12).map(|item| format!("$4\r\n{item:04}\r\n")).collect();
    let (add, add_all) = (
        format!("*3\r\n$6\r\nBF.ADD\r\n$1\r\nk\r\n$20000\r\n{long}\r\n"),
        format!("*14\r\n$7\r\nBF.MADD\r\n$1\r\nk\r\n{many}"),
    );
    for begin in [format!("AUTH owner {SECRET}"), format!("HELLO 2 AUTH owner {SECRET}")] {
        let mut client = Client::new(&node).await;
        let what = begin.clone();
        client.send(format!("{begin}\r\n{add_all}{add}PING\r\n").as_bytes()).await;
        while client.line().await != "*12" {}
        for _ in 0..13 {
            assert!(client.line().await.starts_with(':'), "{what}");
        }
        client.expect("+PONG\r\n", &what).await;
    }
    let mut stranger = Client::new(&node).await;
    stranger.send(format!("AUTH owner wrong\r\n{add_all}").as_bytes()).await;
    let text = stranger.rest().await;
    assert!(text.ends_with("-ERR Protocol error: unauthenticated multibulk length\r\n"), "{text}");
    node.shutdown().await;
}
