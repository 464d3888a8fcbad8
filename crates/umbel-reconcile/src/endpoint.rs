//! Where the other set is, and how to connect to it.

use super::form::Form;
use super::offline::SketchPlace;
use super::turn::Turn;
use crate::error::{Context, Result};
use std::ffi::OsString;
use std::io::{Cursor, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use umbel_files::UsageError;
use umbel_tls::{SecretReader, SecretTls, SecretWriter};

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
    /// A [`UsageError`] for an unknown `scheme://`, or for one that lacks a required part.
    pub fn parse(text: &OsString) -> Result<Self, UsageError> {
        let Some(words) = text.to_str() else { return Ok(Self::Path(text.into())) };
        let incomplete = |form: &str| Err(UsageError(format!("{words}: expected {form}")));
        match words.split_once("://") {
            Some(("ssh", rest)) => match rest.split_once('/') {
                Some((host, path)) if !host.is_empty() && !path.is_empty() => {
                    if host.starts_with('-') {
                        return Err(UsageError(format!("{words}: no host begins with `-`")));
                    }
                    let path = match path.strip_prefix("~/") {
                        Some(at_home) => at_home.to_owned(),
                        None => format!("/{path}"),
                    };
                    Ok(Self::Ssh { host: host.to_owned(), path })
                }
                _ => incomplete("ssh://HOST/PATH, or ssh://HOST/~/PATH below the home directory"),
            },
            Some(("tcp", address)) if address.contains(':') => Ok(Self::Tcp(address.to_owned())),
            Some(("tcp", _)) => incomplete("tcp://HOST:PORT"),
            Some((scheme, _)) if scheme.chars().all(char::is_alphanumeric) => {
                Err(UsageError(format!(
                    "{words}: no way to {scheme}://; expected a path, ssh://, tcp:// or exec:COMMAND"
                )))
            }
            _ => Ok(match words.strip_prefix("exec:") {
                Some(command) => Self::Command(command.to_owned()),
                None => match SketchPlace::parse(words) {
                    Some(place) => Self::Sketch(place),
                    None => Self::Path(text.into()),
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
            Self::Ssh { host, path } => {
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
                program.args(["-T", "--", host]).arg(quoted.join(" "));
                PeerConnection::program(program, ssh_address(host, path))
            }
        }
    }
}

/// The endpoint as it was given: a path that is not absolute is below the home directory.
fn ssh_address(host: &str, path: &str) -> String {
    if path.starts_with('/') {
        format!("ssh://{host}{path}")
    } else {
        format!("ssh://{host}/~/{path}")
    }
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

/// Quotes a word for a shell.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
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
            tls.connect_blocking(socket, HANDSHAKE_TIMEOUT).context(shown)
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
        let ssh = |path: &str| Ok(Endpoint::Ssh { host: "u@h".into(), path: path.into() });
        assert_eq!(parse("ssh://u@h/data/x"), ssh("/data/x"));
        assert_eq!(parse("ssh://u@h/~/x"), ssh("x"));
        for address in ["ssh://u@h/data/x", "ssh://u@h/~/x"] {
            let Ok(Endpoint::Ssh { host, path }) = parse(address) else { panic!("{address}") };
            assert_eq!(ssh_address(&host, &path), address);
        }
        assert_eq!(
            parse("exec:docker exec c umbel"),
            Ok(Endpoint::Command("docker exec c umbel".into()))
        );
        assert!(parse("ssh://-oProxyCommand=x/y").unwrap_err().contains("no host begins"));
        assert!(parse("ssh://host").unwrap_err().contains("expected ssh://HOST/PATH"));
        assert!(parse("tcp://host").unwrap_err().contains("expected tcp://HOST:PORT"));
        assert!(parse("s3://bucket/x").unwrap_err().contains("no way to s3://"));
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        assert_eq!(quote("/data/x.txt"), "/data/x.txt");
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quote(""), "");
    }
}
