//! Filters that have another name for a while.
//!
//! A rename with an unknown outcome may be carried out much later: its entry may be in the log of a
//! leader that is cut off, and be committed after the cut. So a client stops when it gets the error that
//! the other name is unknown, and the filter is renamed back once more if a call after the faults does
//! not find it.

use std::time::Duration;

use umbel_client::{ClientError, ErrorCode};

use super::Clients;

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// The temporary name of a filter.
pub(super) fn other_name(filter: &str) -> String {
    format!("{filter}.renamed")
}

impl Clients {
    /// Renames a filter back to its own name, if it has the other one, and retries until there is a
    /// definite answer.
    pub(crate) async fn rename_back(&self, number: u32, via: u32, filter: &str) {
        let client = self.client(number, via);
        loop {
            match client.rename(&other_name(filter), filter).await {
                Ok(_) => return,
                // The filter was never renamed, has its own name again, or will be renamed later.
                Err(ClientError::Refused(failure)) if failure.cause == ErrorCode::UnknownFilter => {
                    return;
                }
                Err(_) => tokio::time::sleep(TRY_PAUSE).await,
            }
        }
    }
}
