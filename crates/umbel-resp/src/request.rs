//! A request: its arguments in contiguous memory, and the position where each ends.

use crate::reply::{bulk, length_line};

/// Bytes reserved for the arguments of a short command, on one item.
const SHORT_BYTES: usize = 64;

/// Number of arguments reserved for a short command.
const SHORT_ARGUMENTS: usize = 4;

/// The arguments of one command. The first one is the command's name.
///
/// ```
/// let request: umbel_resp::Request = ["BF.ADD", "users", "alice"].iter().collect();
/// assert_eq!((request.len(), request.get(2)), (3, Some(&b"alice"[..])));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Request {
    data: Vec<u8>,
    /// The end of each argument in `data`, ascending.
    ends: Vec<u32>,
}

impl Request {
    /// Number of arguments, with the command's name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no arguments, not even a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all arguments.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.data.len()
    }

    /// Bytes of memory that the request takes at least: also empty arguments take some.
    ///
    /// ```
    /// let request: umbel_resp::Request = ["PING", "", ""].iter().collect();
    /// let of_itself = std::mem::size_of_val(&request);
    /// assert_eq!(request.held_bytes(), of_itself + 4 + 3 * 4);
    /// ```
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.data.len() + size_of_val(&self.ends[..])
    }

    /// An argument; None after the last one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        self.data.get(start.map_or(0, |&start| start as usize)..end)
    }

    /// The arguments in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The bytes of the arguments from `first` on, concatenated, and the length of each: a batch of items
    /// without a copy of each item.
    ///
    /// ```
    /// let request: umbel_resp::Request = ["BF.MADD", "users", "a", "bcd"].iter().collect();
    /// assert_eq!(request.packed_from(2), (&b"abcd"[..], vec![1, 3]));
    /// ```
    #[must_use]
    pub fn packed_from(&self, first: usize) -> (&[u8], Vec<u32>) {
        let start = first.checked_sub(1).and_then(|before| self.ends.get(before).copied());
        let mut before = match first {
            0 => 0,
            _ => start.unwrap_or_else(|| self.ends.last().copied().unwrap_or_default()),
        };
        let data = self.data.get(before as usize..).unwrap_or_default();
        let lengths = self.ends.iter().skip(first).map(|&end| {
            let length = end - before;
            before = end;
            length
        });
        (data, lengths.collect())
    }

    /// Appends the request as clients send it: an array of bulk strings.
    ///
    /// ```
    /// let request: umbel_resp::Request = ["PING"].iter().collect();
    /// let mut bytes = Vec::new();
    /// request.encode(&mut bytes);
    /// assert_eq!(bytes, b"*1\r\n$4\r\nPING\r\n");
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        length_line(b'*', self.len(), out);
        self.iter().for_each(|argument| bulk(argument, out));
    }

    /// Reserves room for a short command, so that most requests need one allocation for their bytes and
    /// one for the positions, whatever length they announce.
    pub(crate) fn reserve(&mut self) {
        self.data.reserve(SHORT_BYTES);
        self.ends.reserve(SHORT_ARGUMENTS);
    }

    /// Appends bytes to the current argument.
    pub(crate) fn extend_last(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    /// Ends the current argument.
    pub(crate) fn end_argument(&mut self) {
        let end = u32::try_from(self.data.len()).expect("requests hold at most 64 MiB");
        self.ends.push(end);
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Request {
    /// # Panics
    /// If the arguments have 4 GiB or more; requests of the decoder have at most 64 MiB.
    fn from_iter<I: IntoIterator<Item = T>>(arguments: I) -> Self {
        let mut request = Self::default();
        for argument in arguments {
            request.extend_last(argument.as_ref());
            request.end_argument();
        }
        request
    }
}
