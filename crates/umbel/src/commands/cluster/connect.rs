//! How commands connect to a cluster.

use crate::cluster_client::{self, Credentials, TlsPaths};
use crate::exit::{UsageError, text_of};
use crate::waiting::Waiting;
use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use umbel_client::{Client, ClientError, ClientOptions, Code, ErrorCode, Failure};
use umbel_node::failure::CallFailure;
use umbel_tls::AuthorityPin;

/// The heading, in the help of each command, of the options that all commands for a cluster have. Without one they
/// would stand between the options of the command.
const SHARED: &str = "Options of every command";

/// Which cluster, and how answers are printed.
#[derive(Args)]
pub(crate) struct ClusterArgs {
    /// Addresses of nodes, any of which may answer [default: $UMBEL_CLUSTER, else 127.0.0.1:7300]
    #[arg(long, global = true, value_name = "HOST:PORT[,..]", help_heading = SHARED)]
    cluster: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Print JSON objects
    #[arg(long, global = true, help_heading = SHARED)]
    pub(crate) json: bool,
}

/// What the command proves itself by.
#[derive(Args)]
struct TlsArgs {
    /// Use TLS; trust nodes whose certificates this authority signed [env: UMBEL_TLS_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = SHARED)]
    tls_ca: Option<PathBuf>,
    /// Certificate of this client [env: UMBEL_TLS_CERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = SHARED)]
    tls_cert: Option<PathBuf>,
    /// Key of --tls-cert [env: UMBEL_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = SHARED)]
    tls_key: Option<PathBuf>,
    /// File with this client's token, as `umbel access add` prints it [env: UMBEL_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = SHARED)]
    token_file: Option<PathBuf>,
}

/// The default address of the cluster: where `umbel serve` listens by default.
const DEFAULT_CLUSTER: &str = "127.0.0.1:7300";

/// How long a command retries a node that it has never reached, so that it can start at the same time as
/// the node.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// What to do about nodes that run and have no cluster yet.
const FORMING_ADVICE: &str = "it waits for other nodes, its log says more: start the others of its cluster or, if that \
                              is new, all that its --initial-cluster names, or the one that it is to --join";

/// What to do about nodes that have named those for which they wait.
const FOUNDERS_ADVICE: &str = "its log says more: a new cluster begins once all that --initial-cluster names run and reach \
                               each other";

/// What to do about nodes of a cluster that have started and reach no majority, and so cannot know who may still do what.
const NO_MAJORITY_ADVICE: &str = "it waits for other nodes, its log says more: start the others of its cluster, or repair the network";

/// What to do about nodes that run, serve nobody yet, and say this.
fn not_ready_advice(message: &str) -> &'static str {
    if message == CallFailure::GrantsUnknown.to_string() {
        NO_MAJORITY_ADVICE
    } else if message.starts_with(&format!("{}: ", CallFailure::NotFormed)) {
        FOUNDERS_ADVICE
    } else {
        // Nodes of earlier builds say it in both cases.
        FORMING_ADVICE
    }
}

/// What to do where a majority does not answer.
const NO_QUORUM_ADVICE: &str =
    "`umbel cluster status` names the groups without a majority, and the nodes to start";

/// What to do about an order that may still be carried out.
const OPEN_ORDER_ADVICE: &str = "giving it again does no harm; `umbel cluster status` names the groups without a majority, \
                                 and the nodes to start";

/// For what a call waits after this failure. The same text for all groups without a majority: many requests may wait.
fn waits_for(failure: &Failure) -> String {
    if failure.lacks_majority() {
        format!("no majority answers; {NO_QUORUM_ADVICE}")
    } else {
        format!("{}; {}", failure.message, not_ready_advice(&failure.message))
    }
}

/// Makes the client say on standard error for what it waits while no majority answers, or the nodes that answer at
/// these addresses serve nobody yet, unless that is not wanted at the moment.
pub(crate) fn tell_waits(
    client: &Client,
    addresses: &str,
    is_wanted: impl Fn() -> bool + Send + Sync + 'static,
) {
    let (addresses, waiting) = (addresses.to_owned(), Mutex::new(Waiting::start()));
    client.tell_waits(move |failure| {
        if is_wanted() {
            let text = format!("waits for {addresses}: {}", waits_for(failure));
            waiting.lock().unwrap_or_else(PoisonError::into_inner).show(&text);
        }
    });
}

