//! How a node gets its first certificate: from the cluster that it joins, with a token.
//!
//! ```text
//! joiner                                            node of the cluster
//! makes a key, which never leaves it
//! connects, and checks the authority by its pin
//! secret of the token, address, nonce, request ──►  knows the token? the key's signature? no foreign name?
//!                                                   admits the node and uses the token up, in one entry
//! keeps certificate and authorities           ◄──   signs for the number that the entry gave
//! joins as it would with any certificate
//! ```

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;
use tonic::Status;
use umbel_ports::PinnedNet;
use umbel_ports::channel::channel;
use umbel_ports::{IssuedFiles, Net, RealNet};
use umbel_proto::v1::enrolment_client::EnrolmentClient;
use umbel_proto::v1::{EnrolRequest, EnrolResponse};
use umbel_raft::peer::PEER_PROTOCOL;
use umbel_tls::{JoinToken, JoinTokenError, PinnedTls, TlsError};

use crate::config::{Config, ConfigError, host_of};
use crate::node::{StartError, open_data};
use crate::ports::Ports;
use crate::reasons::{Reasons, passes, reason_of};

/// Pause between requests to a node that does not respond yet.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Time limit of one request: the called node may have to ask other nodes in turn.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a token file that are read; a longer file is not a token.
const TOKEN_FILE_BYTES_MAX: u64 = 4 << 10;

/// Why a node got no certificate. Its key and nonce are in its data folder, so it may be restarted with
/// the same token.
#[derive(Debug, Error)]
pub enum EnrolError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Data(#[from] StartError),
    /// Files of the data folder cannot be read or written.
    #[error("{0}")]
    Files(#[source] std::io::Error),
    /// The token file cannot be read. Configure the right one.
    #[error("join_token_file {file}: {source}")]
    TokenFile {
        /// The file.
        file: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file does not contain a token. Create one.
    #[error("join_token_file {file}: {source}")]
    Token {
        /// The file.
        file: String,
        /// What is wrong.
        source: JoinTokenError,
    },
    /// Others could not verify the node's own address. Configure one.
    #[error(
        "a node that joins by a token needs an address that its certificate can name: set advertise, or \
         listen with a port other than 0"
    )]
    Address,
    /// The TLS settings cannot be created. This is a bug; please report it.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The called server is not one that the token names. The secret was not sent.
    #[error("{member}: {why}")]
    OtherCluster {
        /// The called node.
        member: String,
        /// What is wrong.
        why: String,
    },
    /// The cluster refuses the node.
    #[error("{member} refuses this node: {why}")]
    Refused {
        /// The called node.
        member: String,
        /// The reason, and what to do.
        why: String,
    },
}

impl EnrolError {
    /// Whether the settings, or the file that they name, are wrong: the node gets no certificate before
    /// they are corrected.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            // A disk that fails may be read later.
            Self::TokenFile { source, .. } => matches!(
                source.kind(),
                ErrorKind::NotFound
                    | ErrorKind::IsADirectory
                    | ErrorKind::NotADirectory
                    | ErrorKind::PermissionDenied
                    | ErrorKind::InvalidData
            ),
            Self::Token { .. } | Self::Address => true,
            Self::Data(error) => error.is_usage(),
            Self::Files(_) | Self::Tls(_) | Self::OtherCluster { .. } | Self::Refused { .. } => {
                false
            }
        }
    }
}

fn read_token(file: &str) -> Result<JoinToken, EnrolError> {
    let read = || {
        let mut text = String::new();
        File::open(file)?.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let unread = |source| EnrolError::TokenFile { file: file.to_owned(), source };
    let text = read().map_err(unread)?;
    text.parse().map_err(|source| EnrolError::Token { file: file.to_owned(), source })
}

/// The address at which others will reach the node, as it will determine it when it starts.
async fn own_address(config: &Config) -> Result<String, EnrolError> {
    if let Some(address) = &config.advertise {
        return Ok(address.clone());
    }
    let listen = |source| StartError::Listen { address: config.listen.clone(), source };
    let listener = RealNet.listen(&config.listen).await.map_err(listen)?;
    let address = listener.local_address();
    let is_chosen = !config.listen.ends_with(&address[address.rfind(':').unwrap_or_default()..]);
    if is_chosen { Err(EnrolError::Address) } else { Ok(address) }
}

/// Gets a certificate for a node that has none, with the token from the settings; waits until the node
/// in `join` responds.
///
/// # Errors
/// If the token cannot be read, the data folder cannot be used, or the cluster refuses the node.
pub async fn enrol(config: &Config) -> Result<(), EnrolError> {
    let (Some(member), Some(file)) = (&config.join, &config.join_token_file) else { return Ok(()) };
    let token = read_token(file)?;
    let address = own_address(config).await?;
    let host = host_of(&address).ok_or(EnrolError::Address)?;
    if *member == address {
        return Err(StartError::from(ConfigError::JoinsItself { address }).into());
    }
    let data = |error: std::io::Error| StartError::Data(format!("{}: {error}", config.data));
    let ports = Ports::real(Path::new(&config.data)).map_err(data)?;
    let (identity, storage) = open_data(config, &ports).await?;
    storage.close().await;
    let files = IssuedFiles::of(Path::new(&config.data));
    let key = files.request().map_err(EnrolError::Files)?;
    let unasked =
        |error: umbel_tls::AuthorityError| EnrolError::Files(std::io::Error::other(error));
    let request = EnrolRequest {
        secret: token.secret().to_owned(),
        address: address.clone(),
        nonce: identity.nonce,
        protocol: PEER_PROTOCOL,
        request: key.der(host).map_err(unasked)?.into(),
        is_passed_on: false,
        oldest_version: ports.versions.oldest.0,
        newest_version: ports.versions.newest.0,
    };
    let net = Arc::new(PinnedNet::new(PinnedTls::new(token.pins().to_vec())?));
    let answer = send_request(&net, member, request).await?;
    files.keep(&answer.certificate, &answer.authorities).map_err(EnrolError::Files)?;
    tracing::info!(node = answer.node, member, "the cluster has issued a certificate");
    Ok(())
}

/// Repeats the request until there is a response.
async fn send_request(
    net: &Arc<PinnedNet>,
    member: &str,
    request: EnrolRequest,
) -> Result<EnrolResponse, EnrolError> {
    let wide: Arc<dyn Net> = Arc::clone(net) as _;
    let other = |why: String| EnrolError::OtherCluster { member: member.to_owned(), why };
    let channel = channel(&wide, member).map_err(|error| other(error.to_string()))?;
    let mut client = EnrolmentClient::new(channel);
    let mut reasons = Reasons::default();
    loop {
        let status =
            match tokio::time::timeout(REQUEST_TIMEOUT, client.enrol(request.clone())).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer"),
            };
        if let Some(why) = net.refused() {
            return Err(other(why));
        }
        // A repeated request gets the first response.
        if !passes(&status) {
            let why = status.message().to_owned();
            return Err(EnrolError::Refused { member: member.to_owned(), why });
        }
        let reason = reason_of(&status, true);
        if reasons.is_due(&reason, Instant::now()) {
            tracing::info!(member, reason, "no certificate yet");
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
