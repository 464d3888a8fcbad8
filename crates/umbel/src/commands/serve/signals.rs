//! The first signal stops the server gracefully, the second ends the process.

use crate::end_signals::{INTERRUPTED, on_end_signal};
use anyhow::{Context, Result};
use tokio::sync::watch;

/// Receives the request to stop the server.
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Installs a handler: the first SIGINT, SIGTERM or SIGHUP that is not ignored requests a stop, the second ends
    /// the process.
    ///
    /// # Errors
    ///
    /// If the handler cannot be installed.
    pub(crate) fn install() -> Result<Self> {
        let (sender, receiver) = watch::channel(false);
        on_end_signal(move || {
            if sender.send_replace(true) {
                std::process::exit(INTERRUPTED);
            }
        })
        .context("cannot handle signals")?;
        Ok(Self(receiver))
    }

    /// Waits until a stop is requested.
    pub(crate) async fn asked(&mut self) {
        if self.0.wait_for(|is_asked| *is_asked).await.is_err() {
            // Unreachable in practice: the handler, and so the sender, lives as long as the process.
            std::future::pending::<()>().await;
        }
    }
}