impl ClusterArgs {
    /// A client of the cluster; it connects with its first request. While the nodes that answer have no cluster
    /// yet, it says so on standard error.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if an address cannot be parsed, credentials cannot be used, or a token would
    /// travel unencrypted.
    pub(crate) fn client(&self) -> Result<Client> {
        let options =
            ClientOptions { first_contact_timeout: FIRST_CONTACT, ..ClientOptions::default() };
        let addresses = self.addresses();
        let client = cluster_client::connect(&addresses, options, &self.credentials()?)?;
        tell_waits(&client, &addresses, || true);
        Ok(client)
    }

    /// The addresses of the cluster's nodes, separated by commas.
    pub(super) fn addresses(&self) -> String {
        let variable = std::env::var("UMBEL_CLUSTER").ok().filter(|text| !text.is_empty());
        self.cluster.clone().or(variable).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned())
    }

    /// The credentials of the command.
    ///
    /// # Errors
    ///
    /// As [`Credentials::read`].
    pub(super) fn credentials(&self) -> Result<Credentials, UsageError> {
        let TlsArgs { tls_ca: ca, tls_cert: cert, tls_key: key, token_file } = &self.tls;
        let paths = TlsPaths { ca: ca.clone(), cert: cert.clone(), key: key.clone() };
        Credentials::read(paths, token_file.as_deref())
    }

    /// The pins of the authorities that sign the cluster's certificates.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if no authority's file is named, or it cannot be read.
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

/// Runs a command's future to its end, on a runtime of its own.
///
/// # Errors
///
/// If the future fails or threads cannot be started.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let outcome = runtime.block_on(command);
    // A thread may still block on standard input; the process does not wait for it.
    runtime.shutdown_background();
    outcome.map_err(advised)
}

/// What to do where no node named a cause; None if the error's message already says it.
const fn unsaid_advice(code: Code) -> Option<&'static str> {
    match code {
        Code::Unauthenticated => None,
        Code::Unknown => Some(
            "the node hung up, its log says why: does one side alone speak TLS (--tls-ca), or is the \
             certificate another cluster's?",
        ),
        // Whoever does not run refuses the connection.
        Code::DeadlineExceeded | Code::Cancelled => Some(
            "the node may be busy, or cut off from here or from the other nodes: its log and its page /readyz say more; \
             --cluster HOST:PORT names another",
        ),
        _ => Some("is a node running there? --cluster HOST:PORT names another"),
    }
}

/// Adds advice to an error of the cluster where the error does not say what to do.
fn advised(error: Error) -> Error {
    let advice = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Unavailable(failure)) if failure.cause == ErrorCode::Unspecified => {
            match unsaid_advice(failure.code) {
                Some(advice) => advice,
                None => return error,
            }
        }
        Some(ClientError::Unavailable(failure)) if failure.cause == ErrorCode::NotFormed => {
            not_ready_advice(&failure.message)
        }
        Some(ClientError::Unavailable(failure)) if failure.lacks_majority() => NO_QUORUM_ADVICE,
        Some(ClientError::OrderUnknown(_)) => OPEN_ORDER_ADVICE,
        Some(ClientError::OutcomeUnknown { .. } | ClientError::FirstAnswerLost(_)) => {
            "what was sent last may have been applied: `umbel filter contains` tells"
        }
        _ => return error,
    };
    anyhow!("{}; {advice}", text_of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_late_is_not_taken_for_one_that_does_not_run() {
        let asks =
            |code| unsaid_advice(code).is_some_and(|advice| advice.contains("running there?"));
        assert!(asks(Code::Unavailable));
        for code in [Code::DeadlineExceeded, Code::Cancelled, Code::Unknown, Code::Unauthenticated]
        {
            assert!(!asks(code), "{code:?}");
        }
        assert!(unsaid_advice(Code::DeadlineExceeded).unwrap().contains("/readyz"));
        assert_eq!(unsaid_advice(Code::Unauthenticated), None);
    }

    #[test]
    fn only_nodes_without_a_cluster_are_to_be_given_one() {
        let advice = |failure: &CallFailure| not_ready_advice(&failure.to_string());
        assert!(advice(&CallFailure::NotFormed).contains("--initial-cluster"));
        let missing = "the founder n2:1 does not answer this node: start it".to_owned();
        assert_eq!(advice(&CallFailure::Forming { what: missing }), FOUNDERS_ADVICE);
        assert!(FOUNDERS_ADVICE.contains("its log"), "a founder may run, and refuse the other one");
        let of_member = advice(&CallFailure::GrantsUnknown);
        assert!(!of_member.contains("--initial-cluster") && !of_member.contains("--join"));
    }
}
