//! `umbel filter create`: the settings of a new filter.

use super::replicated::report_unconfirmed;
use super::show::{summary_facts, summary_json};
use super::window::WindowArgs;
use crate::amounts::{parse_bytes, parse_count};
use crate::exit::{UsageError, refuse};
use crate::printer::{facts, print};
use crate::stderr::eprint_line;
use anyhow::Result;
use clap::Args;
use umbel_client::{Client, Distribution, Hashing, Kind, NewFilter, kind_in_messages};
use umbel_filter::Kind as FilterKind;

/// Default probability that an absent item is reported as present.
const DEFAULT_RATE: f64 = 0.01;

/// The highest rate at which a filter that was planned by its size is taken for meant: above, most absent items are
/// reported present.
const USEFUL_RATE_MAX: f64 = 0.5;

/// Arguments of `umbel filter create`.
#[derive(Args)]
pub(super) struct CreateArgs {
    /// Its name: 1 to 1,024 bytes of UTF-8 without control characters
    name: String,
    /// Planned number of different items, like 1000000, 1e6, 10M, 1G (powers of 1,000)
    #[arg(long, value_name = "COUNT", value_parser = parse_count, required_unless_present = "like")]
    capacity: Option<u64>,
    /// Chance that an absent item is reported present at that number [default: 0.01]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Size of one copy, instead of a rate, like 64M or 2G (powers of 1,024)
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, conflicts_with = "rate")]
    memory: Option<u64>,
    /// blocked, classic, partitioned, single-shot, counting, cuckoo, quotient, scalable, redisbloom, aging or
    /// stable; docs/filters.md says which when
    #[arg(long, value_name = "KIND", value_parser = parse_kind, default_value_t = FilterKind::Blocked)]
    kind: FilterKind,
    /// Hash with a public seed, faster: only for items that no adversary chooses
    #[arg(long)]
    public_hash: bool,
    /// Keep a complete copy on every node: a node answers alone, others get its changes later (blocked
    /// or single-shot filters, and windows)
    #[arg(long)]
    replicated: bool,
    #[command(flatten)]
    window: WindowArgs,
    /// Use the shape and key of this filter, so that the two can be merged
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["capacity", "rate", "memory", "kind", "public_hash", "replicated", "window"]
    )]
    like: Option<String>,
}

impl CreateArgs {
    /// Creates the filter and prints its settings.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if options contradict each other; if the call to the cluster fails.
    pub(super) async fn run(&self, client: &Client, json: bool) -> Result<()> {
        let created = client.create(&self.name, &self.settings()?).await?;
        let unconfirmed = &created.unconfirmed_nodes;
        let mut value = summary_json(&created.filter);
        value["unconfirmed_nodes"] = unconfirmed.as_slice().into();
        print(json, &value, || facts(&summary_facts(&created.filter)))?;
        if let Some(warning) = self.of_little_use(created.filter.false_positive_rate) {
            eprint_line(warning);
        }
        report_unconfirmed(
            unconfirmed,
            "each makes its copy as soon as it hears of it, and knows no such filter until then",
        );
        Ok(())
    }

    /// A warning if the size that was named makes a filter that tells little.
    fn of_little_use(&self, rate: f64) -> Option<String> {
        (self.memory.is_some() && rate > USEFUL_RATE_MAX).then(|| {
            format!(
                "{} reports {:.0} of 100 absent items present once it has its capacity: give it more --memory, \
                 or name a --rate",
                self.name,
                rate * 100.0
            )
        })
    }

    fn settings(&self) -> Result<NewFilter, UsageError> {
        if let Some(like) = &self.like {
            return Ok(NewFilter::like(like));
        }
        if self.replicated && !matches!(self.kind, FilterKind::Blocked | FilterKind::SingleShot) {
            refuse!("--replicated is for --kind blocked and --kind single-shot");
        }
        let window = self.window.window()?;
        if window.is_some() && self.memory.is_some() {
            refuse!("--window is for filters that are planned by --rate");
        }
        if self.replicated
            && window.as_ref().is_some_and(|window| window.event_time || window.manual)
        {
            refuse!(
                "--event-time and --window manual are for partitioned filters: items of a replicated \
                 window come when they arrive, and its slices end by time"
            );
        }
        let capacity = self.capacity.unwrap_or(0);
        let sized = match self.memory {
            Some(memory_bytes) => NewFilter::for_memory(capacity, memory_bytes),
            None => NewFilter::for_rate(capacity, self.rate.unwrap_or(DEFAULT_RATE)),
        };
        let kind = if window.is_some() { FilterKind::Window } else { self.kind };
        let kind = kind_in_messages(kind);
        let hashing = match (kind, self.public_hash) {
            (Kind::Redisbloom, true) => {
                refuse!(
                    "--public-hash is for other kinds: redisbloom has RedisBloom's own, which is public"
                );
            }
            (Kind::Redisbloom, false) => Hashing::Redisbloom,
            (_, true) => Hashing::Public,
            (_, false) => Hashing::Keyed,
        };
        let distribution =
            if self.replicated { Distribution::Replicated } else { Distribution::Partitioned };
        Ok(NewFilter { kind, hashing, distribution, window, ..sized })
    }
}

