//! Decodes the answers of a server, as far as a copy needs them. Total: any bytes are an answer, the
//! beginning of one, or an error.

use bytes::{Buf as _, Bytes, BytesMut};
use umbel_resp::limits::PIECE_BYTES_MAX;
use umbel_resp::number::integer;

/// Longest line, which is an error's text.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Limits of an answer that is read as a whole.
const WHOLE: Most = Most { bulk_bytes: PIECE_BYTES_MAX, values: VALUES_MAX };

/// Most values of a list; the longest needed holds a piece and its iterator.
const VALUES_MAX: usize = 16;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// A simple string.
    Status(String),
    /// An error: why the command was not carried out.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A bulk string; None is null.
    Bulk(Option<Bytes>),
    /// A list.
    List(Vec<Answer>),
}

/// The first line of an answer. Long answers are not decoded as a whole; their values are read after the
/// head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Head {
    /// A simple string.
    Status(String),
    /// An error: why the command was not carried out.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A bulk string of this length follows, with a line end; None is null.
    Bulk(Option<usize>),
    /// This many values follow; None is null.
    List(Option<usize>),
}

/// Limits on what a server may announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Most {
    /// Most bytes of a value.
    pub(super) bulk_bytes: usize,
    /// Most values of a list.
    pub(super) values: usize,
}

/// The bytes are no answer, or one that no copy needs, or exceed a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NoAnswer(pub(super) String);

impl Head {
    /// Decodes and removes a head from the front of the bytes; None if it is incomplete.
    pub(super) fn take(bytes: &mut BytesMut, most: Most) -> Result<Option<Self>, NoAnswer> {
        let Some((text, line_bytes)) = line(bytes)? else { return Ok(None) };
        let head = Self::of(text, most)?;
        bytes.advance(line_bytes);
        Ok(Some(head))
    }

    fn of(line: &[u8], most: Most) -> Result<Self, NoAnswer> {
        let behind = line.get(1..).unwrap_or_default();
        let text = || String::from_utf8_lossy(behind).into_owned();
        Ok(match line.first() {
            Some(b'+') => Self::Status(text()),
            Some(b'-') => Self::Error(text()),
            Some(b':') => {
                let value = integer(behind);
                Self::Integer(value.ok_or_else(|| NoAnswer(format!("{:?}", shown(line))))?)
            }
            Some(b'$') => Self::Bulk(number(line, most.bulk_bytes)?),
            Some(b'*') => Self::List(number(line, most.values)?),
            _ => return Err(NoAnswer(format!("an answer begins with {:?}", shown(line)))),
        })
    }
}

impl Answer {
    /// Decodes and removes an answer from the front of the bytes; None if it is incomplete.
    pub(super) fn take(bytes: &mut BytesMut) -> Result<Option<Self>, NoAnswer> {
        let Some(length) = length_of(bytes, true)? else { return Ok(None) };
        let mut whole = bytes.split_to(length).freeze();
        read(&mut whole).map(Some)
    }
}

/// The length of the answer at the front in bytes; None if it is incomplete.
fn length_of(bytes: &[u8], may_be_list: bool) -> Result<Option<usize>, NoAnswer> {
    let Some((line, line_bytes)) = line(bytes)? else { return Ok(None) };
    match Head::of(line, WHOLE)? {
        Head::Bulk(Some(count)) => {
            let length = line_bytes + count + 2;
            Ok((bytes.len() >= length).then_some(length))
        }
        Head::List(_) if !may_be_list => Err(NoAnswer("a list in a list".to_owned())),
        Head::List(count) => {
            let mut length = line_bytes;
            for _ in 0..count.unwrap_or(0) {
                match length_of(bytes.get(length..).unwrap_or_default(), false)? {
                    Some(more) => length += more,
                    None => return Ok(None),
                }
            }
            Ok(Some(length))
        }
        Head::Status(_) | Head::Error(_) | Head::Integer(_) | Head::Bulk(None) => {
            Ok(Some(line_bytes))
        }
    }
}

