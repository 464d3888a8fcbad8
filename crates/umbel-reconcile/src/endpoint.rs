//! Where the other set is, and how to connect to it.

use super::form::Form;
use super::frozen::refuse_dash;
use super::offline::SketchPlace;
use super::turn::Turn;
use crate::error::{Context, ReconcileError, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::ffi::{OsStr, OsString};
use std::io::{Cursor, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use umbel_files::UsageError;
use umbel_tls::{SecretReader, SecretRefusal, SecretTls, SecretWriter};

/// Suffix of the folder of journals next to a set on another machine.
const JOURNALS_SUFFIX: &str = ".umbel-resume";

/// Suffix of the sketch file next to a set on another machine.
const SKETCH_SUFFIX: &str = ".sketch";

/// Maximum time from the connection to the proof that both sides know the same secret: two round trips,
/// and the handshakes of other connections meanwhile.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What an `umbel reconcile` on another machine uses next to its set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteFiles {
    /// A folder of journals.
    pub journals: bool,
    /// A stored sketch, if there is one.
    pub sketch: bool,
}

/// Where a set is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// A file on this machine.
    Path(PathBuf),
    /// A file on a machine that is reached by ssh, which runs `umbel` there.
    Ssh {
        /// The host as ssh accepts it, optionally with a user.
        host: String,
        /// The port, if it is not the one that ssh knows.
        port: Option<u16>,
        /// The path as the remote shell sees it.
        path: String,
    },
    /// A command whose standard input and output are connected to `umbel reconcile --stdio`.
    Command(String),
    /// An address where `umbel reconcile --listen` accepts connections.
    Tcp(String),
    /// A sketch in place of a set.
    Sketch(SketchPlace),
}

/// A connection to the other side of a session.
pub struct PeerConnection {
    pub(crate) reader: Box<dyn Read + Send>,
    pub(crate) writer: Box<dyn Write + Send>,
    /// The peer's name for messages.
    pub(crate) peer: String,
    /// The owner of the session's journal: journals of one owner share a quota.
    pub(crate) owner: String,
    pub(crate) guard: Guard,
    pub(crate) turn: Turn,
}

/// What must be closed or stopped after a session.
pub(crate) enum Guard {
    /// Nothing.
    None,
    /// A socket.
    Socket(TcpStream),
    /// A program.
    Program(Child),
}

impl Guard {
    /// Ends the connection after a successful session.
    pub(crate) fn end(mut self) {
        if let Self::Program(child) = &mut self {
            // The program exits once its standard input has ended.
            let _ = child.wait();
        }
    }

    /// How a program has ended, if it ends within this time: one that has closed its output may stay.
    pub(crate) fn ended_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let Self::Program(child) = self else { return None };
        let pid = Pid::from_child(child);
        let (ended, has_ended) = channel();
        spawn(move || {
            // Its status is left for whoever waits for it next.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let _ = ended.send(());
        });
        let _ = has_ended.recv_timeout(time);
        child.try_wait().ok().flatten()
    }
}

/// Spawns a thread that nobody joins: it ends with the program that it waits for.
#[expect(clippy::disallowed_methods, reason = "a program that stays must not hold the process")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

