//! Addresses of servers and keys: `redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY`, and `rediss://` with TLS.

use std::fmt;

/// The default port.
const PORT: u16 = 6379;

/// The form of a key's address.
const KEY_FORM: &str = "expected redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY, where %2F is a slash; rediss:// is with TLS";

/// The form of a database's address.
const DATABASE_FORM: &str =
    "expected redis://[USER:PASSWORD@]HOST:PORT[/DB] beside --keys; rediss:// is with TLS";

/// A database of a server, and the credentials.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) is_tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Host and port.
    pub(super) server: String,
    pub(super) database: u32,
}

/// A key of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) place: Place,
    pub(super) key: Vec<u8>,
}

/// A server with an optional path. Other arguments decide whether the path names a key or a database.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The server, with database 0.
    place: Place,
    path: Option<String>,
}

/// Server and database, without the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}", self.server)?;
        match self.database {
            0 => Ok(()),
            database => write!(f, ", database {database}"),
        }
    }
}

/// Server and key, without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, key {:?}", self.place, String::from_utf8_lossy(&self.key))
    }
}

/// Like `Display`, because clap prints values of arguments.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Without the password.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.place, self.path)
    }
}

impl Address {
    /// A temporary key, under which a copy is written before it is renamed.
    #[expect(clippy::disallowed_methods, reason = "a name that nobody else has")]
    pub(super) fn beside(&self) -> Vec<u8> {
        let number: u64 = rand::random();
        [&self.key[..], format!(".copying-{number:016x}").as_bytes()].concat()
    }

    /// The server and database.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl Origin {
    /// The server, with database 0.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Interprets the path as a key, with an optional database before it.
    ///
    /// # Errors
    ///
    /// If the path names no key.
    pub(crate) fn key(&self) -> Result<Address, String> {
        let path = self.path.as_deref().ok_or(KEY_FORM)?;
        let (database, key) = match path.split_once('/') {
            Some((database, key)) => (database_of(database, KEY_FORM)?, key),
            None => (0, path),
        };
        if key.is_empty() || key.contains('/') {
            return Err(KEY_FORM.to_owned());
        }
        Ok(Address { place: Place { database, ..self.place.clone() }, key: decoded(key)? })
    }

    /// Interprets the path as a database.
    ///
    /// # Errors
    ///
    /// If the path is no database number.
    pub(crate) fn database(&self) -> Result<Place, String> {
        let database = match self.path.as_deref() {
            None | Some("") => 0,
            Some(text) => database_of(text, DATABASE_FORM)?,
        };
        Ok(Place { database, ..self.place.clone() })
    }
}

fn database_of(text: &str, form: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no database; {form}"))
}

/// Parses the address of a key.
///
/// # Errors
///
/// If the text is no such address.
pub(crate) fn parse_address(text: &str) -> Result<Address, String> {
    parse_origin(text)?.key()
}

/// Parses the address of a key or of a database.
///
/// # Errors
///
/// If the text is no such address.
pub(crate) fn parse_origin(text: &str) -> Result<Origin, String> {
    let (is_tls, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return Err(KEY_FORM.to_owned()),
    };
    let (place, path) = match rest.split_once('/') {
        Some((place, path)) => (place, Some(path.to_owned())),
        None => (rest, None),
    };
    let (credentials, server) = match place.rsplit_once('@') {
        Some((credentials, server)) => (Some(credentials), server),
        None => (None, place),
    };
    let (user, password) = match credentials.map(|text| text.split_once(':')) {
        Some(Some((user, password))) => {
            let user = Some(text_of(user)?).filter(|user| !user.is_empty());
            (user, Some(text_of(password)?))
        }
        Some(None) => return Err(format!("a user without a password; {KEY_FORM}")),
        None => (None, None),
    };
    if server.is_empty() {
        return Err(KEY_FORM.to_owned());
    }
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let server = if has_port { server.to_owned() } else { format!("{server}:{PORT}") };
    Ok(Origin { place: Place { is_tls, user, password, server, database: 0 }, path })
}

fn text_of(part: &str) -> Result<String, String> {
    String::from_utf8(decoded(part)?).map_err(|_| format!("`{part}` is no UTF-8"))
}

/// Decodes percent-encoding.
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
        assert_eq!((plain.place.server.as_str(), plain.place.database), ("10.0.0.1:6379", 0));
        assert!(!plain.place.is_tls);
        assert_eq!(
            (plain.key, plain.place.user, plain.place.password),
            (b"users".to_vec(), None, None)
        );
        let full = read("redis://al%69ce:p%40ss%3A@[::1]:7000/3/a%2Fb%ff");
        assert_eq!(
            (full.place.user.as_deref(), full.place.password.as_deref()),
            (Some("alice"), Some("p@ss:"))
        );
        assert_eq!((full.place.server.as_str(), full.place.database), ("[::1]:7000", 3));
        assert_eq!(full.key, b"a/b\xff");
        let shown = format!("{full} {full:?}");
        assert!(
            shown.contains("redis://[::1]:7000, database 3, key \"a/b") && !shown.contains("p@ss")
        );
        let origin = parse_origin("redis://u:p%40ss@h/k").unwrap();
        assert!(!format!("{origin:?}").contains("p%40ss"), "{origin:?}");
        assert_eq!(read("redis://:secret@h:1/k").place.user, None);
        assert_eq!(read("redis://:secret@h:1/k").place.password.as_deref(), Some("secret"));
        assert!(full.beside().starts_with(b"a/b\xff.copying-"));
        let sealed = read("rediss://h/k");
        assert!(sealed.place.is_tls);
        assert_eq!(sealed.to_string(), "rediss://h:6379, key \"k\"");
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
            "rediss://h",
        ] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_database_is_distinguished_from_a_key_by_the_command() {
        let origin = |text| parse_origin(text).unwrap();
        assert_eq!(origin("redis://h/3").key().unwrap().key, b"3");
        for (text, database) in [("redis://h", 0), ("redis://h/", 0), ("redis://h/3", 3)] {
            assert_eq!(origin(text).database().unwrap().database, database, "{text}");
        }
        assert_eq!(
            origin("redis://h:1/3").database().unwrap().to_string(),
            "redis://h:1, database 3"
        );
        for bad in ["redis://h/k", "redis://h/3/k", "redis://h/3/", "redis://h/-1"] {
            assert!(origin(bad).database().is_err(), "{bad}");
        }
    }
}
