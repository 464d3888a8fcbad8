//! `deploy/monitoring` against running nodes: they serve every metric that the dashboard and the rules
//! name, and, if Prometheus is installed, every query and rule is valid and has results. And the table of all
//! metrics in `docs/operate.md`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use umbel_client::{
    Client, Distribution, KeyPairFiles, NewFilter, ReadLevel, TlsConnector, TlsFiles,
};
use umbel_ports::testing::free_port;

use crate::secure::{Secure, client, put_pair};
use crate::servers::{options, page, until};

/// The values of Grafana's variables if nodes are scraped every second.
const VARIABLES: [(&str, &str); 4] =
    [("$job", "umbel"), ("$cluster", ".*"), ("$instance", ".*"), ("$__rate_interval", "10s")];

/// Panels that may be empty: a filter that gets no items never fills up.
const EMPTY_AT_REST: [&str; 1] = ["Full in"];

/// The files that name all metrics, below `crates/`.
const SOURCES: [&str; 5] = [
    "umbel-gateway/src/filter_series.rs",
    "umbel-node/src/metrics/names.rs",
    "umbel-ports/src/metrics.rs",
    "umbel-raft/src/metrics.rs",
    "umbel-storage/src/metrics.rs",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring")
}

static RULES: LazyLock<String> =
    LazyLock::new(|| fs::read_to_string(folder().join("alerts.yaml")).unwrap());

/// The dashboard's queries with the titles of their panels.
fn queries() -> Vec<(String, String)> {
    let text = fs::read_to_string(folder().join("grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array();
        assert!(targets.is_some() || panel["type"] == "row", "{title} has no query");
        for target in targets.into_iter().flatten() {
            let mut query = target["expr"].as_str().unwrap().to_owned();
            for (name, value) in VARIABLES {
                query = query.replace(name, value);
            }
            assert!(!query.contains('$'), "{title}: an unknown variable: {query}");
            queries.push((title.to_owned(), query));
        }
    }
    queries
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with("umbel_")).map(str::to_owned).collect()
}

/// The names of the series among a node's metrics.
fn served(measurements: &str) -> BTreeSet<String> {
    let series = measurements.lines().filter(|line| !line.starts_with('#'));
    series.filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())).collect()
}

/// The names of all metrics, as the sources have them.
fn measured() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for file in SOURCES {
        let text = fs::read_to_string(crates.join(file)).unwrap();
        let quoted = text.split('"').filter(|part| part.starts_with("umbel_"));
        found.extend(quoted.map(|part| {
            part.chars().take_while(|c| *c == '_' || c.is_ascii_lowercase()).collect::<String>()
        }));
    }
    found
}

