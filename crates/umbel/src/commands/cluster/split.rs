//! `umbel cluster split`: splits shards one after the other, or has the cluster split them automatically.

use super::{POLL_INTERVAL, WAIT_S};
use crate::clock::Stopwatch;
use crate::exit::refuse;
use crate::printer::{facts, print};
use crate::stderr::eprint_line;
use crate::units::seconds;
use crate::waiting::Waiting;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::time::Duration;
use umbel_client::{Client, ClientError};
use umbel_engine::limits::SHARD_COUNT_MAX;
use umbel_engine::meta::pause_after_split;

/// Arguments of `umbel cluster split`.
#[derive(Args)]
pub(super) struct SplitArgs {
    /// Split until there are this many shards [default: one more]
    #[arg(long, value_name = "SHARDS")]
    to: Option<u32>,
    /// Do not pause between splits: faster, but callers that wait for one meet the next
    #[arg(long, conflicts_with = "auto")]
    at_once: bool,
    /// Split shards automatically as cores and filters grow, or not
    #[arg(long, value_name = "on|off", conflicts_with = "to")]
    auto: Option<Auto>,
    /// Fail after this time: seconds, or like 10m
    #[arg(long, value_name = "TIME", default_value_t = WAIT_S, value_parser = seconds)]
    timeout: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Auto {
    On,
    Off,
}

impl SplitArgs {
    pub(super) async fn run(&self, client: &Client, json: bool) -> Result<()> {
        match self.auto {
            Some(auto) => set_auto(client, auto == Auto::On, json).await,
            None => self.split(client, json).await,
        }
    }

    /// The pause after a split that took so long; None if `--timeout` ends before it.
    fn pause(&self, took: Duration, elapsed: Duration) -> Option<Duration> {
        let pause = if self.at_once { Duration::ZERO } else { pause_after_split(took) };
        ((elapsed + pause).as_secs() <= self.timeout).then_some(pause)
    }

    /// Splits shards until there are as many as requested. Splits that are done stay, even if a later one
    /// fails.
    async fn split(&self, client: &Client, json: bool) -> Result<()> {
        // The cluster would refuse only the first split beyond its limit.
        if let Some(wanted) = self.to.filter(|wanted| !(1..=SHARD_COUNT_MAX).contains(wanted)) {
            refuse!(
                "--to {wanted}: a cluster has 1 to {SHARD_COUNT_MAX} shards; nothing was split"
            );
        }
        let (watch, mut waiting) = (Stopwatch::start(), Waiting::start());
        let mut count = u32::try_from(client.status().await?.shards.len())?;
        let wanted = self.to.unwrap_or(count.saturating_add(1));
        if wanted < count {
            refuse!(
                "--to {wanted}: there are {count} shards; `umbel cluster merge --to {wanted}` makes fewer"
            );
        }
        let mut splits = Vec::new();
        let mut split_watch = Stopwatch::start();
        while count < wanted {
            waiting.show(&format!("splits shards: {count} of {wanted}"));
            match client.split_shard(count + 1).await {
                Ok(split) => {
                    splits.push((split.shard, split.into));
                    count += 1;
                    if count == wanted {
                        break;
                    }
                    let Some(pause) = self.pause(split_watch.elapsed(), watch.elapsed()) else {
                        bail!(
                            "there are {count} shards of {wanted} after {} s; the same command goes on, and --timeout \
                             gives it more time",
                            watch.elapsed().as_secs()
                        );
                    };
                    tokio::time::sleep(pause).await;
                    split_watch = Stopwatch::start();
                }
                // This split may be done already, or another may be in progress; the next call finds out.
                Err(error) if is_passing(&error) && watch.elapsed().as_secs() < self.timeout => {
                    waiting.show(&format!("splits shards: {count} of {wanted}: {error}"));
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(error) if is_passing(&error) => bail!(
                    "there are {count} shards of {wanted} after {} s: {error}; what is split stays so, and the same \
                     command goes on",
                    self.timeout
                ),
                Err(error) => return Err(error.into()),
            }
        }
        let pairs = splits.iter().map(|(shard, into)| json!({ "shard": shard, "into": into }));
        let value = json!({ "shards": count, "splits": pairs.collect::<Vec<_>>() });
        print(json, &value, || {
            let split = match splits.as_slice() {
                [] => "none".to_owned(),
                [(shard, into)] => format!("shard {shard}, whose upper half is shard {into}"),
                all => format!("{} shards", all.len()),
            };
            facts(&[("shards", count.to_string()), ("split", split)])
        })?;
        if !splits.is_empty() {
            warn_of_more(client, count).await;
        }
        Ok(())
    }
}

/// Says that more shards are split by themselves until all have one width again, if that is so.
async fn warn_of_more(client: &Client, count: u32) {
    let Ok(status) = client.status().await else { return };
    if status.auto_split && status.shards_wanted > count {
        eprint_line(format!(
            "shards are split by themselves, so others follow until there are {}: umbel cluster split --auto off \
             first, if you want {count}",
            status.shards_wanted
        ));
    }
}

/// Switches automatic splits on or off, and prints how many shards the cluster wants.
async fn set_auto(client: &Client, is_on: bool, json: bool) -> Result<()> {
    client.set_auto_split(is_on).await?;
    let status = client.status().await?;
    let (count, wanted) = (status.shards.len(), status.shards_wanted);
    let value = json!({ "shards": count, "shards_wanted": wanted, "auto_split": is_on });
    print(json, &value, || {
        let by = if is_on { "by themselves" } else { "by hand" };
        let wanted = ("shards wanted", wanted.to_string());
        facts(&[("shards", count.to_string()), wanted, ("split", by.to_owned())])
    })
}

/// Whether the same call may have another outcome later.
pub(super) fn is_passing(error: &ClientError) -> bool {
    matches!(error, ClientError::Unavailable(_) | ClientError::OrderUnknown(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_left_out_at_once_and_end_with_the_time() {
        let args = |at_once| SplitArgs { to: Some(9), at_once, auto: None, timeout: 10 };
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        assert_eq!(args(false).pause(ms(300), s(8)), Some(ms(900)));
        assert_eq!(args(true).pause(ms(300), s(8)), Some(Duration::ZERO));
        assert_eq!(args(false).pause(s(1), s(8)), None);
        assert_eq!(args(true).pause(s(1), s(11)), None);
    }
}
