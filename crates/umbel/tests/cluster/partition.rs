//! A leader without a network: the majority continues, and the minority gives no wrong answers.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::namespaces::Namespaces;
use crate::servers::{Cluster, Server, until, with_settings};

/// Longest duration of a command in the minority: three times the client's time limit.
const GIVE_UP: Duration = Duration::from_secs(90);

/// Nodes in their namespaces. The fields must be dropped in this order.
struct Divided {
    cluster: Cluster,
    spaces: Namespaces,
}

impl Divided {
    async fn form(count: usize) -> Option<Self> {
        let cluster = Cluster::none().await;
        let spaces = Namespaces::make(count)?;
        let mut divided = Self { cluster, spaces };
        let list: Vec<String> = (0..count).map(|number| divided.spaces.address(number)).collect();
        let list = list.join(",");
        for number in 0..count {
            let args = ["--insecure", "--initial-cluster", &list];
            let folder = divided.cluster.folder.path();
            let mut node = Server::new(folder, &divided.spaces.address(number), &args);
            let prefix = divided.spaces.prefix(number);
            node.run_through(&prefix.each_ref().map(String::as_str));
            node.start();
            divided.cluster.nodes.push(node);
        }
        for node in &mut divided.cluster.nodes {
            node.listening().await;
        }
        Some(divided)
    }

    /// `umbel` in a node's namespace, connected to that node.
    fn command(&self, number: usize, args: &str) -> Command {
        let prefix = self.spaces.prefix(number);
        let mut command = Command::new(&prefix[0]);
        with_settings(&mut command).args(&prefix[1..]).arg(env!("CARGO_BIN_EXE_umbel"));
        let mut words = args.split_whitespace();
        command.args(words.next()).args(["--cluster", &self.spaces.address(number)]).args(words);
        command
    }

    async fn run(&self, number: usize, args: &str) -> Output {
        let mut command = self.command(number, args);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Repeats a command until it succeeds.
    async fn run_until_done(&self, number: usize, args: &str) -> String {
        until(&format!("umbel {args}, at node {}", number + 1), || async {
            let output = self.run(number, args).await;
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        })
        .await
    }

    async fn status(&self, number: usize) -> Value {
        let text = self.run_until_done(number, "cluster status --json").await;
        serde_json::from_str(&text).unwrap()
    }
}

/// Items as command line arguments.
fn items(range: std::ops::Range<u32>) -> String {
    range.map(|number| format!("item-{number}")).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_network_says_nothing_wrong_and_the_others_go_on() {
    let Some(divided) = Divided::form(3).await else { return };
    divided.run_until_done(0, "filter create seen --capacity 10000 --rate 1e-6").await;
    let before = items(0..100);
    divided.run_until_done(0, &format!("filter insert seen {before}")).await;
    let ask_before = format!("filter contains seen {before} --each");

    let status = divided.status(0).await;
    let led = status["shards"].as_array().unwrap().iter().map(|shard| &shard["leader"]);
    let leader = led.map(|leader| leader.as_u64().unwrap()).find(|leader| *leader != 0).unwrap();
    let minority = usize::try_from(leader - 1).unwrap();
    let majority = (minority + 1) % 3;
    divided.spaces.set_cable(minority, false);

    // The majority has all earlier items, and accepts more.
    let during = items(100..200);
    let said =
        divided.run_until_done(majority, &format!("filter insert seen {during} --each")).await;
    assert_eq!(said.lines().count(), 100, "{said}");
    let found = divided.run_until_done(majority, &ask_before).await;
    assert_all_present(&found);

    // The minority cannot answer such queries either, and fails in time. Items that it knows are present
    // stay so.
    let ask_during = format!("filter contains seen {during} --each");
    let start = Instant::now();
    let (first, second, third) = tokio::join!(
        divided.run(minority, &ask_during),
        divided.run(minority, &ask_before),
        divided.run(minority, "filter insert seen lonely"),
    );
    assert!(start.elapsed() < GIVE_UP, "{:?}", start.elapsed());
    for output in [first, second] {
        let (found, said) = (text(&output.stdout), text(&output.stderr));
        assert!(!found.contains("absent"), "{found}");
        assert!(!output.status.success() || found.lines().count() == 100, "{said}");
    }
    assert!(!third.status.success(), "{}", text(&third.stdout));

    divided.spaces.set_cable(minority, true);
    for number in 0..3 {
        for ask in [&ask_before, &ask_during] {
            assert_all_present(&divided.run_until_done(number, ask).await);
        }
    }
    let found = divided.run_until_done(minority, &format!("filter insert seen {during}")).await;
    assert!(!found.is_empty());
}

/// The number of a node's sweeps in which every partner answered.
fn whole_sweeps(status: &Value) -> u64 {
    let count = |name: &str| status["exchange"][name].as_u64().unwrap();
    count("sweeps") - count("broken_sweeps")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_without_a_network_goes_on_and_has_everything_after_two_sweeps() {
    const COUNT: usize = 8;
    let Some(divided) = Divided::form(COUNT).await else { return };
    divided.run_until_done(0, "filter create seen --capacity 10000 --rate 1e-6 --replicated").await;
    let alone = COUNT - 1;
    // It knows the filter.
    divided.run_until_done(alone, "filter contains seen nothing more --level local --count").await;
    divided.spaces.set_cable(alone, false);

    // Both sides accept inserts, and neither knows of the other's.
    let (here, there) = (items(0..100), items(100..200));
    for (number, own) in [(0, &here), (alone, &there)] {
        let said = divided.run(number, &format!("filter insert seen {own} --ack local")).await;
        assert!(said.status.success(), "{}", text(&said.stderr));
        assert!(text(&said.stdout).contains("local"), "{}", text(&said.stdout));
    }
    let ask = |asked: &str| format!("filter contains seen {asked} --each --level local");
    assert_all_present(&divided.run_until_done(alone, &ask(&there)).await);
    let found = divided.run_until_done(alone, &ask(&here)).await;
    assert_eq!(found.lines().filter(|line| line.starts_with("absent\t")).count(), 100, "{found}");
    // There, a majority does not answer.
    let majority = format!("filter contains seen {here} --level majority");
    assert!(!divided.run(alone, &majority).await.status.success());

    divided.spaces.set_cable(alone, true);
    // Two whole sweeps after the one that may have started before.
    let before = whole_sweeps(&divided.status(alone).await);
    until("three whole sweeps", || async {
        let _ = divided.run(alone, "filter flush seen").await;
        (whole_sweeps(&divided.status(alone).await) >= before + 3).then_some(())
    })
    .await;
    for number in 0..COUNT {
        for asked in [&here, &there] {
            assert_all_present(&divided.run_until_done(number, &ask(asked)).await);
        }
    }
}

fn assert_all_present(found: &str) {
    let present_count = found.lines().filter(|line| line.starts_with("present\t")).count();
    assert_eq!(present_count, 100, "{found}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
