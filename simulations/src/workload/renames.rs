//! Filters that have another name for a while.
//!
//! Nobody can tell when a rename whose outcome is unknown is too late to be carried out: it may stand in the log of a
//! leader that is cut off, and be committed when the cut is over. So a client that is told that the other name is
//! unknown stops, and the name is given back once more when a call does not find the filter after the faults.

use std::time::Duration;

use umbel_client::{ClientError, ErrorCode};

use super::Clients;

/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// What a filter is called for a while.
pub(super) fn other_name(filter: &str) -> String {
    format!("{filter}.renamed")
}

impl Clients {
    /// Gives a filter its own name again, which it may not have, as soon as somebody can.
    pub(crate) async fn rename_back(&self, number: u32, via: u32, filter: &str) {
        let client = self.client(number, via);
        loop {
            match client.rename(&other_name(filter), filter).await {
                Ok(_) => return,
                // It has kept it, or has it again, or gets the other one later.
                Err(ClientError::Refused(failure)) if failure.cause == ErrorCode::UnknownFilter => {
                    return;
                }
                Err(_) => tokio::time::sleep(TRY_PAUSE).await,
            }
        }
    }
}
