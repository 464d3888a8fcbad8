//! Shows a sample as a page for people, as a line, and as a JSON object.

use super::super::look::{Colour, Look, harmless};
use super::super::notes::no_majority;
use super::super::ranges::picture;
use super::figures::{Figures, Rates};
use super::sample::{Jobs, Sample};
use crate::commands::job::progress_text;
use crate::printer::Rows;
use crate::units::size;
use serde_json::{Value, json};
use umbel_client::StatusResponse;
use umbel_client::proto::{DescribeJobResponse, NodeStatus};

const HEADING: [&str; 13] = [
    "node", "address", "state", "leads", "calls/s", "fail/s", "redis/s", "in/s", "ask/s", "log/s",
    "filters", "lag", "free",
];

/// The page of a sample; rates are those since `before`.
pub(super) fn page(sample: &Sample, before: &Sample, look: Look) -> String {
    let status = &sample.status;
    let mut text = format!(
        "cluster {}  epoch {}  {} nodes  {} of {} shards led  {} filters\n\n",
        status.cluster_id,
        status.epoch,
        sample.nodes().count(),
        sample.led_count(),
        status.shards.len(),
        status.filter_count,
    );
    text += &rows(sample, before, look.is_for_people).text_for(look.is_for_people);
    if look.is_for_people {
        text += &format!("\n{}", picture(status, look));
    }
    text += "\n";
    for trouble in troubles(sample) {
        text += &look.paint(Colour::ALARM, &trouble);
        text.push('\n');
    }
    text + &jobs_text(&sample.jobs)
}

