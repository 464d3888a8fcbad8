//! A connection to a server, which is asked one thing after the other.

use super::address::Address;
use super::answer::{Answer, NoAnswer};
use crate::commands::cluster::look::harmless;
use anyhow::{Context, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use umbel_resp::Request;

/// How long a server may take to be reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take for an answer, of 16 MiB at most.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Has the password where the address has none: command lines are read by others. redis-cli reads it, too.
const PASSWORD_VARIABLE: &str = "REDISCLI_AUTH";

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// A server that answers.
pub(super) struct Server {
    stream: TcpStream,
    /// What has come of answers.
    bytes: BytesMut,
}

/// A piece of a dump, and the iterator behind it.
pub(super) struct Dump {
    pub(super) iterator: i64,
    pub(super) piece: Bytes,
}

impl Server {
    /// Reaches a server, says who asks and chooses the database.
    ///
    /// # Errors
    ///
    /// If it is not there, or does not let one in.
    pub(super) async fn connect(address: &Address) -> Result<Self> {
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(&address.server)).await;
        let stream = connecting
            .map_err(|_| anyhow!("not reached within {} s", CONNECT_TIMEOUT.as_secs()))?
            .context("cannot be reached")?;
        let mut server = Self { stream, bytes: BytesMut::new() };
        let of_environment = || std::env::var(PASSWORD_VARIABLE).ok();
        if let Some(password) = address.password.clone().or_else(of_environment) {
            let mut words = vec![&b"AUTH"[..]];
            words.extend(address.user.as_deref().map(str::as_bytes));
            words.push(password.as_bytes());
            server.order(&words).await?;
        }
        if address.database != 0 {
            server.order(&[b"SELECT", address.database.to_string().as_bytes()]).await?;
        }
        Ok(server)
    }

    /// The same, if the key is free.
    ///
    /// # Errors
    ///
    /// If it is not, or the server does not say.
    pub(super) async fn check_free(mut self, address: &Address) -> Result<Self> {
        match self.ask(&[b"EXISTS", &address.key]).await? {
            Answer::Integer(0) => Ok(self),
            Answer::Integer(_) => bail!("there is such a key already: delete it, or name another"),
            other => Err(unexpected(&other)),
        }
    }

    /// The piece of a filter that follows an iterator; None behind the last one.
    ///
    /// # Errors
    ///
    /// If the server has no such filter, or does not answer.
    pub(super) async fn dump(&mut self, address: &Address, iterator: i64) -> Result<Option<Dump>> {
        let iterator = iterator.to_string();
        let answer = self.ask(&[b"BF.SCANDUMP", &address.key, iterator.as_bytes()]).await?;
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

    /// Gives a piece of a filter.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or does not answer.
    pub(super) async fn load(&mut self, key: &[u8], iterator: i64, piece: &[u8]) -> Result<()> {
        self.order(&[b"BF.LOADCHUNK", key, iterator.to_string().as_bytes(), piece]).await
    }

    /// Gives a key another name, which must be free.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the server does not answer.
    pub(super) async fn rename(&mut self, key: &[u8], address: &Address) -> Result<()> {
        match self.ask(&[b"RENAMENX", key, &address.key]).await? {
            Answer::Integer(1) => Ok(()),
            Answer::Integer(_) => bail!("somebody else has made such a key meanwhile"),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a key, if it is there.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub(super) async fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.ask(&[b"DEL", key]).await.map(drop)
    }

    /// Asks for what is answered by OK.
    async fn order(&mut self, words: &[&[u8]]) -> Result<()> {
        match self.ask(words).await? {
            Answer::Status(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks, and waits for the answer.
    async fn ask(&mut self, words: &[&[u8]]) -> Result<Answer> {
        let request: Request = words.iter().collect();
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let asked = timeout(ANSWER_TIMEOUT, async {
            self.stream.write_all(&bytes).await.context("the connection broke off")?;
            loop {
                let taken = Answer::take(&mut self.bytes);
                match taken.map_err(|NoAnswer(what)| anyhow!("not the Redis protocol: {what}"))? {
                    Some(answer) => return Ok(answer),
                    None => {
                        self.bytes.reserve(READ_BYTES);
                        let count = self.stream.read_buf(&mut self.bytes).await;
                        if count.context("the connection broke off")? == 0 {
                            bail!("the server hung up");
                        }
                    }
                }
            }
        });
        let answer = asked
            .await
            .map_err(|_| anyhow!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))??;
        let command = String::from_utf8_lossy(words.first().copied().unwrap_or_default());
        match answer {
            Answer::Error(text) => bail!("{command}: {}", harmless(&text)),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> anyhow::Error {
    let text = format!("{answer:?}");
    let shown: String = text.chars().take(200).collect();
    anyhow!("an answer that was not expected: {shown}")
}
