//! Signals that ask a process to end: SIGINT, SIGTERM and SIGHUP.
//!
//! SIGHUP stays ignored if it was when the process started: `nohup` leaves it so to what it starts, which is to
//! outlive its terminal.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of an interrupted process, by the shells' convention: 128 + SIGINT.
pub(crate) const INTERRUPTED: i32 = 130;

/// Calls `handle` for each of these signals, on a thread of its own, so that it may block.
///
/// # Errors
///
/// If no handler can be installed; such signals then end the process.
pub(crate) fn on_end_signal(mut handle: impl FnMut() + Send + 'static) -> io::Result<()> {
    let hangup = (!is_hangup_ignored()).then(SignalKind::hangup);
    let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup);
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        kinds.map(signal).collect::<io::Result<Vec<Signal>>>()?
    };
    spawn(move || {
        loop {
            runtime.block_on(poll_fn(|context| {
                let mut any = signals.iter_mut();
                if any.any(|signal| signal.poll_recv(context).is_ready()) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
            handle();
        }
    });
    Ok(())
}

/// Spawns a thread that nobody joins: it waits for signals until the process ends.
#[expect(clippy::disallowed_methods, reason = "signals come until the process ends")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

/// Whether SIGHUP is ignored now. Systems other than Linux do not say so; there it counts as not ignored.
fn is_hangup_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// The same, by the text of `/proc/PID/status`: `SigIgn` is a mask in hexadecimal digits, whose lowest bit is signal 1,
/// SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u128::from_str_radix(digits.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_says_whether_a_hangup_is_one() {
        let status =
            |mask: &str| format!("Name:\tumbel\nSigBlk:\t1\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        // SIGPIPE, which the standard library ignores, is signal 13.
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        for unknown in ["", "x"] {
            assert!(!ignores_hangup(&status(unknown)));
        }
        assert!(!ignores_hangup("Name:\tumbel\n"));
    }
}
