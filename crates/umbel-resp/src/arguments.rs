//! The arguments of a command: those of a request from some index on, because a command may be nested in
//! another.

use crate::refusal::Refusal;
use crate::request::Request;

/// The name of a command and its arguments, in a request.
///
/// ```
/// use umbel_resp::{Arguments, Request};
/// let request: Request = ["UMBEL.REQUEST", "7:1", "BF.ADD", "users", "alice"].iter().collect();
/// let inner = Arguments::new(&request).from(2);
/// assert_eq!((inner.len(), inner.get(1)), (3, Some(&b"users"[..])));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    request: &'a Request,
    first: usize,
}

impl<'a> Arguments<'a> {
    /// All arguments of a request.
    #[must_use]
    pub const fn new(request: &'a Request) -> Self {
        Self { request, first: 0 }
    }

    /// The arguments from the index `first` on.
    #[must_use]
    pub const fn from(self, first: usize) -> Self {
        Self { request: self.request, first: self.first.saturating_add(first) }
    }

    /// Number of arguments.
    #[must_use]
    pub fn len(self) -> usize {
        self.request.len().saturating_sub(self.first)
    }

    /// Whether there are no arguments.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The argument at an index; None after the last one.
    #[must_use]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        self.request.get(self.first.checked_add(index)?)
    }

    /// The argument at an index whose existence was checked; empty if it does not exist.
    pub(crate) fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// The arguments, if there are at most `most`.
    pub(crate) fn at_most(self, most: usize, what: &'static str) -> Result<Self, Refusal> {
        if self.len() > most { Err(Refusal::TooMany { what, most }) } else { Ok(self) }
    }

    /// The arguments in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |index| self.at(index))
    }

    /// Appends the bytes of all arguments to `data` and the length of each to `lengths`, which makes a
    /// batch of items without copying each item separately.
    pub fn pack(self, data: &mut Vec<u8>, lengths: &mut Vec<u32>) {
        let (bytes, item_bytes) = self.request.packed_from(self.first);
        data.extend_from_slice(bytes);
        lengths.extend(item_bytes);
    }
}

/// Whether an argument is this word, in any case.
pub(crate) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
