//! A small certificate authority, sufficient for the certificates of one cluster.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, string::Ia5String,
};
use thiserror::Error;

use crate::clock::now;
use crate::identity::{CLIENT_NAME_BYTES_MAX, CLIENT_URI, NODE_URI, NodeIdentity, is_client_name};

/// How far before now a certificate's validity begins, because the clocks of two machines differ.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// Longest validity of a certificate in days: a hundred years.
const DAYS_MAX: u32 = 36_525;

/// A certificate authority, which signs certificates.
///
/// ```
/// use umbel_tls::{Authority, Subject};
///
/// let (authority, own) = Authority::new("test", 30)?;
/// assert!(own.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
/// let node = authority.issue(&Subject::Node { hosts: vec!["node-1".into()] }, 30)?;
/// assert!(node.key.starts_with("-----BEGIN PRIVATE KEY-----"));
/// # Ok::<(), umbel_tls::AuthorityError>(())
/// ```
pub struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, each in PEM.
#[derive(Clone)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// Its key, in PKCS #8: only its owner may read it.
    pub key: String,
}

/// The subject of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Any node, with the host names and IP addresses under which others call it, without ports.
    Node {
        /// The hosts; at least one.
        hosts: Vec<String>,
    },
    /// One particular node: the certificate is valid for no other.
    Member {
        /// The node.
        identity: NodeIdentity,
        /// Its hosts; at least one.
        hosts: Vec<String>,
    },
    /// A client's.
    Client {
        /// Its name: letters, digits, `-`, `_` and `.`.
        name: String,
    },
}

/// Why no certificate was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A node's certificate without a host is valid for no address. Name at least one.
    #[error("a node's certificate needs at least one host name or IP address")]
    NoHost,
    /// A host is invalid. Correct it.
    #[error("{host:?} is neither a host name nor an IP address; expected one without a port")]
    Host {
        /// The host.
        host: String,
    },
    /// A client's name is invalid. Correct it.
    #[error(
        "{name:?} is no client's name: expected 1 to {CLIENT_NAME_BYTES_MAX} letters, digits, '-', \
         '_' or '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The validity is too short or too long. Choose another number of days.
    #[error("{days} days: expected 1 to {DAYS_MAX}")]
    Days {
        /// The number of days.
        days: u32,
    },
    /// The authority's own certificate or key cannot be used. Name the right files.
    #[error("the authority's certificate or key cannot be used: {0}")]
    Own(#[source] rcgen::Error),
    /// The certificate cannot be made or signed. This is a bug; please report it.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

impl Authority {
    /// Creates an authority with this name, a number after it, and this validity in days.
    ///
    /// # Errors
    /// If the number of days is out of range.
    pub fn new(name: &str, days: u32) -> Result<(Self, Pem), AuthorityError> {
        let mut params = within(CertificateParams::default(), days)?;
        let key = KeyPair::generate()?;
        // With equal names, a client that looks for the issuer of a certificate could not tell two
        // authorities apart.
        let number: String =
            params.key_identifier(&key).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name = named(&format!("{name} {number}"));
        // It must not sign further authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let pem = Pem { certificate: certificate.pem(), key: key.serialize_pem() };
        Ok((Self { issuer: Issuer::new(params, key) }, pem))
    }

    /// Loads an existing authority.
    ///
    /// # Errors
    /// If the texts are not an authority's certificate and its key.
    pub fn read(pem: &Pem) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(&pem.key).map_err(AuthorityError::Own)?;
        let issuer =
            Issuer::from_ca_cert_pem(&pem.certificate, key).map_err(AuthorityError::Own)?;
        Ok(Self { issuer })
    }

    /// Issues a certificate that is valid for this many days from now.
    ///
    /// # Errors
    /// If the subject's names are invalid, or the number of days is out of range.
    pub fn issue(&self, subject: &Subject, days: u32) -> Result<Pem, AuthorityError> {
        self.sign(&within(subject.params()?, days)?)
    }

    /// Issues a certificate that expired an hour ago, for tests.
    ///
    /// # Errors
    /// If the subject's names are invalid.
    pub fn issue_expired(&self, subject: &Subject) -> Result<Pem, AuthorityError> {
        let mut params = subject.params()?;
        params.not_before = (now() - 2 * CLOCK_SKEW).into();
        params.not_after = (now() - CLOCK_SKEW).into();
        self.sign(&params)
    }

    /// Issues a certificate whose validity began `age_days` days ago, for tests.
    ///
    /// # Errors
    /// If the subject's names are invalid, or the number of days is out of range.
    pub fn issue_aged(
        &self,
        subject: &Subject,
        age_days: u32,
        days: u32,
    ) -> Result<Pem, AuthorityError> {
        let mut params = within(subject.params()?, days)?;
        params.not_before = (now() - Duration::from_secs(u64::from(age_days) * 86_400)).into();
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Pem, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pem { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl Subject {
    pub(crate) fn params(&self) -> Result<CertificateParams, AuthorityError> {
        let (common_name, names) = match self {
            Self::Node { hosts } => of_node(hosts, NODE_URI)?,
            Self::Member { identity, hosts } => of_node(hosts, &identity.uri())?,
            Self::Client { name } if is_client_name(name) => {
                (name.clone(), vec![uri(&format!("{CLIENT_URI}{name}"))?])
            }
            Self::Client { name } => return Err(AuthorityError::Name { name: name.clone() }),
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&common_name);
        params.subject_alt_names = names;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match self {
            // A node is a client of other nodes as well.
            Self::Node { .. } | Self::Member { .. } => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            Self::Client { .. } => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        Ok(params)
    }
}

/// The common name and all alternative names of a node's certificate.
fn of_node(hosts: &[String], own_uri: &str) -> Result<(String, Vec<SanType>), AuthorityError> {
    let first = hosts.first().ok_or(AuthorityError::NoHost)?;
    let mut names = hosts.iter().map(|host| san(host)).collect::<Result<Vec<SanType>, _>>()?;
    names.push(uri(own_uri)?);
    Ok((first.clone(), names))
}

pub(crate) fn within(
    mut params: CertificateParams,
    days: u32,
) -> Result<CertificateParams, AuthorityError> {
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(AuthorityError::Days { days });
    }
    let now = now();
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + Duration::from_secs(u64::from(days) * 86_400)).into();
    Ok(params)
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Umbel");
    name.push(DnType::CommonName, common_name);
    name
}

/// A host name or IP address as a subject alternative name.
pub(crate) fn san(host: &str) -> Result<SanType, AuthorityError> {
    let wrong = || AuthorityError::Host { host: host.to_owned() };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    // A DNS name must have the form that clients derive from an address.
    rustls::pki_types::DnsName::try_from(host).map_err(|_| wrong())?;
    Ok(SanType::DnsName(Ia5String::try_from(host).map_err(|_| wrong())?))
}

fn uri(text: &str) -> Result<SanType, AuthorityError> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}
