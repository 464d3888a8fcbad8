//! The trace of a run: one line per event, always hashed, and written to a file on request.
//!
//! A line is `<simulated microseconds> <host> <kind> <fields>`. The hash covers these lines at every
//! level, so it tells whether two runs were the same, whatever was written. At [`Level::Full`] the
//! file has a line for every event of `tracing` too, of every crate; these are not hashed.

mod layer;

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// How much of a run is written down.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Nothing; lines are only hashed.
    #[default]
    Off,
    /// The lines of the simulation.
    Event,
    /// Those, and every event of `tracing` in every crate.
    Full,
}

/// Digest of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceDigest {
    /// Lines of the simulation, without those of `tracing`.
    pub(crate) line_count: u64,
    /// Hash of these lines in their order; in reports 16 hexadecimal digits.
    #[serde(with = "hexadecimal")]
    pub(crate) hash: u64,
}

impl fmt::Display for TraceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines, hash {:016x}", self.line_count, self.hash)
    }
}

/// Where lines go.
struct Sink {
    digest: TraceDigest,
    file: Option<BufWriter<File>>,
    /// The first write error, reported at the end.
    failure: Option<io::Error>,
}

/// The sink of the process; `None` between runs, when lines are dropped.
static SINK: Mutex<Option<Sink>> = Mutex::new(None);

thread_local! {
    /// Reused from line to line, so that a line needs no allocation.
    static TEXT: Cell<String> = const { Cell::new(String::new()) };
}

/// Begins the trace of a run. At [`Level::Event`] and [`Level::Full`] it creates or truncates the file.
pub(crate) fn start(level: Level, path: Option<&Path>) -> io::Result<()> {
    let file = match path {
        Some(path) if level != Level::Off => {
            Some(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?))
        }
        _ => None,
    };
    if level == Level::Full {
        layer::install();
    }
    *sink() = Some(Sink { digest: empty(), file, failure: None });
    Ok(())
}

/// Adds a line: what happened (`kind`, with `fields` as `k=v`) on which host, and when.
pub(crate) fn line(at_us: u64, host: &str, kind: &str, fields: fmt::Arguments<'_>) {
    with_text(|text| {
        // Writing to a String fails only if a value's Display does; what it wrote stays.
        let _ = writeln!(text, "{at_us} {host} {kind} {fields}");
        if let Some(sink) = sink().as_mut() {
            sink.digest.line_count += 1;
            sink.digest.hash = extend(sink.digest.hash, text.as_bytes());
            sink.write(text);
        }
    });
}

/// Ends the trace and flushes the file. Returns an empty digest if no trace was started.
pub(crate) fn finish() -> TraceDigest {
    let Some(mut sink) = sink().take() else { return TraceDigest::default() };
    if let Some(file) = &mut sink.file
        && let Err(failure) = file.flush()
    {
        sink.failure.get_or_insert(failure);
    }
    if let Some(failure) = sink.failure {
        eprintln!("the trace file is not complete: {failure}");
    }
    sink.digest
}

impl Sink {
    fn write(&mut self, text: &str) {
        if let Some(file) = &mut self.file
            && let Err(failure) = file.write_all(text.as_bytes())
        {
            self.failure.get_or_insert(failure);
            self.file = None;
        }
    }
}

/// Writes a line without hashing it.
fn write_unhashed(text: &str) {
    if let Some(sink) = sink().as_mut() {
        sink.write(text);
    }
}

/// Lends this thread's buffer, emptied. If a line is traced while another one is formatted, by a value
/// whose formatting traces, it gets a new buffer.
fn with_text(make: impl FnOnce(&mut String)) {
    let mut text = TEXT.take();
    text.clear();
    make(&mut text);
    TEXT.set(text);
}

fn sink() -> MutexGuard<'static, Option<Sink>> {
    // The sink is still valid after a panic between two writes.
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn empty() -> TraceDigest {
    // FNV-1a of nothing.
    TraceDigest { line_count: 0, hash: 0xcbf2_9ce4_8422_2325 }
}

/// FNV-1a, 64 bits, continued.
fn extend(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A hash in JSON, where numbers above 2^53 do not survive every reader.
mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{hash:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(|_| {
            D::Error::custom(format_args!("expected a hash of 16 hexadecimal digits, got {text:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Held by tests that use the sink: the process has only one, and tests run in parallel.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn traced(level: Level, lines: &[&str]) -> (TraceDigest, String) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        start(level, Some(&path)).unwrap();
        for (at_us, text) in (0..).zip(lines) {
            line(at_us, "node-1", "test", format_args!("text={text}"));
        }
        let digest = finish();
        (digest, fs::read_to_string(&path).unwrap_or_default())
    }

    #[test]
    fn a_line_is_time_host_kind_fields() {
        let (digest, text) = traced(Level::Event, &["a", "b"]);
        assert_eq!(text, "0 node-1 test text=a\n1 node-1 test text=b\n");
        assert_eq!(digest.line_count, 2);
    }

    #[test]
    fn the_hash_is_that_of_the_file_and_the_same_at_every_level() {
        let (event, text) = traced(Level::Event, &["a", "b"]);
        assert_eq!(event.hash, extend(empty().hash, text.as_bytes()));
        let (off, nothing) = traced(Level::Off, &["a", "b"]);
        assert_eq!((off, nothing.as_str()), (event, ""));
    }

    #[test]
    fn another_line_or_order_is_another_hash() {
        let (one, _) = traced(Level::Off, &["a", "b"]);
        assert_ne!(one, traced(Level::Off, &["b", "a"]).0);
        assert_ne!(one, traced(Level::Off, &["a", "c"]).0);
        assert_ne!(one, traced(Level::Off, &["a"]).0);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(extend(empty().hash, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_value_that_traces_while_it_is_shown_is_no_deadlock() {
        struct Traces;
        impl fmt::Display for Traces {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                line(7, "inner", "shown", format_args!(""));
                f.write_str("value")
            }
        }
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        start(Level::Off, None).unwrap();
        line(8, "outer", "shows", format_args!("{Traces}"));
        assert_eq!(finish().line_count, 2);
    }

    #[test]
    fn at_full_events_of_tracing_are_written_and_not_hashed() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        start(Level::Full, Some(&path)).unwrap();
        tracing::info_span!(target: "turmoil::sim", "node", name = "node-2").in_scope(|| {
            tracing::debug!(target: "raft", term = 3, who = %"n1", "vote granted");
        });
        line(5, "node-1", "test", format_args!("a=1"));
        let digest = finish();
        let text = fs::read_to_string(&path).unwrap();
        // Other tests of this process may log too.
        let ours: Vec<&str> = text.lines().filter(|line| line.contains("node-")).collect();
        assert_eq!(ours, ["0 node-2 DEBUG raft vote granted term=3 who=n1", "5 node-1 test a=1"]);
        assert_eq!((digest.line_count, finish()), (1, TraceDigest::default()));
    }

    #[test]
    fn a_digest_survives_json_and_a_damaged_one_is_refused() {
        let digest = TraceDigest { line_count: 3, hash: u64::MAX - 1 };
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(json, r#"{"line_count":3,"hash":"fffffffffffffffe"}"#);
        assert_eq!(serde_json::from_str::<TraceDigest>(&json).unwrap(), digest);
        let error = serde_json::from_str::<TraceDigest>(r#"{"line_count":3,"hash":"xyz"}"#);
        assert!(error.unwrap_err().to_string().contains("16 hexadecimal digits"));
    }
}
