//! Checks that a browser's request comes from a page of this very node, under a host name of the node.
//!
//! A browser sends requests for any page that it shows. Headers that scripts cannot set tell these pages
//! apart: `Host` is the name in the address bar, which under DNS rebinding is a foreign name that
//! resolves to this node; `Origin` and `Sec-Fetch-Site` identify the page that sends the request. Other
//! programs can send any header; against them the gate protects, not this module.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use umbel_node::config::{Config, host_of};

/// Identifies the requesting page, in browsers from 2023 on.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Host names under which the console answers, besides IP addresses and `localhost`.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Vec<String>);

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Foreign {
    /// The request's host is not known as this node's.
    #[error(
        "the console does not answer under this host name: use the node's address, or add the name to \
         console_hosts"
    )]
    Host,
    /// A page of another site sent the request.
    #[error("the console answers no pages of other sites")]
    Origin,
    /// An order does not show that it comes from the console.
    #[error(
        "orders come from the console's own pages: other programs use gRPC, as `umbel filter` and `umbel cluster` do"
    )]
    Order,
    /// An order is not JSON.
    #[error("an order is application/json")]
    Kind,
}

impl Hosts {
    /// Takes the node's own host name and those that its configuration lists.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let is_known = |name: &&str| !name.is_empty();
        Self(names.into_iter().filter(is_known).map(str::to_ascii_lowercase).collect())
    }

    /// Takes the names of the node at this address.
    pub(crate) fn of_node(address: &str, config: &Config) -> Self {
        let names = config.console_hosts.iter().map(String::as_str);
        Self::new(names.chain(host_of(address)))
    }

    /// Whether a request names a host that is not the node's. One that names none is of no browser.
    pub(crate) fn is_foreign(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        authority(uri, headers).is_some_and(|host| !self.has(&name_of(&host)))
    }

    fn has(&self, name: &str) -> bool {
        let is_address = name.parse::<IpAddr>().is_ok();
        is_address || name == "localhost" || self.0.iter().any(|known| known == name)
    }

    /// Refuses a request that a browser sends for another site.
    ///
    /// # Errors
    /// If the host is not the node's, or the requesting page is not the console.
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

/// Refuses an order that no page of this console sends. Scripts of other sites can send neither its
/// origin nor, without a preflight, JSON; requests without scripts do not have its origin either. This
/// matters because a browser presents a client's certificate whichever page sends the request.
///
/// # Errors
/// If the order does not come from the console.
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

/// Whether a page of another site requests data; such a page may still link to the console.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// The host to which the request was sent: HTTP/2 has it in the URI, HTTP/1.1 in a header. None if there
/// are two such headers, which no browser sends.
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

/// The host of `HOST:PORT` or `HOST`, without the brackets of an IPv6 address and without a final dot.
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
    fn a_request_without_a_host_is_of_no_browser() {
        let hosts = Hosts::new(["node-1.example"]);
        let is_foreign = |pairs: &[(HeaderName, &str)]| {
            hosts.is_foreign(&Uri::from_static("/metrics"), &headers(pairs))
        };
        assert!(!is_foreign(&[]) && is_foreign(&[(header::HOST, "evil.example:7300")]));
        for host in ["127.0.0.1:7300", "[::1]:7300", "localhost:7300", "node-1.example"] {
            assert!(!is_foreign(&[(header::HOST, host)]), "{host}");
        }
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
        // Browsers omit the default port on both sides; some programs name it on one.
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
