//! `umbel access quota`: limits on the filters and memory of a principal or the cluster, and on a
//! principal's rates.

use crate::amounts::{parse_bytes, parse_count};
use crate::printer::{facts, print};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use umbel_client::Client;
use umbel_client::proto::{Quota, SetQuotaRequest, Usage};

/// Arguments of `umbel access quota`. Without a limit it shows those that are set.
#[derive(Args)]
pub(super) struct QuotaArgs {
    /// Name of the principal
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// Limits of the cluster: of all filters together, whoever created them
    #[arg(long, conflicts_with_all = ["name", "calls_per_second", "items_per_second", "bytes_per_second"])]
    all: bool,
    /// Maximum number of filters, like 100 or 2k
    #[arg(long, value_name = "N", value_parser = parse_count)]
    filters: Option<u64>,
    /// Maximum planned memory of filters, on all nodes together, like 512M or 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Maximum calls per second, on all nodes together
    #[arg(long, value_name = "N", value_parser = parse_count)]
    calls_per_second: Option<u64>,
    /// Maximum items per second that are inserted, queried or removed
    #[arg(long, value_name = "N", value_parser = parse_count)]
    items_per_second: Option<u64>,
    /// Maximum bytes per second of such items, like 64M
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    bytes_per_second: Option<u64>,
    /// Remove all limits that are not given; the cluster's memory limit returns to its default
    #[arg(long)]
    none: bool,
}

impl QuotaArgs {
    pub(super) async fn run(&self, client: &Client, as_json: bool) -> Result<()> {
        let change = Quota {
            filters: self.filters,
            memory_bytes: self.memory,
            calls_per_second: self.calls_per_second,
            items_per_second: self.items_per_second,
            bytes_per_second: self.bytes_per_second,
        };
        let principal = self.name.clone().unwrap_or_default();
        let request = SetQuotaRequest { principal, change: Some(change), from_none: self.none };
        let answer = client.set_quota(request).await?;
        let (quota, usage) = (answer.quota.unwrap_or_default(), answer.usage.unwrap_or_default());
        let mut shown = to_json(&quota, &usage);
        if let Some(object) = shown.as_object_mut() {
            object.insert("principal".to_owned(), json!(self.name));
        }
        print(as_json, &shown, || {
            let mut lines = used(&quota, &usage).to_vec();
            if !self.all {
                lines.extend(rates(&quota));
            }
            facts(&lines)
        })
    }
}

pub(super) fn to_json(quota: &Quota, usage: &Usage) -> Value {
    json!({
        "quota": {
            "filters": quota.filters,
            "memory_bytes": quota.memory_bytes,
            "calls_per_second": quota.calls_per_second,
            "items_per_second": quota.items_per_second,
            "bytes_per_second": quota.bytes_per_second,
        },
        "usage": { "filters": usage.filters, "memory_bytes": usage.memory_bytes },
    })
}

/// Filters and memory in use, each with its limit if it has one.
pub(super) fn used(quota: &Quota, usage: &Usage) -> [(&'static str, String); 2] {
    let of = |used: u64, most: Option<u64>| match most {
        Some(most) => format!("{used} of {most}"),
        None => used.to_string(),
    };
    [
        ("filters", of(usage.filters, quota.filters)),
        ("memory", of(usage.memory_bytes, quota.memory_bytes)),
    ]
}

/// A principal's limits per second.
pub(super) fn rates(quota: &Quota) -> [(&'static str, String); 3] {
    let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), |most| most.to_string());
    [
        ("calls/s", limit(quota.calls_per_second)),
        ("items/s", limit(quota.items_per_second)),
        ("bytes/s", limit(quota.bytes_per_second)),
    ]
}
