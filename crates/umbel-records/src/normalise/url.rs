//! URLs in the form that is compared (RFC 3986, 6.2.2.1 and 6.2.3), by a few simple rules.
//!
//! The url crate is not used: its rules are those of browsers, with tables for international names, and
//! it changes more than was requested. Here, escapes, paths and names beyond ASCII are unchanged.

/// Default ports of schemes (WHATWG URL, "special schemes").
const DEFAULT_PORTS: [(&[u8], &[u8]); 5] =
    [(b"http", b"80"), (b"https", b"443"), (b"ws", b"80"), (b"wss", b"443"), (b"ftp", b"21")];

/// Appends `item` to `to`: normalised if it is a URL, otherwise unchanged.
pub(super) fn write(item: &[u8], to: &mut Vec<u8>) {
    let Some(url) = Url::parse(item) else {
        to.extend_from_slice(item);
        return;
    };
    let scheme = url.scheme.to_ascii_lowercase();
    to.extend_from_slice(&scheme);
    to.extend_from_slice(b"://");
    to.extend_from_slice(url.user);
    to.extend(url.host.iter().map(u8::to_ascii_lowercase));
    let default = DEFAULT_PORTS.iter().find(|(name, _)| *name == scheme).map(|(_, port)| *port);
    if let Some(port) = url.port.filter(|port| !port.is_empty() && Some(*port) != default) {
        to.push(b':');
        to.extend_from_slice(port);
    }
    to.extend_from_slice(url.rest);
}

/// The parts of `scheme://user@host:port/rest#fragment`.
struct Url<'a> {
    scheme: &'a [u8],
    /// Including the `@`; empty if there is no user.
    user: &'a [u8],
    host: &'a [u8],
    port: Option<&'a [u8]>,
    /// Path and query.
    rest: &'a [u8],
}

impl<'a> Url<'a> {
    /// `None` if the item is not a URL: it begins otherwise, has no host, or a port that is not a
    /// number, or contains blanks or control characters.
    fn parse(item: &'a [u8]) -> Option<Self> {
        if item.iter().any(|byte| byte.is_ascii_control() || *byte == b' ') {
            return None;
        }
        let colon = memchr::memchr(b':', item)?;
        let scheme = &item[..colon];
        let is_scheme_byte = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        if !scheme.first()?.is_ascii_alphabetic() || !scheme.iter().all(is_scheme_byte) {
            return None;
        }
        let behind = item[colon..].strip_prefix(b"://")?;
        let url = &behind[..memchr::memchr(b'#', behind).unwrap_or(behind.len())];
        let end = url.iter().position(|b| b"/?".contains(b)).unwrap_or(url.len());
        let (authority, rest) = url.split_at(end);
        let user_end = memchr::memrchr(b'@', authority).map_or(0, |at| at + 1);
        let (user, host_port) = authority.split_at(user_end);
        // Colons within brackets belong to an IPv6 address.
        let bracket = memchr::memrchr(b']', host_port).map_or(0, |at| at + 1);
        let colon = memchr::memchr(b':', &host_port[bracket..]).map(|at| bracket + at);
        let host = &host_port[..colon.unwrap_or(host_port.len())];
        let port = colon.map(|at| &host_port[at + 1..]);
        let is_number = port.is_none_or(|port| port.iter().all(u8::is_ascii_digit));
        (!host.is_empty() && is_number).then_some(Self { scheme, user, host, port, rest })
    }
}
