//! Arguments of a worker that is one of several, each on a machine of its own.

use super::membership::PeerSpec;
use crate::exit::UsageError;
use crate::units::time;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use umbel_tls::{SECRET_BYTES_MIN, Secret, SecretUse};

/// Environment variable that holds the secret of a job.
const TOKEN_VARIABLE: &str = "UMBEL_JOB_TOKEN";

/// Arguments of one worker of several.
#[derive(Args)]
#[command(next_help_heading = "On many machines, one process on each")]
pub(super) struct MachineArgs {
    /// Number of this worker, from 0
    #[arg(long, value_name = "R", requires = "peers", conflicts_with_all = ["workers", "plan"])]
    rank: Option<u16>,
    /// Addresses of all workers, in order
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "rank")]
    peers: Vec<String>,
    /// Where to listen [default: this worker's address]
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    listen: Option<String>,
    /// Folder for what a restarted worker continues with
    #[arg(long, value_name = "DIR", requires = "rank")]
    job_dir: Option<PathBuf>,
    /// The job's secret [default: UMBEL_JOB_TOKEN]
    #[arg(long, value_name = "FILE", requires = "rank")]
    job_token_file: Option<PathBuf>,
    /// How long a worker may be away
    #[arg(long, value_name = "TIME", requires = "rank", default_value = "10m", value_parser = parse_time)]
    worker_timeout: Duration,
}

impl MachineArgs {
    /// Whether this process is one worker of several.
    pub(super) fn has_others(&self) -> bool {
        self.rank.is_some()
    }

    /// This worker and its peers; `None` if the job has no other workers.
    pub(super) fn peers(&self) -> Result<Option<PeerSpec>> {
        let Some(rank) = self.rank else { return Ok(None) };
        Ok(Some(PeerSpec {
            rank,
            peers: self.peers.clone(),
            listen: self.listen.clone(),
            job_dir: self.job_dir.clone(),
            keys: self.secret()?.derive(SecretUse::Job),
            worker_timeout: self.worker_timeout,
        }))
    }

    fn secret(&self) -> Result<Secret> {
        let secret = match &self.job_token_file {
            Some(path) => Secret::read_private(path),
            None => match std::env::var(TOKEN_VARIABLE) {
                Ok(text) if !text.is_empty() => Secret::new(&text),
                _ => return Err(no_secret("they were given none").into()),
            },
        };
        secret.map_err(|error| no_secret(&error.to_string()).into())
    }
}

fn no_secret(why: &str) -> UsageError {
    UsageError(format!(
        "workers need a secret of at least {SECRET_BYTES_MIN} bytes, the same at all of them: {why}; draw one for each \
         job, like `openssl rand -hex 32`, and give it by --job-token-file FILE or {TOKEN_VARIABLE}"
    ))
}

/// Parses a time in seconds, minutes or hours.
fn parse_time(text: &str) -> Result<Duration, String> {
    time(text, "smh")
        .ok_or_else(|| format!("`{text}` is not a time of at least 1s: write 90s, 10m or 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)));
        }
        for text in
            ["", "10", "m", "0s", "1.5h", "-3s", "99999999999999999999s", "9999999999999999h"]
        {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
