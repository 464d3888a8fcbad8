//! Where a key is: `redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY`.

use std::fmt;

/// The port where nobody names one.
const PORT: u16 = 6379;

/// A key of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Host and port.
    pub(super) server: String,
    pub(super) database: u32,
    pub(super) key: Vec<u8>,
}

/// Server and key, without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = String::from_utf8_lossy(&self.key);
        write!(f, "redis://{}", self.server)?;
        match self.database {
            0 => write!(f, ", key {key:?}"),
            database => write!(f, ", database {database}, key {key:?}"),
        }
    }
}

/// As it is shown: clap prints what it was given.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Address {
    /// The key under which a copy is made before it takes the name.
    #[expect(clippy::disallowed_methods, reason = "a name that nobody else has")]
    pub(super) fn beside(&self) -> Vec<u8> {
        let number: u64 = rand::random();
        [&self.key[..], format!(".copying-{number:016x}").as_bytes()].concat()
    }
}

/// Reads an address.
///
/// # Errors
///
/// If the text is none.
pub(crate) fn parse_address(text: &str) -> Result<Address, String> {
    let form = "expected redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY, where %2F is a slash";
    if text.starts_with("rediss://") {
        return Err("no TLS is spoken here: tunnel it, or copy over a network that is yours".into());
    }
    let rest = text.strip_prefix("redis://").ok_or(form)?;
    let (place, path) = rest.split_once('/').ok_or(form)?;
    let (credentials, server) = match place.rsplit_once('@') {
        Some((credentials, server)) => (Some(credentials), server),
        None => (None, place),
    };
    let (user, password) = match credentials.map(|text| text.split_once(':')) {
        Some(Some((user, password))) => {
            let user = Some(text_of(user)?).filter(|user| !user.is_empty());
            (user, Some(text_of(password)?))
        }
        Some(None) => return Err(format!("a user without a password; {form}")),
        None => (None, None),
    };
    let (database, key) = match path.split_once('/') {
        Some((database, key)) => {
            (database.parse().map_err(|_| format!("`{database}` is no database; {form}"))?, key)
        }
        None => (0, path),
    };
    if key.is_empty() || key.contains('/') || server.is_empty() {
        return Err(form.to_owned());
    }
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let server = if has_port { server.to_owned() } else { format!("{server}:{PORT}") };
    Ok(Address { user, password, server, database, key: decoded(key)? })
}

fn text_of(part: &str) -> Result<String, String> {
    String::from_utf8(decoded(part)?).map_err(|_| format!("`{part}` is no UTF-8"))
}

/// Bytes of which some are written as `%` and two digits.
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = behind;
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("`{text}` has a % without two digits behind it"))?);
        rest = behind.get(2..).unwrap_or_default();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_show_no_password() {
        let read = |text| parse_address(text).unwrap();
        let plain = read("redis://10.0.0.1/users");
        assert_eq!((plain.server.as_str(), plain.database), ("10.0.0.1:6379", 0));
        assert_eq!((plain.key, plain.user, plain.password), (b"users".to_vec(), None, None));
        let full = read("redis://al%69ce:p%40ss%3A@[::1]:7000/3/a%2Fb%ff");
        assert_eq!(
            (full.user.as_deref(), full.password.as_deref()),
            (Some("alice"), Some("p@ss:"))
        );
        assert_eq!((full.server.as_str(), full.database), ("[::1]:7000", 3));
        assert_eq!(full.key, b"a/b\xff");
        let shown = format!("{full} {full:?}");
        assert!(
            shown.contains("redis://[::1]:7000, database 3, key \"a/b") && !shown.contains("p@ss")
        );
        assert_eq!(read("redis://:secret@h:1/k").user, None);
        assert_eq!(read("redis://:secret@h:1/k").password.as_deref(), Some("secret"));
        assert!(full.beside().starts_with(b"a/b\xff.copying-"));
        for bad in [
            "",
            "redis:/",
            "http://h/k",
            "redis://h",
            "redis://h/",
            "redis://h/x/k",
            "redis:///k",
            "redis://h/1/2/k",
            "redis://u@h/k",
            "redis://h/%4",
            "redis://h/%+4",
            "rediss://h/k",
        ] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }
}
