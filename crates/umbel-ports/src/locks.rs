//! Locks that do not spread a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a holder of the lock has panicked: only for what is consistent after every statement of its
/// holders, or is changed by code that cannot panic.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
