//! TLS between the nodes of a cluster and towards its clients.
//!
//! Each end has three files: the certificate of the cluster's authority, its own certificate, signed by
//! the authority, and the key of its own certificate. Both ends of a connection authenticate with them.
//! The identity is a URI among the certificate's subject alternative names:
//!
//! | URI | who |
//! |---|---|
//! | `umbel://CLUSTER/node/ID` | this node of this cluster, and no other |
//! | `umbel:node` | some node: may speak as any peer of other nodes, and as a client |
//! | `umbel:client:NAME` | the client NAME |
//! | any other, or none | nobody in particular, like a connection without a certificate |
//!
//! Beside the URI, a node's certificate has the host names and IP addresses of the node, so it is not
//! accepted at another address.
//!
//! Replaced files are loaded without a restart by [`ServerTls::refresh`] and [`ClientTls::refresh`]; if
//! the new files are damaged, the old ones stay in use.
//!
//! [`ForeignTls`] connects to servers that are not nodes. It trusts this machine's authorities, or a file
//! of certificates, and presents a client certificate if it has one.
//!
//! Processes that work together without a cluster share a secret instead of certificates: with
//! [`SecretTls`], both ends prove that they know it, and it is never sent.
//!
//! [`StrangerLines`] limits what those who have proved nothing write into a log.
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
mod private_file;
mod reload;
#[cfg(any(test, feature = "authority"))]
mod request;
mod secret;
mod server;
mod stranger_lines;

#[cfg(any(test, feature = "authority"))]
pub use authority::{Authority, AuthorityError, Pem, Subject};
pub use blocking::{SecretReader, SecretWriter};
pub use client::{
    ClientTls, HandshakeError, OWN_REFUSED, own_certificate_refused, refused_after_handshake,
};
pub use error::TlsError;
pub use files::{KeyPairFiles, TlsFiles};
#[cfg(feature = "system-roots")]
pub use foreign::{ForeignFiles, ForeignTls, TrustError};
pub use identity::{NodeIdentity, NodeIdentityError, PeerIdentity};
pub use join_token::{JoinToken, JoinTokenError};
pub use pin::{AuthorityPin, PinnedTls};
pub use pinned::{HANDSHAKE_RECORD, SecretRefusal, SecretTls};
pub use private_file::{OpenToOthers, check_private};
#[cfg(any(test, feature = "authority"))]
pub use request::{CertificateRequest, NodeSigner, RequestError};
pub use secret::{Derived, SECRET_BYTES_MIN, Secret, SecretError, SecretUse};
pub use server::{ServerTls, names_host, shown_until_s, why_refused};
pub use stranger_lines::{LeftOut, StrangerLines};

#[cfg(test)]
mod secret_test;
#[cfg(test)]
mod tls_test;
