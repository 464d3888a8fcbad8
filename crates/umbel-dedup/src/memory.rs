//! The memory that a job may use, and its division.

use crate::error::{Result, refuse};
use umbel_dedup_engine::Exactness;
use umbel_ports::memory_limit_bytes;

/// Default share of the machine's (or the control group's) memory.
const DEFAULT_SHARE: u64 = 4;

/// Most memory that a job takes by default.
const DEFAULT_BYTES_MAX: u64 = 1 << 30;

/// Least memory with which a job works.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Memory of a thread besides entries: a block of input, a run that is built and partitioned, a cell that is exchanged,
/// output that waits for its turn.
const THREAD_BYTES: u64 = 24 << 20;

/// Bytes that the sample takes per pair of workers in one process: all pairs have a frame at the same time (179 were
/// measured).
const PAIR_BYTES: u64 = 192;

/// Additional bytes per pair if items are compared, for the items that one sends to the other (at most 389 were measured).
const COMPARED_PAIR_BYTES: u64 = 400;

/// Bytes that a process with several workers takes besides pairs and entries.
const WORKERS_BASE_BYTES: u64 = 56 << 20;

/// Bytes that the pairs of this many workers in one process take.
pub(crate) fn pairs_bytes(workers: u32, exactness: Exactness) -> u64 {
    let workers = u64::from(workers);
    let each = match exactness {
        Exactness::Approximate { .. } => 0,
        Exactness::Fingerprint => PAIR_BYTES,
        Exactness::Bytes => PAIR_BYTES + COMPARED_PAIR_BYTES,
    };
    workers * workers * each
}

/// Refuses a memory limit that is too small for this many workers, before anything is read.
///
/// # Errors
///
/// A usage error with the least possible limit.
pub(crate) fn check_workers(memory_bytes: u64, workers: u32, exactness: Exactness) -> Result<()> {
    let least = WORKERS_BASE_BYTES + pairs_bytes(workers, exactness);
    if memory_bytes >= least || workers == 1 {
        return Ok(());
    }
    let (memory, least) = (memory_bytes >> 20, least.div_ceil(1 << 20));
    refuse!(
        "--memory {memory}M is too little for {workers} workers in one process: at least {least}M"
    )
}

/// As many threads as fit into half of the memory. The other half is for entries or, at a worker of a job over many
/// machines, for exchange tasks, connections and facts of chunks.
pub(crate) fn threads_for(memory_bytes: u64, cores: usize) -> usize {
    let fit = memory_bytes / 2 / THREAD_BYTES;
    cores.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
}

/// The threads of a job in one process: two at least, because the least memory has room for them and some entries.
pub(crate) fn threads_of_process(memory_bytes: u64, cores: usize) -> usize {
    threads_for(memory_bytes, cores).max(cores.min(2))
}

/// Bytes of entries (and later of the report) that are kept in memory; further ones go to scratch disk.
pub(crate) fn resident_bytes(memory_bytes: u64, threads: usize) -> u64 {
    (memory_bytes / 8 * 7).saturating_sub(THREAD_BYTES * threads as u64)
}

/// The default limit: 1 GiB, or a quarter of the memory that this process may use if that is less, but at least
/// [`MEMORY_BYTES_MIN`].
pub fn default_memory_bytes() -> u64 {
    let share = memory_limit_bytes() / DEFAULT_SHARE;
    share.clamp(MEMORY_BYTES_MIN, DEFAULT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_in_one_process_are_refused_with_the_least_that_holds() {
        let cases = [
            (Exactness::Fingerprint, 1, 64),
            (Exactness::Fingerprint, 200, 64),
            (Exactness::Fingerprint, 512, 104),
            (Exactness::Fingerprint, 1_024, 248),
            (Exactness::Bytes, 64, 64),
            (Exactness::Bytes, 512, 204),
            (Exactness::Bytes, 1_024, 648),
        ];
        for (exactness, workers, least) in cases {
            check_workers(least << 20, workers, exactness).unwrap();
            let refused = check_workers((least - 1) << 20, workers, exactness);
            if least > 64 {
                let text = refused.unwrap_err().to_string();
                assert!(text.ends_with(&format!("at least {least}M")), "{text}");
            }
            // The memory for entries is what remains after the sample.
            assert!(pairs_bytes(workers, exactness) < least << 20);
        }
    }

    #[test]
    fn threads_leave_memory_for_entries_on_any_machine() {
        for (memory, cores, threads) in [(64, 1, 1), (64, 64, 2), (1_024, 2, 2), (1_024, 64, 21)] {
            let memory_bytes = memory << 20;
            assert_eq!(threads_of_process(memory_bytes, cores), threads, "{memory}M, {cores}");
            assert!(resident_bytes(memory_bytes, threads) >= 8 << 20, "{memory}M, {cores}");
        }
        assert_eq!(threads_for(MEMORY_BYTES_MIN, 64), 1);
    }
}
