//! Real time. The clock of std stands still in this executable, because simulated time replaces it.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Microseconds of real time since a fixed moment.
pub(crate) fn wall_us() -> u64 {
    micros(clock_gettime(ClockId::Monotonic))
}

/// Microseconds of processor time that this process has used.
pub(crate) fn cpu_us() -> u64 {
    micros(clock_gettime(ClockId::ProcessCPUTime))
}

fn micros(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_move_on() {
        let (wall, cpu) = (wall_us(), cpu_us());
        let mut sum = 0_u64;
        while wall_us() < wall + 2_000 || cpu_us() <= cpu {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }

    #[test]
    fn a_time_is_counted_in_microseconds() {
        assert_eq!(micros(Timespec { tv_sec: 3, tv_nsec: 4_005_999 }), 3_004_005);
        assert_eq!(micros(Timespec { tv_sec: -1, tv_nsec: 0 }), 0);
    }
}