/// The names of all metrics, as the table has them: `a_{b,c}` are two, `a{b}` is one with a label, and `_c` is one of filters.
fn documented() -> BTreeSet<String> {
    let docs = include_str!("../../../../docs/operate.md");
    let rows = docs.lines().skip_while(|line| !line.starts_with("| `/metrics` |")).skip(2);
    let mut found = BTreeSet::new();
    for row in rows.map_while(|line| line.strip_prefix("| ")) {
        let (cell, _) = row.split_once(" | ").unwrap();
        for text in cell.split('`').skip(1).step_by(2) {
            let names: Vec<String> = match text.split_once("_{") {
                Some((begin, rest)) => {
                    let (choices, end) = rest.split_once('}').unwrap();
                    choices.split(',').map(|choice| format!("{begin}_{choice}{end}")).collect()
                }
                None if text.starts_with('_') => vec![format!("umbel_filter{text}")],
                None => vec![text.to_owned()],
            };
            let unlabelled = names.iter().filter_map(|name| name.split('{').next());
            found.extend(unlabelled.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let (measured, documented) = (measured(), documented());
    assert!(measured.len() > 60, "{measured:?}");
    let undocumented: Vec<&String> = measured.difference(&documented).collect();
    let unknown: Vec<&String> = documented.difference(&measured).collect();
    assert!(undocumented.is_empty() && unknown.is_empty(), "{undocumented:?} {unknown:?}");
}

/// Three nodes with TLS, with a filter of each distribution and some calls; and a certificate for their
/// metrics.
async fn nodes() -> (Secure, KeyPairFiles) {
    let secure = Secure::form().await;
    let pem = secure.authority.issue(&client("prometheus"), 1).unwrap();
    let pair = put_pair(&secure.folder(), "prometheus", &pem);
    let ca = secure.folder().join("ca.pem");
    let asking = secure.client(&ca, Some(pair.clone()), options());
    let replicated =
        NewFilter { distribution: Distribution::Replicated, ..NewFilter::for_rate(1000, 0.01) };
    for (name, new) in [("seen", NewFilter::for_rate(1000, 0.01)), ("near", replicated)] {
        asking.create(name, &new).await.unwrap();
        asking.filter(name).insert(["a", "b"]).await.unwrap();
        asking.filter(name).contains(["a", "c"], ReadLevel::Unspecified).await.unwrap();
    }
    (secure, pair)
}

fn client_of(secure: &Secure, address: &str, pair: &KeyPairFiles) -> Client {
    let files = TlsFiles { ca: secure.folder().join("ca.pem"), pair: Some(pair.clone()) };
    let options = umbel_client::ClientOptions { learns_nodes: false, ..options() };
    Client::connect_through(address, options, TlsConnector::open(files).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_measurement_that_is_named_is_served() {
    let mut named = names(&RULES);
    queries().iter().for_each(|(_, query)| named.extend(names(query)));
    assert!(named.len() > 40, "{named:?}");
    let (secure, pair) = nodes().await;
    let clients: Vec<Client> =
        secure.cluster.nodes.iter().map(|node| client_of(&secure, &node.address, &pair)).collect();
    let told = RefCell::new(BTreeSet::new());
    until("every measurement that is named", || async {
        let mut found = BTreeSet::new();
        for client in &clients {
            found.extend(served(&client.measurements().await.ok()?));
        }
        let missing: BTreeSet<String> = named.difference(&found).cloned().collect();
        if *told.borrow() != missing {
            eprintln!("not served yet: {missing:?}");
        }
        let is_all = missing.is_empty();
        told.replace(missing);
        is_all.then_some(())
    })
    .await;
}

/// A Prometheus process, which is killed when the test ends.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts one that scrapes the nodes and evaluates the rules.
    fn start(secure: &Secure, pair: &KeyPairFiles) -> Self {
        let folder = secure.folder();
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let targets: Vec<String> =
            secure.cluster.nodes.iter().map(|node| format!("{:?}", node.address)).collect();
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{}]\n\
             scrape_configs:\n  \
               - job_name: umbel\n    \
                 scheme: https\n    \
                 tls_config: {{ca_file: {}, cert_file: {}, key_file: {}}}\n    \
                 static_configs: [{{targets: [{}]}}]\n",
            quoted(&folder_of_rules()),
            quoted(&folder.join("ca.pem")),
            quoted(&pair.certificate),
            quoted(&pair.key),
            targets.join(", "),
        );
        let config = folder.join("prometheus.yaml");
        fs::write(&config, settings).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let log = File::create(folder.join("prometheus.log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, address }
    }

    /// Prometheus's response to a query; None if it does not respond.
    async fn ask(&self, query: &str) -> Option<String> {
        page(&self.address, &format!("/api/v1/query?query={}", encoded(query))).await
    }
}

fn folder_of_rules() -> PathBuf {
    fs::canonicalize(folder().join("alerts.yaml")).unwrap()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn is_there(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = version.status().is_ok_and(|status| status.success());
    if !is_there {
        eprintln!(
            "skipped: there is no {program} (Debian's package prometheus has it; .ci/run prometheus)"
        );
    }
    is_there
}

#[test]
fn the_rules_say_what_their_tests_expect() {
    if !is_there("promtool") {
        return;
    }
    for args in [
        "check rules alerts.yaml",
        "test rules alerts_test.yaml",
        "check config --syntax-only prometheus.yaml",
    ] {
        let words = args.split(' ');
        let output = Command::new("promtool").args(words).current_dir(folder()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{args}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_prometheus_answers_every_query_and_sees_a_node_go() {
    if !is_there("prometheus") {
        return;
    }
    let (mut secure, pair) = nodes().await;
    let prometheus = Prometheus::start(&secure, &pair);
    until("three nodes are scraped", || async {
        prometheus.ask("count(up == 1) == 3").await.filter(|answer| has_results(answer)).map(drop)
    })
    .await;
    for (title, query) in queries() {
        until(&format!("{title}: {query}"), || async {
            let answer = prometheus.ask(&query).await?;
            assert!(answer.contains("\"status\":\"success\""), "{title}: {query}: {answer}");
            (has_results(&answer) || EMPTY_AT_REST.contains(&&*title)).then_some(())
        })
        .await;
    }
    let rule_count = RULES.matches("- alert: ").count();
    until("every rule is evaluated without an error", || async {
        let rules = page(&prometheus.address, "/api/v1/rules").await?;
        assert!(!rules.contains("\"health\":\"err\""), "{rules}");
        (rules.matches("\"health\":\"ok\"").count() == rule_count).then_some(())
    })
    .await;
    let alerts = page(&prometheus.address, "/api/v1/alerts").await.unwrap();
    assert!(!alerts.contains("\"state\":\"firing\""), "nothing is wrong: {alerts}");

    secure.cluster.nodes[2].kill();
    let gone = format!("\"instance\":\"{}\"", secure.cluster.nodes[2].address);
    until("the node that is killed is an alert to be", || async {
        let alerts = page(&prometheus.address, "/api/v1/alerts").await?;
        (alerts.contains("UmbelNodeDown") && alerts.contains(&gone)).then_some(())
    })
    .await;
}

fn has_results(answer: &str) -> bool {
    answer.contains("\"result\":[{")
}
