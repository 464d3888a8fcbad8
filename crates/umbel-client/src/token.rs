//! The token with which a client authenticates each call.

use std::fmt;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Longest token that nodes accept.
const TOKEN_BYTES_MAX: usize = 500;

/// A principal's token, as `umbel access add` prints it: `NAME.SECRET`. Its `Debug` output omits the
/// text.
///
/// ```
/// use umbel_client::Token;
/// let token = Token::new("crawler.5f0c")?;
/// assert_eq!(format!("{token:?}"), "Token(..)");
/// assert!(Token::new("crawler").is_err());
/// # Ok::<(), umbel_client::TokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(MetadataValue<Ascii>);

/// The text is no token. Use the line that `umbel access add` has printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a token: NAME.SECRET of at most {TOKEN_BYTES_MAX} letters, digits, -, _ and . was expected"
)]
pub struct TokenError;

impl Token {
    /// Parses a token; white space around it is ignored.
    ///
    /// # Errors
    /// If the text is no token.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let has_parts = text.rsplit_once('.').is_some_and(|(name, secret)| {
            !name.is_empty() && !secret.is_empty() && text.len() <= TOKEN_BYTES_MAX
        });
        if !has_parts || !text.bytes().all(is_allowed) {
            return Err(TokenError);
        }
        let mut header: MetadataValue<Ascii> =
            format!("Bearer {text}").parse().map_err(|_| TokenError)?;
        // So that no `Debug` output or log shows the header.
        header.set_sensitive(true);
        Ok(Self(header))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Adds a token to every call, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bearer(pub(crate) Option<Token>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(Token(header)) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["", ".", "a.", ".b", "a b.c", "a.b\nc", &"a.".repeat(300)] {
            assert_eq!(Token::new(text), Err(TokenError), "{text:?}");
        }
        assert!(Token::new(" a.b\n").is_ok());
    }
}
