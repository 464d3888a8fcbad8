//! `umbel cluster upgrade`: shows the release of each node, and raises the cluster version to what all of
//! them can run.

use super::look::{Look, harmless};
use crate::printer::{Rows, facts_for, print};
use anyhow::{Result, bail};
use clap::{Args, ColorChoice};
use serde_json::{Value, json};
use umbel_client::Client;
use umbel_client::proto::{NodeRelease, UpgradeResponse};

/// Arguments of `umbel cluster upgrade`.
#[derive(Args)]
pub(super) struct UpgradeArgs {
    /// Only show which release each node runs, and how far the version could be raised
    #[arg(long)]
    check: bool,
}

impl UpgradeArgs {
    pub(super) async fn run(&self, client: &Client, json: bool) -> Result<()> {
        let answer = client.upgrade(self.check).await?;
        let people = Look::of(ColorChoice::Auto).is_for_people;
        print(json, &json_of(&answer), || text_of(&answer, people))?;
        let silent = answer.nodes.iter().find(|node| !node.failure.is_empty());
        if let Some(NodeRelease { node, address, failure, .. }) = silent {
            bail!(
                "the version stays as it is, for node {node} at {address} does not say what it runs: {failure}; start \
                 it, or remove it, and try again"
            );
        }
        match held_down(&answer).filter(|_| !self.check) {
            Some(cause) => bail!("{cause}"),
            None => Ok(()),
        }
    }
}

/// Why the version is below what the newest release among the nodes can run, and what to do. None if it is
/// not: nodes that all run one release have nothing to wait for, even if there is a newer release.
fn held_down(answer: &UpgradeResponse) -> Option<String> {
    let newest = answer.nodes.iter().map(|node| node.newest_version).max()?;
    if newest <= answer.cluster_version {
        return None;
    }
    let is_older = |node: &&NodeRelease| node.newest_version < newest;
    let older = answer.nodes.iter().filter(is_older).map(|node| {
        let NodeRelease { node, address, release, newest_version, .. } = node;
        let release = if release.is_empty() { "an unnamed release" } else { release.as_str() };
        format!(
            "node {node} at {} runs {}, which can run versions up to {newest_version}",
            harmless(address),
            harmless(release)
        )
    });
    let older = older.collect::<Vec<_>>().join("; ");
    (!older.is_empty()).then(|| {
        format!(
            "the version is {}, and not {newest}, which other nodes can run: {older}; start the newer release there, \
             or remove the node, and try again",
            answer.cluster_version
        )
    })
}

fn json_of(answer: &UpgradeResponse) -> Value {
    let node = |node: &NodeRelease| {
        json!({
            "node": node.node,
            "address": node.address,
            "release": node.release,
            "versions": [node.oldest_version, node.newest_version],
            "failure": node.failure,
        })
    };
    json!({
        "cluster_version": answer.cluster_version,
        "newest_common": answer.newest_common,
        "nodes": answer.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

fn text_of(answer: &UpgradeResponse, people: bool) -> String {
    let newest = match answer.newest_common {
        0 => "-".to_owned(),
        newest => newest.to_string(),
    };
    let known =
        [("cluster version", answer.cluster_version.to_string()), ("all nodes can run", newest)];
    let mut text = facts_for(people, &known);
    let mut rows = Rows::new(&["", "number", "address", "release", "runs versions"], &[1]);
    for node in &answer.nodes {
        let release = if node.release.is_empty() { "-".to_owned() } else { node.release.clone() };
        let versions = if node.failure.is_empty() {
            format!("{} to {}", node.oldest_version, node.newest_version)
        } else {
            "-".to_owned()
        };
        let shown = |text: String| if people { harmless(&text) } else { text };
        rows.push(vec![
            "node".to_owned(),
            node.node.to_string(),
            shown(node.address.clone()),
            shown(release),
            versions,
        ]);
    }
    if people {
        text.push('\n');
    }
    text + &rows.text_for(people)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_an_older_release_holds_down_is_not_done() {
        let node = |node, release: &str, newest_version| NodeRelease {
            node,
            address: format!("n{node}:7070"),
            release: release.to_owned(),
            oldest_version: 1,
            newest_version,
            failure: String::new(),
        };
        let held = |cluster_version, nodes| {
            held_down(&UpgradeResponse { cluster_version, newest_common: cluster_version, nodes })
        };
        let mixed = vec![node(1, "0.3.0", 4), node(2, "0.2.0", 3), node(3, "", 3)];
        assert_eq!(
            held(3, mixed).unwrap(),
            "the version is 3, and not 4, which other nodes can run: node 2 at n2:7070 runs 0.2.0, which can run \
             versions up to 3; node 3 at n3:7070 runs an unnamed release, which can run versions up to 3; start the \
             newer release there, or remove the node, and try again"
        );
        // All run the same older build, or builds that differ in what is no matter of versions.
        assert_eq!(held(3, vec![node(1, "0.2.0", 3), node(2, "0.2.0", 3)]), None);
        assert_eq!(held(4, vec![node(1, "0.3.0", 4), node(2, "0.3.1", 4)]), None);
    }

    #[test]
    fn a_node_that_does_not_answer_has_no_versions() {
        let node = |node, failure: &str| NodeRelease {
            node,
            address: format!("n{node}:7070"),
            release: if failure.is_empty() { "0.1.0".to_owned() } else { String::new() },
            oldest_version: u32::from(failure.is_empty()),
            newest_version: u32::from(failure.is_empty()) * 2,
            failure: failure.to_owned(),
        };
        let nodes = vec![node(1, ""), node(2, "no answer within 2000 ms")];
        let answer = UpgradeResponse { cluster_version: 1, newest_common: 0, nodes };
        assert_eq!(
            text_of(&answer, false),
            "cluster version\t1\nall nodes can run\t-\n\
             node\t1\tn1:7070\t0.1.0\t1 to 2\nnode\t2\tn2:7070\t-\t-\n"
        );
        assert_eq!(json_of(&answer)["nodes"][1]["failure"], "no answer within 2000 ms");
    }
}
