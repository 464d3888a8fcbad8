//! As much of Redis's protocol, RESP2, as the load needs: commands out, flat answers in.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest line of an answer: errors quote a part of the command.
const LINE_BYTES_MAX: usize = 4096;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// One answer, or the head of a list of answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$-1`: there is no value.
    Null,
    /// `*3`: so many answers follow.
    List(usize),
}

/// A connection.
pub(crate) struct RespStream {
    stream: TcpStream,
    out: Vec<u8>,
    buffer: Vec<u8>,
    read_to: usize,
}

impl RespStream {
    pub(crate) async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, out: Vec::new(), buffer: Vec::new(), read_to: 0 })
    }

    /// Begins a command of so many words; they follow with [`word`](Self::word).
    pub(crate) fn begin(&mut self, word_count: usize) {
        put_count(&mut self.out, b'*', word_count);
    }

    pub(crate) fn word(&mut self, word: &[u8]) {
        put_count(&mut self.out, b'$', word.len());
        self.out.extend_from_slice(word);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Sends all commands since the last time.
    pub(crate) async fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    /// The next answer; an error that the server answers is one here too.
    pub(crate) async fn reply(&mut self) -> Result<Reply> {
        loop {
            if let Some((reply, byte_count)) = parse(&self.buffer[self.read_to..])? {
                self.read_to += byte_count;
                if let Reply::Error(text) = reply {
                    bail!("redis: {text}");
                }
                return Ok(reply);
            }
            self.buffer.drain(..self.read_to);
            self.read_to = 0;
            self.buffer.reserve(READ_BYTES);
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "redis hung up");
        }
    }

    /// Sends one command and waits for its answer.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word.as_bytes()));
        self.send().await?;
        self.reply().await
    }
}

fn put_count(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    out.extend_from_slice(count.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The first answer and its length in bytes; None if it is not there in full.
fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>> {
    let head = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = head.windows(2).position(|pair| pair == b"\r\n") else {
        ensure!(bytes.len() < LINE_BYTES_MAX, "a line of an answer has no end");
        return Ok(None);
    };
    let (kind, text) = match std::str::from_utf8(&bytes[..end])?.split_at_checked(1) {
        Some((kind, text)) => (kind, text),
        None => bail!("an empty line instead of an answer"),
    };
    let reply = match kind {
        "+" => Reply::Status(text.to_owned()),
        "-" => Reply::Error(text.to_owned()),
        ":" => Reply::Integer(text.parse()?),
        "$" if text == "-1" => Reply::Null,
        "*" => Reply::List(text.parse()?),
        _ => bail!("{kind}{text} is no answer of a command that was sent"),
    };
    Ok(Some((reply, end + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut bytes: &[u8]) -> Vec<Reply> {
        let mut found = Vec::new();
        while let Some((reply, byte_count)) = parse(bytes).unwrap() {
            found.push(reply);
            bytes = &bytes[byte_count..];
        }
        found
    }

    #[test]
    fn answers_are_read_one_by_one() {
        let found = all(b"+OK\r\n:1\r\n$-1\r\n*2\r\n:0\r\n:-7\r\n-ERR no\r\n+cut o");
        let expected = [
            Reply::Status("OK".into()),
            Reply::Integer(1),
            Reply::Null,
            Reply::List(2),
            Reply::Integer(0),
            Reply::Integer(-7),
            Reply::Error("ERR no".into()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cut_answer_waits_for_the_rest() {
        let whole = b":123\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]).unwrap(), None);
        }
        assert_eq!(parse(whole).unwrap(), Some((Reply::Integer(123), 6)));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let endless = vec![b'+'; LINE_BYTES_MAX];
        for bytes in [&b"\r\n"[..], b":x\r\n", b"*-2\r\n", b"$3\r\nabc\r\n", b"HTTP\r\n", &endless]
        {
            assert!(parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[tokio::test]
    async fn a_pipeline_is_answered_in_order() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut reply = vec![0; 42];
            stream.read_exact(&mut reply).await.unwrap();
            stream.write_all(b":1\r\n:").await.unwrap();
            stream.write_all(b"0\r\n-ERR full\r\n").await.unwrap();
            reply
        });
        let mut stream = RespStream::connect(&address).await.unwrap();
        for _ in 0..2 {
            stream.begin(2);
            stream.word(b"GET");
            stream.word(b"ab");
        }
        stream.send().await.unwrap();
        assert_eq!(stream.reply().await.unwrap(), Reply::Integer(1));
        assert_eq!(stream.reply().await.unwrap(), Reply::Integer(0));
        assert_eq!(stream.reply().await.unwrap_err().to_string(), "redis: ERR full");
        assert_eq!(stream.reply().await.unwrap_err().to_string(), "redis hung up");
        let command = b"*2\r\n$3\r\nGET\r\n$2\r\nab\r\n";
        assert_eq!(server.await.unwrap(), command.repeat(2));
    }
}
