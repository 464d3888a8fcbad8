//! How commands reach a cluster.

use crate::cluster_client::{self, Credentials, TlsPaths};
use crate::exit::UsageError;
use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use umbel_client::{Client, ClientError, ClientOptions, Code, ErrorCode};
use umbel_tls::AuthorityPin;

/// Which cluster, and how answers are printed.
#[derive(Args)]
pub(crate) struct ClusterArgs {
    /// Addresses of nodes, any of which may answer [default: $UMBEL_CLUSTER, else 127.0.0.1:7300]
    #[arg(long, global = true, value_name = "HOST:PORT[,..]")]
    cluster: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Print JSON objects
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What the command proves itself by.
#[derive(Args)]
struct TlsArgs {
    /// Speak TLS; trust nodes that this authority has signed [env: UMBEL_TLS_CA]
    #[arg(long, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Own certificate [env: UMBEL_TLS_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its key [env: UMBEL_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// File with the own token, as `umbel access add` prints it [env: UMBEL_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Where a cluster is if nobody says: where `umbel serve` listens by default.
const DEFAULT_CLUSTER: &str = "127.0.0.1:7300";

/// How long a command waits for a node that it has never reached: long enough for one that starts at the same time.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

impl ClusterArgs {
    /// A client of the cluster; it connects when it is asked something.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if an address is none, or certificates cannot be used.
    pub(crate) fn client(&self) -> Result<Client> {
        let options =
            ClientOptions { first_contact_timeout: FIRST_CONTACT, ..ClientOptions::default() };
        Ok(cluster_client::connect(&self.addresses(), options, &self.credentials()?)?)
    }

    /// Where the cluster is.
    pub(super) fn addresses(&self) -> String {
        let variable = std::env::var("UMBEL_CLUSTER").ok().filter(|text| !text.is_empty());
        self.cluster.clone().or(variable).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned())
    }

    /// What the command proves itself by.
    ///
    /// # Errors
    ///
    /// As [`Credentials::read`].
    pub(super) fn credentials(&self) -> Result<Credentials, UsageError> {
        let TlsArgs { tls_ca: ca, tls_cert: cert, tls_key: key, token_file } = &self.tls;
        let paths = TlsPaths { ca: ca.clone(), cert: cert.clone(), key: key.clone() };
        Credentials::read(paths, token_file.as_deref())
    }
}

impl ClusterArgs {
    /// By what the cluster's authorities are known.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if no TLS is spoken, or the file cannot be read.
    pub(crate) fn authorities(&self) -> Result<Vec<AuthorityPin>> {
        let named = TlsPaths { ca: self.tls.tls_ca.clone(), ..TlsPaths::default() };
        let ca = named.or_environment().ca.ok_or_else(|| {
            UsageError(
                "nodes join by a token over TLS alone: give --tls-ca (UMBEL_TLS_CA)".to_owned(),
            )
        })?;
        AuthorityPin::of_file(&ca).map_err(|error| UsageError(error.to_string()).into())
    }
}

/// Runs a command's future to its end.
///
/// # Errors
///
/// As the future; if threads cannot be started.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let outcome = runtime.block_on(command);
    // A thread may still wait for standard input, which nobody reads any more.
    runtime.shutdown_background();
    outcome.map_err(advised)
}

/// An error of the cluster with what to do, where that is not plain.
fn advised(error: Error) -> Error {
    let advice = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Unavailable(failure)) if failure.cause == ErrorCode::Unspecified => {
            match failure.code {
                // The message says what to do.
                Code::Unauthenticated => return error,
                Code::Unknown => {
                    "the node hung up, its log says why: does one side alone speak TLS (--tls-ca), or is the \
                     certificate another cluster's?"
                }
                _ => "is a node running there? --cluster HOST:PORT names another",
            }
        }
        Some(ClientError::OutcomeUnknown { .. } | ClientError::FirstAnswerLost(_)) => {
            "what was sent last may have been applied: `umbel filter contains` tells"
        }
        _ => return error,
    };
    anyhow!("{error:#}; {advice}")
}
