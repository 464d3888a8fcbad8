//! Loads certificates and keys from files.

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

/// Paths of certificates and keys, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Certificates of the authorities that other ends' certificates must come from.
    pub ca: PathBuf,
    /// This end's certificate and key; a client may have none, and then is anonymous.
    pub pair: Option<KeyPairFiles>,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPairFiles {
    /// The certificate, followed by the intermediate ones up to the authority.
    pub certificate: PathBuf,
    /// Its private key, in PKCS #8, PKCS #1 or SEC1.
    pub key: PathBuf,
}

/// The contents of the files.
pub(crate) struct Loaded {
    pub(crate) roots: Arc<RootCertStore>,
    /// The authorities' certificates.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) pair: Option<KeyPair>,
}

/// A certificate with its intermediate ones, and its key.
pub(crate) struct KeyPair {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// The validity of the certificate.
    pub(crate) life: Life,
}

/// The validity of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    pub(crate) begins_at: SystemTime,
    pub(crate) expires_at: SystemTime,
}

/// Identifies a version of the files, to notice replacements: length, modification time in nanoseconds,
/// and inode number of each.
pub(crate) type Stamp = Vec<Option<(u64, u128, u64)>>;

impl TlsFiles {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let pair = self.pair.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
        std::iter::once(&self.ca).chain(pair).map(PathBuf::as_path)
    }

    /// The stamp of the files now, without reading them.
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

    /// The error for a certificate and key that the library refuses.
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

/// The trusted authorities, from the certificates of a file.
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

/// The certificates of a file; at least one.
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

/// The validity of a certificate; an error if it is not valid now.
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
