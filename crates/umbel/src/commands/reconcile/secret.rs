//! The secret with which both sides of `umbel reconcile --listen` authenticate.

use super::{ReconcileArgs, usage};
use crate::cluster_client::variable;
use crate::exit::UsageError;
use anyhow::{Context, Result};
use umbel_reconcile::Endpoint;
use umbel_tls::{Secret, SecretTls, SecretUse};

/// Environment variable with the path of the secret's file.
const FILE_VARIABLE: &str = "UMBEL_RECONCILE_SECRET_FILE";

impl ReconcileArgs {
    /// TLS with keys derived from the secret; None if no secret is given, or the connection does not need
    /// one: only sockets use it, since programs and ssh authenticate otherwise.
    pub(super) fn secret(&self, other: Option<&Endpoint>) -> Result<Option<SecretTls>> {
        if self.listen.is_none() && !matches!(other, Some(Endpoint::Tcp(_))) {
            return match &self.secret_file {
                Some(_) => Err(usage("--secret-file is for --listen and tcp://HOST:PORT")),
                None => Ok(None),
            };
        }
        let file = self.secret_file.clone().or_else(|| variable(FILE_VARIABLE));
        let Some(file) = file else { return Ok(None) };
        let secret = Secret::read(&file)
            .map_err(|error| UsageError(format!("--secret-file, {FILE_VARIABLE}: {error}")))?;
        let tls = SecretTls::new(&secret.derive(SecretUse::Reconcile)).context("TLS")?;
        Ok(Some(tls))
    }
}
