//! The secret with which both sides of `umbel reconcile --listen` authenticate.

use super::{ReconcileArgs, usage};
use crate::cluster_client::variable;
use crate::exit::UsageError;
use anyhow::{Context, Result};
use umbel_tls::{Secret, SecretTls, SecretUse};

/// Environment variable with the path of the secret's file.
const FILE_VARIABLE: &str = "UMBEL_RECONCILE_SECRET_FILE";

impl ReconcileArgs {
    /// TLS with keys derived from the secret; None if no secret is given.
    pub(super) fn secret(&self) -> Result<Option<SecretTls>> {
        let file = self.secret_file.clone().or_else(|| variable(FILE_VARIABLE));
        let Some(file) = file else { return Ok(None) };
        let secret = Secret::read_private(&file)
            .map_err(|error| UsageError(format!("--secret-file, {FILE_VARIABLE}: {error}")))?;
        let tls = SecretTls::new(&secret.derive(SecretUse::Reconcile)).context("TLS")?;
        Ok(Some(tls))
    }

    /// Refuses a secret where no socket needs one: programs and ssh authenticate otherwise, and nobody does within a
    /// machine. The variable is for all sessions, and may be set.
    pub(super) fn refuse_secret(&self) -> Result<()> {
        match &self.secret_file {
            Some(_) => Err(usage("--secret-file is for --listen and tcp://HOST:PORT")),
            None => Ok(()),
        }
    }
}
