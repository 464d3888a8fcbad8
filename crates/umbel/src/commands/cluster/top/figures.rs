//! The metrics of a node that are shown, and the rates of its counters.

use std::time::Duration;

/// Statuses of calls that the cluster failed to carry out; other calls succeeded or were refused with a
/// reason.
const FAILED: [&str; 6] =
    ["unavailable", "aborted", "internal", "unknown", "data_loss", "deadline_exceeded"];

/// Metrics of one node at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Figures {
    /// Calls answered since the node started.
    pub(super) calls: f64,
    /// Calls among them that failed.
    pub(super) failed_calls: f64,
    /// Commands of the Redis protocol since the node started.
    pub(super) commands: f64,
    /// Items in insert requests.
    pub(super) inserted: f64,
    /// Items in membership queries.
    pub(super) asked: f64,
    /// Bytes of filters in memory, with the copies of replicated ones.
    pub(super) filter_bytes: f64,
    /// Bytes written to the write-ahead log.
    pub(super) written_bytes: f64,
    /// Changes of replicated filters that some partner may lack.
    pub(super) lag: f64,
    /// Free bytes on the node's disk.
    pub(super) free_bytes: f64,
    /// Whether the node refuses inserts because its disk is almost full.
    pub(super) is_short: bool,
}

impl Figures {
    /// Reads the text of `/metrics`; metrics that are missing are 0.
    pub(super) fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            match name {
                "umbel_calls_total" => {
                    figures.calls += value;
                    let is_of = |status: &str| labels.contains(&format!("status=\"{status}\""));
                    if FAILED.into_iter().any(is_of) {
                        figures.failed_calls += value;
                    }
                }
                "umbel_resp_commands_total" => figures.commands += value,
                "umbel_insert_new_total" | "umbel_insert_present_total" => {
                    figures.inserted += value;
                }
                "umbel_contains_present_total" | "umbel_contains_absent_total" => {
                    figures.asked += value;
                }
                "umbel_filter_bytes" | "umbel_copy_bytes" => figures.filter_bytes += value,
                "umbel_wal_written_bytes_total" => figures.written_bytes += value,
                "umbel_copy_lag_changes" => figures.lag += value,
                "umbel_disk_free_bytes" => figures.free_bytes += value,
                "umbel_disk_is_short" => figures.is_short |= value > 0.0,
                _ => {}
            }
        }
        figures
    }

    /// The rates of the counters since earlier figures; None if the node has restarted since.
    pub(super) fn rates_since(&self, before: &Self, elapsed: Duration) -> Option<Rates> {
        let seconds = elapsed.as_secs_f64();
        let rate = |of: fn(&Self) -> f64| {
            let risen = of(self) - of(before);
            (risen >= 0.0 && seconds > 0.0).then(|| risen / seconds)
        };
        Some(Rates {
            calls: rate(|figures| figures.calls)?,
            failed_calls: rate(|figures| figures.failed_calls)?,
            commands: rate(|figures| figures.commands)?,
            inserted: rate(|figures| figures.inserted)?,
            asked: rate(|figures| figures.asked)?,
            written_bytes: rate(|figures| figures.written_bytes)?,
        })
    }
}

/// What one or several nodes do per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Rates {
    pub(super) calls: f64,
    pub(super) failed_calls: f64,
    pub(super) commands: f64,
    pub(super) inserted: f64,
    pub(super) asked: f64,
    pub(super) written_bytes: f64,
}

impl Rates {
    /// The sum of these rates and another node's.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            failed_calls: self.failed_calls + other.failed_calls,
            commands: self.commands + other.commands,
            inserted: self.inserted + other.inserted,
            asked: self.asked + other.asked,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP umbel_calls_total Calls.
# TYPE umbel_calls_total counter
umbel_calls_total{method=\"insert\",status=\"ok\"} 7
umbel_calls_total{method=\"insert\",status=\"unavailable\"} 2
umbel_calls_total{method=\"create\",status=\"already_exists\"} 1

umbel_filter_bytes 100
umbel_copy_bytes 20
umbel_disk_is_short 1
umbel_filter_items{filter=\"a b} 9\",distribution=\"partitioned\"} 5
torn";

    #[test]
    fn figures_are_sums_of_their_series() {
        let figures = Figures::read(TEXT);
        assert_eq!((figures.calls, figures.failed_calls), (10.0, 2.0));
        assert_eq!((figures.filter_bytes, figures.is_short), (120.0, true));
        assert_eq!(Figures::read("").calls, 0.0);
    }

    #[test]
    fn a_node_that_started_anew_has_no_rates() {
        let before = Figures { calls: 10.0, inserted: 4.0, ..Figures::default() };
        let after = Figures { calls: 30.0, inserted: 4.0, ..before };
        let two_seconds = Duration::from_secs(2);
        let rates = after.rates_since(&before, two_seconds).unwrap();
        assert_eq!((rates.calls, rates.inserted), (10.0, 0.0));
        assert_eq!(before.rates_since(&after, two_seconds), None);
        assert_eq!(after.rates_since(&before, Duration::ZERO), None);
        assert_eq!(rates.and(rates).calls, 20.0);
    }
}
