//! Processes of servers: started, watched through /proc, ended with this program.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// What the checks of unsafe code say; only binaries with debug assertions have this text.
const DEBUG_MARK: &[u8] = b"unsafe precondition(s) violated";

/// A process of a server. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; what it says goes to the log.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder)?;
        }
        let said = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        for (name, _) in std::env::vars_os() {
            // Settings of a server come from its flags only.
            if name.to_string_lossy().starts_with("UMBEL_") {
                command.env_remove(name);
            }
        }
        end_with_parent(&mut command);
        let child = command.spawn().with_context(|| program.display().to_string())?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// # Errors
    /// If it has ended, with the last lines of its log.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(5)..].join("\n");
            bail!("a server ended with {status}: {}:\n{last}", self.log.display());
        }
        Ok(())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    #[expect(unsafe_code, reason = "kill of the own child")]
    pub(crate) fn signal(&self, signal: libc::c_int) -> Result<()> {
        let id = libc::pid_t::try_from(self.child.id()).context("a process id")?;
        // SAFETY: kill touches no memory, and the child is not reaped before this value is gone.
        match unsafe { libc::kill(id, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context("kill"),
        }
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// If it ended badly.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        let Some(status) = self.child.try_wait()? else { return Ok(false) };
        ensure!(status.success(), "it ended with {status}: {}", self.log.display());
        Ok(true)
    }
}

impl Process {
    /// Kills it, if it has not ended.
    pub(crate) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its data are thrown away.
        self.end();
    }
}

/// The kernel ends the child if this program dies by whatever cause.
#[expect(unsafe_code, reason = "prctl in the child")]
fn end_with_parent(command: &mut Command) {
    // SAFETY: prctl with these arguments touches no memory and may be called after fork.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Different ports of the loopback address that are free now.
pub(crate) fn free_addresses(count: usize) -> Result<Vec<String>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}

/// # Errors
/// If the program is not there, or was built for debugging.
pub(crate) fn check_release(program: &Path) -> Result<()> {
    let bytes = fs::read(program)
        .with_context(|| format!("{}: build it with `cargo build --release`", program.display()))?;
    ensure!(
        !has_debug_mark(&bytes),
        "{} has debug assertions: build it with `cargo build --release`",
        program.display()
    );
    Ok(())
}

fn has_debug_mark(program: &[u8]) -> bool {
    program.windows(DEBUG_MARK.len()).any(|window| window == DEBUG_MARK)
}

/// Processor time of processes so far, user and system together.
pub(crate) fn processor_time(ids: &[u32]) -> Result<Duration> {
    let mut ticks = 0;
    for id in ids {
        let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
        ticks += parse_ticks(&text).with_context(|| format!("/proc/{id}/stat: {text}"))?;
    }
    Ok(Duration::from_secs(ticks) / ticks_per_second())
}

/// Bytes of memory that processes have now.
pub(crate) fn rss_bytes(ids: &[u32]) -> Result<u64> {
    let mut sum = 0;
    for id in ids {
        let text = fs::read_to_string(format!("/proc/{id}/status"))?;
        sum += parse_kib(&text, "VmRSS:").with_context(|| format!("/proc/{id}/status"))? * 1024;
    }
    Ok(sum)
}

/// Fields 14 and 15 of /proc/PID/stat, behind a name in brackets that may hold anything.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// A line like `VmRSS:     1234 kB`.
pub(crate) fn parse_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[expect(unsafe_code, reason = "the kernel's unit of processor time")]
fn ticks_per_second() -> u32 {
    // SAFETY: sysconf only returns a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u32::try_from(ticks).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 9 9 20 0 5 0 100 1 1";
        assert_eq!(parse_ticks(stat), Some(300));
        assert_eq!(parse_ticks("7 (a) S 1"), None);
        assert_eq!(parse_kib("VmPeak:\t 9 kB\nVmRSS:\t   1234 kB\n", "VmRSS:"), Some(1234));
        assert_eq!(parse_kib("VmPeak:\t 9 kB\n", "VmRSS:"), None);
    }

    #[test]
    fn this_process_has_time_and_memory() {
        let own = [std::process::id()];
        assert!(rss_bytes(&own).unwrap() > 0);
        processor_time(&own).unwrap();
    }

    #[test]
    fn a_debug_binary_is_recognized_by_its_checks() {
        assert!(has_debug_mark(b"\x7fELF..unsafe precondition(s) violated: x"));
        assert!(!has_debug_mark(b"\x7fELF"));
        assert!(check_release(Path::new("/nowhere/umbel")).is_err());
    }

    #[test]
    fn addresses_are_loopback_and_different() {
        let found = free_addresses(3).unwrap();
        assert!(found.iter().all(|address| address.starts_with("127.0.0.1:")));
        assert!(found[0] != found[1] && found[1] != found[2] && found[0] != found[2]);
    }
}
