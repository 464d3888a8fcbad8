//! `umbel cluster merge`: merges shards one after the other, the last one first.

use super::split::is_passing;
use super::{POLL_INTERVAL, WAIT_S};
use crate::clock::Stopwatch;
use crate::exit::refuse;
use crate::printer::{facts, print};
use crate::units::seconds;
use crate::waiting::Waiting;
use anyhow::{Error, Result, bail};
use clap::Args;
use serde_json::json;
use umbel_client::proto::MergeShardResponse;
use umbel_client::{Client, StatusResponse};

/// Arguments of `umbel cluster merge`.
#[derive(Args)]
pub(super) struct MergeArgs {
    /// Merge until there are this many shards [default: one fewer]
    #[arg(long, value_name = "SHARDS")]
    to: Option<u32>,
    /// Fail after this time: seconds, or like 10m
    #[arg(long, value_name = "TIME", default_value_t = WAIT_S, value_parser = seconds)]
    timeout: u64,
}

impl MergeArgs {
    /// Merges shards until there are as few as requested. Merges that are done stay, even if a later one
    /// fails.
    pub(super) async fn run(&self, client: &Client, json: bool) -> Result<()> {
        let (watch, mut waiting) = (Stopwatch::start(), Waiting::start());
        let (mut count, wanted) = counts(&client.status().await?, self.to)?;
        let mut merges = Vec::new();
        while count > wanted {
            waiting.show(&format!("merges shards: {count}, to be {wanted}"));
            match client.merge_shard(count - 1).await {
                Ok(merge) => {
                    merges.push(merge);
                    count -= 1;
                }
                // This merge may be done already, or not begin yet; the next call finds out.
                Err(error) if is_passing(&error) && watch.elapsed().as_secs() < self.timeout => {
                    waiting.show(&format!("merges shards: {count}, to be {wanted}: {error}"));
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(error) if is_passing(&error) => bail!(
                    "there are {count} shards, to be {wanted}, after {} s: {error}; what is merged stays so, and the \
                     same command goes on",
                    self.timeout
                ),
                Err(error) if !merges.is_empty() => {
                    return Err(Error::new(error).context(format!(
                        "there are {count} shards, to be {wanted}; what is merged stays so"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let pairs = merges
            .iter()
            .map(|MergeShardResponse { shard, gone }| json!({ "shard": shard, "gone": gone }));
        let value = json!({ "shards": count, "merges": pairs.collect::<Vec<_>>() });
        print(json, &value, || {
            let merged = match merges.as_slice() {
                [] => "none".to_owned(),
                [MergeShardResponse { shard, gone }] => format!("shard {gone} into shard {shard}"),
                all => format!("{} shards", all.len()),
            };
            facts(&[("shards", count.to_string()), ("merged", merged)])
        })
    }
}

/// How many shards there are, and how many there shall be.
fn counts(status: &StatusResponse, to: Option<u32>) -> Result<(u32, u32)> {
    // The cluster would refuse only the last one of these merges.
    if to == Some(0) {
        refuse!("--to 0: a cluster has at least one shard; nothing was merged");
    }
    let count = u32::try_from(status.shards.len())?;
    let wanted = to.unwrap_or(count.saturating_sub(1));
    if wanted > count {
        refuse!(
            "--to {wanted}: there are {count} shards; `umbel cluster split --to {wanted}` makes more"
        );
    }
    if wanted < count && status.auto_split && status.shards_wanted > wanted {
        bail!(
            "shards are split automatically until there are {}, so they would be split again, and nothing was \
             merged: run `umbel cluster split --auto off` first",
            status.shards_wanted
        );
    }
    Ok((count, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::UsageError;
    use umbel_client::proto::ShardStatus;

    fn status(shard_count: usize, auto_split: bool) -> StatusResponse {
        StatusResponse {
            shards: vec![ShardStatus::default(); shard_count],
            shards_wanted: 8,
            auto_split,
            ..StatusResponse::default()
        }
    }

    #[test]
    fn one_fewer_is_merged_unless_a_number_is_given() {
        let to = |to| counts(&status(6, false), to).unwrap();
        assert_eq!((to(None), to(Some(4)), to(Some(6))), ((6, 5), (6, 4), (6, 6)));
        // The cluster refuses that.
        assert_eq!(counts(&status(0, false), None).unwrap(), (0, 0));
    }

    #[test]
    fn a_number_above_the_present_one_is_for_splits() {
        let error = counts(&status(6, false), Some(7)).unwrap_err();
        assert!(error.is::<UsageError>());
        assert_eq!(
            error.to_string(),
            "--to 7: there are 6 shards; `umbel cluster split --to 7` makes more"
        );
    }

    #[test]
    fn no_shard_at_all_is_refused_before_anything_is_merged() {
        let error = counts(&status(6, false), Some(0)).unwrap_err();
        assert!(error.is::<UsageError>());
        assert_eq!(
            error.to_string(),
            "--to 0: a cluster has at least one shard; nothing was merged"
        );
    }

    #[test]
    fn what_would_be_split_again_is_not_merged() {
        let error = counts(&status(8, true), None).unwrap_err();
        assert!(!error.is::<UsageError>());
        assert_eq!(
            error.to_string(),
            "shards are split automatically until there are 8, so they would be split again, and nothing was \
             merged: run `umbel cluster split --auto off` first"
        );
        assert_eq!(counts(&status(6, true), Some(6)).unwrap(), (6, 6), "nothing is merged");
    }
}