impl Drop for Guard {
    fn drop(&mut self) {
        match self {
            Self::None => {}
            Self::Socket(socket) => drop(socket.shutdown(Shutdown::Both)),
            Self::Program(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Endpoint {
    /// Parses an endpoint as given on the command line.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] for an unknown `scheme://`, for one that lacks a required part, or if anything but the name of a
    /// file on this machine is not UTF-8.
    pub fn parse(text: &OsString) -> Result<Self, UsageError> {
        let words = text.to_string_lossy();
        match Self::parse_words(&words, text)? {
            Self::Ssh { .. } | Self::Command(_) | Self::Tcp(_) if text.to_str().is_none() => {
                Err(UsageError(format!(
                    "{words}: it is not UTF-8, which only the path of a file on this machine may be"
                )))
            }
            endpoint => Ok(endpoint),
        }
    }

    /// The same for a text that reads like these words: where it is not UTF-8, they have U+FFFD.
    fn parse_words(words: &str, text: &OsStr) -> Result<Self, UsageError> {
        let incomplete = |form: &str| Err(UsageError(format!("{words}: expected {form}")));
        match words.split_once("://") {
            Some(("ssh", rest)) => match ssh_of(rest) {
                Ok(Self::Ssh { host, .. }) if host.starts_with('-') => {
                    Err(UsageError(format!("{words}: no host begins with `-`")))
                }
                parsed => parsed.or_else(incomplete),
            },
            Some(("tcp", address)) => match address.rsplit_once(':') {
                _ if address.contains('/') => incomplete("tcp://HOST:PORT, without a path"),
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(address.to_owned()))
                }
                _ => incomplete("tcp://HOST:PORT"),
            },
            Some((scheme, _)) if scheme.chars().all(char::is_alphanumeric) => {
                Err(UsageError(format!(
                    "{words}: no way to {scheme}://; expected a path, ssh://, tcp:// or exec:COMMAND"
                )))
            }
            _ => Ok(match words.strip_prefix("exec:") {
                Some(command) => Self::Command(command.to_owned()),
                None => match SketchPlace::parse(text) {
                    Some(place) => Self::Sketch(place),
                    None => {
                        refuse_dash(Path::new(text))?;
                        Self::Path(text.into())
                    }
                },
            }),
        }
    }

    /// The path, if it is on this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The place of the sketch, if the endpoint is a sketch.
    pub fn sketch(&self) -> Option<&SketchPlace> {
        match self {
            Self::Sketch(place) => Some(place),
            _ => None,
        }
    }

    /// The file of the sketch, if the endpoint is a sketch in a file.
    pub fn sketch_path(&self) -> Option<&Path> {
        match self {
            Self::Sketch(SketchPlace::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Connects to the endpoint; `arguments` tell the `umbel reconcile` there what the items are. With a
    /// secret, both ends of a socket prove that they know it.
    ///
    /// # Errors
    ///
    /// If the endpoint cannot be reached, or does not know the secret. Panics for a path or a sketch:
    /// neither can be connected to.
    pub fn connect(
        &self,
        form: &Form,
        arguments: &[String],
        remote_files: RemoteFiles,
        secret: Option<&SecretTls>,
    ) -> Result<PeerConnection> {
        match self {
            Self::Path(path) => unreachable!("{} is of this machine", path.display()),
            Self::Sketch(place) => unreachable!("{place} answers nobody"),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address);
                let stream = stream.with_context(|| format!("tcp://{address}: cannot connect"))?;
                let peer = format!("tcp://{address}");
                match secret {
                    Some(tls) => PeerConnection::dialed(stream, peer, tls),
                    None => PeerConnection::tcp(stream, peer),
                }
            }
            Self::Command(command) => {
                let mut program = Command::new("sh");
                program.args(["-c", command]);
                PeerConnection::program(program, format!("exec:{command}"))
            }
            Self::Ssh { host, port, path } => {
                let mut words = vec!["umbel".to_owned(), "reconcile".into(), "--stdio".into()];
                words.extend(form.arguments());
                words.extend_from_slice(arguments);
                let base = path.trim_end_matches('/');
                if remote_files.journals {
                    words.push(format!("--resume={base}{JOURNALS_SUFFIX}"));
                }
                if remote_files.sketch {
                    words.push(format!("--sketch-if-any={base}{SKETCH_SUFFIX}"));
                }
                words.extend(["--".to_owned(), path.clone()]);
                let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
                let mut program = Command::new("ssh");
                program.arg("-T");
                if let Some(port) = port {
                    program.args(["-p", &port.to_string()]);
                }
                program.args(["--", host]).arg(quoted.join(" "));
                PeerConnection::program(program, ssh_address(host, *port, path))
            }
        }
    }
}

/// Path of the home directory on another machine, where a command of ssh begins.
const HOME: &str = ".";

/// Parses what follows `ssh://`.
///
/// # Errors
///
/// The form that is expected.
fn ssh_of(rest: &str) -> Result<Endpoint, &'static str> {
    const FORM: &str =
        "ssh://[USER@]HOST[:PORT]/PATH, or ssh://HOST/~/PATH below the home directory";
    let (authority, path) = rest.split_once('/').ok_or(FORM)?;
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    // The address of IPv6 has colons: it is in brackets if a port follows.
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(FORM)?)),
        None => match host.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (host, None),
        },
    };
    let port_of = |digits: &str| digits.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.map(|digits| port_of(digits).ok_or(PORT_FORM)).transpose()?;
    let path = match path.split_once('/') {
        _ if path == "~" => HOME.to_owned(),
        Some(("~", at_home)) => match at_home.trim_start_matches('/') {
            "" => HOME.to_owned(),
            at_home => at_home.to_owned(),
        },
        // A shell may know other users' directories, or leave such a path as it is: then it would be another one.
        _ if path.starts_with('~') => return Err(HOME_FORM),
        _ => format!("/{path}"),
    };
    if host.is_empty() || path == "/" {
        return Err(FORM);
    }
    let host = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    Ok(Endpoint::Ssh { host, port, path })
}

