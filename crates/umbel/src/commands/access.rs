//! `umbel access`: the principals of a cluster, their rights and their quotas.

mod quota;

use super::cluster::connect::{ClusterArgs, block_on};
use crate::clock::unix_seconds;
use crate::exit::{Exit, UsageError, refuse};
use crate::printer::{Rows, facts, print};
use crate::stderr::eprint_line;
use anyhow::{Error, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use quota::QuotaArgs;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use std::str::FromStr;
use umbel_client::proto::{
    ClusterVerb, FilterVerb, Grant, Principal, PutPrincipalRequest, Quota, Usage, WhoAmIResponse,
};
use umbel_client::{Client, ClientError, Failure};
use umbel_filter::Hex;

/// Bytes of a token's secret, as many as its hash has: guessing the secret is as hard as guessing the
/// hash.
const SECRET_BYTES: usize = 32;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Arguments of `umbel access`.
#[derive(Args)]
#[command(
    after_help = "The first principal must be an administrator (--may admin); from then on everything that is not \
    granted is denied.\n\n\
    Examples:\n  \
      umbel access add root --may admin > root.token\n  \
      umbel access add crawler --grant crawl.*:read,insert --days 90 > crawler.token\n  \
      umbel access quota crawler --filters 10 --memory 2G --items-per-second 100k\n  \
      umbel access whoami --token-file crawler.token\n\n\
    docs/security.md has every detail.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(subcommand)]
    verb: AccessVerb,
}

#[derive(Subcommand)]
enum AccessVerb {
    /// Add a principal and print its token, which cannot be printed again
    Add(AddArgs),
    /// List principals and their rights
    List,
    /// Remove a principal; from now on its calls are refused
    Revoke {
        /// Its name
        name: String,
    },
    /// Limit filters, memory and calls of a principal, or filters and memory of the cluster; show limits
    /// and usage
    Quota(QuotaArgs),
    /// Show the identity, rights and quotas that the cluster sees for this command
    Whoami,
}

#[derive(Args)]
struct AddArgs {
    /// Its name: 1 to 128 letters, digits and any of `-_.`
    name: String,
    /// Rights on a filter, or with * on all whose names begin with NAME: read, insert, remove, manage,
    /// export, all
    #[arg(long, value_name = "NAME[*]:VERB[,..]")]
    grant: Vec<GrantText>,
    /// Rights on the cluster
    #[arg(long, value_name = "VERB[,..]", value_delimiter = ',')]
    may: Vec<ClusterVerbArg>,
    /// Days after which its rights end [default: never]
    #[arg(long, value_name = "N")]
    days: Option<u32>,
    /// Authenticate it by a client certificate of this name; it gets no token
    #[arg(long)]
    certificate: bool,
    /// Change an existing principal; it gets a new token
    #[arg(long)]
    replace: bool,
    /// Let the changed principal keep its token or certificate
    #[arg(long, requires = "replace", conflicts_with = "certificate")]
    keep_token: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ClusterVerbArg {
    /// Everything that no other verb covers: nodes, shards, principals
    Admin,
    /// Back up and restore all filters with their keys
    Backup,
    /// Submit jobs, which read and write files on nodes; follow and end them
    Jobs,
    /// Read metrics and the cluster's status
    Metrics,
}

impl From<ClusterVerbArg> for ClusterVerb {
    fn from(verb: ClusterVerbArg) -> Self {
        match verb {
            ClusterVerbArg::Admin => Self::Admin,
            ClusterVerbArg::Backup => Self::Backup,
            ClusterVerbArg::Jobs => Self::Jobs,
            ClusterVerbArg::Metrics => Self::Metrics,
        }
    }
}

/// All verbs on filters, by their names in arguments.
const FILTER_VERBS: [(&str, FilterVerb); 5] = [
    ("read", FilterVerb::Read),
    ("insert", FilterVerb::Insert),
    ("remove", FilterVerb::Remove),
    ("manage", FilterVerb::Manage),
    ("export", FilterVerb::Export),
];

/// `NAME:VERB,..`; the name of a filter may contain colons.
#[derive(Clone, PartialEq, Debug)]
struct GrantText(Grant);

impl FromStr for GrantText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected NAME:VERB,.. or NAME*:VERB,.. with read, insert, remove, manage, export or all";
        let (pattern, verbs) = text.rsplit_once(':').ok_or(expected)?;
        let mut found = Vec::new();
        for word in verbs.split(',') {
            match FILTER_VERBS.iter().find(|(name, _)| *name == word) {
                Some((_, verb)) => found.push(i32::from(*verb)),
                None if word == "all" => {
                    found.extend(FILTER_VERBS.map(|(_, verb)| i32::from(verb)));
                }
                None => return Err(format!("{word:?} is no verb: {expected}")),
            }
        }
        if pattern.is_empty() {
            return Err(expected.to_owned());
        }
        // Elsewhere it would be a part of a name, which hardly anybody means.
        if pattern.strip_suffix('*').unwrap_or(pattern).contains('*') {
            return Err(format!("{pattern:?}: * may stand only at the end of a name: {expected}"));
        }
        Ok(Self(Grant { pattern: pattern.to_owned(), verbs: found }))
    }
}

