//! Metrics of single filters in `/metrics`: how full each is, at the leaders of its shards or on each
//! node with a copy of it.
//!
//! A sample counts bits, so it is taken only when a client reads the metrics. The read waits for the
//! sample, but not long: a sample that takes longer appears in the next read. Each node reports its own
//! part, so that the parts of a partitioned filter add up over nodes. The text is rendered from the
//! newest sample alone: the series of a dropped filter end with the filter. A client gets only the
//! filters that it may read.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::{Duration, Instant, timeout};
use umbel_coordinator::Coordinator;
use umbel_coordinator::held::HeldFilter as Row;
use umbel_ports::locked;

/// Filters that are reported: those with the most memory. Series for all ten thousand filters of a
/// cluster would be more than all other metrics together.
const FILTERS_MAX: usize = 100;

/// Minimum age of a sample before the next one is taken: the usual scrape interval of Prometheus.
const SAMPLE_AGE_MIN: Duration = Duration::from_secs(15);

/// A sample is followed by a pause of this many times its duration: counting bits costs at most a fifth
/// of a core.
const PAUSE_FACTOR: u32 = 4;

/// How long a read waits for its sample: far below the ten seconds after which Prometheus gives up, and
/// above what a hundred filters of some megabytes take.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A series: its name, its meaning, and its value for a filter.
struct Series {
    name: &'static str,
    help: &'static str,
    value: fn(&Row) -> Option<f64>,
}

const SERIES: [Series; 13] = [
    Series {
        name: "umbel_filter_capacity_items",
        help: "Different items that the filter is planned for, on all nodes together.",
        value: |row| Some(float(row.capacity)),
    },
    Series {
        name: "umbel_filter_items",
        help: "Estimated different items in the filter's shards that this node leads, or in its copy.",
        value: |row| row.held.items,
    },
    Series {
        name: "umbel_filter_positions",
        help: "Bits, or counters, of these shards or this copy.",
        value: |row| Some(float(row.held.positions)),
    },
    Series {
        name: "umbel_filter_ones",
        help: "Those of them that are set.",
        value: |row| Some(float(row.held.ones)),
    },
    Series {
        name: "umbel_filter_memory_bytes",
        help: "Bytes of memory of these shards or this copy.",
        value: |row| Some(float(row.held.memory_bytes)),
    },
    Series {
        name: "umbel_filter_false_positive_rate",
        help: "Probability that an absent item is called present, mean of these shards or of this copy.",
        value: |row| Some(row.held.rate_now),
    },
    Series {
        name: "umbel_filter_false_positive_rate_measured",
        help: "Share of random items, asked for at this sample, that these shards or this copy called present.",
        value: |row| row.held.probes.rate(),
    },
    Series {
        name: "umbel_filter_new_items_per_second",
        help: "New items a second in these shards, or inserted on this node, those of the last hour counting more.",
        value: |row| row.held.outlook.new_per_second,
    },
    Series {
        name: "umbel_filter_capacity_eta_seconds",
        help: "Seconds until these shards have their share of the capacity, at that rate.",
        value: |row| row.held.outlook.seconds_to_capacity,
    },
    Series {
        name: "umbel_filter_rate_eta_seconds",
        help: "Seconds until these shards err as often as planned, at that rate.",
        value: |row| row.held.outlook.seconds_to_rate,
    },
    Series {
        name: "umbel_filter_growth_eta_seconds",
        help: "Seconds until one of these shards grows, at that rate.",
        value: |row| row.held.outlook.seconds_to_growth,
    },
    Series {
        name: "umbel_filter_unexplained_ones",
        help: "Set bits of these shards beyond those that chance and merges explain.",
        value: |row| row.held.unexplained_ones.map(float),
    },
    Series {
        name: "umbel_filter_false_positive_rate_planned",
        help: "The probability that the filter is planned for at its capacity.",
        value: |row| Some(row.rate_planned),
    },
];

const fn float(count: u64) -> f64 {
    count as f64
}

/// The newest sample, and when the next may be taken.
#[derive(Default)]
struct Newest {
    rows: Arc<Vec<Row>>,
    next_at: Option<Instant>,
    is_sampling: bool,
}

/// The metrics of single filters.
#[derive(Default)]
pub(super) struct FilterSeries {
    newest: Mutex<Newest>,
    /// Notified after each sample.
    taken: watch::Sender<()>,
}

impl FilterSeries {
    /// Starts a new sample if the newest is old, and waits for the sample in progress, at most `WAIT_MAX`.
    pub(super) async fn refresh(self: &Arc<Self>, coordinator: &Arc<Coordinator>) {
        let (series, coordinator) = (Arc::clone(self), Arc::clone(coordinator));
        self.refresh_by(async move { series.sample(&coordinator).await }).await;
    }

    async fn refresh_by(&self, sample: impl Future<Output = ()> + Send + 'static) {
        let (is_due, mut taken) = {
            let mut newest = locked(&self.newest);
            let is_due =
                !newest.is_sampling && newest.next_at.is_none_or(|next| next <= Instant::now());
            newest.is_sampling |= is_due;
            if !newest.is_sampling {
                return;
            }
            (is_due, self.taken.subscribe())
        };
        if is_due {
            tokio::spawn(sample);
        }
        // A sample that is not ready by then appears in the next read.
        let _ = timeout(WAIT_MAX, taken.changed()).await;
    }

