//! Each view shows the cluster's present state, at every width and in both colour schemes.

use serde_json::json;
use umbel_client::{Client, Distribution, NewFilter};

use crate::accessible::axe;
use crate::browser;
use crate::servers::{Cluster, umbel};
use crate::webdriver::Browser;

/// The name of each view, and an expression that is true in the page once it is shown.
pub(crate) const VIEWS: [(&str, &str); 5] = [
    ("cluster", "document.querySelectorAll('.range-row .leader').length === 4"),
    ("filters", "document.querySelectorAll('tbody .bar').length > 1"),
    ("jobs", "document.querySelector('.empty:not([hidden])')"),
    ("repair", "document.querySelector('tbody').innerText.includes('mail.seen')"),
    (
        "cube",
        "document.querySelectorAll('.corner').length === 3 && document.querySelectorAll('.edge').length === 2",
    ),
];

/// A name that would be markup if it were not escaped.
pub(crate) const HOSTILE: &str = "<img src=x onerror=\"document.title='broken'\">";

/// Such a name of a file.
const FILE_LIKE_MARKUP: &str = "<img src=x onerror=alert(1)>.txt";

/// As narrow as a small phone, and as wide as a desktop screen; in both colour schemes.
const LOOKS: [((u32, u32), &str); 4] =
    [((320, 720), "dark"), ((320, 720), "light"), ((1920, 1080), "dark"), ((1280, 860), "light")];

impl Browser {
    /// Selects a view in the open console, and waits until it is live.
    pub(crate) fn choose(&self, view: &str, sign: &str) {
        self.run(&format!("location.hash = '{view}';"));
        self.until_shown(
            &format!("the view {view} is live"),
            &format!("document.getElementById('connection').dataset.state === 'live' && {sign}"),
        );
    }

