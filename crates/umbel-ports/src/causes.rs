//! The causes of an error, which it names as its sources.

use std::error::Error;
use std::iter::successors;

/// The causes of an error, from the nearest one.
pub fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    successors(error.source(), |&cause| cause.source())
}

/// The texts of an error and its causes, from the outermost one, separated by colons.
pub fn chain_text(error: &(dyn Error + 'static)) -> String {
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
