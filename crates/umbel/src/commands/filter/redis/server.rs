//! A connection to a server, which carries one request at a time.

use super::address::{Address, Place};
use super::answer::{Answer, Head, Most, NoAnswer};
use crate::commands::cluster::look::harmless;
use crate::exit::UsageError;
use anyhow::{Context, Result, anyhow, bail};
use bytes::{Buf as _, Bytes, BytesMut};
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use umbel_resp::Request;
use umbel_tls::{ForeignFiles, ForeignTls, HandshakeError, TrustError, own_certificate_refused};

/// Timeout to connect to a server, and for the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of an answer, which has at most 16 MiB.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a page or a dump may be waited for in total, unless it arrives with at least
/// [`BYTES_PER_SECOND_MIN`]. The timeout of an answer does not bound this, as each value of a page has
/// its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// Least rate of a page or a dump in bytes per second. At this rate a dump of 256 MiB takes under five
/// hours; slower lines are rare.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// Environment variable with the password if the address has none, since other users can see command
/// lines. redis-cli reads it too.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// Ends lines and values.
const LINE_END: &[u8] = b"\r\n";

/// Bytes reserved for each read.
const READ_BYTES: usize = 64 << 10;

/// Most bytes of a skipped value that share one answer's timeout.
const PASSED_BYTES_MAX: usize = 16 << 20;

/// A connection, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connected server.
pub(super) struct Server {
    stream: Box<dyn Stream>,
    /// Received bytes that are not decoded yet.
    bytes: BytesMut,
    pace: Pace,
}

/// How fast a page or a dump arrives.
#[derive(Default)]
struct Pace {
    /// The time spent waiting for it, without the time for processing.
    waited: Duration,
    /// Bytes received.
    came: u64,
}

impl Pace {
    /// How long the next read may wait.
    fn left(&self) -> Duration {
        let earned = Duration::from_millis(self.came.saturating_mul(1000) / BYTES_PER_SECOND_MIN);
        (PATIENCE + earned).saturating_sub(self.waited)
    }
}

/// A piece of a dump, and the iterator after it.
pub(super) struct Dump {
    pub(super) iterator: i64,
    pub(super) piece: Bytes,
}

