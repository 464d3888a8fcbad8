//! How this process connects to a cluster, and which credentials it presents.

use crate::exit::{UsageError, refuse};
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_client::{Client, ClientOptions, KeyPairFiles, TlsConnector, TlsFiles, Token};
use umbel_dedup::Reach;

/// Bytes read of a token file at most; a longer file holds no token.
const TOKEN_FILE_BYTES_MAX: u64 = 4 << 10;

/// The credentials that this process presents to a cluster.
#[derive(Clone, Default, Debug)]
pub(crate) struct Credentials {
    /// The authority and, for mutual TLS, the client's certificate; None if connections are not
    /// encrypted.
    pub(crate) tls: Option<TlsFiles>,
    /// The token that every call carries.
    pub(crate) token: Option<Token>,
}

impl Credentials {
    /// How a job with these credentials connects to clusters. `own_cluster` is the cluster that may run
    /// the job.
    pub(crate) fn reach(self, own_cluster: Option<String>) -> Reach {
        let connect = move |addresses: &str| connect(addresses, ClientOptions::default(), &self);
        Reach { own_cluster, connect: Arc::new(connect) }
    }

    /// Reads the credentials that the flags name; where a flag is missing, its environment variable
    /// counts.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, certificate files are given without their counterpart, or a file holds
    /// no token.
    pub(crate) fn read(tls: TlsPaths, token_file: Option<&Path>) -> Result<Self, UsageError> {
        let token_file = token_file.map(Path::to_owned).or_else(|| variable("UMBEL_TOKEN_FILE"));
        let token = token_file.as_deref().map(read_token).transpose()?;
        Ok(Self { tls: tls.or_environment().files()?, token })
    }
}

/// A path in the environment.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn read_token(path: &Path) -> Result<Token, UsageError> {
    let name = path.display();
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| UsageError(format!("--token-file {name}: {error}")))?;
    Token::new(&text).map_err(|error| UsageError(format!("--token-file {name}: {error}")))
}

/// Whether the text of an address names this machine: `localhost` or a loopback IP. Names are not
/// resolved.
fn is_loopback(address: &str) -> bool {
    let host = address.trim().rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Paths of the TLS files, from flags or the environment; each may be missing.
#[derive(Clone, Default)]
pub(crate) struct TlsPaths {
    /// The authority's certificate.
    pub(crate) ca: Option<PathBuf>,
    /// The client's own certificate.
    pub(crate) cert: Option<PathBuf>,
    /// Its key.
    pub(crate) key: Option<PathBuf>,
}

impl TlsPaths {
    /// Fills paths that are missing from the environment.
    pub(crate) fn or_environment(self) -> Self {
        Self {
            ca: self.ca.or_else(|| variable("UMBEL_TLS_CA")),
            cert: self.cert.or_else(|| variable("UMBEL_TLS_CERT")),
            key: self.key.or_else(|| variable("UMBEL_TLS_KEY")),
        }
    }

    /// The TLS files; None if none is given, so that connections are not encrypted.
    ///
    /// # Errors
    ///
    /// If a certificate is given without its key or without the authority, or a key without its
    /// certificate.
    pub(crate) fn files(self) -> Result<Option<TlsFiles>, UsageError> {
        let missing = |one: &str, other: &str| {
            let [one, other] = [one, other]
                .map(|name| format!("--tls-{name} (UMBEL_TLS_{})", name.to_ascii_uppercase()));
            Err(UsageError(format!("{one} is given without {other}; give both")))
        };
        let pair = match (self.cert, self.key) {
            (Some(certificate), Some(key)) => Some(KeyPairFiles { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return missing("cert", "key"),
            (None, Some(_)) => return missing("key", "cert"),
        };
        match (self.ca, pair) {
            (Some(ca), pair) => Ok(Some(TlsFiles { ca, pair })),
            (None, None) => Ok(None),
            (None, Some(_)) => missing("cert", "ca"),
        }
    }
}

/// Makes a client of the cluster at these addresses; it connects with its first request.
///
/// # Errors
///
/// If an address cannot be parsed, certificates cannot be used, or the token would travel unencrypted to
/// another machine.
pub(crate) fn connect(
    addresses: &str,
    mut options: ClientOptions,
    credentials: &Credentials,
) -> Result<Client, UsageError> {
    options.token.clone_from(&credentials.token);
    let client = match &credentials.tls {
        None => {
            if options.token.is_some() {
                if let Some(address) = addresses.split(',').find(|address| !is_loopback(address)) {
                    refuse!(
                        "a token is sent to another machine ({address}) on encrypted connections only: give \
                         --tls-ca (UMBEL_TLS_CA)"
                    );
                }
                options.learns_nodes = false;
            }
            Client::connect_with(addresses, options)
        }
        Some(files) => {
            let tls = TlsConnector::open(files.clone());
            let tls = tls.map_err(|error| UsageError(error.to_string()))?;
            Client::connect_through(addresses, options, tls)
        }
    };
    client.map_err(|error| UsageError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(ca: bool, cert: bool, key: bool) -> Result<bool, String> {
        let path = |is_given: bool| is_given.then(|| PathBuf::from("x.pem"));
        let paths = TlsPaths { ca: path(ca), cert: path(cert), key: path(key) };
        paths.files().map(|files| files.is_some()).map_err(|error| error.to_string())
    }

    #[test]
    fn files_belong_together() {
        assert_eq!(files(false, false, false), Ok(false));
        assert_eq!(files(true, false, false), Ok(true));
        assert_eq!(files(true, true, true), Ok(true));
        assert!(files(true, true, false).unwrap_err().contains("--tls-key"));
        assert!(files(true, false, true).unwrap_err().contains("--tls-cert"));
        assert!(files(false, true, true).unwrap_err().contains("--tls-ca"));
    }

    #[test]
    fn only_this_machines_addresses_are_its_own() {
        for own in ["127.0.0.1:7300", "localhost:7300", "[::1]:7300", " 127.9.9.9:1"] {
            assert!(is_loopback(own), "{own}");
        }
        for other in
            ["10.0.0.1:7300", "node-1:7300", "[fe80::1]:1", "localhost.evil:1", "127.0.0.1.x:1"]
        {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_token_does_not_travel_in_the_clear() {
        let token = Some(Token::new("a.b").unwrap());
        let credentials = Credentials { tls: None, token };
        let refused = connect("127.0.0.1:1,10.0.0.1:1", ClientOptions::default(), &credentials);
        assert!(refused.err().unwrap().to_string().contains("(10.0.0.1:1)"));
        assert!(connect("127.0.0.1:1", ClientOptions::default(), &credentials).is_ok());
    }
}
