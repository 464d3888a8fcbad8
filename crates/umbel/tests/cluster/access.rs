//! Principals: every role with every call, on granted and other filters, existing and missing; revoked
//! principals stay revoked.

use umbel_client::proto::{
    ClusterVerb, FilterVerb, Grant, Principal, PutPrincipalRequest, SubmitJobRequest,
};
use umbel_client::{Client, ClientError, ClientOptions, ErrorCode, NewFilter, ReadLevel, Token};

use crate::load::sharp_filter;
use crate::servers::{Cluster, options, until};

/// Calls on a filter, and the verb that each needs.
const CALLS: [(&str, FilterVerb); 9] = [
    ("info", FilterVerb::Read),
    ("contains", FilterVerb::Read),
    ("insert", FilterVerb::Insert),
    ("flush", FilterVerb::Insert),
    ("remove", FilterVerb::Remove),
    ("export", FilterVerb::Export),
    ("create", FilterVerb::Manage),
    ("clear", FilterVerb::Manage),
    ("drop", FilterVerb::Manage),
];

const VERBS: [FilterVerb; 5] = [
    FilterVerb::Read,
    FilterVerb::Insert,
    FilterVerb::Remove,
    FilterVerb::Export,
    FilterVerb::Manage,
];

async fn call(client: &Client, name: &str, filter: &str) -> Result<(), ClientError> {
    match name {
        "info" => client.info(filter).await.map(drop),
        "contains" => {
            let asked = client.filter(filter).contains(["a"], ReadLevel::Linearizable).await;
            asked.map(drop)
        }
        "insert" => client.filter(filter).insert(["a"]).await.map(drop),
        "flush" => client.flush(filter).await.map(drop),
        "remove" => client.filter(filter).remove(["a"]).await.map(drop),
        "export" => client.export(filter).await.map(drop),
        "create" => client.create(filter, &sharp_filter()).await.map(drop),
        "clear" => client.clear(filter).await.map(drop),
        "drop" => client.drop_filter(filter).await.map(drop),
        "merge" => client.merge(filter, &["mail"]).await.map(drop),
        "status" => client.status().await.map(drop),
        "drain" => client.drain(99, false).await.map(drop),
        "principals" => client.principals().await.map(drop),
        "backup" => client.backup().await.map(drop),
        "jobs" => client.jobs().await.map(drop),
        "submit" => client.submit_job(SubmitJobRequest::default()).await.map(drop),
        other => panic!("{other} is no call"),
    }
}

/// The message of a denied call; None if it succeeded, or failed for another reason.
fn denial(outcome: Result<(), ClientError>) -> Option<String> {
    let error = outcome.err()?;
    let failure = error.failure()?;
    (failure.cause == ErrorCode::Denied).then(|| failure.message.clone())
}

/// A principal with a token whose secret is its name.
pub(crate) fn principal(
    name: &str,
    grants: Vec<(&str, &[FilterVerb])>,
    may: &[ClusterVerb],
) -> Principal {
    let grant = |(pattern, verbs): (&str, &[FilterVerb])| Grant {
        pattern: pattern.to_owned(),
        verbs: verbs.iter().map(|&verb| verb.into()).collect(),
    };
    Principal {
        name: name.to_owned(),
        token_digest: blake3::hash(name.as_bytes()).as_bytes().to_vec().into(),
        grants: grants.into_iter().map(grant).collect(),
        cluster_verbs: may.iter().map(|&verb| verb.into()).collect(),
        ..Principal::default()
    }
}

pub(crate) async fn add(client: &Client, principal: Principal) {
    let request = PutPrincipalRequest { principal: Some(principal), ..Default::default() };
    client.put_principal(request).await.unwrap();
}

pub(crate) fn with_token(addresses: &str, name: &str) -> Client {
    with_token_and(addresses, name, options())
}

pub(crate) fn with_token_and(addresses: &str, name: &str, mut options: ClientOptions) -> Client {
    options.token = Some(Token::new(&format!("{name}.{name}")).unwrap());
    Client::connect_with(addresses, options).unwrap()
}

