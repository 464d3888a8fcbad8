//! Pictures of the console for `docs/`, and for review.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_client::proto::Kind;
use umbel_client::{Client, Distribution, NewFilter};

use crate::browser;
use crate::servers::{Cluster, umbel};

/// The folder for the pictures.
pub(crate) fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(std::env::var_os("UMBEL_CONSOLE_PICTURES").unwrap_or_else(|| "target".into()))
}

/// Filters that a crawler and a mail service could have, with their initial number of items.
fn filters() -> Vec<(&'static str, NewFilter, u32)> {
    let replicated = Distribution::Replicated;
    let counting = Kind::Counting;
    vec![
        ("crawl.de", NewFilter::for_rate(400_000, 0.001), 310_000),
        ("crawl.fr", NewFilter::for_rate(1_000_000, 0.001), 140_000),
        (
            "mail.seen",
            NewFilter { distribution: replicated, ..NewFilter::for_rate(200_000, 0.01) },
            60_000,
        ),
        ("orders.open", NewFilter { kind: counting, ..NewFilter::for_rate(50_000, 0.001) }, 20_000),
        ("sessions", NewFilter::for_rate(20_000, 0.01), 26_000),
    ]
}

async fn insert(client: &Client, name: &str, numbers: std::ops::Range<u32>) {
    let items: Vec<String> = numbers.map(|number| format!("{name} {number}")).collect();
    for items in items.chunks(50_000) {
        client.filter(name).insert(items).await.unwrap();
    }
}

/// A job over files of two nodes that have many lines in common.
fn dedup(cluster: &Cluster, root: &str) {
    let input = |node: u32| format!("{root}/{node}.txt");
    for node in [1, 2] {
        let line = |number: u64| format!("https://example.org/{}\n", number * number % 700_001);
        let lines: String = (0..400_000).map(|number| line(number + u64::from(node))).collect();
        std::fs::write(input(node), lines).unwrap();
    }
    let on = [1, 2].map(|node| format!("{node}={}", input(node)));
    let output = format!("{root}/unique/");
    let address = &cluster.nodes[0].address;
    let words = ["dedup", "--quiet", "--cluster", address, "--on", &on[0], "--on", &on[1]];
    let mut job = umbel(&words);
    let page = format!("{root}/page.html");
    let status = job.args(["--output", &output, "--report", &page]).status();
    assert!(status.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes pictures for people"]
async fn pictures() {
    let Some(browser) = browser() else { return };
    let roots = tempfile::Builder::new().prefix("umbel-roots-").tempdir().unwrap();
    let root = roots.path().display().to_string();
    let mut cluster = Cluster::form_with(3, |node| {
        node.set("UMBEL_SHARDS", "16");
        node.set("UMBEL_SCRUB_INTERVAL_S", "60");
        node.set("UMBEL_CONSOLE", "full");
        node.set("UMBEL_JOB_ROOTS", &root);
    })
    .await;
    let client = cluster.client();
    for (name, new, count) in filters() {
        client.create(name, &new).await.unwrap();
        insert(&client, name, 0..count).await;
    }
    let (goes_on, filler) = (Arc::new(AtomicBool::new(true)), cluster.client());
    let is_wanted = Arc::clone(&goes_on);
    let filling = tokio::spawn(async move {
        let mut next = 1_000_000;
        while is_wanted.load(Ordering::Relaxed) {
            for (name, share) in [("crawl.de", 40), ("crawl.fr", 300), ("mail.seen", 15)] {
                insert(&filler, name, next..next + share).await;
            }
            next += 1000;
        }
    });
    let wait_and_save = |view: &str, sign: &str, scheme: &str, height: u32| {
        browser.look((1280, height), scheme);
        if view != "operate" {
            browser.run(&format!("location.hash = '{view}'; window.scrollTo(0, 0);"));
        }
        let live = "document.getElementById('connection').dataset.state === 'live'";
        browser.until_shown(view, &format!("{live} && {sign}"));
        let path = folder().join(format!("console-{view}.png"));
        std::fs::write(&path, browser.picture()).unwrap();
    };
    browser.open(&format!("http://{}/console#filters", cluster.nodes[0].address));
    let forecast = "(document.body.innerText.match(/in \\d+/g) ?? []).length > 2";
    wait_and_save("filters", forecast, "dark", 640);
    browser.press_button("Drop sessions");
    browser.fill("typed", "sess");
    wait_and_save("operate", "document.querySelector('dialog')", "dark", 640);
    browser.leave();
    dedup(&cluster, &root);
    browser.run("location.hash = 'jobs';");
    browser.until_shown(
        "the job is done",
        "document.querySelector('tbody')?.innerText.includes('done')",
    );
    browser.run("document.querySelector('tbody th button').click();");
    wait_and_save("jobs", "document.querySelector('.square')", "light", 1760);
    wait_and_save("cube", "document.querySelectorAll('.corner').length === 3", "light", 860);
    goes_on.store(false, Ordering::Relaxed);
    filling.await.unwrap();
    let mut compared = client.scrub(Some("crawl.de")).await.unwrap();
    while compared.next().await.unwrap().is_some() {}
    wait_and_save("repair", "document.body.innerText.includes('equal')", "light", 860);
    cluster.nodes[2].kill();
    let silent = "document.querySelector('.range-row[data-kind=bad]') \
                  && document.querySelectorAll('[data-kind=good] .leader').length === 16";
    wait_and_save("cluster", silent, "light", 640);
}
