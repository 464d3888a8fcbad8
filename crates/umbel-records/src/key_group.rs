//! The layout of a key, one group a field, with the length of the value in bytes as LEB128 (7 bits
//! per byte, low bits first, the high bit says that more follow):
//! ```text
//! | tag | length | value |       n null, t true, f false: empty      s string: unescaped UTF-8
//! | u8  |  1..10 |       |       d number, a array, o object: canonical form
//! ```
//! Tags keep `null`, `""`, `"null"` and `0` apart, lengths keep ("a", "bc") and ("ab", "c") apart.
//! The fields of a table are strings, so that they equal the same strings in JSON.

/// Appends one field of a key to `item`.
pub(crate) fn write_group(tag: u8, value: &[u8], item: &mut Vec<u8>) {
    item.push(tag);
    write_length(value.len(), item);
    item.extend_from_slice(value);
}

/// Whether all fields of a key are null or the empty string.
pub(crate) fn is_empty_key(item: &[u8]) -> bool {
    // A longer field has another length in its second byte, and so ends the search.
    let (groups, rest) = item.as_chunks::<2>();
    rest.is_empty() && groups.iter().all(|group| matches!(group, b"s\0" | b"n\0"))
}

/// Tag and value of a group that [`write_group`] has written, and nothing behind it.
pub(crate) fn read_group(group: &[u8]) -> Option<(u8, &[u8])> {
    let (tag, rest) = group.split_first()?;
    let length_bytes = 1 + rest.iter().position(|byte| byte & 0x80 == 0)?;
    Some((*tag, &rest[length_bytes..]))
}

/// Appends `length` as LEB128.
pub(crate) fn write_length(mut length: usize, target: &mut Vec<u8>) {
    while length >= 0x80 {
        target.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    target.push(length.to_le_bytes()[0]);
}
