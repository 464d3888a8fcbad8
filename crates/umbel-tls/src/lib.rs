//! TLS between the nodes of a cluster and towards its clients.
//!
//! Everybody has three files: the certificate of the cluster's authority, an own certificate that
//! the authority signed, and the key of the latter. Both ends of a connection prove themselves by
//! them. Who somebody is stands in the certificate's subject alternative names, as a URI:
//!
//! | URI | who |
//! |---|---|
//! | `umbel://CLUSTER/node/ID` | this node of this cluster, and no other |
//! | `umbel:node` | some node: may speak as any peer of other nodes, and as a client |
//! | `umbel:client:NAME` | the client NAME |
//! | any other, or none | nobody in particular, like a connection without a certificate |
//!
//! Nodes are called by the host names and IP addresses that stand beside it, so a certificate of
//! one node is of no use at another address.
//!
//! Files that are replaced are taken without a restart: [`ServerTls::refresh`] and
//! [`ClientTls::refresh`] look, and stay with the old ones where the new ones are damaged.
//!
//! Servers that are no nodes are reached by [`ForeignTls`], which trusts whom this machine trusts, or a file of
//! certificates, and shows a certificate where it has one.
//!
//! Who works together without a cluster has no certificates, but a secret: both ends prove by
//! [`SecretTls`] that they know it, and it never travels.
//!
//! ```
//! use umbel_tls::PeerIdentity;
//!
//! assert_eq!(PeerIdentity::from_uri("umbel:node"), Some(PeerIdentity::Node));
//! let alice = PeerIdentity::from_uri("umbel:client:alice").expect("it names a client");
//! assert_eq!(alice.to_string(), "client alice");
//! assert_eq!(PeerIdentity::from_uri("https://example.org"), None);
//! ```

#[cfg(any(test, feature = "authority"))]
mod authority;
mod blocking;
mod client;
mod clock;
mod error;
mod files;
#[cfg(feature = "system-roots")]
mod foreign;
mod identity;
mod join_token;
mod pin;
mod pinned;
mod reload;
#[cfg(any(test, feature = "authority"))]
mod request;
mod secret;
mod server;

#[cfg(any(test, feature = "authority"))]
pub use authority::{Authority, AuthorityError, Pem, Subject};
pub use blocking::{SecretReader, SecretWriter};
pub use client::{ClientTls, HandshakeError, own_certificate_refused};
pub use error::TlsError;
pub use files::{KeyPairFiles, TlsFiles};
#[cfg(feature = "system-roots")]
pub use foreign::{ForeignFiles, ForeignTls, TrustError};
pub use identity::{NodeIdentity, NodeIdentityError, PeerIdentity};
pub use join_token::{JoinToken, JoinTokenError};
pub use pin::{AuthorityPin, PinnedTls};
pub use pinned::{HANDSHAKE_RECORD, SecretRefusal, SecretTls};
#[cfg(any(test, feature = "authority"))]
pub use request::{CertificateRequest, NodeSigner, RequestError};
pub use secret::{Derived, SECRET_BYTES_MIN, Secret, SecretError, SecretUse};
pub use server::ServerTls;

#[cfg(test)]
mod secret_test;
#[cfg(test)]
mod tls_test;