fn rows(sample: &Sample, before: &Sample, people: bool) -> Rows {
    let mut rows = Rows::new(&HEADING, &[0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let bytes = |bytes: f64| if people { size(bytes) } else { format!("{bytes:.0}") };
    for node in sample.nodes() {
        let mut row = vec![
            node.node.to_string(),
            harmless(&node.address),
            if node.is_reachable { node.state.clone() } else { "silent".to_owned() },
            node.leader_count.to_string(),
        ];
        match sample.rates(before, node.node) {
            Some(rates) => {
                let counts =
                    [rates.calls, rates.failed_calls, rates.commands, rates.inserted, rates.asked];
                row.extend(counts.map(rate_text));
                row.push(bytes(rates.written_bytes));
            }
            None => row.extend(std::iter::repeat_n("-".to_owned(), 6)),
        }
        match sample.figures(node.node) {
            Some(figures) => row.extend([
                bytes(figures.filter_bytes),
                format!("{:.0}", figures.lag),
                bytes(figures.free_bytes),
            ]),
            None => row.extend(std::iter::repeat_n("-".to_owned(), 3)),
        }
        rows.push(row);
    }
    rows
}

/// A rate per second; below 10 with one decimal.
fn rate_text(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// Problems that the status shows, one line each.
fn status_troubles(status: &StatusResponse) -> Vec<String> {
    let mut troubles = Vec::new();
    // First, because a leader that is cut off from the others is still shown as one that leads.
    troubles.extend(no_majority(status).map(|(what, groups)| format!("{what} of {groups}")));
    let is_silent = |node: &&NodeStatus| node.state != "removed" && !node.is_reachable;
    for node in status.nodes.iter().filter(is_silent) {
        troubles.push(format!("node {} does not answer the others", node.node));
    }
    let leaderless: Vec<String> = status
        .shards
        .iter()
        .filter(|shard| shard.leader == 0)
        .map(|shard| shard.shard.to_string())
        .collect();
    if !leaderless.is_empty() {
        troubles.push(format!("no leader is known of shard {}", leaderless.join(", ")));
    }
    troubles
}

/// Problems of the cluster, one line each.
fn troubles(sample: &Sample) -> Vec<String> {
    let mut troubles = status_troubles(&sample.status);
    for (node, figures) in &sample.figures {
        match figures {
            Ok(figures) if figures.is_short => {
                troubles.push(format!("node {node} refuses inserts: its disk is nearly full"));
            }
            Ok(_) => {}
            Err(why) => troubles.push(format!("node {node}: no measurements: {}", harmless(why))),
        }
    }
    troubles
}

fn jobs_text(jobs: &Result<Jobs, String>) -> String {
    match jobs {
        Err(why) => format!("jobs are not known: {}\n", harmless(why)),
        Ok(jobs) => {
            let line = |found: &DescribeJobResponse| {
                let job = found.job.as_ref().map_or(0, |job| job.job);
                format!("job {job}: {}\n", harmless(&progress_text(found)))
            };
            let lines: String = jobs.shown.iter().map(line).collect();
            match jobs.running_count.saturating_sub(jobs.shown.len()) {
                0 => lines,
                more => format!("{lines}and {more} more jobs\n"),
            }
        }
    }
}

/// The sum of the rates and memory, and the largest lag, of all nodes whose metrics are known.
fn sums(sample: &Sample, before: &Sample) -> (Rates, Figures) {
    let mut rates = Rates::default();
    let mut figures = Figures::default();
    for node in sample.nodes() {
        rates = rates.and(sample.rates(before, node.node).unwrap_or_default());
        if let Some(own) = sample.figures(node.node) {
            figures.filter_bytes += own.filter_bytes;
            figures.lag = figures.lag.max(own.lag);
        }
    }
    (rates, figures)
}

/// The whole cluster in one line of names and values.
pub(super) fn line(sample: &Sample, before: &Sample) -> String {
    let (rates, figures) = sums(sample, before);
    let answering = sample.nodes().filter(|node| node.is_reachable).count();
    let jobs = match &sample.jobs {
        Ok(jobs) => jobs.running_count.to_string(),
        Err(_) => "-".to_owned(),
    };
    let facts = [
        ("nodes", format!("{answering}/{}", sample.nodes().count())),
        ("led", format!("{}/{}", sample.led_count(), sample.status.shards.len())),
        ("calls/s", rate_text(rates.calls)),
        ("failed/s", rate_text(rates.failed_calls)),
        ("redis/s", rate_text(rates.commands)),
        ("inserted/s", rate_text(rates.inserted)),
        ("asked/s", rate_text(rates.asked)),
        ("log_bytes/s", rate_text(rates.written_bytes)),
        ("filter_bytes", format!("{:.0}", figures.filter_bytes)),
        ("lag", format!("{:.0}", figures.lag)),
        ("jobs", jobs),
    ];
    let facts = facts.map(|(name, value)| format!("{name} {value}"));
    format!("{}\n", facts.join("\t"))
}

/// The sample as a JSON object.
pub(super) fn json(sample: &Sample, before: &Sample) -> Value {
    let node = |node: &NodeStatus| {
        let rates = sample.rates(before, node.node).map(|rates| {
            json!({
                "calls": rates.calls,
                "failed_calls": rates.failed_calls,
                "redis_commands": rates.commands,
                "inserted": rates.inserted,
                "asked": rates.asked,
                "log_bytes": rates.written_bytes,
            })
        });
        let figures = sample.figures(node.node).map(|figures| {
            json!({
                "filter_bytes": figures.filter_bytes,
                "lag_changes": figures.lag,
                "disk_free_bytes": figures.free_bytes,
                "disk_is_short": figures.is_short,
            })
        });
        json!({
            "node": node.node,
            "address": node.address,
            "state": node.state,
            "reachable": node.is_reachable,
            "leads": node.leader_count,
            "per_second": rates,
            "now": figures,
        })
    };
    json!({
        "epoch": sample.status.epoch,
        "shards": sample.status.shards.len(),
        "led": sample.led_count(),
        "nodes": sample.nodes().map(node).collect::<Vec<_>>(),
        "running_jobs": sample.jobs.as_ref().ok().map(|jobs| jobs.running_count),
        "troubles": troubles(sample),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_client::proto::ShardStatus;

    #[test]
    fn what_has_no_majority_is_a_trouble_though_it_has_a_leader() {
        let node = |node, is_reachable| NodeStatus {
            node,
            is_reachable,
            state: "live".to_owned(),
            meta_role: "voter".to_owned(),
            ..NodeStatus::default()
        };
        let shard = ShardStatus { leader: 1, replicas: vec![1, 2, 3], ..ShardStatus::default() };
        let mut status = StatusResponse {
            nodes: vec![node(1, true), node(2, false), node(3, false)],
            shards: vec![shard],
            ..StatusResponse::default()
        };
        let troubles = status_troubles(&status);
        assert!(
            troubles[0].starts_with("no majority of the meta group and shard 0: "),
            "{troubles:?}"
        );
        assert_eq!(
            troubles[1..],
            ["node 2 does not answer the others", "node 3 does not answer the others"]
        );
        status.nodes.iter_mut().for_each(|node| node.is_reachable = true);
        assert_eq!(status_troubles(&status), [""; 0]);
    }
}
