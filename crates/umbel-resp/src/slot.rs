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

/// Deals all slots to this many nodes: the first and the last slot of each, in the order of the nodes. One has at
/// most one slot more than another. Nodes beyond the number of slots get none.
///
/// ```
/// use umbel_resp::slot::deal;
/// let slots: Vec<(u16, u16)> = deal(3).collect();
/// assert_eq!(slots, [(0, 5_460), (5_461, 10_921), (10_922, 16_383)]);
/// ```
pub fn deal(node_count: usize) -> impl Iterator<Item = (u16, u16)> {
    let slots = usize::from(SLOT_COUNT);
    let count = node_count.min(slots);
    let first = move |node: usize| slots * node / count;
    let number = |slot: usize| u16::try_from(slot).unwrap_or(SLOT_COUNT);
    (0..count).map(move |node| (number(first(node)), number(first(node + 1) - 1)))
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

    #[test]
    fn each_slot_is_dealt_once_and_evenly() {
        for count in [1, 2, 3, 7, 256, 16_384, 20_000] {
            let (mut next, mut lengths) = (0, Vec::new());
            for (first, last) in deal(count) {
                assert!(first == next && first <= last, "{count}: {first} to {last}");
                next = last + 1;
                lengths.push(next - first);
            }
            assert_eq!((next, lengths.len()), (SLOT_COUNT, count.min(16_384)), "{count}");
            let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
            assert!(most - least <= 1, "{count}: {least} to {most}");
        }
        assert_eq!(deal(0).count(), 0);
    }
}
