//! Converts panics of the `parquet` crate to errors.
//!
//! Its decoders index and unwrap by values from the file, and only some of them can be checked before.
//! A column that has panicked is never used again, so its inconsistent state is never read.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `work`, which reads or writes a file, and converts a panic to an error, a text for messages.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(text(panic.as_ref())))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the decoder gave up: {}", text.unwrap_or("no reason given"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let torn: Result<(), String> = caught(|| panic!("index {} is out of range", 7));
        assert_eq!(torn.unwrap_err(), "the decoder gave up: index 7 is out of range");
        assert_eq!(caught(|| Ok(1)), Ok(1));
    }
}
