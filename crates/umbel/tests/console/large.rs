//! The views of a cluster with many shards and filters load, on an idle machine within a second.

use std::time::Duration;

use tokio::task::JoinSet;
use umbel_client::{Client, Distribution, NewFilter};

use crate::browser;
use crate::servers::Cluster;
use crate::webdriver::Browser;

const SHARDS: u32 = 64;

const FILTERS: u32 = 200;

/// Filters that are created concurrently.
const MADE_AT_ONCE: usize = 8;

/// Longest time to load a view, from its address to its content.
const LOAD_TIME_MAX: Duration = Duration::from_secs(1);

/// Most attempts to load a view in time; other programs on the machine slow some of them down.
const LOADS_MAX: u32 = 10;

/// The views, each with an expression that is true in the page once this cluster is shown.
const VIEWS: [(&str, &str); 5] = [
    ("cluster", "document.querySelectorAll('.range-row .leader').length === 64"),
    ("filters", "document.querySelectorAll('tbody th button').length === 25"),
    ("jobs", "document.querySelector('.empty:not([hidden])')"),
    (
        "cube",
        "document.querySelectorAll('.corner').length === 3 && document.querySelectorAll('.edge').length === 2",
    ),
    // A line for each filter in each shard, and the pairs of copies.
    ("repair", "document.querySelector('.figures').innerText.includes('12,740')"),
];

/// Creates the filters; one is replicated, so that the cube and repair have content.
async fn fill(client: &Client) {
    let one = NewFilter::for_rate(1000, 0.01);
    let numbers: Vec<u32> = (1..FILTERS).collect();
    for numbers in numbers.chunks(MADE_AT_ONCE) {
        let mut making = JoinSet::new();
        for number in numbers {
            let (client, name, one) = (client.clone(), format!("seen.{number:03}"), one.clone());
            making.spawn(async move { client.create(&name, &one).await });
        }
        making.join_all().await.into_iter().for_each(|made| drop(made.unwrap()));
    }
    let copied = NewFilter { distribution: Distribution::Replicated, ..one };
    client.create("copied", &copied).await.unwrap();
}

/// The time to load a view by the page's clock, which starts when the browser goes to the address.
fn load(browser: &Browser, address: &str, (view, sign): (&str, &str)) -> Duration {
    // From another view of the same page, it would only be shown, not loaded.
    browser.open("about:blank");
    browser.open(&format!("http://{address}/console#{view}"));
    browser.until_shown(
        &format!("the view {view} is live"),
        &format!("document.getElementById('connection')?.dataset.state === 'live' && {sign}"),
    );
    let now_ms = browser.run("return performance.now();");
    Duration::from_secs_f64(now_ms.as_f64().unwrap() / 1e3)
}

#[tokio::test(flavor = "multi_thread")]
async fn views_of_many_shards_and_filters_load() {
    load_all(None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures time: for a machine that does nothing else"]
async fn views_of_many_shards_and_filters_load_within_a_second() {
    load_all(Some(LOAD_TIME_MAX)).await;
}

/// Loads every view of a large cluster, once or until one load was fast enough.
async fn load_all(within: Option<Duration>) {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form_with(3, |node| node.set("UMBEL_SHARDS", &SHARDS.to_string())).await;
    fill(&cluster.nodes[0].patient_client()).await;
    for view in VIEWS {
        let mut took = Vec::new();
        while took.last().is_none_or(|&last| within.is_some_and(|most| last > most)) {
            assert!(took.len() < LOADS_MAX as usize, "{}: {took:?}", view.0);
            took.push(load(&browser, &cluster.nodes[0].address, view));
        }
        eprintln!("{}: {took:?}", view.0);
    }
    browser.assert_content();
}
