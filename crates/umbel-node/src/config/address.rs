//! Addresses in settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ConfigError;

/// A host with a port, as far as it can be classified without a resolver.
pub(super) struct Address {
    ip: Option<IpAddr>,
    is_localhost: bool,
}

impl Address {
    pub(super) fn parse(setting: &'static str, text: &str) -> Result<Self, ConfigError> {
        let (host, _) = split(text)
            .ok_or_else(|| ConfigError::Address { setting, address: text.to_owned() })?;
        Ok(Self { ip: host.parse().ok(), is_localhost: host == "localhost" })
    }

    /// Parses an address that others connect to.
    pub(super) fn reachable(setting: &'static str, text: &str) -> Result<Self, ConfigError> {
        let address = Self::parse(setting, text)?;
        if let Some((_, 0)) = split(text) {
            return Err(ConfigError::PortZero { setting, address: text.to_owned() });
        }
        Ok(address)
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.is_localhost || self.ip.is_some_and(|ip| ip.is_loopback())
    }

    pub(super) fn is_unspecified(&self) -> bool {
        self.ip.is_some_and(|ip| ip.is_unspecified())
    }
}

/// The host of `host:port`, without the brackets of an IPv6 address.
pub fn host_of(address: &str) -> Option<&str> {
    split(address).map(|(host, _)| host)
}

/// Host and port of a listener at the address `local`, as others reach it: if that means all addresses, the host is
/// that of `advertised`, where others reach the node.
pub fn reached_at(local: &str, advertised: &str) -> (String, u16) {
    let port = local.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
    let is_certain = |host: &&str| !matches!(*host, "0.0.0.0" | "::");
    let host = host_of(local).filter(is_certain).or_else(|| host_of(advertised));
    (host.unwrap_or("127.0.0.1").to_owned(), port)
}

/// Whether two listeners at these addresses would be in each other's way: one port, and one host, or hosts of which one
/// includes the other. What names resolve to is not known here, except `localhost`.
pub fn addresses_meet(one: &str, other: &str) -> bool {
    let (Some((one, port)), Some((other, other_port))) = (split(one), split(other)) else {
        return false;
    };
    // The system chooses a free port in the place of 0.
    port != 0
        && port == other_port
        && (one.eq_ignore_ascii_case(other) || includes(one, other) || includes(other, one))
}

/// Whether a listener of this host takes the connections of the other one, too.
fn includes(host: &str, other: &str) -> bool {
    let ip = |host: &str| host.parse::<IpAddr>().ok();
    match (ip(host), ip(other)) {
        // It takes those of IPv4, too, unless the system is set otherwise.
        (Some(IpAddr::V6(host)), _) if host.is_unspecified() => true,
        (Some(IpAddr::V4(host)), other) if host.is_unspecified() => {
            !matches!(other, Some(IpAddr::V6(_)))
        }
        (None, Some(other)) => {
            host == "localhost" && (other == Ipv4Addr::LOCALHOST || other == Ipv6Addr::LOCALHOST)
        }
        _ => false,
    }
}

/// A host and a port as `host:port`, an IPv6 address in brackets.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The host, without the brackets of an IPv6 address, and the port; None if the text has another form.
pub(crate) fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    // `+7300` would parse as a number too.
    let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
    let host = match host.strip_prefix('[') {
        Some(rest) => {
            let inner = rest.strip_suffix(']')?;
            inner.parse::<Ipv6Addr>().ok()?;
            inner
        }
        None => host,
    };
    let is_ip = host.parse::<IpAddr>().is_ok() && (text.starts_with('[') || !host.contains(':'));
    (is_ip || is_host_name(host)).then_some((host, port))
}

/// Whether a text can be a host name, without a port.
pub(super) fn is_host_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.chars().all(is_of_name)
}
