//! The first signal asks the server to stop, the second one ends it.

use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Exit code of a process that was interrupted, as shells have it: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Whether somebody asked the server to stop.
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// From now on SIGINT, SIGTERM and SIGHUP ask to stop, and end the process when they come again.
    ///
    /// # Errors
    ///
    /// If the system refuses the handler.
    pub(crate) fn install() -> Result<Self> {
        let (sender, receiver) = watch::channel(false);
        let was_asked = AtomicBool::new(false);
        ctrlc::set_handler(move || {
            if was_asked.swap(true, Ordering::SeqCst) {
                std::process::exit(INTERRUPTED);
            }
            sender.send_replace(true);
        })
        .context("cannot handle signals")?;
        Ok(Self(receiver))
    }

    /// Waits until somebody asks.
    pub(crate) async fn asked(&mut self) {
        if self.0.wait_for(|is_asked| *is_asked).await.is_err() {
            // The handler lives as long as the process; without one nobody can ask.
            std::future::pending::<()>().await;
        }
    }
}
