//! What a run may use of the machine, and what it means when its process died.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// How much real time a run may take for each second of processor time that it may use. Machines
/// have more work than this; only a run that waits for something that never comes takes so long.
const WALL_PER_CPU: u64 = 10;

/// Seconds of processor time between the signal that ends a run and the one that cannot be held up.
const GRACE_S: u64 = 5;

/// What one run may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Seconds of processor time that one run may use
    #[arg(long = "cpu-limit", value_name = "SECONDS", default_value_t = 120, global = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cpu_s: u64,
    /// MiB of address space that one run may use
    #[arg(long = "memory-limit", value_name = "MIB", default_value_t = 4096, global = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) memory_mib: u64,
}

/// Why a process ended without a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// It used up what it was given.
    Exceeded(String),
    /// It crashed.
    Crashed(String),
}

impl Limits {
    /// Holds this process to the limits, for good. Nothing of it shows in what the process computes.
    pub(crate) fn apply(self) -> Result<(), rustix::io::Errno> {
        let set = |resource, soft, hard| {
            setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })
        };
        let memory_bytes = self.memory_mib.saturating_mul(1 << 20);
        set(Resource::Core, 0, 0)?;
        set(Resource::Cpu, self.cpu_s, self.cpu_s.saturating_add(GRACE_S))?;
        set(Resource::As, memory_bytes, memory_bytes)?;
        self.end_when_it_hangs();
        Ok(())
    }

    const fn wall_s(self) -> u64 {
        self.cpu_s.saturating_mul(WALL_PER_CPU)
    }

    /// A run that waits for ever uses no processor time, so that limit does not end it.
    #[expect(
        clippy::disallowed_methods,
        reason = "real time, on a thread that only ends a process"
    )]
    fn end_when_it_hangs(self) {
        let wall_s = self.wall_s();
        // Without the thread a run that hangs is ended by whoever started the command.
        let _ = std::thread::Builder::new().name("limit".into()).spawn(move || {
            std::thread::sleep(Duration::from_secs(wall_s));
            std::process::exit(i32::from(Exit::Exceeded.code()));
        });
    }

    /// Says why a process died that was held to these limits. `messages` is what it wrote for people.
    pub(crate) fn explain(self, status: ExitStatus, messages: &str) -> Death {
        let Self { cpu_s, memory_mib } = self;
        let signal = status.signal();
        if signal == Some(Signal::XCPU.as_raw()) {
            return Death::Exceeded(format!("exceeded its processor time of {cpu_s} s"));
        }
        if signal == Some(Signal::KILL.as_raw()) {
            return Death::Exceeded(format!(
                "was killed: by the system, which had no memory left, or by its processor time of \
                 {cpu_s} s"
            ));
        }
        if status.code() == Some(i32::from(Exit::Exceeded.code())) {
            let wall_s = self.wall_s();
            return Death::Exceeded(format!("hung: {wall_s} s of real time, {cpu_s} s allowed"));
        }
        if messages.contains("memory allocation of") {
            return Death::Exceeded(format!("exceeded its memory of {memory_mib} MiB"));
        }
        let how = match (signal, status.code()) {
            (Some(signal), _) => format!("died by signal {signal}"),
            (None, code) => format!("ended with code {} and no report", code.unwrap_or(-1)),
        };
        let message = last_lines(messages, 12);
        Death::Crashed(if message.is_empty() { how } else { format!("{how}:\n{message}") })
    }
}

/// The last lines of a text.
fn last_lines(text: &str, line_count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(line_count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cpu_s: 120, memory_mib: 4096 };

    fn explained(raw_status: i32, messages: &str) -> Death {
        LIMITS.explain(ExitStatus::from_raw(raw_status), messages)
    }

    #[test]
    fn each_limit_is_distinguished_from_a_crash() {
        let texts = [
            (Signal::XCPU.as_raw(), "", "exceeded its processor time of 120 s"),
            (Signal::KILL.as_raw(), "", "was killed"),
            (
                Signal::ABORT.as_raw(),
                "memory allocation of 99 bytes failed",
                "exceeded its memory of 4096 MiB",
            ),
            (5 << 8, "", "hung: 1200 s"),
        ];
        for (status, messages, expected) in texts {
            let Death::Exceeded(what) = explained(status, messages) else {
                panic!("{expected}: taken for a crash");
            };
            assert!(what.starts_with(expected), "{what}");
        }
    }

    #[test]
    fn a_crash_reports_its_last_output() {
        let Death::Crashed(what) = explained(Signal::ABORT.as_raw(), "stack overflow\n") else {
            panic!("taken for a limit");
        };
        assert_eq!(what, "died by signal 6:\nstack overflow");
        let Death::Crashed(what) = explained(101 << 8, "") else { panic!("taken for a limit") };
        assert_eq!(what, "ended with code 101 and no report");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
