//! Certificates and keys from files.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::TlsError;

/// Longest file that is read: a chain of certificates has some kilobytes, a bundle of all public
/// authorities some hundred.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where certificates and keys lie, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Certificates of the authorities that others' certificates must come from.
    pub ca: PathBuf,
    /// The own certificate and its key; a client may have none, and is anonymous then.
    pub pair: Option<KeyPairFiles>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPairFiles {
    /// The certificate, and those between it and the authority's behind it.
    pub certificate: PathBuf,
    /// Its private key, in PKCS #8, PKCS #1 or SEC1.
    pub key: PathBuf,
}

/// What the files hold.
pub(crate) struct Loaded {
    pub(crate) roots: Arc<RootCertStore>,
    /// The authorities' certificates.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) pair: Option<KeyPair>,
}

/// A certificate with what lies between it and the authority's, and its key.
pub(crate) struct KeyPair {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// From when on, and until when it is valid.
    pub(crate) life: Life,
}

/// From when on, and until when a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) begins_at: SystemTime,
    pub(crate) expires_at: SystemTime,
}

/// What tells a file that was replaced from the one before: length, time of the last change in
/// nanoseconds, number of the inode.
pub(crate) type Stamp = Vec<Option<(u64, u128, u64)>>;

impl TlsFiles {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let pair = self.pair.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
        std::iter::once(&self.ca).chain(pair).map(PathBuf::as_path)
    }

    /// What the files look like now, without reading them.
    pub(crate) fn stamp(&self) -> Stamp {
        self.paths().map(|path| path.metadata().ok().map(|metadata| stamp_of(&metadata))).collect()
    }

    pub(crate) fn load(&self, now: SystemTime) -> Result<Loaded, TlsError> {
        let authorities = certificates(&self.ca)?;
        let roots = roots(&self.ca, &authorities)?;
        let pair = self.pair.as_ref().map(|pair| pair.load(now)).transpose()?;
        Ok(Loaded { roots, authorities, pair })
    }
}

impl KeyPairFiles {
    pub(crate) fn load(&self, now: SystemTime) -> Result<KeyPair, TlsError> {
        let chain = certificates(&self.certificate)?;
        let life = check_dates(&self.certificate, &chain[0], now)?;
        let text = read(&self.key)?;
        let file = self.key.clone();
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                TlsError::Missing { file, expected: "private key", begin: "PRIVATE KEY" }
            }
            error => TlsError::Pem { file, why: format!("{error:?}") },
        })?;
        Ok(KeyPair { chain, key, life })
    }

    /// What the library's refusal of certificate and key means.
    pub(crate) fn refused(&self, error: rustls::Error) -> TlsError {
        match error {
            rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch {
                key: self.key.clone(),
                certificate: self.certificate.clone(),
            },
            rustls::Error::InvalidCertificate(why) => {
                TlsError::Certificate { file: self.certificate.clone(), why: format!("{why:?}") }
            }
            error => TlsError::Key { file: self.key.clone(), why: error.to_string() },
        }
    }
}

/// What vouches for others: the certificates of a file.
pub(crate) fn roots(
    ca: &Path,
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        let unusable = |error: rustls::Error| TlsError::Certificate {
            file: ca.to_owned(),
            why: error.to_string(),
        };
        roots.add(certificate.clone()).map_err(unusable)?;
    }
    Ok(Arc::new(roots))
}

/// At least one certificate.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found
        .map_err(|error| TlsError::Pem { file: file.to_owned(), why: format!("{error:?}") })?;
    if found.is_empty() {
        let file = file.to_owned();
        return Err(TlsError::Missing { file, expected: "certificate", begin: "CERTIFICATE" });
    }
    Ok(found)
}

pub(crate) fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unread = |source| TlsError::Read { file: file.to_owned(), source };
    let mut text = Vec::new();
    let opened = File::open(file).map_err(unread)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(unread)?;
    let byte_count = text.len() as u64;
    if byte_count > FILE_BYTES_MAX {
        let file = file.to_owned();
        return Err(TlsError::TooLong { file, byte_count, most: FILE_BYTES_MAX });
    }
    Ok(text)
}

/// The certificate's dates; an error if it is not valid now.
fn check_dates(file: &Path, der: &[u8], now: SystemTime) -> Result<Life, TlsError> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|error| TlsError::Certificate { file: file.to_owned(), why: error.to_string() })?;
    let validity = certificate.validity();
    let at = |timestamp: i64| {
        UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(timestamp).unwrap_or(0))
    };
    let expires_at = at(validity.not_after.timestamp());
    if now > expires_at {
        let on = validity.not_after.to_string();
        return Err(TlsError::Expired { file: file.to_owned(), on });
    }
    let begins_at = at(validity.not_before.timestamp());
    if now < begins_at {
        let from = validity.not_before.to_string();
        return Err(TlsError::NotYetValid { file: file.to_owned(), from });
    }
    Ok(Life { begins_at, expires_at })
}

fn stamp_of(metadata: &Metadata) -> (u64, u128, u64) {
    let changed = metadata.modified().ok();
    let since = changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    (metadata.len(), since.unwrap_or_default().as_nanos(), inode(metadata))
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.ino()
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}
