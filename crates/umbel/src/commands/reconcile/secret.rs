//! What both sides of `umbel reconcile --listen` prove themselves by.

use super::{ReconcileArgs, usage};
use crate::cluster_client::variable;
use crate::exit::UsageError;
use anyhow::{Context, Result};
use umbel_reconcile::Endpoint;
use umbel_tls::{Secret, SecretTls, SecretUse};

/// Variable that names the file of the secret.
const FILE_VARIABLE: &str = "UMBEL_RECONCILE_SECRET_FILE";

impl ReconcileArgs {
    /// The keys that come from the secret, if one was given and is needed: sockets prove themselves by it, programs
    /// and ssh have their own ways.
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
