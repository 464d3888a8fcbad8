//! Clocks for times and processor time in the summary. No result depends on them.

use std::time::{Duration, Instant};

/// A running stopwatch.
#[derive(Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a stopwatch.
    #[expect(clippy::disallowed_methods, reason = "time is measured here and nowhere else")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Time since the start or the last lap; begins a new lap.
    pub fn lap(&mut self) -> Duration {
        let lap = self.elapsed();
        *self = Self::start();
        lap
    }
}

/// Processor time of this process since a start. Time before it, such as that of a program which has replaced itself by
/// this one, does not count.
#[derive(Clone, Copy)]
pub struct ProcessorTime {
    start_s: f64,
}

impl ProcessorTime {
    /// Starts to count.
    pub fn start() -> Self {
        Self { start_s: process_cpu_seconds() }
    }

    /// Seconds since the start; 0 if the system does not provide them.
    pub fn seconds(self) -> f64 {
        process_cpu_seconds() - self.start_s
    }
}

fn process_cpu_seconds() -> f64 {
    // Fields 14 and 15 of /proc/self/stat are user and system time in ticks of 1/100 s, behind the name in brackets.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// The most memory that this process has had, in bytes; 0 if the system does not provide it.
pub(crate) fn rss_bytes_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