impl Server {
    /// Connects to a server, authenticates and selects the database.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, its certificate is not trusted, or it refuses the credentials or
    /// the database.
    pub(super) async fn connect(place: &Place, files: &ForeignFiles) -> Result<Self> {
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(&place.server)).await;
        let stream = connecting
            .map_err(|_| anyhow!("not reached within {} s", CONNECT_TIMEOUT.as_secs()))?
            .context("cannot be reached")?;
        let stream: Box<dyn Stream> = if place.is_tls {
            Box::new(sealed(&place.server, files, stream).await?)
        } else {
            Box::new(stream)
        };
        let mut server = Self::over(stream);
        let is_set = |password: &String| !password.is_empty();
        let of_environment = || std::env::var(PASSWORD_VARIABLE).ok().filter(is_set);
        if let Some(password) = place.password.clone().or_else(of_environment) {
            let mut words = vec![&b"AUTH"[..]];
            words.extend(place.user.as_deref().map(str::as_bytes));
            words.push(password.as_bytes());
            server.order(&words).await?;
        }
        if place.database != 0 {
            server.order(&[b"SELECT", place.database.to_string().as_bytes()]).await?;
        }
        Ok(server)
    }

    /// A server over an existing connection.
    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, bytes: BytesMut::new(), pace: Pace::default() }
    }

    /// Checks that a key does not exist.
    ///
    /// # Errors
    ///
    /// If it exists, or the server does not answer.
    pub(super) async fn check_free(mut self, address: &Address) -> Result<Self> {
        match self.send(&[b"EXISTS", &address.key]).await? {
            Answer::Integer(0) => Ok(self),
            Answer::Integer(_) => bail!("there is such a key already: delete it, or name another"),
            other => Err(unexpected(&other)),
        }
    }

    /// The piece of a filter after an iterator; None after the last one. The least rate holds for all
    /// pieces together, so that a server cannot prolong a dump indefinitely with small pieces.
    ///
    /// # Errors
    ///
    /// If the server has no such filter, does not answer, or is too slow.
    pub(super) async fn dump(&mut self, address: &Address, iterator: i64) -> Result<Option<Dump>> {
        if iterator == 0 {
            self.pace = Pace::default();
        }
        let iterator = iterator.to_string();
        let answer = self.send_on(&[b"BF.SCANDUMP", &address.key, iterator.as_bytes()]).await?;
        let Answer::List(values) = answer else { return Err(unexpected(&answer)) };
        match <[Answer; 2]>::try_from(values) {
            Ok([Answer::Integer(0), _]) => Ok(None),
            Ok([Answer::Integer(iterator), Answer::Bulk(Some(piece))]) => {
                Ok(Some(Dump { iterator, piece }))
            }
            Ok(other) => Err(unexpected(&Answer::List(other.into()))),
            Err(other) => Err(unexpected(&Answer::List(other))),
        }
    }

    /// Sends a piece of a filter.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or does not answer.
    pub(super) async fn load(&mut self, key: &[u8], iterator: i64, piece: &[u8]) -> Result<()> {
        self.order(&[b"BF.LOADCHUNK", key, iterator.to_string().as_bytes(), piece]).await
    }

    /// Renames a key; the new name must be free.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the server does not answer.
    pub(super) async fn rename(&mut self, key: &[u8], address: &Address) -> Result<()> {
        match self.send(&[b"RENAMENX", key, &address.key]).await? {
            Answer::Integer(1) => Ok(()),
            Answer::Integer(_) => bail!("somebody else has made such a key meanwhile"),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a key, if it exists.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub(super) async fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.send(&[b"DEL", key]).await.map(drop)
    }

    /// Sends a command whose answer is a status, such as OK.
    async fn order(&mut self, words: &[&[u8]]) -> Result<()> {
        match self.send(words).await? {
            Answer::Status(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The type of a key's value, by the server's name; `none` if there is no such key.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub(super) async fn type_of(&mut self, key: &[u8]) -> Result<String> {
        match self.send(&[b"TYPE", key]).await? {
            Answer::Status(name) => Ok(harmless(&name)),
            other => Err(unexpected(&other)),
        }
    }

    /// The non-negative number that a command returns.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or answers something else.
    pub(super) async fn number(&mut self, words: &[&[u8]]) -> Result<u64> {
        match self.send(words).await? {
            Answer::Integer(number) if number >= 0 => Ok(number.unsigned_abs()),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a command and waits for its answer.
    async fn send(&mut self, words: &[&[u8]]) -> Result<Answer> {
        self.pace = Pace::default();
        self.send_on(words).await
    }

    /// The same, with the pace of the answers before.
    async fn send_on(&mut self, words: &[&[u8]]) -> Result<Answer> {
        let answer = in_time(async {
            self.send_words(words).await?;
            loop {
                match Answer::take(&mut self.bytes).map_err(no_answer)? {
                    Some(answer) => return Ok(answer),
                    None => self.fill().await?,
                }
            }
        });
        match answer.await? {
            Answer::Error(text) => Err(refused(words, &text)),
            answer => Ok(answer),
        }
    }

    /// Sends a command and reads the head of the answer. Its values are read with [`value`](Self::value).
    ///
    /// # Errors
    ///
    /// If the server refuses the command, exceeds the limits, or does not answer.
    pub(super) async fn begin(&mut self, words: &[&[u8]], most: Most) -> Result<Head> {
        self.pace = Pace::default();
        let head = in_time(async {
            self.send_words(words).await?;
            self.next_head(most).await
        });
        match head.await? {
            Head::Error(text) => Err(refused(words, &text)),
            head => Ok(head),
        }
    }

    /// Reads the head of the next value.
    ///
    /// # Errors
    ///
    /// If the server exceeds the limits, or does not answer.
    pub(super) async fn head(&mut self, most: Most) -> Result<Head> {
        in_time(self.next_head(most)).await
    }

    /// Reads a value whose head was read.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or the value does not end where it should.
    pub(super) async fn value(&mut self, byte_count: usize) -> Result<Bytes> {
        let come = in_time(async {
            while self.bytes.len() < byte_count + LINE_END.len() {
                self.fill().await?;
            }
            Ok(())
        });
        come.await?;
        let value = self.bytes.split_to(byte_count).freeze();
        if self.bytes.split_to(LINE_END.len())[..] != LINE_END[..] {
            return Err(no_answer(NoAnswer("a value is longer than it says".to_owned())));
        }
        Ok(value)
    }

    /// Skips a value whose head was read, without keeping it.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or the value does not end where it should.
    pub(super) async fn pass(&mut self, byte_count: usize) -> Result<()> {
        let mut left = byte_count;
        while left > 0 {
            let some = left.min(PASSED_BYTES_MAX);
            in_time(async {
                let mut some = some;
                loop {
                    let here = some.min(self.bytes.len());
                    self.bytes.advance(here);
                    some -= here;
                    if some == 0 {
                        return Ok(());
                    }
                    self.fill().await?;
                }
            })
            .await?;
            left -= some;
        }
        self.value(0).await.map(drop)
    }

    async fn send_words(&mut self, words: &[&[u8]]) -> Result<()> {
        let request: Request = words.iter().collect();
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.stream.write_all(&bytes).await.map_err(broken)?;
        // A TLS stream may buffer some of it.
        self.stream.flush().await.map_err(broken)
    }

    async fn next_head(&mut self, most: Most) -> Result<Head> {
        loop {
            match Head::take(&mut self.bytes, most).map_err(no_answer)? {
                Some(head) => return Ok(head),
                None => self.fill().await?,
            }
        }
    }

    /// Reads the next bytes, within the time that the pace leaves.
    async fn fill(&mut self) -> Result<()> {
        self.bytes.reserve(READ_BYTES);
        let began = Instant::now();
        let read = timeout(self.pace.left(), self.stream.read_buf(&mut self.bytes)).await;
        self.pace.waited += began.elapsed();
        let read = read.map_err(|_| {
            let Pace { waited, came } = &self.pace;
            anyhow!(
                "{came} bytes came in {} s, fewer than {BYTES_PER_SECOND_MIN} a second: the server is too slow",
                waited.as_secs()
            )
        })?;
        match read.map_err(broken)? {
            0 => bail!("the server hung up"),
            byte_count => {
                self.pace.came += byte_count as u64;
                Ok(())
            }
        }
    }
}

/// Runs an exchange with the server within the timeout of an answer.
async fn in_time<T>(doing: impl Future<Output = Result<T>>) -> Result<T> {
    let done = timeout(ANSWER_TIMEOUT, doing).await;
    done.map_err(|_| anyhow!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))?
}

/// The connection with TLS, once the server's certificate was verified.
async fn sealed(
    server: &str,
    files: &ForeignFiles,
    stream: TcpStream,
) -> Result<impl Stream + use<>> {
    let tls = ForeignTls::open(files).map_err(|error| match error {
        TrustError::NoCertificates { .. } => UsageError(format!("{error}: --cacert FILE")).into(),
        error => anyhow::Error::from(UsageError(error.to_string())),
    })?;
    // A server without TLS may take the handshake for an incomplete line and wait for its end.
    let proved = timeout(CONNECT_TIMEOUT, tls.connect(server, stream)).await;
    let proved = proved.map_err(|_| {
        anyhow!("no TLS within {} s: redis:// is without", CONNECT_TIMEOUT.as_secs())
    })?;
    proved.map_err(|error| match error {
        HandshakeError::NoTls { .. } => {
            anyhow!("it does not speak TLS, or hung up: redis:// is without")
        }
        HandshakeError::OtherAuthority { .. } => anyhow!(
            "its certificate comes from no authority that is trusted here: --cacert FILE names another"
        ),
        HandshakeError::OtherName { .. } => {
            anyhow!("its certificate is for another name: call it by one that stands in it")
        }
        error => error.into(),
    })
}

/// Explains why a connection broke.
fn broken(error: io::Error) -> anyhow::Error {
    match own_certificate_refused(&error) {
        Some(why) => anyhow!(
            "it asks for a certificate, and takes none, or not this one: --cert FILE --cert-key FILE ({why})"
        ),
        None => anyhow::Error::new(error).context("the connection broke off"),
    }
}

fn no_answer(NoAnswer(what): NoAnswer) -> anyhow::Error {
    anyhow!("not the Redis protocol: {what}")
}

fn refused(words: &[&[u8]], text: &str) -> anyhow::Error {
    let command = String::from_utf8_lossy(words.first().copied().unwrap_or_default());
    // The server's text repeats the arguments, among which may be a piece of a filter.
    if command.starts_with("BF.") && text.starts_with("ERR unknown command") {
        let no_bloom =
            format!("{command}: the server does not know this command, so it has no RedisBloom");
        return match &*command {
            "BF.LOADCHUNK" => anyhow!(no_bloom),
            _ => anyhow!(
                "{no_bloom}; the items of sets and other keys are taken by `umbel filter insert --from`"
            ),
        };
    }
    anyhow!("{command}: {}", harmless(text))
}

fn unexpected(answer: &Answer) -> anyhow::Error {
    unexpected_text(&format!("{answer:?}"))
}

/// The error for a head that was not expected.
pub(super) fn unexpected_head(head: &Head) -> anyhow::Error {
    match head {
        Head::Error(text) => anyhow!("{}", harmless(text)),
        other => unexpected_text(&format!("{other:?}")),
    }
}

fn unexpected_text(text: &str) -> anyhow::Error {
    let shown: String = text.chars().take(200).collect();
    anyhow!("an answer that was not expected: {shown}")
}
