//! The part of a view that a page requests, after the `?` of its URL.

/// Longest text in a query, in bytes: that of a filter's name.
const TEXT_BYTES_MAX: usize = umbel_engine::limits::FILTER_NAME_BYTES_MAX;

/// Which part of a view is shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Page {
    /// Names begin with this.
    pub(super) prefix: String,
    /// Names after this one: the last of the page before.
    pub(super) after: String,
    /// The name that is shown in detail.
    pub(super) open: String,
}

/// Why a query is invalid. Nothing was sampled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum QueryError {
    /// The field is unknown: leave it out.
    #[error("there is no such field: expected prefix, after or open")]
    UnknownField,
    /// The text is invalid: encode it as UTF-8, and special bytes by `%`.
    #[error("a text is no percent-encoded UTF-8")]
    BadText,
    /// The text is longer than any name.
    #[error("a text has more than {TEXT_BYTES_MAX} bytes")]
    TooLong,
}

/// Parses `prefix=..&after=..&open=..`, in any order.
pub(super) fn page(query: &str) -> Result<Page, QueryError> {
    let mut page = Page::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let field = match name {
            "prefix" => &mut page.prefix,
            "after" => &mut page.after,
            "open" => &mut page.open,
            _ => return Err(QueryError::UnknownField),
        };
        *field = decoded(text)?;
    }
    Ok(page)
}

fn decoded(text: &str) -> Result<String, QueryError> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (rest.next().and_then(digit), rest.next().and_then(digit));
                high.zip(low).map(|(high, low)| high << 4 | low).ok_or(QueryError::BadText)?
            }
            b'+' => b' ',
            byte => byte,
        });
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(QueryError::TooLong);
        }
    }
    String::from_utf8(bytes).map_err(|_| QueryError::BadText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded() {
        let asked = page("after=a%2Bb+c&prefix=%C3%BC%26&open=").unwrap();
        let expected = Page { prefix: "ü&".into(), after: "a+b c".into(), open: String::new() };
        assert_eq!(asked, expected);
        assert_eq!(page(""), Ok(Page::default()));
        assert_eq!(page("&after"), Ok(Page::default()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in ["after=%", "after=%4", "after=%zz", "after=%FF", "after=%C3"] {
            assert_eq!(page(bad), Err(QueryError::BadText), "{bad}");
        }
        assert_eq!(page("limit=1"), Err(QueryError::UnknownField));
        let long = format!("after={}", "a".repeat(TEXT_BYTES_MAX + 1));
        assert_eq!(page(&long), Err(QueryError::TooLong));
    }
}