/// What is expected where the home directory of another user is named.
const HOME_FORM: &str = "ssh://USER@HOST/~/PATH below the home directory of USER, or the whole path: those of other users are \
     not looked up; ssh://HOST//~NAME is a file of this name in /";

/// What is expected where something else is in the place of a port.
const PORT_FORM: &str = "a PORT from 1 to 65535 in ssh://[USER@]HOST:PORT/PATH";

/// The endpoint as it was given: a path that is not absolute is below the home directory.
fn ssh_address(host: &str, port: Option<u16>, path: &str) -> String {
    let (user, name) = host.rsplit_once('@').map_or(("", host), |(user, name)| (user, name));
    let at = if user.is_empty() { "" } else { "@" };
    let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let path = match path {
        HOME => "/~".to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        at_home => format!("/~/{at_home}"),
    };
    format!("ssh://{user}{at}{name}{port}{path}")
}

/// Owner of journals of sessions that run over a program's pipes.
const LOCAL: &str = "local";

/// Owner of journals of a socket's sessions: the IPv4 address, or the /64 network of an IPv6 address,
/// which one machine has to itself.
fn owner_of(socket: &TcpStream) -> String {
    match socket.peer_addr().map(|address| address.ip().to_canonical()) {
        Ok(IpAddr::V4(address)) => address.to_string(),
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}_{b:x}_{c:x}_{d:x}")
        }
        Err(_) => LOCAL.to_owned(),
    }
}

/// Quotes a word for whatever shell a user has.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=".contains(c);
    // zsh takes `=NAME` for the path of a command.
    if word.chars().all(is_plain) && !word.is_empty() && !word.starts_with('=') {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for c in word.chars() {
        // Quotes and, for fish, backslashes have a meaning between quotes.
        if c == '\'' || c == '\\' {
            quoted.extend(['\'', '\\', c, '\'']);
        } else {
            quoted.push(c);
        }
    }
    quoted.push('\'');
    quoted
}

impl PeerConnection {
    /// A connection over a socket.
    ///
    /// # Errors
    ///
    /// If a socket operation fails.
    pub fn tcp(stream: TcpStream, peer: String) -> Result<Self> {
        // Frames are whole messages, and the other side waits for each.
        stream.set_nodelay(true).with_context(|| peer.clone())?;
        let clone = || stream.try_clone().with_context(|| peer.clone());
        let (reader, writer) = (Box::new(clone()?), Box::new(clone()?));
        let owner = owner_of(&stream);
        let (guard, turn) = (Guard::Socket(stream), Turn::default());
        Ok(Self { reader, writer, peer, owner, guard, turn })
    }

    /// The same connection, of which these bytes have already been read.
    pub(crate) fn after(self, first: Vec<u8>) -> Self {
        Self { reader: Box::new(Cursor::new(first).chain(self.reader)), ..self }
    }

    /// An encrypted connection over a socket that this side has connected; both ends prove that they know
    /// the secret.
    ///
    /// # Errors
    ///
    /// If the other end does not know the secret, or a socket operation fails.
    pub fn dialed(stream: TcpStream, peer: String, tls: &SecretTls) -> Result<Self> {
        let shown = peer.clone();
        Self::encrypted(stream, peer, |socket| {
            let proved = tls.connect_blocking(socket, HANDSHAKE_TIMEOUT);
            proved.map_err(|why| {
                let is_unheard =
                    matches!(why, SecretRefusal::Late { .. } | SecretRefusal::Broken(_));
                let hint = if is_unheard { ", which may be full of others" } else { "" };
                ReconcileError::from(why).context(format!("{shown}{hint}"))
            })
        })
    }

