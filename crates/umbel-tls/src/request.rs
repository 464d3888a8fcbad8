//! Certificate signing requests: the requester keeps its key, and the authority decides what it
//! certifies.

use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateSigningRequestDer;
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authority::{Authority, AuthorityError, Subject, san, within};
use crate::error::TlsError;
use crate::files::{certificates, read};
use crate::identity::NodeIdentity;

/// Length of an uncompressed point of P-256 in bytes, the form of a public key.
const P256_POINT_BYTES: usize = 65;

/// Largest request that is parsed, in bytes; one of this crate has some 300.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// A key for which its owner requests a certificate.
pub struct CertificateRequest {
    key: KeyPair,
}

/// Why a request was not signed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It cannot be parsed, or its signature does not match its key.
    #[error("the request for a certificate is none that can be signed: {0}")]
    Broken(String),
    /// The key is of another kind than nodes generate. Generate another one.
    #[error("the request's key is no ECDSA key on P-256")]
    Key,
    /// It requests another name than the host of the node's address.
    #[error("the request asks for the name {asked}, but the node's address has the host {host}")]
    ForeignName {
        /// The requested name.
        asked: String,
        /// The host of the address.
        host: String,
    },
    /// The authority's key belongs to none of its certificates. Name files that belong together.
    #[error("{}: it is the key of no certificate in {}", key.display(), ca.display())]
    OtherKey {
        /// The key's file.
        key: PathBuf,
        /// The certificates' file.
        ca: PathBuf,
    },
    /// A file cannot be read. Correct it.
    #[error(transparent)]
    File(#[from] TlsError),
    /// The authority refuses to sign it.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

impl CertificateRequest {
    /// Generates a key.
    ///
    /// # Errors
    /// If the system provides no entropy.
    pub fn generate() -> Result<Self, AuthorityError> {
        Ok(Self { key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)? })
    }

    /// Loads an existing key in PEM.
    ///
    /// # Errors
    /// If the text holds no key.
    pub fn read(key: &str) -> Result<Self, AuthorityError> {
        Ok(Self { key: KeyPair::from_pem(key).map_err(AuthorityError::Own)? })
    }

    /// The key in PEM: only its owner may read it.
    #[must_use]
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// The request in DER, for a node at this host.
    ///
    /// # Errors
    /// If the host is invalid.
    pub fn der(&self, host: &str) -> Result<Vec<u8>, AuthorityError> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![san(host)?];
        Ok(params.serialize_request(&self.key)?.der().to_vec())
    }
}

/// A verified request: its signature matches its key, the key is of the right kind, and it requests no
/// name but the host's.
struct Checked(CertificateSigningRequestParams);

impl Checked {
    fn new(request: &[u8], host: &str) -> Result<Self, RequestError> {
        if request.len() > REQUEST_BYTES_MAX {
            let what = format!("{} bytes, at most {REQUEST_BYTES_MAX}", request.len());
            return Err(RequestError::Broken(what));
        }
        let parsed =
            CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
                .map_err(|error| RequestError::Broken(error.to_string()))?;
        let key = &parsed.public_key;
        if key.algorithm() != &PKCS_ECDSA_P256_SHA256 || key.der_bytes().len() != P256_POINT_BYTES {
            return Err(RequestError::Key);
        }
        let own = san(host)?;
        // URIs are ignored: they hold identities, which only the authority assigns.
        let is_foreign = |name: &&SanType| !matches!(name, SanType::URI(_)) && **name != own;
        if let Some(name) = parsed.params.subject_alt_names.iter().find(is_foreign) {
            let (asked, host) = (format!("{name:?}"), host.to_owned());
            return Err(RequestError::ForeignName { asked, host });
        }
        Ok(Self(parsed))
    }
}

impl Authority {
    /// Signs a node's request in DER. Returns a certificate in PEM for the node and its host, whatever
    /// else the request asks for.
    ///
    /// # Errors
    /// If the request is not acceptable, or the number of days is out of range.
    pub fn sign_request(
        &self,
        request: &[u8],
        identity: NodeIdentity,
        host: &str,
        days: u32,
    ) -> Result<String, RequestError> {
        let Checked(CertificateSigningRequestParams { public_key, .. }) =
            Checked::new(request, host)?;
        let hosts = vec![host.to_owned()];
        let params = within(Subject::Member { identity, hosts }.params()?, days)?;
        let signed = CertificateSigningRequestParams { params, public_key }.signed_by(&self.issuer);
        Ok(signed.map_err(AuthorityError::Make)?.pem())
    }
}

/// An authority with its certificate and key in files, which are read for each request: replaced files
/// take effect at once.
#[derive(Clone, Debug)]
pub struct NodeSigner {
    ca: PathBuf,
    key: PathBuf,
}

impl NodeSigner {
    /// The authority's certificate is the one in `ca` that belongs to the key in `key`.
    ///
    /// # Errors
    /// If a file cannot be read, or the key belongs to no certificate.
    pub fn open(ca: &Path, key: &Path) -> Result<Self, RequestError> {
        let signer = Self { ca: ca.to_owned(), key: key.to_owned() };
        signer.authority()?;
        Ok(signer)
    }

    fn authority(&self) -> Result<Authority, RequestError> {
        let text = String::from_utf8_lossy(&read(&self.key)?).into_owned();
        let key = KeyPair::from_pem(&text)
            .map_err(|error| TlsError::Key { file: self.key.clone(), why: error.to_string() })?;
        let is_own = |der: &[u8]| {
            X509Certificate::from_der(der).is_ok_and(|(_, certificate)| {
                *certificate.public_key().subject_public_key.data == *key.der_bytes()
            })
        };
        let found = certificates(&self.ca)?.into_iter().find(|der| is_own(der));
        let own = found
            .ok_or_else(|| RequestError::OtherKey { key: self.key.clone(), ca: self.ca.clone() })?;
        let issuer = Issuer::from_ca_cert_der(&own, key).map_err(AuthorityError::Own)?;
        Ok(Authority { issuer })
    }

    /// Checks that a request would be signed for a node at this host; returns its public key.
    ///
    /// # Errors
    /// If it would not.
    pub fn check(&self, request: &[u8], host: &str) -> Result<Vec<u8>, RequestError> {
        let Checked(request) = Checked::new(request, host)?;
        self.authority()?;
        Ok(request.public_key.der_bytes().to_vec())
    }

    /// Signs a request; returns the certificate, and those of all authorities that the cluster trusts, in
    /// PEM.
    ///
    /// # Errors
    /// If the request is not signed.
    pub fn sign(
        &self,
        request: &[u8],
        identity: NodeIdentity,
        host: &str,
        days: u32,
    ) -> Result<(String, String), RequestError> {
        let certificate = self.authority()?.sign_request(request, identity, host, days)?;
        Ok((certificate, String::from_utf8_lossy(&read(&self.ca)?).into_owned()))
    }
}