/// Runs the command.
///
/// # Errors
///
/// If the flags make no request, the call to the cluster fails, or its result cannot be printed.
pub(crate) fn run(args: &AccessArgs) -> Result<Exit> {
    block_on(args.run())?;
    Ok(Exit::Done)
}

impl AccessArgs {
    async fn run(&self) -> Result<()> {
        let json = self.cluster.json;
        let client = self.cluster.client()?;
        match &self.verb {
            AccessVerb::Add(args) => args.run(&client, json).await,
            AccessVerb::List => {
                let principals = client.principals().await?;
                let values: Vec<Value> = principals.iter().map(to_json).collect();
                if principals.is_empty() {
                    eprint_line("no principals: whoever is let in may do everything");
                }
                print(json, &json!({ "principals": values }), || list(&principals).text())
            }
            AccessVerb::Revoke { name } => {
                client.revoke_principal(name).await?;
                print(json, &json!({ "principal": name }), || {
                    format!(
                        "principal {name} revoked: nodes that hear a majority refuse its calls from now on, those under \
                         way are completed\n"
                    )
                })
            }
            AccessVerb::Quota(args) => args.run(&client, json).await,
            AccessVerb::Whoami => {
                let answer = client.who_am_i().await?;
                print(json, &who_json(&answer), || who_text(&answer))
            }
        }
    }
}

impl AddArgs {
    fn principal(&self, token_digest: Vec<u8>) -> Result<Principal, UsageError> {
        if self.grant.is_empty() && self.may.is_empty() {
            refuse!("nothing is allowed: give --grant NAME:VERB,.. or --may VERB,..");
        }
        let expires = |days| unix_seconds() * 1000 + u64::from(days) * DAY_MS;
        Ok(Principal {
            name: self.name.clone(),
            token_digest: token_digest.into(),
            grants: self.grant.iter().map(|GrantText(grant)| grant.clone()).collect(),
            cluster_verbs: self.may.iter().map(|&verb| ClusterVerb::from(verb).into()).collect(),
            expires_ms: self.days.map_or(0, expires),
            ..Principal::default()
        })
    }

    /// The cluster would add a principal that is not there: a mistyped name would get rights, and the one that was
    /// meant would keep its own.
    async fn check_exists(&self, client: &Client) -> Result<()> {
        let name = &self.name;
        if client.principals().await?.iter().any(|principal| principal.name == *name) {
            return Ok(());
        }
        bail!(
            "there is no principal named {name} to replace: leave --replace out to add it; nothing was changed \
             (`umbel access list` shows all names)"
        )
    }

