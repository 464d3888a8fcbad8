//! Shows what the catalogue and the nodes report of filters, for people and programs.

use super::{outlook, replicated, window};
use crate::printer::{Rows, facts, print};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::IsTerminal;
use umbel_client::proto::SliceInfo;
use umbel_client::{Client, Distribution, FilterSummary, Hashing, InfoResponse};

/// Prints the filters whose names begin with a prefix.
///
/// # Errors
///
/// If the call to the cluster fails, or standard output cannot be written.
pub(super) async fn list(client: &Client, prefix: &str, json: bool) -> Result<()> {
    let filters = client.list(prefix).await?;
    let value = Value::Array(filters.iter().map(summary_json).collect());
    print(json, &json!({ "filters": value }), || {
        let heading =
            &["name", "kind", "capacity", "rate", "bytes", "hashing", "state", "distribution"];
        let mut rows = Rows::new(heading, &[2, 3, 4]);
        for filter in &filters {
            rows.push(vec![
                filter.name.clone(),
                kind_name(filter).to_owned(),
                filter.capacity.to_string(),
                rate_text(filter.false_positive_rate),
                filter.memory_bytes.to_string(),
                hashing_name(filter).to_owned(),
                filter.state.clone(),
                distribution_name(filter).to_owned(),
            ]);
        }
        rows.text()
    })
}

/// Prints the catalogue's entry of a filter.
///
/// # Errors
///
/// If standard output cannot be written.
pub(super) fn print_summary(json: bool, filter: &FilterSummary) -> Result<()> {
    print(json, &summary_json(filter), || facts(&summary_facts(filter)))
}

/// The catalogue's entry of a filter, as facts.
pub(super) fn summary_facts(filter: &FilterSummary) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("name", filter.name.clone()),
        ("kind", kind_name(filter).to_owned()),
        ("capacity", filter.capacity.to_string()),
        ("rate", rate_text(filter.false_positive_rate)),
        ("bytes", filter.memory_bytes.to_string()),
        ("hashing", hashing_name(filter).to_owned()),
        ("generation", filter.generation.to_string()),
        ("state", filter.state.clone()),
        ("distribution", distribution_name(filter).to_owned()),
    ];
    facts.extend(filter.expires_ms.map(|at_ms| ("expires", window::moment_text(Some(at_ms)))));
    facts.extend(filter.window.as_ref().map(|window| ("window", window::text(window))));
    facts
}

/// The catalogue's entry of a filter, as a JSON object.
pub(super) fn summary_json(filter: &FilterSummary) -> Value {
    json!({
        "name": filter.name,
        "filter_id": filter.filter_id,
        "kind": kind_name(filter),
        "capacity": filter.capacity,
        "false_positive_rate": filter.false_positive_rate,
        "memory_bytes": filter.memory_bytes,
        "hashing": hashing_name(filter),
        "key_id": key_id_text(filter),
        "generation": filter.generation,
        "state": filter.state,
        "distribution": distribution_name(filter),
        "window": filter.window.as_ref().map(window::json),
        "expires_ms": filter.expires_ms,
    })
}

/// What the nodes report of a filter, as facts; for a replicated filter, a table of its copies follows.
pub(super) fn info_text(info: &InfoResponse) -> String {
    let is_replicated = is_replicated(info);
    let mut lines = info.filter.as_ref().map(summary_facts).unwrap_or_default();
    lines.extend([
        ("items, estimated", info.item_count.map_or("full".to_owned(), |n| format!("{n:.0}"))),
        ("answered new", info.new_count.to_string()),
        ("rate now", rate_text(info.false_positive_rate_now)),
        ("ones", info.one_count.to_string()),
        ("positions", info.position_count.to_string()),
        ("bytes now", info.memory_bytes.to_string()),
    ]);
    lines.extend(outlook::rows(info));
    if !is_replicated {
        lines.push(("shards", info.slices.len().to_string()));
        return facts(&lines);
    }
    let mut text = facts(&lines);
    let people = std::io::stdout().is_terminal();
    let copies = replicated::copies_text(&info.copies, people);
    let distinct = info.distinct.as_ref().map(replicated::distinct_rows);
    for part in std::iter::once(copies).chain(distinct.map(|rows| rows.text_for(people))) {
        if people {
            text.push('\n');
        }
        text += &part;
    }
    text
}