    pub(crate) fn assert_content(&self) {
        let complaints = self.complaints();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_is_live_and_fits_every_window() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form(3).await;
    fill(&cluster.client()).await;
    browser.open(&format!("http://{}/console", cluster.nodes[0].address));
    browser.choose("cluster", VIEWS[0].1);
    browser.until_shown(
        "that the clocks agree",
        "[...document.querySelectorAll('.figures > div')] \
           .some((figure) => /^Clocks\\s+agree\\s/.test(figure.innerText))",
    );
    for (view, sign) in VIEWS {
        browser.choose(view, sign);
        let footer = browser.run("return document.getElementById('node').innerText;");
        let (_, cluster) = cluster.nodes[0].membership();
        assert_eq!(
            footer,
            format!("node 1 · cluster {cluster} · umbel {}", env!("CARGO_PKG_VERSION"))
        );
        for (size, scheme) in LOOKS {
            browser.look(size, scheme);
            let shown = browser.run(
                "return [document.documentElement.scrollWidth, innerWidth, \
                 getComputedStyle(document.body).backgroundColor];",
            );
            assert!(shown[0].as_u64() <= shown[1].as_u64(), "{view} at {size:?}: {shown}");
            let is_dark = shown[2].as_str().unwrap().starts_with("rgb(16,");
            assert_eq!(is_dark, scheme == "dark", "{shown}");
        }
    }
    browser.assert_content();
}

/// Creates filters of every distribution, with various names and a few items.
pub(crate) async fn fill(client: &Client) {
    let replicated =
        NewFilter { distribution: Distribution::Replicated, ..NewFilter::for_rate(200_000, 0.001) };
    client.create("crawl.seen", &NewFilter::for_rate(1_000_000, 0.001)).await.unwrap();
    client.create("mail.seen", &replicated).await.unwrap();
    client.create(HOSTILE, &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    for (name, count) in [("crawl.seen", 60_000), ("mail.seen", 150_000), (HOSTILE, 1500)] {
        let items: Vec<String> = (0..count).map(|item| item.to_string()).collect();
        for items in items.chunks(50_000) {
            client.filter(name).insert(items).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_shown_as_they_fill_and_open_at_a_click() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form(3).await;
    fill(&cluster.client()).await;
    browser.open(&format!("http://{}/console#filters", cluster.nodes[0].address));
    browser.choose("filters", VIEWS[1].1);
    let row = |name: &str| {
        format!(
            "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes({name:?}))"
        )
    };
    browser.until_shown("a name that could be markup is text", &row(HOSTILE));
    browser.until_shown(
        "the kind",
        &format!("{}.innerText.includes('blocked, replicated')", row("mail.seen")),
    );
    let is_safe =
        "return document.title === 'Filters – Umbel' && !document.querySelector('main img');";
    assert_eq!(browser.run(is_safe), true);
    browser.until_shown(
        "what is too full is said to be",
        &format!("{}.innerText.includes('full')", row(HOSTILE)),
    );
    // The button with its name opens and closes it, and keeps the focus.
    browser.run(&format!(
        "const found = {}.querySelector('button'); found.focus(); found.click();",
        row("crawl.seen")
    ));
    browser.until_shown(
        "slices of the filter",
        "[...document.querySelectorAll('h2')].some((title) => title.innerText === 'crawl.seen')",
    );
    assert_eq!(browser.run("return document.activeElement.innerText;"), "crawl.seen");
    let client = cluster.client();
    let mut next = 0;
    let shown = format!("/in \\d+ /.test({}.innerText)", row("crawl.seen"));
    while browser.run(&format!("return {shown};")) != true {
        let items: Vec<String> = (next..next + 100).map(|item| format!("new {item}")).collect();
        client.filter("crawl.seen").insert(&items).await.unwrap();
        next += 100;
    }
    browser.run("const field = document.getElementById('prefix'); field.value = 'mail'; field.dispatchEvent(new Event('change'));");
    browser.until_shown(
        "one filter is left",
        "document.querySelectorAll('tbody th button').length === 1",
    );
    browser.assert_content();
}

/// The repeats on a job's page: half of the lines of node 2's input.
fn assert_repeats(browser: &Browser, input: &str) {
    let second = format!("node 2: {input}");
    browser.until_shown(
        "which file repeats which",
        &format!(
            "document.querySelectorAll('.matrix .square').length === 1 \
             && document.querySelector('.square title').textContent === '100,000 in 2, of 1' \
             && document.querySelector('.units').lastElementChild.innerText === {second:?}"
        ),
    );
    let told = browser.run(
        "const rows = (caption) => [...document.querySelectorAll('table')] \
           .find((table) => table.caption.innerText === caption).tBodies[0].rows; \
         const texts = (row) => [...row.cells].map((cell) => cell.innerText.trim()); \
         return [texts(rows('Files with the most repeats')[1]), texts(rows('Groups by size')[0]), \
           rows('The largest groups').length, document.querySelectorAll('main img').length];",
    );
    assert_eq!(
        told,
        json!([
            ["All files", "400,000", "0", "100,000", "25.0 %"],
            ["2 to 3 times", "100,000", "100,000", "100.0 %"],
            20,
            0,
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_shown_from_its_first_phase_to_its_end() {
    let Some(browser) = browser() else { return };
    let roots = tempfile::Builder::new().prefix("umbel-roots-").tempdir().unwrap();
    let root = roots.path().display().to_string();
    let cluster = Cluster::form_with(2, |node| node.set("UMBEL_JOB_ROOTS", &root)).await;
    browser.open(&format!("http://{}/console#jobs", cluster.nodes[0].address));
    browser.choose("jobs", VIEWS[2].1);
    let lines =
        |node: u32| (0..200_000).map(|line| format!("{}\n", line * node)).collect::<String>();
    let input = |node: u32| format!("{root}/{node} {FILE_LIKE_MARKUP}");
    for node in [1, 2] {
        std::fs::write(input(node), lines(node)).unwrap();
    }
    let page = format!("{root}/page.html");
    let mut job = umbel(&[
        "dedup",
        "--quiet",
        "--cluster",
        &cluster.nodes[0].address,
        "--on",
        &format!("1={}", input(1)),
        "--on",
        &format!("2={}", input(2)),
        "--output",
        &format!("{root}/unique/"),
        "--report",
        &page,
    ]);
    let mut job = job.spawn().unwrap();
    browser.until_shown(
        "the job runs",
        "document.querySelectorAll('tbody tr').length === 1 \
         && document.querySelector('tbody').innerText.includes('node 1, node 2')",
    );
    browser.until_shown(
        "the job is done, after all of its phases",
        "document.querySelector('tbody').innerText.includes('done') \
         && document.querySelectorAll('.phases .over').length === 9",
    );
    assert!(job.wait().unwrap().success());
    // Half of the second file's lines are also in the first one.
    browser.run("document.querySelector('tbody th button').click();");
    browser.until_shown(
        "what was kept and what was repeated",
        "document.querySelector('.parts .kept')?.style.width === '75%' \
         && document.querySelector('.parts .repeated').style.width === '25%' \
         && document.querySelector('.pictures').innerText.includes('repeated: 100,000 (25.0 %)') \
         && document.querySelector('.pictures').innerText.includes('exchange')",
    );
    assert_repeats(&browser, &input(2));
    // The page that was written by the submitting command shows the same.
    let page = std::fs::read_to_string(page).unwrap();
    let markup = FILE_LIKE_MARKUP.replace('<', "&lt;").replace('>', "&gt;");
    assert!(page.contains(&format!("worker 1: {root}/2 {markup}")) && !page.contains("<img"));
    for (size, scheme) in LOOKS {
        browser.look(size, scheme);
        let fits = "return document.documentElement.scrollWidth <= innerWidth;";
        assert_eq!(browser.run(fits), true, "{size:?}");
        browser.assert_accessible(&format!("a job at {size:?}, {scheme}"), axe().as_deref());
    }
    browser.assert_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_killed_shows_as_silent_and_the_page_of_one_as_not_live() {
    let Some(browser) = browser() else { return };
    let mut cluster = Cluster::form(3).await;
    browser.open(&format!("http://{}/console", cluster.nodes[0].address));
    browser.choose("cluster", VIEWS[0].1);
    cluster.nodes[2].kill();
    browser.until_shown(
        "the silent node is marked, and its shards have other leaders",
        "document.querySelector('.range-row[data-kind=bad] .mark')?.textContent === '!' \
         && document.querySelector('.figures').innerText.includes('2 of 3') \
         && document.querySelectorAll('[data-kind=good] .leader').length === 4",
    );
    cluster.nodes[1].kill();
    browser.until_shown(
        "the node that is left says that it hears no majority, since when, and shows what it knows",
        "/does not hear a majority of the cluster since \\d\\d?:\\d\\d:\\d\\d.* It shows what it knows/.test( \
           document.getElementById('notice').textContent) \
         && document.querySelectorAll('.range-row').length === 3",
    );
    cluster.nodes[0].kill();
    browser.until_shown(
        "the page says that it is not live",
        "document.getElementById('connection').textContent.startsWith('not live since')",
    );
    cluster.nodes.iter_mut().for_each(crate::servers::Server::start);
    browser.until_shown(
        "the page is live again by itself",
        "document.getElementById('connection').dataset.state === 'live' \
         && document.querySelectorAll('.range-row[data-kind=good]').length === 3 \
         && document.getElementById('notice').hidden",
    );
    browser.assert_content();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_used_by_keyboard_and_told_in_tables() {
    let Some(browser) = browser() else { return };
    let cluster = Cluster::form(1).await;
    browser.open(&format!("http://{}/console", cluster.nodes[0].address));
    browser.choose("cluster", VIEWS[0].1);
    // The first stop of the Tab key is a link to the view.
    browser.press("\u{e004}\u{e007}");
    browser.until_shown("the view has the focus", "document.activeElement.id === 'main'");
    // A table's region keeps the focus when its rows change.
    browser.run("document.querySelector('.scroller').focus();");
    let client = cluster.client();
    client.create("seen", &NewFilter::for_rate(1000, 0.01)).await.unwrap();
    browser.until_shown(
        "another filter is counted",
        "[...document.querySelectorAll('.figures div')].some((pair) => pair.innerText.startsWith('Filters\\n1'))",
    );
    browser.until_shown("the focus stayed", "document.activeElement.className === 'scroller'");
    let named = browser.run(
        "return [...document.querySelectorAll('[role=img], nav, .scroller')] \
         .every((part) => part.getAttribute('aria-label')) \
         && document.querySelectorAll('main, nav, header, footer').length === 4 \
         && document.querySelectorAll('table caption').length === document.querySelectorAll('table').length;",
    );
    assert_eq!(named, true);
    browser.assert_content();
}
