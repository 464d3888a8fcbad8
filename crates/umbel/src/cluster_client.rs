//! How this process reaches a cluster, and what it proves itself by.

use crate::exit::UsageError;
use std::path::PathBuf;
use umbel_client::{Client, ClientOptions, KeyPairFiles, TlsConnector, TlsFiles};

/// How a job reaches the clusters of online filters.
#[derive(Clone, Default, Debug)]
pub(crate) struct Reach {
    /// Where the cluster is reached that does the job, if one does.
    pub(crate) own_cluster: Option<String>,
    /// What this process proves itself by.
    pub(crate) tls: Option<TlsFiles>,
}

/// Where the files lie, as flags or the environment say; each may be missing.
#[derive(Clone, Default)]
pub(crate) struct TlsPaths {
    /// The authority's certificate.
    pub(crate) ca: Option<PathBuf>,
    /// The own certificate.
    pub(crate) cert: Option<PathBuf>,
    /// Its key.
    pub(crate) key: Option<PathBuf>,
}

impl TlsPaths {
    /// What the environment says where these say nothing.
    pub(crate) fn or_environment(self) -> Self {
        let variable = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        Self {
            ca: self.ca.or_else(|| variable("UMBEL_TLS_CA")),
            cert: self.cert.or_else(|| variable("UMBEL_TLS_CERT")),
            key: self.key.or_else(|| variable("UMBEL_TLS_KEY")),
        }
    }

    /// The files; None if no TLS is spoken.
    ///
    /// # Errors
    ///
    /// If one is missing beside another.
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

/// A client of the cluster at these addresses; it connects when it is asked something.
///
/// # Errors
///
/// If an address is none, or certificates cannot be used.
pub(crate) fn connect(
    addresses: &str,
    options: ClientOptions,
    tls: Option<&TlsFiles>,
) -> Result<Client, UsageError> {
    let client = match tls {
        None => Client::connect_with(addresses, options),
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
}
