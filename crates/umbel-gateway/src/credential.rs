//! The credential that a client presents: the token of a call, or a password.

use axum::http::HeaderValue;

/// Longest token that is parsed: a name, a dot, a secret of 64 digits, and room for longer secrets.
const TOKEN_BYTES_MAX: usize = 512;

/// What a client presents in addition to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Credential<'a> {
    /// Nothing.
    None,
    /// The name and the secret of a token.
    Token { name: &'a str, secret: &'a str },
    /// Not a valid token: the client tried to prove its identity and failed.
    Malformed,
}

impl<'a> Credential<'a> {
    /// From the header `authorization` of a call.
    pub(super) fn of_header(header: Option<&'a HeaderValue>) -> Self {
        let Some(header) = header else { return Self::None };
        let split = || {
            let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
            let is_one = scheme.eq_ignore_ascii_case("bearer") && token.len() <= TOKEN_BYTES_MAX;
            is_one.then(|| token.trim().rsplit_once('.')).flatten()
        };
        split().map_or(Self::Malformed, |(name, secret)| Self::Token { name, secret })
    }

    /// From a user name and a password, which is the secret of a token or the whole token.
    pub(super) fn of_password(user: Option<&'a str>, password: &'a str) -> Self {
        let whole = password.rsplit_once('.').filter(|_| password.len() <= TOKEN_BYTES_MAX);
        match (user, whole) {
            (Some(user), Some((name, secret))) if name == user => Self::Token { name, secret },
            (Some(name), _) if password.len() <= TOKEN_BYTES_MAX => {
                Self::Token { name, secret: password }
            }
            (None, Some((name, secret))) => Self::Token { name, secret },
            _ => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_a_secret_or_a_whole_token() {
        let token = |name, secret| Credential::Token { name, secret };
        assert_eq!(Credential::of_password(Some("root.a"), "s"), token("root.a", "s"));
        assert_eq!(Credential::of_password(Some("root.a"), "root.a.s"), token("root.a", "s"));
        assert_eq!(Credential::of_password(Some("a"), "b.s"), token("a", "b.s"));
        assert_eq!(Credential::of_password(None, "root.a.s"), token("root.a", "s"));
        assert_eq!(Credential::of_password(None, "s"), Credential::Malformed);
        let long = "s".repeat(TOKEN_BYTES_MAX + 1);
        assert_eq!(Credential::of_password(Some("a"), &long), Credential::Malformed);
    }
}