    async fn run(&self, client: &Client, json: bool) -> Result<()> {
        let secret = if self.certificate || self.keep_token { None } else { Some(draw_secret()?) };
        let digest = |secret: &String| blake3::hash(secret.as_bytes()).as_bytes().to_vec();
        let principal = self.principal(secret.as_ref().map(digest).unwrap_or_default())?;
        if self.replace {
            self.check_exists(client).await?;
        }
        let is_first = !client.who_am_i().await?.is_guarded;
        let (replace, keep_proof) = (self.replace, self.keep_token);
        let request = PutPrincipalRequest { principal: Some(principal), replace, keep_proof };
        let unknown = match client.put_principal(request).await {
            Ok(()) => None,
            // Nobody can print the token later, and it may be the one of the only administrator.
            Err(ClientError::OrderUnknown(failure)) if secret.is_some() => Some(failure),
            Err(error) => return Err(error.into()),
        };
        if is_first && unknown.is_none() {
            eprint_line(
                "from now on callers that prove nothing are refused, and what is not granted is denied",
            );
        }
        let name = &self.name;
        let token = secret.map(|secret| format!("{name}.{secret}"));
        let value = json!({ "principal": name, "token": token });
        print(json, &value, || match token {
            Some(token) => format!("{token}\n"),
            None => self.done_text(),
        })?;
        match unknown {
            None => Ok(()),
            Some(failure) => Err(self.maybe_done(&failure)),
        }
    }

    /// The error of an order that may still be carried out, behind the token that was printed in case it is.
    fn maybe_done(&self, failure: &Failure) -> Error {
        let name = &self.name;
        anyhow!(
            "outcome unknown, it may still be carried out: {failure}; keep the token that was printed: it is valid once that \
             is done, as `umbel access whoami --token-file FILE` shows; to get another one, give the command again, with \
             --replace if `umbel access list` shows {name}"
        )
    }

    /// What is printed once the cluster has a principal that gets no token: what was done, and how it proves who it is.
    fn done_text(&self) -> String {
        let done = if self.replace { "changed" } else { "added" };
        let proof = if self.keep_token {
            "it keeps its token or certificate"
        } else {
            "it authenticates by a client certificate of this name"
        };
        format!("principal {} {done}: {proof}\n", self.name)
    }
}

/// A secret from the system's entropy, in hexadecimal digits.
pub(crate) fn draw_secret() -> Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| anyhow!("the system gives no random numbers"))?;
    Ok(Hex(&bytes).to_string())
}

fn filter_verb(number: i32) -> &'static str {
    let known = FILTER_VERBS.iter().find(|(_, verb)| i32::from(*verb) == number);
    known.map_or("?", |(name, _)| name)
}

fn cluster_verb(number: i32) -> &'static str {
    match ClusterVerb::try_from(number) {
        Ok(ClusterVerb::Admin) => "admin",
        Ok(ClusterVerb::Backup) => "backup",
        Ok(ClusterVerb::Jobs) => "jobs",
        Ok(ClusterVerb::Metrics) => "metrics",
        Ok(ClusterVerb::Unspecified) | Err(_) => "?",
    }
}

