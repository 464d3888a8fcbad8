//! Resource limits of a run, and why a process that was held to them died.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// Seconds of real time that a run may take for each second of its processor time limit. A machine may be
/// busy with other work, so this is generous: only a run that hangs takes so long.
const WALL_PER_CPU: u64 = 10;

/// Seconds of processor time from the soft limit, at which a signal ends the run, to the hard limit,
/// whose signal cannot be caught.
const GRACE_S: u64 = 5;

/// What one run may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Seconds of processor time that one run may use
    #[arg(long = "cpu-limit", value_name = "SECONDS", default_value_t = Limits::DEFAULT.cpu_s, global = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cpu_s: u64,
    /// MiB of address space that one run may use
    #[arg(long = "memory-limit", value_name = "MIB", default_value_t = Limits::DEFAULT.memory_mib, global = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) memory_mib: u64,
}

/// Why a process ended without a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// It exceeded a limit.
    Exceeded(String),
    /// It crashed.
    Crashed(String),
}

impl Limits {
    /// Those of a command that names none.
    pub(crate) const DEFAULT: Self = Self { cpu_s: 120, memory_mib: 4096 };

    /// The arguments that name those which differ from the default, each after a space.
    pub(crate) fn arguments(self) -> String {
        let Self { cpu_s, memory_mib } = self;
        let mut text = String::new();
        if cpu_s != Self::DEFAULT.cpu_s {
            text += &format!(" --cpu-limit {cpu_s}");
        }
        if memory_mib != Self::DEFAULT.memory_mib {
            text += &format!(" --memory-limit {memory_mib}");
        }
        text
    }

    /// Applies the limits to this process for good. They do not affect what the process computes.
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

    /// Ends the process after `wall_s` seconds: a run that hangs may use no processor time.
    #[expect(
        clippy::disallowed_methods,
        reason = "real time, on a thread that only ends a process"
    )]
    fn end_when_it_hangs(self) {
        let wall_s = self.wall_s();
        // If the thread cannot be started, the user has to end a run that hangs.
        let _ = std::thread::Builder::new().name("limit".into()).spawn(move || {
            std::thread::sleep(Duration::from_secs(wall_s));
            std::process::exit(i32::from(Exit::Exceeded.code()));
        });
    }

    /// Says why a process died that was held to these limits. `messages` is its standard error.
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

    #[test]
    fn limits_other_than_the_default_are_arguments() {
        assert_eq!(Limits::DEFAULT.arguments(), "");
        assert_eq!(Limits { cpu_s: 5, ..LIMITS }.arguments(), " --cpu-limit 5");
        let both = Limits { cpu_s: 5, memory_mib: 512 };
        assert_eq!(both.arguments(), " --cpu-limit 5 --memory-limit 512");
    }

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
