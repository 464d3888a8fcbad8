//! What the figures come from: machine, disk, versions.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tokio::time::Instant;

use crate::processes::parse_kib;
use crate::system::Places;
use crate::table::{grouped, median};

/// Writes that the disk is asked to keep, to see what each costs at least.
const PROBE_WRITES: usize = 100;

/// Bytes of each.
const PROBE_BYTES: usize = 4096;

/// Lines that describe the machine, as Markdown.
pub(crate) fn describe(places: &Places) -> Result<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let memory_kib = parse_kib(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0);
    let load: Vec<String> = read("/proc/loadavg").split(' ').take(3).map(str::to_owned).collect();
    fs::create_dir_all(&places.data).with_context(|| places.data.display().to_string())?;
    let file_system = file_system(&read("/proc/mounts"), &fs::canonicalize(&places.data)?);
    let mut text = String::new();
    writeln!(
        text,
        "Machine: {}, {cores} cores, {} GiB, Linux {}; load {} at the start; data on {}, where \
         fdatasync of {PROBE_BYTES} appended bytes takes {} µs (median of {PROBE_WRITES}). Client \
         and servers share the machine and talk over the loopback interface.",
        model.trim_start_matches(['\t', ' ', ':']),
        memory_kib >> 20,
        read("/proc/sys/kernel/osrelease").trim(),
        load.join(" "),
        file_system.as_deref().unwrap_or("an unknown file system"),
        grouped(probe_sync(&places.data)?),
    )?;
    writeln!(text, "Versions: {}; {}.", version(&places.umbel), version(&places.redis))?;
    if places.is_smoke {
        text.push_str("**A trial of the benchmark itself: its figures mean nothing.**\n");
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    writeln!(text, "Command: `benchmarks/service/run.sh {}`", words.join(" "))?;
    Ok(text)
}

/// What `PROGRAM --version` says first.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text.as_deref().ok().and_then(|text| text.lines().next()).map(str::to_owned);
    line.unwrap_or_else(|| format!("no {}", program.display()))
}

/// Type of the file system that holds a path: that of the longest mount point in front of it.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let points = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = points.filter(|(point, _)| path.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

/// Microseconds that the disk needs to keep a short write.
fn probe_sync(folder: &Path) -> Result<f64> {
    let path = folder.join(format!("probe-{}", std::process::id()));
    let mut file = fs::File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..PROBE_WRITES {
        let started = Instant::now();
        file.write_all(&[7; PROBE_BYTES])?;
        file.sync_data()?;
        times.push(started.elapsed().as_nanos() as f64 / 1e3);
    }
    fs::remove_file(&path)?;
    Ok(median(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_counts() {
        let mounts = "a / ext4 rw 0 0\nb /tmp tmpfs rw 0 0\nc /tmp/disk xfs rw 0 0\n";
        let kind = |path| file_system(mounts, Path::new(path));
        assert_eq!(kind("/var/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/tmp/x").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/tmp/disk/x").as_deref(), Some("xfs"));
        assert_eq!(kind("/tmpx").as_deref(), Some("ext4"));
    }
}