/// Parses a value of `--kind`.
///
/// # Errors
///
/// If there is no such kind, or it is created by another option.
fn parse_kind(name: &str) -> Result<FilterKind, String> {
    match name.parse() {
        Ok(FilterKind::Window) => Err("a window is made by --window, without --kind".to_owned()),
        Ok(kind) => Ok(kind),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a rate above 0 and below 1.
///
/// # Errors
///
/// If the text is no such number.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate < 1.0);
    rate.ok_or_else(|| format!("`{text}` is not a rate above 0 and below 1, like 0.01"))
}

/// Parses a size of at least one byte.
///
/// # Errors
///
/// A [`UsageError`] if the text is no such size.
pub(crate) fn parse_memory(text: &str) -> Result<u64, UsageError> {
    match parse_bytes(text) {
        Ok(0) => Err(UsageError("0 bytes hold nothing: write 64M or 2G".into())),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(UsageError(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use umbel_client::Kind;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CreateArgs,
    }

    fn settings(line: &str) -> Result<NewFilter> {
        let line = Line::try_parse_from(["create"].into_iter().chain(line.split(' ')))?;
        Ok(line.args.settings()?)
    }

    #[test]
    fn a_filter_has_a_capacity_and_a_rate_or_a_size() {
        let plain = settings("seen --capacity 1e9").unwrap();
        assert_eq!((plain.capacity, plain.false_positive_rate), (1_000_000_000, 0.01));
        assert_eq!((plain.kind, plain.hashing), (Kind::Blocked, Hashing::Keyed));
        assert_eq!(plain.distribution, Distribution::Partitioned);
        let sized = settings("seen --capacity 10M --memory 64M --kind classic").unwrap();
        assert_eq!((sized.memory_bytes, sized.false_positive_rate), (64 << 20, 0.0));
        assert_eq!(sized.kind, Kind::Classic);
        let public = settings("seen --capacity 1 --rate 1e-6 --public-hash").unwrap();
        assert_eq!((public.hashing, public.false_positive_rate), (Hashing::Public, 1e-6));
        assert_eq!(settings("b --like a").unwrap(), NewFilter::like("a"));
        for line in [
            "seen",
            "seen --capacity many",
            "seen --capacity 1 --rate 0",
            "seen --capacity 1 --rate 1",
            "seen --capacity 1 --rate NaN",
            "seen --capacity 1 --rate 0.1 --memory 1M",
            "seen --capacity 1 --memory 0",
            "seen --capacity 1 --kind ribbon",
            "seen --capacity 1 --kind window",
            "seen --like a --capacity 1",
            "seen --like a --kind blocked",
            "seen --like a --replicated",
        ] {
            assert!(settings(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_size_that_is_too_small_is_warned_of_and_a_rate_is_what_was_asked_for() {
        let warning = |line: &str, rate| {
            let line = Line::try_parse_from(["create"].into_iter().chain(line.split(' ')));
            line.unwrap().args.of_little_use(rate)
        };
        let small = warning("seen --capacity 400 --memory 64", 0.858).unwrap();
        assert!(small.starts_with("seen reports 86 of 100 absent items"), "{small}");
        assert_eq!(warning("seen --capacity 400 --memory 640", 0.02), None);
        assert_eq!(warning("seen --capacity 400 --rate 0.9", 0.9), None);
    }

    #[test]
    fn a_window_is_partitioned_or_replicated() {
        for (word, distribution) in
            [("", Distribution::Partitioned), (" --replicated", Distribution::Replicated)]
        {
            let line = |more: &str| format!("today --capacity 1 --window 1h{word}{more}");
            let made = settings(&line(" --slices 6 --refresh")).unwrap();
            let window = made.window.unwrap();
            assert_eq!((made.kind, made.distribution), (Kind::Window, distribution));
            assert_eq!((window.slice_ms, window.slice_count, window.refresh), (600_000, 6, true));
            for (more, expected) in [
                (" --memory 1M", "planned by --rate"),
                (" --slices 0", "--slices 0: expected 1 to 62"),
                (" --slices 63", "--slices 63: expected 1 to 62"),
                (" --slices 7", "number of slices, like 6"),
                (" --slices 7", "does not cut a window of 3600000 ms into"),
            ] {
                let error = settings(&line(more)).unwrap_err();
                assert!(
                    error.is::<UsageError>() && error.to_string().contains(expected),
                    "{error}"
                );
            }
        }
        for more in ["1h --event-time", "manual"] {
            let line = format!("today --capacity 1 --replicated --window {more}");
            let error = settings(&line).unwrap_err();
            assert!(error.to_string().contains("are for partitioned filters"), "{error}");
        }
        assert!(settings("today --capacity 1 --window 1h --event-time").is_ok());
    }

    #[test]
    fn only_two_kinds_are_replicated() {
        for kind in ["blocked", "single-shot"] {
            let wanted = settings(&format!("near --capacity 1 --replicated --kind {kind}"));
            assert_eq!(wanted.unwrap().distribution, Distribution::Replicated);
        }
        let kinds =
            FilterKind::ALL.into_iter().filter(|kind| !kind.merges_by_or() || kind.is_bit_array());
        let kinds = kinds.filter(|kind| !matches!(kind, FilterKind::Blocked | FilterKind::Window));
        for kind in kinds {
            let refused = settings(&format!("near --capacity 1 --replicated --kind {kind}"));
            let error = refused.unwrap_err();
            assert!(error.is::<UsageError>(), "{error}");
            assert!(error.to_string().contains("blocked and --kind single-shot"), "{error}");
        }
    }
}