/// Three nodes that require principals, and a client of the administrator.
pub(crate) async fn guarded() -> (Cluster, String, Client) {
    let cluster = Cluster::form(3).await;
    let addresses: Vec<&str> = cluster.nodes.iter().map(|node| node.address.as_str()).collect();
    let addresses = addresses.join(",");
    let all = [ClusterVerb::Admin, ClusterVerb::Backup, ClusterVerb::Jobs, ClusterVerb::Metrics];
    add(&cluster.client(), principal("root", vec![("*", &VERBS)], &all)).await;
    let root = with_token(&addresses, "root");
    for node in &cluster.nodes {
        let own = with_token(&node.address, "root");
        until("the node knows its administrator", || async { own.who_am_i().await.ok() }).await;
    }
    (cluster, addresses, root)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_does_what_is_granted_and_nothing_else() {
    let (_cluster, addresses, root) = guarded().await;
    for name in ["crawl.a", "mail"] {
        root.create(name, &NewFilter::for_rate(1000, 0.01)).await.unwrap();
        root.filter(name).insert(["seen"]).await.unwrap();
    }
    for verb in VERBS {
        let role = format!("may-{}", verb.as_str_name().to_lowercase());
        add(&root, principal(&role, vec![("crawl.*", &[verb])], &[])).await;
        let client = with_token(&addresses, &role);
        until("the role is known", || async { client.who_am_i().await.ok() }).await;
        for (name, needed) in CALLS {
            let own = denial(call(&client, name, "crawl.none").await);
            let there = denial(call(&client, name, "crawl.a").await);
            assert_eq!(own.is_none(), needed == verb, "{role} {name}: {own:?}");
            assert_eq!(there.is_none(), needed == verb, "{role} {name}: {there:?}");
            let [foreign, missing] = [
                denial(call(&client, name, "mail").await),
                denial(call(&client, name, "none").await),
            ];
            let foreign = foreign.unwrap_or_else(|| panic!("{role} may {name} foreign filters"));
            assert_eq!(Some(foreign), missing, "the answer tells whether there is such a filter");
        }
        for name in ["status", "drain", "principals", "backup", "jobs", "submit"] {
            assert!(denial(call(&client, name, "").await).is_some(), "{role} may {name}");
        }
        // A merge names both filters, and the second one is not granted.
        assert!(denial(call(&client, "merge", "crawl.a").await).is_some(), "{role} may merge");
        let seen = client.list("").await.unwrap();
        assert!(seen.iter().all(|filter| filter.name.starts_with("crawl.")), "{seen:?}");
    }
    assert_eq!(root.info("mail").await.unwrap().new_count, 1, "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_of_the_cluster_are_apart_from_those_of_filters() {
    let (_cluster, addresses, root) = guarded().await;
    root.create("mail", &sharp_filter()).await.unwrap();
    let roles: [(ClusterVerb, &[&str]); 4] = [
        (ClusterVerb::Admin, &["drain", "principals"]),
        (ClusterVerb::Backup, &["backup"]),
        (ClusterVerb::Jobs, &["jobs", "submit"]),
        (ClusterVerb::Metrics, &["status"]),
    ];
    for (verb, allowed) in roles {
        let role = format!("may-{}", verb.as_str_name().to_lowercase());
        add(&root, principal(&role, vec![], &[verb])).await;
        let client = with_token(&addresses, &role);
        until("the role is known", || async { client.who_am_i().await.ok() }).await;
        for name in ["status", "drain", "principals", "backup", "jobs", "submit"] {
            let denied = denial(call(&client, name, "").await);
            assert_eq!(denied.is_none(), allowed.contains(&name), "{role} {name}: {denied:?}");
        }
        for (name, _) in CALLS {
            assert!(denial(call(&client, name, "mail").await).is_some(), "{role} may {name}");
        }
        assert_eq!(client.list("").await.unwrap(), []);
    }
}

/// Readers of a filter may see how full it is; all other metrics need the verb.
#[tokio::test(flavor = "multi_thread")]
async fn measurements_tell_of_the_filters_that_may_be_read() {
    let (cluster, _addresses, root) = guarded().await;
    for name in ["crawl.a", "mail"] {
        root.create(name, &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    }
    let grants: Vec<(&str, &[FilterVerb])> = vec![("crawl.*", &[FilterVerb::Read])];
    add(&root, principal("watcher", grants, &[ClusterVerb::Metrics])).await;
    add(&root, principal("reader", vec![("*", &[FilterVerb::Read])], &[])).await;
    let address = &cluster.nodes[0].address;
    let only = |name| {
        let options = ClientOptions { learns_nodes: false, ..options() };
        with_token_and(address, name, options)
    };
    let (watcher, own) = (only("watcher"), only("root"));
    let told = |text: &str, name: &str| text.contains(&format!("{{filter=\"{name}\""));
    until("both filters are told to who may read both", || async {
        let text = own.measurements().await.ok()?;
        (told(&text, "crawl.a") && told(&text, "mail")).then_some(())
    })
    .await;
    let text = watcher.measurements().await.unwrap();
    assert!(told(&text, "crawl.a") && !told(&text, "mail"), "{text}");
    assert!(text.contains("\numbel_shards_led "), "{text}");
    let error = only("reader").measurements().await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, umbel_client::Code::PermissionDenied, "{error}");
}

/// Tokens that are used right after they are made, so that some reach a node before the change does.
const NEW_TOKENS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_a_node_does_not_know_is_looked_up_at_the_majority() {
    let (cluster, _addresses, root) = guarded().await;
    let name = |number| format!("new{number}");
    for number in 0..NEW_TOKENS {
        let name = name(number);
        let clients: Vec<Client> =
            cluster.nodes.iter().map(|node| with_token(&node.address, &name)).collect();
        add(&root, principal(&name, vec![("*", &[FilterVerb::Read])], &[])).await;
        for client in &clients {
            assert_eq!(denial(call(client, "info", "none").await), None, "{name}");
        }
    }
    // A node is suspended while one principal is added and another revoked, and has no majority when it
    // resumes.
    let [first, second, third] = &cluster.nodes[..] else { panic!("three nodes") };
    let (others, asleep) = ([first, second], third);
    let once = ClientOptions { attempt_count_max: 1, learns_nodes: false, ..options() };
    let of_third = |name: &str| with_token_and(&asleep.address, name, once.clone());
    let revoked = of_third(&name(0));
    until("it is known", || async { revoked.who_am_i().await.ok() }).await;
    let awake = format!("{},{}", first.address, second.address);
    let only = ClientOptions { learns_nodes: false, ..options() };
    let root = with_token_and(&awake, "root", only);
    asleep.signal("STOP");
    until("a majority without it has revoked the one", || async {
        // If the answer is lost, the list shows whether it was revoked.
        let _ = root.revoke_principal(&name(0)).await;
        let left = root.principals().await.ok()?;
        left.iter().all(|principal| principal.name != name(0)).then_some(())
    })
    .await;
    add(&root, principal("late", vec![("*", &[FilterVerb::Read])], &[])).await;
    others.iter().for_each(|server| server.signal("STOP"));
    asleep.signal("CONT");
    // It cannot know whether they are valid, and says so: only a majority knows.
    for token in ["late", "made-up"] {
        let error = of_third(token).who_am_i().await.unwrap_err();
        assert_eq!(
            error.failure().map(|failure| failure.cause),
            Some(ErrorCode::NotFormed),
            "{token}"
        );
    }
    others.iter().for_each(|server| server.signal("CONT"));
    let late = of_third("late");
    until("it takes the new one", || async { late.who_am_i().await.ok() }).await;
    // It knows of the later addition, and thus of the revocation before it.
    let error = revoked.who_am_i().await.unwrap_err();
    assert_eq!(error.failure().map(|failure| failure.cause), Some(ErrorCode::Denied));
    let error = of_third("made-up").who_am_i().await.unwrap_err();
    assert_eq!(error.failure().map(|failure| failure.cause), Some(ErrorCode::Denied));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_revoked_is_refused_on_every_node_and_open_connection() {
    let (cluster, addresses, root) = guarded().await;
    root.create("crawl", &sharp_filter()).await.unwrap();
    add(&root, principal("writer", vec![("crawl", &[FilterVerb::Insert])], &[])).await;
    let clients: Vec<Client> =
        cluster.nodes.iter().map(|node| with_token(&node.address, "writer")).collect();
    for client in &clients {
        until("the writer is known", || async { call(client, "insert", "crawl").await.ok() }).await;
    }
    // A client without a token, and one with an invalid token.
    let nobody = Client::connect_with(addresses.as_str(), options()).unwrap();
    let without = denial(call(&nobody, "info", "crawl").await).unwrap();
    assert!(without.contains("--token-file"), "{without}");
    let wrong = ClientOptions { token: Some(Token::new("writer.no").unwrap()), ..options() };
    let wrong = Client::connect_with(addresses.as_str(), wrong).unwrap();
    let wrong = denial(call(&wrong, "insert", "crawl").await).unwrap();
    assert!(wrong.contains("unknown, revoked or expired"), "{wrong}");

    root.revoke_principal("writer").await.unwrap();
    for client in &clients {
        let denied = || async { denial(call(client, "insert", "crawl").await) };
        let why = until("the node refuses the writer", denied).await;
        assert_eq!(why, wrong, "a revoked token is told from no other wrong one");
    }
    let has_logged = |text| cluster.has_logged(text);
    assert!(has_logged("umbel::audit") && has_logged("denied"), "refusals are logged");
    assert!(has_logged("from=\"127.0.0.1:"), "with the address that was refused");
    assert!(has_logged("/umbel.v1.Access/Revoke"), "what administrators do is logged");
    let revoked =
        "call=\"/umbel.v1.Access/Revoke\" ordered=\"principal=writer\" outcome=\"granted\"";
    assert!(has_logged(revoked), "with what they ordered, and what became of it");
}
