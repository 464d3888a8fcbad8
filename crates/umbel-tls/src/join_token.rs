//! The token with which a node joins a cluster: a secret for the cluster, and pins by which the node
//! recognizes the cluster.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::pin::AuthorityPin;

/// Prefix of a token's text: the version of its format.
const PREFIX: &str = "umbel-join-1";

/// Hexadecimal digits of a secret: 32 bytes.
const SECRET_DIGITS: usize = 64;

/// Most authorities of a token: a cluster has one, or two while it changes its authority, with a margin.
const PIN_COUNT_MAX: usize = 4;

/// A token for a single use: `umbel-join-1.SECRET.PIN`, with one pin per authority of the cluster. The
/// secret authenticates the joining node to the cluster, and the pin the cluster to the node, before the
/// secret is sent.
///
/// ```
/// use umbel_tls::JoinToken;
/// let text = format!("umbel-join-1.{}.{}", "ab".repeat(32), "cd".repeat(32));
/// let token: JoinToken = format!("{text}\n").parse()?;
/// assert_eq!(token.to_string(), text);
/// assert!(!format!("{token:?}").contains("abab"));
/// # Ok::<(), umbel_tls::JoinTokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    secret: String,
    pins: Vec<AuthorityPin>,
}

/// The text is no token. Copy the line that `umbel cluster token --join` printed, unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no token for joining: expected the line that `umbel cluster token --join` prints")]
pub struct JoinTokenError;

impl JoinToken {
    /// A token with this secret, of 64 hexadecimal digits, for a cluster with these authorities.
    ///
    /// # Errors
    /// If the secret has another form, or there is no authority, or more than four.
    pub fn new(secret: String, pins: Vec<AuthorityPin>) -> Result<Self, JoinTokenError> {
        let is_secret =
            secret.len() == SECRET_DIGITS && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_pinned = (1..=PIN_COUNT_MAX).contains(&pins.len());
        (is_secret && is_pinned).then_some(Self { secret, pins }).ok_or(JoinTokenError)
    }

    /// The secret, of which the cluster stores a hash.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The pins of the cluster's authorities.
    #[must_use]
    pub fn pins(&self) -> &[AuthorityPin] {
        &self.pins
    }
}

impl FromStr for JoinToken {
    type Err = JoinTokenError;

    fn from_str(text: &str) -> Result<Self, JoinTokenError> {
        let mut parts = text.trim().split('.');
        if parts.next() != Some(PREFIX) {
            return Err(JoinTokenError);
        }
        let secret = parts.next().ok_or(JoinTokenError)?.to_owned();
        let pins = parts.map(|pin| pin.parse().map_err(|()| JoinTokenError));
        Self::new(secret, pins.collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}", self.secret)?;
        self.pins.iter().try_for_each(|pin| write!(f, ".{pin}"))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("pins", &self.pins).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_or_changed_is_no_token() {
        let (secret, pin) = ("0f".repeat(32), "e1".repeat(32));
        for text in [
            String::new(),
            format!("umbel-join-1.{secret}"),
            format!("umbel-join-1.{secret}."),
            format!("umbel-join-1.{secret}.{}", &pin[1..]),
            format!("umbel-join-1.{}.{pin}", &secret[1..]),
            format!("umbel-join-2.{secret}.{pin}"),
            format!("umbel-join-1.{}x.{pin}", &secret[1..]),
            format!("umbel-join-1.{secret}{}", format!(".{pin}").repeat(PIN_COUNT_MAX + 1)),
        ] {
            assert_eq!(text.parse::<JoinToken>(), Err(JoinTokenError), "{text}");
        }
        let two = format!("umbel-join-1.{secret}.{pin}.{secret}");
        assert_eq!(two.parse::<JoinToken>().unwrap().pins().len(), 2);
    }
}