    /// An encrypted connection over a socket that this side has accepted; both ends prove that they know
    /// the secret.
    ///
    /// # Errors
    ///
    /// If the other end does not know the secret, or a socket operation fails.
    pub fn accepted(stream: TcpStream, peer: String, tls: &SecretTls) -> Result<Self> {
        // Whoever refuses it names it.
        Self::encrypted(stream, peer, |socket| Ok(tls.accept_blocking(socket, HANDSHAKE_TIMEOUT)?))
    }

    fn encrypted(
        stream: TcpStream,
        peer: String,
        prove: impl FnOnce(TcpStream) -> Result<(SecretReader, SecretWriter)>,
    ) -> Result<Self> {
        stream.set_nodelay(true).with_context(|| peer.clone())?;
        let socket = stream.try_clone().with_context(|| peer.clone())?;
        let (reader, writer) = prove(socket)?;
        let (reader, writer, owner) = (Box::new(reader), Box::new(writer), owner_of(&stream));
        let (guard, turn) = (Guard::Socket(stream), Turn::default());
        Ok(Self { reader, writer, peer, owner, guard, turn })
    }

    /// A connection over standard input and output of this process.
    pub fn stdio() -> Self {
        let (reader, writer) = (Box::new(std::io::stdin()), Box::new(std::io::stdout()));
        let (peer, owner) = ("standard input".into(), LOCAL.into());
        let (guard, turn) = (Guard::None, Turn::default());
        Self { reader, writer, peer, owner, guard, turn }
    }

