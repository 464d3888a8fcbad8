//! `umbel cluster upgrade`: shows the release of each node, and raises the cluster version to what all of
//! them can run.

use super::look::{Look, harmless};
use super::show::{Rows, facts_for, print};
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
        Ok(())
    }
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
        let versions = match node.failure.is_empty() {
            true => format!("{} to {}", node.oldest_version, node.newest_version),
            false => "-".to_owned(),
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
