//! The store and the credentials, from the environment variables that other S3 tools read.

use crate::error::StoreError;
use std::fmt;

/// The region if none is named, as in other tools.
const REGION_DEFAULT: &str = "us-east-1";

/// The keys that sign requests. Its `Debug` output shows no secrets.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
    pub(crate) session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

/// The store to use, and the credentials for it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Scheme and host of a store that is not Amazon's, without a trailing slash.
    pub(crate) endpoint: Option<String>,
    /// The region that requests are signed for.
    pub(crate) region: String,
    /// `None`: requests are not signed.
    pub(crate) credentials: Option<Credentials>,
    /// A file of certificates to trust instead of the system's.
    pub(crate) ca_bundle: Option<String>,
}

/// A server, and the path in front of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// `http` or `https`.
    pub(crate) scheme: String,
    /// Host, and port if it is named.
    pub(crate) host: String,
    /// Path in front of keys, with a slash at both ends.
    pub(crate) path: String,
}

impl Settings {
    /// Reads the environment variables.
    ///
    /// # Errors
    ///
    /// [`StoreError::Variable`], which names the variable with an invalid value.
    pub(crate) fn from_environment() -> Result<Self, StoreError> {
        Self::new(|name| std::env::var(name).ok())
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
        };
        let id = first(&["AWS_ACCESS_KEY_ID"]);
        let secret = first(&["AWS_SECRET_ACCESS_KEY"]);
        let session_token = first(&["AWS_SESSION_TOKEN"]);
        let credentials = match (id, secret) {
            (Some(access_key_id), Some(secret_access_key)) => {
                Some(Credentials { access_key_id, secret_access_key, session_token })
            }
            (None, None) => None,
            (id, _) => {
                let (set, missing) = match id {
                    Some(_) => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
                    None => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
                };
                let text = format!("{set} is set and {missing} is not: set both, or none");
                return Err(StoreError::Variable(text));
            }
        };
        let endpoint = first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let endpoint = endpoint.map(|text| check_endpoint(&text)).transpose()?;
        let region = first(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let region = region.unwrap_or_else(|| REGION_DEFAULT.to_owned());
        if !region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(StoreError::Variable(format!("AWS_REGION: `{region}` is no region")));
        }
        Ok(Self { endpoint, region, credentials, ca_bundle: first(&["AWS_CA_BUNDLE"]) })
    }

    /// The place of a bucket: in the path if an endpoint is set; otherwise in the host name, unless the
    /// bucket name has characters (`.` or `_`) that do not match the server's certificate.
    pub(crate) fn place(&self, bucket: &str) -> Place {
        if let Some((scheme, rest)) = self.endpoint.as_deref().and_then(|url| url.split_once("://"))
        {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let slash = if path.is_empty() { "" } else { "/" };
            let path = format!("/{path}{slash}{bucket}/");
            return Place { scheme: scheme.to_owned(), host: host.to_owned(), path };
        }
        let region = &self.region;
        let (host, path) = if bucket.contains('.') || bucket.contains('_') {
            (format!("s3.{region}.amazonaws.com"), format!("/{bucket}/"))
        } else {
            (format!("{bucket}.s3.{region}.amazonaws.com"), "/".to_owned())
        };
        Place { scheme: "https".to_owned(), host, path }
    }
}

fn check_endpoint(text: &str) -> Result<String, StoreError> {
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let is_host = |rest: &str| {
        !rest.is_empty()
            && rest.bytes().all(|c| c.is_ascii_graphic() && !b"?#@\"\\<>%".contains(&c))
    };
    if !rest.is_some_and(is_host) {
        // The value is not shown, because a URL may contain a password.
        let text = "AWS_ENDPOINT_URL: expected http://HOST[:PORT] or https://HOST[:PORT]";
        return Err(StoreError::Variable(text.to_owned()));
    }
    Ok(url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, StoreError> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::new(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn buckets_are_found_in_hosts_or_paths() {
        let place = |variables: &[(&str, &str)], bucket: &str| {
            let Place { scheme, host, path } = settings(variables).unwrap().place(bucket);
            format!("{scheme}://{host}{path}")
        };
        assert_eq!(place(&[], "b"), "https://b.s3.us-east-1.amazonaws.com/");
        let region = ("AWS_REGION", "eu-west-1");
        assert_eq!(place(&[region], "b.c"), "https://s3.eu-west-1.amazonaws.com/b.c/");
        let urls = [
            ("AWS_ENDPOINT_URL", "http://other"),
            ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000/"),
        ];
        assert_eq!(place(&urls, "b"), "http://127.0.0.1:9000/b/");
        assert_eq!(place(&[("AWS_ENDPOINT_URL", "https://h/s3")], "b"), "https://h/s3/b/");
    }

    #[test]
    fn half_a_secret_and_odd_addresses_are_refused() {
        assert!(settings(&[]).unwrap().credentials.is_none());
        assert!(settings(&[("AWS_ACCESS_KEY_ID", "")]).unwrap().credentials.is_none());
        for variables in [
            [("AWS_ACCESS_KEY_ID", "x")],
            [("AWS_SECRET_ACCESS_KEY", "x")],
            [("AWS_ENDPOINT_URL", "localhost:9000")],
            [("AWS_ENDPOINT_URL", "http://user:secret@host")],
            [("AWS_REGION", "a b")],
        ] {
            let error = settings(&variables).unwrap_err();
            let is_variable = matches!(error, StoreError::Variable(_));
            assert!(is_variable && !error.to_string().contains("secret@"));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let both = [("AWS_ACCESS_KEY_ID", "name"), ("AWS_SECRET_ACCESS_KEY", "hidden")];
        let shown = format!("{:?}", settings(&both).unwrap());
        assert!(shown.contains("name") && !shown.contains("hidden"), "{shown}");
    }
}