/// Decodes an answer that is complete.
fn read(bytes: &mut Bytes) -> Result<Answer, NoAnswer> {
    let ended = || NoAnswer("an answer ends early".to_owned());
    let (text, line_bytes) = line(bytes)?.ok_or_else(ended)?;
    let head = Head::of(text, WHOLE)?;
    bytes.advance(line_bytes);
    Ok(match head {
        Head::Status(text) => Answer::Status(text),
        Head::Error(text) => Answer::Error(text),
        Head::Integer(value) => Answer::Integer(value),
        Head::Bulk(None) => Answer::Bulk(None),
        Head::Bulk(Some(count)) if bytes.len() >= count + 2 => {
            let value = bytes.split_to(count);
            bytes.advance(2);
            Answer::Bulk(Some(value))
        }
        Head::Bulk(Some(_)) => return Err(ended()),
        Head::List(count) => {
            let count = count.unwrap_or(0);
            Answer::List((0..count).map(|_| read(bytes)).collect::<Result<_, _>>()?)
        }
    })
}

/// The line at the front without its end, and its length with it; None if it is incomplete.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, NoAnswer> {
    let looked_at = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    match looked_at.iter().position(|&byte| byte == b'\r') {
        Some(at) if bytes.len() < at + 2 => Ok(None),
        Some(at) => Ok(Some((bytes.get(..at).unwrap_or_default(), at + 2))),
        None if looked_at.len() < LINE_BYTES_MAX => Ok(None),
        None => Err(NoAnswer(format!("a line of more than {LINE_BYTES_MAX} bytes"))),
    }
}

/// The count after the first byte of a line; None for -1.
fn number(line: &[u8], most: usize) -> Result<Option<usize>, NoAnswer> {
    let count = integer(line.get(1..).unwrap_or_default());
    match count.map(usize::try_from) {
        Some(Ok(count)) if count <= most => Ok(Some(count)),
        Some(Err(_)) if count == Some(-1) => Ok(None),
        _ => Err(NoAnswer(format!("a count of {:?}, expected at most {most}", shown(line)))),
    }
}

/// The beginning of a line, for an error.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line.get(..40).unwrap_or(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8]) -> Result<Option<Answer>, NoAnswer> {
        Answer::take(&mut BytesMut::from(bytes))
    }

    #[test]
    fn answers_come_whole_wherever_they_are_cut() {
        let text = b"*2\r\n:17\r\n$5\r\na\r\nbc\r\n+OK\r\n-ERR not found\r\n$-1\r\n*-1\r\n$0\r\n\r\n:-3\r\n";
        let all = [
            Answer::List(vec![
                Answer::Integer(17),
                Answer::Bulk(Some(Bytes::from_static(b"a\r\nbc"))),
            ]),
            Answer::Status("OK".to_owned()),
            Answer::Error("ERR not found".to_owned()),
            Answer::Bulk(None),
            Answer::List(Vec::new()),
            Answer::Bulk(Some(Bytes::new())),
            Answer::Integer(-3),
        ];
        for piece in 1..text.len() {
            let (mut bytes, mut answers) = (BytesMut::new(), Vec::new());
            for piece in text.chunks(piece) {
                bytes.extend_from_slice(piece);
                while let Some(answer) = Answer::take(&mut bytes).unwrap() {
                    answers.push(answer);
                }
            }
            assert_eq!(answers, all, "{piece}");
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn what_is_no_answer_is_refused_before_it_is_kept() {
        for bad in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            "$99999999999\r\n",
            "$-2\r\n",
            "*17\r\n",
            "*1\r\n*1\r\n:1\r\n",
            "$x\r\n",
            ":x\r\n",
            "%1\r\n",
        ] {
            assert!(take(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(take(&vec![b'+'; LINE_BYTES_MAX]).is_err());
        let most = Most { bulk_bytes: 5, values: 2 };
        let head = |bytes: &[u8]| Head::take(&mut BytesMut::from(bytes), most);
        assert_eq!(head(b"$5\r\nab"), Ok(Some(Head::Bulk(Some(5)))));
        assert_eq!(head(b"*2\r\n"), Ok(Some(Head::List(Some(2)))));
        assert_eq!((head(b"*2\r"), head(b"")), (Ok(None), Ok(None)));
        assert!(head(b"$6\r\n").is_err() && head(b"*3\r\n").is_err());
        assert_eq!(take(b"$5\r\nab"), Ok(None));
        assert_eq!(take(b""), Ok(None));
    }
}
