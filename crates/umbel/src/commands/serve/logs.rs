//! The server's log: its settings and its output.

use anyhow::Result;
use tracing_subscriber::EnvFilter;

use crate::exit::{UsageError, refuse};

umbel_node::settings! {
    /// Settings of the log, which goes to standard error.
    pub(crate) struct LogSettings {
        /// Log format: `text`, or `json`, one object per line.
        log_format: String = "text".to_owned(),
        /// What is logged: `error`, `warn`, `info`, `debug` or `trace`; also per module, like
        /// `info,umbel_raft=debug`. At `info` openraft logs every step of an election, and its modules `api` and
        /// `raft_inner` log as an error whatever a caller is told anyway, such as that a replica was stopped.
        log_level: String =
            "info,openraft=error,openraft::raft::api=off,openraft::raft::raft_inner=off".to_owned(),
    }
}

/// Starts to log.
///
/// # Errors
///
/// A [`UsageError`] that names the setting that is wrong.
pub(crate) fn start(settings: &LogSettings) -> Result<()> {
    let filter = EnvFilter::try_new(&settings.log_level).map_err(|error| {
        let level = &settings.log_level;
        UsageError(format!("log_level = \"{level}\": {error}; expected a level like info or debug"))
    })?;
    // Never with colours: the log goes to files and journals, and the crate's default depends on which features other
    // crates of the build enable. A line that cannot be written, because its reader has ended or the disk is full, is
    // lost: by default the crate reports that to standard error, too, and panics in the task that has logged.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // Cannot panic: a process runs one server, and so installs one subscriber.
    match settings.log_format.as_str() {
        "json" => lines.json().init(),
        _ => lines.init(),
    }
    Ok(())
}

impl LogSettings {
    /// Checks what can be checked without starting anything.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] that names the setting that is wrong.
    pub(crate) fn validate(&self) -> Result<(), UsageError> {
        if ["text", "json"].contains(&self.log_format.as_str()) {
            return Ok(());
        }
        refuse!("log_format = \"{}\": expected text or json", self.log_format)
    }
}
