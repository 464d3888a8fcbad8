//! Operations from the console: only with the rights for them, and dangerous ones only after a name was
//! typed.

use serde_json::{Value, json};
use umbel_client::proto::{ClusterVerb, FilterVerb, Grant};
use umbel_client::{Client, ClientOptions, NewFilter, Token};

use crate::browser;
use crate::servers::{Cluster, Server, options, umbel};
use crate::sign_in::add;
use crate::views::HOSTILE;
use crate::webdriver::Browser;

/// Allows everybody to operate the node from its console.
fn full(node: &mut Server) {
    node.set("UMBEL_CONSOLE", "full");
}

async fn names(client: &Client) -> Vec<String> {
    let filters = client.list("").await.unwrap();
    filters.into_iter().map(|filter| filter.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_made_emptied_and_dropped_by_who_types_its_name() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form_with(1, full).await;
    let client = cluster.client();
    browser.open(&format!("http://{}/console#filters", cluster.nodes[0].address));
    browser.press_button("Create a filter");
    browser.fill("name", HOSTILE);
    browser.fill("capacity", "1000");
    browser.order("good", "is made");
    browser.leave();
    browser.press_button("Create a filter");
    browser.fill("name", HOSTILE);
    browser.order("bad", "Nothing was changed");
    browser.leave();
    let items: Vec<String> = (0..100).map(|item| item.to_string()).collect();
    client.filter(HOSTILE).insert(&items).await.unwrap();
    // The count is an estimate, so it may differ a little.
    let count = |condition: &str| {
        format!(
            "/([\\d.]+) of 1K/.exec(document.querySelector('tbody tr')?.innerText)?.[1] {condition}"
        )
    };
    browser.until_shown("it has items", &count("> 90"));

    browser.press_button(&format!("Clear {HOSTILE}"));
    let is_held = "document.querySelector('dialog button[type=submit]').disabled";
    browser.until_shown("its name is asked for", is_held);
    browser.run("document.getElementById('order-typed').focus();");
    let (most, last) = HOSTILE.split_at(HOSTILE.len() - 1);
    browser.press(most);
    assert_eq!(browser.run(&format!("return {is_held};")), true);
    browser.press(&format!("{last}\u{e007}"));
    browser.until_shown(
        "it is empty",
        "document.querySelector('.outcome').textContent.includes('is empty')",
    );
    browser.leave();
    assert_eq!(client.info(HOSTILE).await.unwrap().new_count, 0);
    browser.until_shown("the view shows it", &count("=== '0'"));
    browser.press_button(&format!("Drop {HOSTILE}"));
    browser.fill("typed", HOSTILE);
    browser.order("good", "is gone");
    browser.leave();
    assert_eq!(names(&client).await, Vec::<String>::new());
    browser.until_shown("the view shows none", "document.querySelector('.empty:not([hidden])')");
    let is_safe = "return document.title === 'Filters – Umbel' && !document.querySelector('body img[onerror]');";
    assert_eq!(browser.run(is_safe), true);
    browser.assert_content();
}

/// The names of the buttons in a view, except those with names of filters and jobs.
fn shown_buttons(browser: &Browser, view: &str, sign: &str) -> Value {
    browser.choose(view, sign);
    browser.run(
        "return [...document.querySelectorAll('#view button[aria-label]')] \
         .filter((button) => button.offsetParent).map((button) => button.getAttribute('aria-label'));",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_sees_the_buttons_that_it_may_press() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form_with(1, |node| node.set("UMBEL_SHARDS", "1")).await;
    let client = cluster.client();
    for name in ["crawl.a", "mail.b"] {
        client.create(name, &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    }
    let of = |pattern: &str, verbs: &[FilterVerb]| Grant {
        pattern: pattern.to_owned(),
        verbs: verbs.iter().map(|&verb| verb.into()).collect(),
    };
    let read = || of("*", &[FilterVerb::Read]);
    let metrics = ClusterVerb::Metrics;
    let manage = of("crawl.*", &[FilterVerb::Manage]);
    let insert = of("*", &[FilterVerb::Insert]);
    add(&client, "root", &[ClusterVerb::Admin, ClusterVerb::Jobs, metrics], vec![read()]).await;
    // Without a token, only the first principal can be added.
    let options = ClientOptions { token: Some(Token::new("root.root").unwrap()), ..options() };
    let root = Client::connect_with(cluster.nodes[0].address.as_str(), options).unwrap();
    for (name, grants) in [
        ("reader", vec![read()]),
        ("inserter", vec![read(), insert]),
        ("owner", vec![read(), manage]),
    ] {
        add(&root, name, &[metrics], grants).await;
    }
    let owner = ["Create a filter", "Clear crawl.a", "Drop crawl.a"];
    let cluster_buttons = ["Drain node 1", "Remove node 1", "Move a replica of shard 0"];
    let compare = ["Compare now everything", "Compare crawl.a", "Compare mail.b"];
    for (name, of_filters, of_cluster, of_repair) in [
        ("reader", json!([]), json!([]), json!([])),
        ("inserter", json!([]), json!([]), json!([])),
        ("owner", json!(owner), json!([]), json!([])),
        ("root", json!([]), json!(cluster_buttons), json!(compare)),
    ] {
        browser.open("about:blank");
        browser.open(&format!("http://{}/console", cluster.nodes[0].address));
        browser.until_shown("a token is asked for", "document.activeElement.id === 'token'");
        browser.press(&format!("{name}.{name}\u{e007}"));
        let rights = format!("document.getElementById('rights').innerText.includes('{name}')");
        for (view, sign, expected) in [
            ("filters", "document.querySelectorAll('tbody tr').length === 2", of_filters),
            ("cluster", "document.querySelector('.range-row .leader')", of_cluster),
            ("repair", "document.querySelectorAll('tbody tr').length === 2", of_repair),
        ] {
            let shown = shown_buttons(&browser, view, &format!("{rights} && {sign}"));
            assert_eq!(shown, expected, "{name} in {view}");
        }
    }
    browser.assert_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_moves_and_a_node_leaves_while_the_page_follows() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form_with(3, |node| {
        full(node);
        node.set("UMBEL_REPLICAS", "2");
    })
    .await;
    cluster.client().create("seen", &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    browser.open(&format!("http://{}/console", cluster.nodes[0].address));
    browser.choose("cluster", "document.querySelectorAll('.range-row .leader').length === 4");
    // A shard with replicas on the first two nodes; the third one is suspended while a replica moves to
    // it.
    let status = cluster.status_until("shards", |status| status.shards.len() == 4).await;
    let shard = status.shards.iter().find(|shard| !shard.replicas.contains(&3));
    let shard = shard.expect("a shard of four has no replica on one of three nodes").shard;
    cluster.nodes[2].signal("STOP");
    browser.press_button(&format!("Move a replica of shard {shard}"));
    browser.fill("from", "2");
    browser.fill("to", "3");
    browser.order("good", "moves from node 2 to node 3");
    browser.leave();
    let is_on = |node: u32, kind: &str| {
        format!(
            "document.querySelector('.range-row:nth-child({node}) [data-key=\"{shard}\"]')?.className === '{kind}'"
        )
    };
    browser.until_shown("the replica is to come", &is_on(3, "target"));
    cluster.nodes[2].signal("CONT");
    browser.until_shown(
        "the replica has come, and the old one is gone",
        &format!(
            "!({}) && !document.querySelector('.range-row:nth-child(2) [data-key=\"{shard}\"]') \
                  && document.querySelector('.range-row:nth-child(3) [data-key=\"{shard}\"]')",
            is_on(3, "target")
        ),
    );

    let address = cluster.nodes[2].address.clone();
    browser.press_button("Drain node 3");
    browser.fill("typed", &address);
    browser.order("good", "is being drained");
    browser.leave();
    let row = "[...document.querySelectorAll('tbody tr')].find((row) => row.dataset.key === '3')";
    browser.until_shown(
        "the node has no replica any more",
        &format!("{row}.innerText.includes('draining') && !document.querySelector('.range-row:nth-child(3) i')"),
    );
    browser.press_button("Remove node 3");
    browser.fill("typed", &address);
    browser.order("good", "is removed");
    browser.leave();
    browser.until_shown("the node is gone", "document.querySelectorAll('.range-row').length === 2");
    browser.assert_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_is_cancelled_and_everything_compared() {
    let Some(browser) = browser() else { return };
    let roots = tempfile::Builder::new().prefix("umbel-roots-").tempdir().unwrap();
    let root = roots.path().display().to_string();
    let cluster = Cluster::form_with(3, |node| {
        full(node);
        node.set("UMBEL_JOB_ROOTS", &root);
    })
    .await;
    cluster.client().create("seen", &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    browser.open(&format!("http://{}/console#repair", cluster.nodes[0].address));
    browser.press_button("Compare now everything");
    browser.order("good", "Compared 4 slices and pairs of copies: all are equal.");
    browser.leave();
    browser.until_shown(
        "comparisons of all nodes",
        "document.querySelectorAll('tbody tr').length === 4 \
         && [...document.querySelectorAll('tbody tr')].every((row) => row.innerText.includes('equal'))",
    );

    std::fs::write(format!("{root}/1.txt"), "a\nb\na\n").unwrap();
    cluster.nodes[2].signal("STOP");
    let input = format!("{root}/1.txt");
    let output = format!("{root}/unique/");
    let on = [format!("1={input}"), format!("3={input}")];
    let address = &cluster.nodes[0].address;
    let words = [
        "dedup",
        "--quiet",
        "--cluster",
        address,
        "--on",
        &on[0],
        "--on",
        &on[1],
        "--output",
        &output,
    ];
    let mut job = umbel(&words).spawn().unwrap();
    browser.run("location.hash = 'jobs';");
    browser.until_shown(
        "the job waits",
        "document.querySelector('tbody')?.innerText.includes('joining')",
    );
    let number = browser.run("return document.querySelector('tbody th').innerText;");
    browser.press_button(&format!("Cancel job {}", number.as_str().unwrap()));
    browser.order("good", "is asked to end");
    browser.leave();
    cluster.nodes[2].signal("CONT");
    browser.until_shown(
        "the job is cancelled",
        "document.querySelector('tbody').innerText.includes('cancelled')",
    );
    assert!(!job.wait().unwrap().success());
    browser.assert_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_another_site_can_order_nothing() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form_with(2, full).await;
    // Another port is another origin on the same site.
    browser.open(&format!("http://{}/console", cluster.nodes[1].address));
    let order = json!({ "name": "seen", "kind": "blocked", "capacity": 1000, "rate": 0.01, "is_replicated": false });
    let url = format!("http://{}/console/actions/create", cluster.nodes[0].address);
    browser.open("about:blank");
    for (mode, kind) in
        [("cors", "application/json"), ("cors", "text/plain"), ("no-cors", "text/plain")]
    {
        let script = format!(
            "return fetch('{url}', {{ method: 'POST', mode: '{mode}', headers: {{ 'content-type': '{kind}' }}, \
             body: JSON.stringify({order}) }}).then((answer) => answer.ok, () => false);"
        );
        assert_eq!(browser.run(&script), false, "{mode} {kind}");
    }
    assert_eq!(names(&cluster.client()).await, Vec::<String>::new());
}
