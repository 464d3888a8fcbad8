//! Inline requests: one line, split at blanks, with quotes (Redis, `sdssplitargs`).

use crate::request::Request;

/// A quote is open at the end of the line, or text follows a closing quote without a blank.
pub(crate) struct Unbalanced;

/// Splits a line, given without its end. A blank line has no arguments.
pub(crate) fn split(line: &[u8]) -> Result<Request, Unbalanced> {
    let mut request = Request::default();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        rest = argument(rest, &mut request)?;
        request.end_argument();
        rest = rest.trim_ascii_start();
    }
    Ok(request)
}

/// Reads an argument; returns the rest of the line.
fn argument<'a>(mut rest: &'a [u8], request: &mut Request) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [blank, ..] if blank.is_ascii_whitespace() => return Ok(rest),
            [quote @ (b'"' | b'\''), behind @ ..] => return quoted(*quote, behind, request),
            [byte, behind @ ..] => {
                request.extend_last(&[*byte]);
                behind
            }
        };
    }
}

fn quoted<'a>(
    quote: u8,
    mut rest: &'a [u8],
    request: &mut Request,
) -> Result<&'a [u8], Unbalanced> {
    loop {
        let (byte, behind) = match rest {
            [] => return Err(Unbalanced),
            [close, behind @ ..] if *close == quote => {
                return match behind.first() {
                    Some(glued) if !glued.is_ascii_whitespace() => Err(Unbalanced),
                    _ => Ok(behind),
                };
            }
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), behind)
            }
            [b'\\', escaped, behind @ ..] if quote == b'"' => (unescaped(*escaped), behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        request.extend_last(&[byte]);
        rest = behind;
    }
}

/// The value of a hexadecimal digit.
const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a') + 10,
    }
}

const fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}
