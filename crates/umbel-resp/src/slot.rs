//! Hash slots of keys, which clients of a Redis cluster compute to choose a node.

/// Number of slots.
pub const SLOT_COUNT: u16 = 16_384;

/// The slot of a key: CRC-16/XMODEM of the part in braces, or of all of it, modulo 16,384
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
///
/// ```
/// use umbel_resp::slot::slot_of;
/// assert_eq!(slot_of(b"123456789"), 12_739);
/// assert_eq!(slot_of(b"{users}:1"), slot_of(b"users"));
/// ```
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOT_COUNT
}

/// The part of a key that determines its slot: the bytes between the first `{` and the next `}`, if there
/// are any; else the whole key.
fn tag(key: &[u8]) -> &[u8] {
    let whole = || -> Option<&[u8]> {
        let open = key.iter().position(|&byte| byte == b'{')?;
        let behind = key.get(open + 1..)?;
        let length = behind.iter().position(|&byte| byte == b'}')?;
        behind.get(..length).filter(|tag| !tag.is_empty())
    };
    whole().unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tag_with_bytes_counts() {
        assert_eq!(tag(b"a{}b{c}"), b"a{}b{c}");
        assert_eq!(tag(b"a{{b}}"), b"{b");
        assert_eq!(tag(b"a{b"), b"a{b");
        assert_eq!(slot_of(b""), 0);
        assert_eq!(slot_of(b"foo"), 12_182);
    }
}