/// What the nodes report of a filter, as a JSON object.
pub(super) fn info_json(info: &InfoResponse) -> Value {
    let slice = |slice: &SliceInfo| {
        json!({
            "shard": slice.shard,
            "leader": slice.leader,
            "positions": slice.position_count,
            "ones": slice.one_count,
            "new": slice.new_count,
            "memory_bytes": slice.memory_bytes,
        })
    };
    let mut value = json!({
        "filter": info.filter.as_ref().map(summary_json),
        "positions": info.position_count,
        "ones": info.one_count,
        "items_estimated": info.item_count,
        "false_positive_rate_now": info.false_positive_rate_now,
        "new": info.new_count,
        "memory_bytes": info.memory_bytes,
        "slices": info.slices.iter().map(slice).collect::<Vec<_>>(),
        "copies": info.copies.iter().map(replicated::copy_json).collect::<Vec<_>>(),
        "distinct": info.distinct.as_ref().map(replicated::distinct_json),
    });
    for (name, member) in outlook::members(info) {
        value[name] = member;
    }
    value
}

fn is_replicated(info: &InfoResponse) -> bool {
    let of_catalogue = |filter: &FilterSummary| filter.distribution() == Distribution::Replicated;
    info.filter.as_ref().is_some_and(of_catalogue) || !info.copies.is_empty()
}

fn kind_name(filter: &FilterSummary) -> &'static str {
    umbel_client::kind_name(filter.kind()).unwrap_or("unknown")
}

/// The number of the hash key, as text because many JSON readers cannot hold 64-bit integers; None if it is secret, and
/// the caller may not know it.
fn key_id_text(filter: &FilterSummary) -> Option<String> {
    let is_hidden = filter.hashing() == Hashing::Keyed && filter.key_id == 0;
    (!is_hidden).then(|| format!("{:#018x}", filter.key_id))
}

fn hashing_name(filter: &FilterSummary) -> &'static str {
    match filter.hashing() {
        Hashing::Unspecified => "unknown",
        Hashing::Keyed => "keyed",
        Hashing::Public => "public",
        Hashing::Redisbloom => "redisbloom",
    }
}

fn distribution_name(filter: &FilterSummary) -> &'static str {
    match filter.distribution() {
        Distribution::Unspecified | Distribution::Partitioned => "partitioned",
        Distribution::Replicated => "replicated",
    }
}

/// A rate with the digits that matter.
pub(super) fn rate_text(rate: f64) -> String {
    if rate == 0.0 || rate >= 1e-4 { format!("{rate:.6}") } else { format!("{rate:.3e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_client::proto::CopyInfo;

    #[test]
    fn rates_are_shown_with_the_digits_that_matter() {
        assert_eq!([0.0, 0.01, 1e-6].map(rate_text), ["0.000000", "0.010000", "1.000e-6"]);
    }

    #[test]
    fn a_key_that_is_hidden_is_null() {
        let key_id = |hashing: Hashing, key_id| {
            let hashing = hashing.into();
            summary_json(&FilterSummary { hashing, key_id, ..FilterSummary::default() })["key_id"]
                .clone()
        };
        assert!(key_id(Hashing::Keyed, 0).is_null());
        assert_eq!(key_id(Hashing::Keyed, 7), "0x0000000000000007");
        assert_eq!(key_id(Hashing::Public, 0), "0x0000000000000000");
    }

    #[test]
    fn a_filter_has_shards_or_copies() {
        let mut info = InfoResponse::default();
        assert!(info_text(&info).contains("\nshards"));
        info.filter = Some(FilterSummary {
            distribution: Distribution::Replicated.into(),
            ..FilterSummary::default()
        });
        info.copies = vec![CopyInfo { node: 7, ..CopyInfo::default() }];
        let text = info_text(&info);
        assert!(!text.contains("shards") && text.contains("replicated"), "{text}");
        assert!(text.contains("\ncopy") && text.contains("unreachable"), "{text}");
        let value = info_json(&info);
        assert_eq!(value["copies"][0]["node"], 7);
        assert_eq!(value["filter"]["distribution"], "replicated");
    }
}
