//! A client's connection of the Redis protocol: requests are sent, replies decoded.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use umbel_ports::{Net, Stream};
use umbel_resp::number::integer;
use umbel_resp::{Reply, Request};

use crate::counters;
use crate::net::SimNet;
use crate::watch;

/// Name of the invariant that all bytes of a node are replies of the protocol.
pub(super) const REPLIES: &str = "answers_are_replies";

/// Bytes that are read at once.
const READ_BYTES: usize = 4096;

/// Bytes that are no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NoReply(String);

/// A connection to a node's port of the Redis protocol.
pub(super) struct RespConnection {
    stream: Box<dyn Stream>,
    /// Bytes that arrived and are not decoded.
    buffer: Vec<u8>,
}

impl RespConnection {
    /// A connection over a stream on which nothing was sent.
    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Connects, authenticates with the token if there is one, and chooses RESP3 or stays with RESP2.
    ///
    /// # Errors
    /// If there is no connection, or the node refuses one of these steps.
    pub(super) async fn open(
        net: &SimNet,
        address: &str,
        is_three: bool,
        token: Option<&str>,
    ) -> io::Result<Self> {
        let stream = Net::connect(net, address).await?;
        let mut opened = Self::over(stream);
        let mut greeting: Vec<Request> = Vec::new();
        greeting.extend(token.map(|token| ["AUTH", token].iter().collect()));
        greeting.extend(is_three.then(|| ["HELLO", "3"].iter().collect()));
        opened.send(&greeting).await?;
        for _ in &greeting {
            if let Reply::Error(text) = opened.reply().await? {
                return Err(io::Error::other(text.into_owned()));
            }
        }
        Ok(opened)
    }

    /// Sends requests at once, without waiting for replies.
    pub(super) async fn send(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }

    /// Bytes that have arrived after the last reply that was taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer
    }

    /// The next reply. Bytes that are none violate an invariant.
    ///
    /// # Errors
    /// If the connection broke or ended.
    pub(super) async fn reply(&mut self) -> io::Result<Reply> {
        loop {
            match decode(&self.buffer) {
                Ok(Some((reply, byte_count))) => {
                    counters::checked(REPLIES, 1);
                    self.buffer.drain(..byte_count);
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(NoReply(what)) => {
                    watch::violated(REPLIES, what.clone());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            let mut bytes = [0; READ_BYTES];
            let count = self.stream.read(&mut bytes).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&bytes[..count]);
        }
    }
}

/// The reply at the front of the bytes, and its length; None if it is incomplete. Replies have the type that their
/// first byte says, so that an empty value of RESP2 is [`Reply::Null`].
fn decode(bytes: &[u8]) -> Result<Option<(Reply, usize)>, NoReply> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, head_bytes) = (&bytes[..end], end + 2);
    let no_reply = || NoReply(format!("{:?} begins no reply", String::from_utf8_lossy(line)));
    let (&sign, rest) = line.split_first().ok_or_else(no_reply)?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || integer(rest).ok_or_else(no_reply);
    let reply = match (sign, rest) {
        (b'+', _) => Reply::Status(text().into()),
        (b'-', _) => Reply::Error(text().into()),
        (b':', _) => Reply::Integer(number()?),
        (b'#', b"t") => Reply::Boolean(true),
        (b'#', b"f") => Reply::Boolean(false),
        (b'_', b"") | (b'$', b"-1") => Reply::Null,
        (b'*', b"-1") => Reply::NullArray,
        (b'$', _) => {
            let length = usize::try_from(number()?).map_err(|_| no_reply())?;
            let Some(value) = bytes.get(head_bytes..head_bytes + length + 2) else {
                return Ok(None);
            };
            let Some(value) = value.strip_suffix(b"\r\n") else { return Err(no_reply()) };
            return Ok(Some((Reply::bulk(value), head_bytes + length + 2)));
        }
        (b'*' | b'%', _) => {
            let count = usize::try_from(number()?).map_err(|_| no_reply())?;
            let count = if sign == b'%' { 2 * count } else { count };
            return decode_list(bytes, head_bytes, count);
        }
        _ => return Err(no_reply()),
    };
    Ok(Some((reply, head_bytes)))
}

/// A list of so many replies that begins at `at`; a map is a list in which keys and values alternate.
fn decode_list(
    bytes: &[u8],
    mut at: usize,
    count: usize,
) -> Result<Option<(Reply, usize)>, NoReply> {
    let mut replies = Vec::new();
    for _ in 0..count {
        let Some((reply, byte_count)) = decode(&bytes[at..])? else { return Ok(None) };
        replies.push(reply);
        at += byte_count;
    }
    Ok(Some((Reply::Array(replies), at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_resp::Protocol;

    #[test]
    fn what_a_node_encodes_is_decoded() {
        let replies = [
            Reply::OK,
            Reply::Error("UNCERTAIN x".into()),
            Reply::Integer(-7),
            Reply::bulk("a\r\nb"),
            Reply::bulk(""),
            Reply::Null,
            Reply::Array(vec![Reply::Integer(1), Reply::Error("ERR full".into())]),
            Reply::Array(Vec::new()),
        ];
        for protocol in [Protocol::Two, Protocol::Three] {
            for reply in &replies {
                let mut bytes = Vec::new();
                reply.encode(protocol, &mut bytes);
                let length = bytes.len();
                for short in 0..length {
                    assert_eq!(decode(&bytes[..short]), Ok(None), "{reply:?} {short}");
                }
                bytes.extend_from_slice(b"+next\r\n");
                assert_eq!(decode(&bytes), Ok(Some((reply.clone(), length))));
            }
        }
        assert_eq!(decode(b"#t\r\n"), Ok(Some((Reply::Boolean(true), 4))));
        let map = Reply::Array(vec![Reply::bulk("k"), Reply::Integer(3)]);
        assert_eq!(decode(b"%1\r\n$1\r\nk\r\n:3\r\n"), Ok(Some((map, 15))));
    }

    #[test]
    fn other_bytes_are_no_reply() {
        for bytes in ["\r\n", "OK\r\n", ":x\r\n", "#y\r\n", "$-2\r\n", "*-5\r\n", "$1\r\nabc\r\n"] {
            assert!(decode(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