fn verbs(numbers: &[i32], name: fn(i32) -> &'static str) -> Vec<&'static str> {
    numbers.iter().map(|&number| name(number)).collect()
}

/// Grants in the form that `--grant` takes, or a dash if there are none.
fn grants(principal: &Principal) -> String {
    let grant = |Grant { pattern, verbs: numbers }: &Grant| {
        format!("{pattern}:{}", verbs(numbers, filter_verb).join(","))
    };
    or_dash(principal.grants.iter().map(grant).collect::<Vec<_>>().join(" "))
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

fn proof(principal: &Principal) -> &'static str {
    if principal.by_certificate { "certificate" } else { "token" }
}

/// When the rights of a principal end.
fn expiry(principal: &Principal) -> String {
    let now_ms = unix_seconds() * 1000;
    match principal.expires_ms {
        0 => "never".to_owned(),
        moment if moment <= now_ms => "expired".to_owned(),
        moment => format!("in {} days", (moment - now_ms).div_ceil(DAY_MS)),
    }
}

fn to_json(principal: &Principal) -> Value {
    let (quota, usage) = limits(principal);
    let grants = principal.grants.iter().map(
        |grant| json!({ "pattern": grant.pattern, "verbs": verbs(&grant.verbs, filter_verb) }),
    );
    json!({
        "principal": principal.name,
        "proof": proof(principal),
        "grants": grants.collect::<Vec<_>>(),
        "may": verbs(&principal.cluster_verbs, cluster_verb),
        "created_ms": principal.created_ms,
        "expires_ms": (principal.expires_ms != 0).then_some(principal.expires_ms),
        "limits": quota::to_json(&quota, &usage),
    })
}

/// The quota of a principal, and its usage.
fn limits(principal: &Principal) -> (Quota, Usage) {
    (principal.quota.unwrap_or_default(), principal.usage.unwrap_or_default())
}

fn list(principals: &[Principal]) -> Rows {
    let heading = &["principal", "proof", "grants", "may", "expires", "filters", "memory", "rates"];
    let mut rows = Rows::new(heading, &[]);
    for principal in principals {
        let (quota, usage) = limits(principal);
        let [filters, memory] = quota::used(&quota, &usage).map(|(_, text)| text);
        let rates = quota::rates(&quota).into_iter().filter(|(_, limit)| limit != "-");
        let rates: Vec<String> = rates.map(|(what, limit)| format!("{limit} {what}")).collect();
        rows.push(vec![
            principal.name.clone(),
            proof(principal).to_owned(),
            grants(principal),
            or_dash(verbs(&principal.cluster_verbs, cluster_verb).join(",")),
            expiry(principal),
            filters,
            memory,
            or_dash(rates.join(", ")),
        ]);
    }
    rows
}

fn who_json(answer: &WhoAmIResponse) -> Value {
    json!({
        "connection": answer.connection,
        "is_guarded": answer.is_guarded,
        "principal": answer.principal.as_ref().map(to_json),
    })
}

fn who_text(answer: &WhoAmIResponse) -> String {
    let mut known = vec![("connection", answer.connection.clone())];
    match &answer.principal {
        Some(principal) => {
            known.extend([
                ("principal", principal.name.clone()),
                ("grants", grants(principal)),
                ("may", or_dash(verbs(&principal.cluster_verbs, cluster_verb).join(","))),
                ("expires", expiry(principal)),
            ]);
            let (quota, usage) = limits(principal);
            known.extend(quota::used(&quota, &usage));
            known.extend(quota::rates(&quota));
        }
        None => known.push(("may", "everything".to_owned())),
    }
    facts(&known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_from_behind() {
        let GrantText(grant) = "crawl:de*:read,insert".parse().unwrap();
        assert_eq!((grant.pattern.as_str(), grant.verbs), ("crawl:de*", vec![1, 2]));
        let GrantText(all) = "x:all".parse().unwrap();
        assert_eq!(all.verbs, [1, 2, 3, 4, 5]);
        for text in ["x", ":read", "x:", "x:write", "x:read,", "x*y:read", "*.de:read"] {
            assert!(text.parse::<GrantText>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_done_without_a_token_is_said() {
        let text = |certificate, replace, keep_token| {
            let args = AddArgs {
                name: "bob".to_owned(),
                grant: Vec::new(),
                may: Vec::new(),
                days: None,
                certificate,
                replace,
                keep_token,
            };
            args.done_text()
        };
        let by_certificate = "it authenticates by a client certificate of this name\n";
        assert_eq!(text(true, false, false), format!("principal bob added: {by_certificate}"));
        assert_eq!(text(true, true, false), format!("principal bob changed: {by_certificate}"));
        assert_eq!(
            text(false, true, true),
            "principal bob changed: it keeps its token or certificate\n"
        );
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let [one, other] = [draw_secret().unwrap(), draw_secret().unwrap()];
        assert_eq!(one.len(), 2 * SECRET_BYTES);
        assert_ne!(one, other);
    }
}
