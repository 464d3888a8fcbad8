//! How much memory the process may use.

use std::path::{Path, PathBuf};

/// Assumed if the system does not tell.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// The lowest of the limits of the process's control groups and the machine's memory.
#[must_use]
pub fn memory_limit_bytes() -> u64 {
    limit_by(&|path| std::fs::read_to_string(path).ok())
}

fn limit_by(read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(group_files).flatten();
    let of_groups = of_groups.filter_map(|file| read(&file)?.trim().parse().ok());
    let meminfo = read(Path::new("/proc/meminfo")).unwrap_or_default();
    of_groups.chain(total_bytes(&meminfo)).min().unwrap_or(UNKNOWN_BYTES)
}

/// The files with the limits of a group and its parents, by its line in `/proc/self/cgroup`. In a
/// container the group's own folder is the visible root.
fn group_files(line: &str) -> Option<Vec<PathBuf>> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    let (root, name) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let folder = Path::new(root).join(group.trim_start_matches('/'));
    let above = folder.ancestors().take_while(|folder| folder.starts_with(root));
    Some(above.map(|folder| folder.join(name)).collect())
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(files: &[(&str, &str)]) -> u64 {
        limit_by(&|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_least_limit_counts() {
        let meminfo = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        assert_eq!(limit(&[]), UNKNOWN_BYTES);
        assert_eq!(limit(&[meminfo]), 16 << 20);
        let second = [
            meminfo,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1048576\n"),
        ];
        assert_eq!(limit(&second), 1 << 20);
        let first = [
            meminfo,
            ("/proc/self/cgroup", "3:cpu:/x\n4:memory:/docker/1\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n"),
        ];
        assert_eq!(limit(&first), 2 << 20);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_limit_bytes() > 1 << 20);
    }
}
