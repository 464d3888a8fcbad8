//! `umbel cluster token`: draws a token with which a node joins.

use super::connect::ClusterArgs;
use crate::clock::unix_seconds;
use crate::commands::access::draw_secret;
use crate::exit::UsageError;
use crate::printer::print;
use crate::units::time;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::str::FromStr;
use umbel_tls::JoinToken;

/// Arguments of `umbel cluster token`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
      umbel cluster token --join > node-3.token\n  \
      umbel serve --listen 10.0.0.3:7300 --join 10.0.0.1:7300 --join-token-file node-3.token\n\n\
    The token identifies the cluster to the node, by its authority (the file of --tls-ca), and permits the node to \
    join. One node of the cluster must have the authority's key (tls_ca_key).\n\
    docs/security.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")]
pub(super) struct TokenArgs {
    /// A token with which one node may join, once
    #[arg(long, required = true)]
    join: bool,
    /// How long it is valid: a number followed by s, m, h or d, at most 7d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    expires: Lifetime,
}

/// A time in seconds, given as `90s`, `15m`, `1h` or `7d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lifetime(u64);

/// Longest lifetime of a token, in seconds: a week.
const LIFETIME_S_MAX: u64 = 7 * 86_400;

impl FromStr for Lifetime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected a number with s, m, h or d behind it, from 1s to 7d";
        let seconds = time(text, "smhd").map(|time| time.as_secs());
        seconds.filter(|seconds| *seconds <= LIFETIME_S_MAX).map(Self).ok_or(expected)
    }
}

impl TokenArgs {
    /// Draws a token and prints it once the cluster has stored its hash.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] without TLS; if the call to the cluster fails, or the token cannot be printed.
    pub(super) async fn run(&self, cluster: &ClusterArgs) -> Result<()> {
        let pins = cluster.authorities()?;
        let secret = draw_secret()?;
        let digest = *blake3::hash(secret.as_bytes()).as_bytes();
        let token = JoinToken::new(secret, pins).map_err(|_| {
            let text = "the file of --tls-ca holds no authority's certificate, or more than four";
            UsageError(text.to_owned())
        })?;
        let expires_ms = (unix_seconds() + self.expires.0) * 1000;
        cluster.client()?.put_join_token(digest, expires_ms).await?;
        let value = json!({ "token": token.to_string(), "expires_ms": expires_ms });
        print(cluster.json, &value, || format!("{token}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_an_end() {
        let seconds = |text: &str| text.parse().map(|Lifetime(seconds)| seconds);
        assert_eq!(["1s", "15m", "1h", "7d"].map(seconds), [Ok(1), Ok(900), Ok(3600), Ok(604_800)]);
        for text in ["", "h", "0s", "8d", "-1h", "1w", "60", "1.5h", "18446744073709551615d", "1ä"]
        {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