    /// Both ends of a connection inside this process.
    ///
    /// # Errors
    ///
    /// If a pipe cannot be created.
    pub fn pair(names: [String; 2]) -> Result<[Self; 2]> {
        let cannot = || "cannot make a pipe";
        let (there, from_here) = pipe().with_context(cannot)?;
        let (here, from_there) = pipe().with_context(cannot)?;
        let end = |reader: PipeReader, writer: PipeWriter, peer| Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            peer,
            owner: LOCAL.into(),
            guard: Guard::None,
            turn: Turn::default(),
        };
        let [first, second] = names;
        Ok([end(here, from_here, second), end(there, from_there, first)])
    }

    fn program(mut program: Command, peer: String) -> Result<Self> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().with_context(|| format!("{peer}: cannot run it"))?;
        let reader = Box::new(child.stdout.take().expect("it is piped"));
        let writer = Box::new(child.stdin.take().expect("it is piped"));
        let (owner, guard, turn) = (LOCAL.into(), Guard::Program(child), Turn::default());
        Ok(Self { reader, writer, peer, owner, guard, turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn parse(text: &str) -> Result<Endpoint, String> {
        Endpoint::parse(&text.into()).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_are_recognized_by_their_schemes() {
        assert_eq!(parse("a/b.txt"), Ok(Endpoint::Path("a/b.txt".into())));
        let sketch = |place| Ok(Endpoint::Sketch(place));
        assert_eq!(parse("a/b.sketch"), sketch(SketchPlace::File("a/b.sketch".into())));
        assert_eq!(parse("sketch:b"), sketch(SketchPlace::File("b".into())));
        assert_eq!(parse("sketch:-"), sketch(SketchPlace::Stdin));
        assert_eq!(parse("tcp://h:1"), Ok(Endpoint::Tcp("h:1".into())));
        assert_eq!(
            parse("exec:docker exec c umbel"),
            Ok(Endpoint::Command("docker exec c umbel".into()))
        );
        for address in ["host", "host:x", "host:", ":1", "host:65536"] {
            let error = parse(&format!("tcp://{address}")).unwrap_err();
            assert_eq!(error, format!("tcp://{address}: expected tcp://HOST:PORT"));
        }
        let error = parse("tcp://host:1/path").unwrap_err();
        assert!(error.ends_with("expected tcp://HOST:PORT, without a path"), "{error}");
        assert!(parse("-").unwrap_err().contains("./- is a file of that name"));
        assert_eq!(parse("./-"), Ok(Endpoint::Path("./-".into())));
        assert!(parse("s3://bucket/x").unwrap_err().contains("no way to s3://"));
    }

    /// Regression: all of them were paths of sets on this machine.
    #[test]
    fn only_names_of_files_here_may_be_anything_but_text() {
        let parse = |bytes: &[u8]| {
            let text = OsStr::from_bytes(bytes).to_owned();
            Endpoint::parse(&text).map_err(|error| error.to_string())
        };
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let sketch = |bytes: &[u8]| Ok(Endpoint::Sketch(SketchPlace::File(path(bytes))));
        for name in [&b"a\xff"[..], b"\xff://x", b"./ssh://h/\xff"] {
            assert_eq!(parse(name), Ok(Endpoint::Path(path(name))));
        }
        assert_eq!(parse(b"a\xff.sketch"), sketch(b"a\xff.sketch"));
        assert_eq!(parse(b"sketch:a\xff"), sketch(b"a\xff"));
        for address in [&b"ssh://h/\xff"[..], b"ssh://\xff@h/x", b"exec:cat \xff", b"tcp://\xff:1"]
        {
            let shown = String::from_utf8_lossy(address);
            let said = format!("{shown}: it is not UTF-8, which only");
            assert!(parse(address).unwrap_err().starts_with(&said), "{shown}");
        }
        assert!(parse(b"tcp://h:\xff").unwrap_err().contains("expected tcp://HOST:PORT"));
        assert!(parse(b"s3://\xff").unwrap_err().contains("no way to s3://"));
    }

    #[test]
    fn addresses_of_ssh_have_users_ports_and_paths() {
        for (address, host, port, path) in [
            ("ssh://u@h/data/x", "u@h", None, "/data/x"),
            ("ssh://u@h/~/x", "u@h", None, "x"),
            ("ssh://h:2222/x", "h", Some(2222), "/x"),
            ("ssh://u@h:22/~/x/y", "u@h", Some(22), "x/y"),
            ("ssh://h/~", "h", None, "."),
            ("ssh://h//~x", "h", None, "//~x"),
            ("ssh://h/x/~y", "h", None, "/x/~y"),
            ("ssh://h/~/~y", "h", None, "~y"),
            ("ssh://[fe80::1]/x", "fe80::1", None, "/x"),
            ("ssh://u@[::1]:22/x", "u@::1", Some(22), "/x"),
        ] {
            let expected = Endpoint::Ssh { host: host.into(), port, path: path.into() };
            assert_eq!(parse(address), Ok(expected), "{address}");
            assert_eq!(ssh_address(host, port, path), address);
        }
        for (address, as_well) in [
            ("ssh://h/~/", "ssh://h/~"),
            ("ssh://h/~//x", "ssh://h/~/x"),
            ("ssh://fe80::1/x", "ssh://[fe80::1]/x"),
        ] {
            assert_eq!(parse(address), parse(as_well), "{address}");
        }
        for address in ["host", "host/", "/x", "u@/x", ":22/x", "[::1]22/x"] {
            let error = parse(&format!("ssh://{address}")).unwrap_err();
            assert!(error.contains("expected ssh://[USER@]HOST[:PORT]/PATH"), "{error}");
        }
        for port in ["", "0", "x", "65536"] {
            let error = parse(&format!("ssh://h:{port}/x")).unwrap_err();
            assert!(error.contains("expected a PORT from 1 to 65535"), "{error}");
        }
        for address in ["ssh://h/~user", "ssh://h/~user/x", "ssh://u@h:22/~user/~/x", "ssh://h/~~"]
        {
            let error = parse(address).unwrap_err();
            let said = format!("{address}: expected ssh://USER@HOST/~/PATH below");
            assert!(error.starts_with(&said), "{error}");
        }
        for address in ["ssh://-oProxyCommand=x/y", "ssh://[-oProxyCommand=x]/y"] {
            assert!(parse(address).unwrap_err().contains("no host begins"), "{address}");
        }
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        assert_eq!(quote("/data/x.txt"), "/data/x.txt");
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("~root/x"), "'~root/x'");
        assert_eq!(quote("=ls"), "'=ls'");
        assert_eq!(quote("--ids=64"), "--ids=64");
        assert_eq!(quote(r"a\\b\"), r"'a'\\''\\'b'\\''");
    }
}
