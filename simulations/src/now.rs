//! What time it is in the world.

use std::cell::Cell;

thread_local! {
    static NOW_US: Cell<u64> = const { Cell::new(0) };
}

/// Simulated microseconds since the start of the run, the same on every host, whatever its own
/// clock says. It moves by whole ticks.
pub(crate) fn now_us() -> u64 {
    NOW_US.get()
}

/// The world has moved on.
pub(crate) fn set_now_us(now_us: u64) {
    NOW_US.set(now_us);
}