    /// The newest sample as text, without filters that the client may not read.
    pub(super) fn text(&self, may_read: impl Fn(&str) -> bool) -> String {
        let rows = Arc::clone(&locked(&self.newest).rows);
        let readable: Vec<&Row> = rows.iter().filter(|row| may_read(&row.name)).collect();
        rendered(&readable)
    }

    async fn sample(&self, coordinator: &Coordinator) {
        let began = Instant::now();
        self.take(coordinator.held_filters(FILTERS_MAX).await, began);
    }

    /// Stores a sample that was begun at `began`.
    fn take(&self, rows: Vec<Row>, began: Instant) {
        let pause = (began.elapsed() * PAUSE_FACTOR).max(SAMPLE_AGE_MIN);
        let next_at = Some(Instant::now() + pause);
        *locked(&self.newest) = Newest { rows: Arc::new(rows), next_at, is_sampling: false };
        self.taken.send_replace(());
    }
}

/// The text in the format of Prometheus.
fn rendered(rows: &[&Row]) -> String {
    let mut text = String::new();
    for Series { name, help, value } in &SERIES {
        let mut lines = rows.iter().filter_map(|row| Some((row, value(row)?))).peekable();
        if lines.peek().is_none() {
            continue;
        }
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (row, value) in lines {
            let (filter, distribution) = (escaped(&row.name), row.distribution);
            let labels = format!("filter=\"{filter}\",distribution=\"{distribution}\"");
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
        text.push('\n');
    }
    text
}

/// A name, escaped as the value of a label.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use umbel_coordinator::catalogue::outlook::Outlook;
    use umbel_coordinator::held::HeldPart;
    use umbel_node::calls::RateProbes;

    use super::*;

    fn row(name: &str, items: Option<f64>) -> Row {
        let probes = RateProbes { probe_count: 200, hit_count: 3 };
        let outlook = Outlook { new_per_second: Some(2.5), ..Outlook::default() };
        let (positions, ones, memory_bytes, rate_now) = (8, 2, 64, 0.5);
        let unexplained_ones = Some(0);
        let held = HeldPart {
            positions,
            ones,
            items,
            memory_bytes,
            rate_now,
            probes,
            unexplained_ones,
            outlook,
        };
        Row {
            name: name.to_owned(),
            distribution: "partitioned",
            capacity: 9,
            rate_planned: 0.01,
            held,
        }
    }

    /// Reads with a sample of one filter that takes this long.
    async fn read(series: &Arc<FilterSeries>, took: Duration) -> (bool, Duration) {
        let (sampled, began) = (Arc::clone(series), Instant::now());
        let sample = async move {
            tokio::time::sleep(took).await;
            sampled.take(vec![row("seen", Some(1.0))], began);
        };
        series.refresh_by(sample).await;
        (series.text(|_| true).contains("filter=\"seen\""), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reading_has_a_sample_unless_that_takes_long() {
        let short = Duration::from_millis(200);
        let series = Arc::<FilterSeries>::default();
        assert_eq!(read(&series, short).await, (true, short));
        // The sample is recent enough: no other one is taken.
        assert_eq!(read(&series, short).await, (true, Duration::ZERO));

        let (series, long) = (Arc::<FilterSeries>::default(), 3 * WAIT_MAX);
        assert_eq!(read(&series, long).await, (false, WAIT_MAX));
        // A concurrent read waits for the same sample, and at most as long.
        assert_eq!(read(&series, short).await, (false, WAIT_MAX));
        tokio::time::sleep(2 * WAIT_MAX).await;
        assert_eq!(read(&series, short).await, (true, Duration::ZERO));
    }

    #[test]
    fn names_are_escaped_and_unknown_numbers_left_out() {
        let rows = [row("a\"} 1\n\\", Some(1.5)), row("full", None)];
        let text = rendered(&rows.iter().collect::<Vec<_>>());
        let items: Vec<&str> =
            text.lines().filter(|line| line.starts_with("umbel_filter_items")).collect();
        assert_eq!(
            items,
            [r#"umbel_filter_items{filter="a\"} 1\n\\",distribution="partitioned"} 1.5"#]
        );
        assert!(
            text.contains(
                "umbel_filter_positions{filter=\"full\",distribution=\"partitioned\"} 8\n"
            )
        );
        let has_value = |name: &str, value: &str| {
            let line = format!("{name}{{filter=\"full\",distribution=\"partitioned\"}} {value}\n");
            text.contains(&line)
        };
        assert!(has_value("umbel_filter_false_positive_rate_measured", "0.015"), "{text}");
        assert!(has_value("umbel_filter_new_items_per_second", "2.5"), "{text}");
        assert!(has_value("umbel_filter_unexplained_ones", "0"), "{text}");
        assert!(!text.contains("umbel_filter_capacity_eta_seconds"), "{text}");
        assert!(text.lines().all(|line| !line.starts_with('\\')), "{text}");
        assert_eq!(rendered(&[]), "");
    }
}
