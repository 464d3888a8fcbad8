//! Why the log or a state machine failed, as openraft passes it on.

use std::error::Error;
use std::{fmt, io};

use openraft::errors::ErrorSource;
use serde::{Deserialize, Serialize};
use umbel_ports::chain_text;

/// A text that tells whoever runs the node what to do. What openraft did when it came up is no help, and is left out
/// where the node says why it stops.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Advice(pub String);

impl From<Advice> for io::Error {
    fn from(advice: Advice) -> Self {
        Self::other(advice)
    }
}

/// The cause in an error of openraft.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StorageFault {
    text: String,
    is_advice: bool,
}

impl StorageFault {
    /// The text of the [`Advice`] that is the cause of an error of openraft, if there is one.
    pub fn advice_in(error: &dyn Error) -> Option<&str> {
        let fault = error.source()?.downcast_ref::<Self>()?;
        fault.is_advice.then_some(fault.text.as_str())
    }
}

impl fmt::Display for StorageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for StorageFault {}

impl ErrorSource for StorageFault {
    fn from_error<E: Error + 'static>(error: &E) -> Self {
        let cause: &(dyn Error + 'static) = error;
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let is_advice = inner.is_some_and(<dyn Error + Send + Sync>::is::<Advice>);
        Self { text: chain_text(error), is_advice }
    }

    fn from_string(text: impl ToString) -> Self {
        Self { text: text.to_string(), is_advice: false }
    }
}
