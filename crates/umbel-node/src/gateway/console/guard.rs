//! Who may have asked for the console: a page of this very node, under a name that is the node's.
//!
//! A browser sends requests for whatever page it shows. Two headers, which scripts cannot set, tell
//! them apart: `Host` is the name in the address bar, and a stranger's name that was made to resolve to
//! this node (DNS rebinding) stands there; `Origin` and `Sec-Fetch-Site` say whose page asks. Other
//! programs send what they like: what holds them is the gate, not this.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

/// Whose page asks, in browsers from 2023 on.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Names under which the console answers, beside addresses and `localhost`.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Vec<String>);

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Foreign {
    /// The request names a host that is not known as this node's.
    #[error(
        "the console does not answer under this host name: use the node's address, or add the name to \
         console_hosts"
    )]
    Host,
    /// Another site's page asks.
    #[error("the console answers no pages of other sites")]
    Origin,
    /// An order does not say that it comes from the console.
    #[error(
        "orders come from the console's own pages: other programs use gRPC, as `umbel filter` and `umbel cluster` do"
    )]
    Order,
    /// An order is no JSON.
    #[error("an order is application/json")]
    Kind,
}

impl Hosts {
    /// Of a node that is reached under this name, and under those that its settings list.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let is_known = |name: &&str| !name.is_empty();
        Self(names.into_iter().filter(is_known).map(str::to_ascii_lowercase).collect())
    }

    fn has(&self, name: &str) -> bool {
        let is_address = name.parse::<IpAddr>().is_ok();
        is_address || name == "localhost" || self.0.iter().any(|known| known == name)
    }

    /// Refuses what a browser sends for another site.
    ///
    /// # Errors
    /// If the host is not the node's, or the page that asks is not the console.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Foreign> {
        let host = authority(uri, headers).ok_or(Foreign::Host)?;
        if !self.has(&name_of(&host)) {
            return Err(Foreign::Host);
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().map_err(|_| Foreign::Origin)?.to_ascii_lowercase();
            let asking = ["http://", "https://"].iter().find_map(|&scheme| {
                let rest = origin.strip_prefix(scheme)?;
                Some((rest, if scheme == "http://" { ":80" } else { ":443" }))
            });
            let is_own = asking.is_some_and(|(asking, port)| {
                asking == host || host.strip_suffix(port) == Some(asking)
            });
            if !is_own {
                return Err(Foreign::Origin);
            }
        }
        Ok(())
    }
}

/// Refuses an order that no page of this console sends: scripts of other sites can send neither its origin nor,
/// unasked, JSON; and what needs no script has no such origin either. A certificate in the browser proves its
/// owner whoever asks.
///
/// # Errors
/// If it does not come from the console.
pub(super) fn check_order(headers: &HeaderMap) -> Result<(), Foreign> {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_own = site.is_none_or(|site| site == b"same-origin");
    if !headers.contains_key(header::ORIGIN) || !is_own {
        return Err(Foreign::Order);
    }
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind != Some(b"application/json") {
        return Err(Foreign::Kind);
    }
    Ok(())
}

/// Whether another site's page asks for data; it may link to the console all the same.
pub(super) fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// Where the request was sent: of HTTP/2 it stands in the address, of HTTP/1.1 in a header. A request
/// that has two headers of it is none of a browser.
fn authority(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut named = headers.get_all(header::HOST).iter();
    let (first, second) = (named.next(), named.next());
    let header = match (first, second) {
        (_, Some(_)) => return None,
        (Some(value), None) => Some(value.to_str().ok()?),
        (None, None) => None,
    };
    let host = uri.authority().map(Authority::as_str).or(header)?;
    Some(host.to_ascii_lowercase())
}

/// The host of `HOST:PORT` or `HOST`, without the brackets of an IPv6 address and the dot that may end a
/// name.
fn name_of(authority: &str) -> String {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default().to_owned();
    }
    let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
    name.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn checked(pairs: &[(HeaderName, &str)]) -> Result<(), Foreign> {
        let hosts = Hosts::new(["Node-1.example", "", "umbel.example"]);
        hosts.check(&Uri::from_static("/console"), &headers(pairs))
    }

    #[test]
    fn the_host_is_the_nodes_own() {
        for host in [
            "127.0.0.1:7300",
            "10.0.0.1",
            "[::1]:7300",
            "localhost:7300",
            "node-1.example:7300",
            "NODE-1.example.",
            "umbel.example",
        ] {
            assert_eq!(checked(&[(header::HOST, host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7300",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "node-1.example.evil",
            "",
            ":7300",
            "[evil.example]",
        ] {
            assert_eq!(checked(&[(header::HOST, host)]), Err(Foreign::Host), "{host}");
        }
        assert_eq!(checked(&[]), Err(Foreign::Host));
        let twice = [(header::HOST, "localhost"), (header::HOST, "evil.example")];
        assert_eq!(checked(&twice), Err(Foreign::Host));
    }

    #[test]
    fn of_http_2_the_host_stands_in_the_address() {
        let hosts = Hosts::new([]);
        let check = |uri| hosts.check(&Uri::from_static(uri), &HeaderMap::new());
        assert_eq!(check("https://127.0.0.1:7300/console"), Ok(()));
        assert_eq!(check("https://evil.example/console"), Err(Foreign::Host));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let asked = |origin| checked(&[(header::HOST, "localhost:7300"), (header::ORIGIN, origin)]);
        assert_eq!(asked("http://localhost:7300"), Ok(()));
        assert_eq!(asked("https://LOCALHOST:7300"), Ok(()));
        for foreign in [
            "http://evil.example",
            "http://localhost",
            "http://localhost:7301",
            "http://localhost:7300.evil.example",
            "null",
            "",
            "file://",
        ] {
            assert_eq!(asked(foreign), Err(Foreign::Origin), "{foreign}");
        }
        // A browser leaves the usual port out on both sides; some programs name it on one.
        let usual =
            [(header::HOST, "umbel.example:443"), (header::ORIGIN, "https://umbel.example")];
        assert_eq!(checked(&usual), Ok(()));
        let site = |value| is_cross_site(&headers(&[(FETCH_SITE, value)]));
        assert!(!site("same-origin") && !site("none") && !is_cross_site(&HeaderMap::new()));
        assert!(site("cross-site") && site("same-site"));
    }

    #[test]
    fn an_order_comes_from_the_console_as_json() {
        let origin = (header::ORIGIN, "http://localhost:7300");
        let kind = (header::CONTENT_TYPE, "application/json");
        let check = |pairs: &[(HeaderName, &str)]| check_order(&headers(pairs));
        assert_eq!(check(&[origin.clone(), kind.clone()]), Ok(()));
        assert_eq!(check(&[origin.clone(), kind.clone(), (FETCH_SITE, "same-origin")]), Ok(()));
        for foreign in ["cross-site", "same-site", "none", ""] {
            let site = (FETCH_SITE, foreign);
            let asked = check(&[origin.clone(), kind.clone(), site]);
            assert_eq!(asked, Err(Foreign::Order), "{foreign}");
        }
        assert_eq!(check(&[kind]), Err(Foreign::Order));
        let without = (header::CONTENT_TYPE, "");
        assert_eq!(check(&[origin.clone(), without]), Err(Foreign::Kind));
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "application/json, text/plain", ""]
        {
            let kind = (header::CONTENT_TYPE, kind);
            assert_eq!(check(&[origin.clone(), kind]), Err(Foreign::Kind));
        }
    }
}
