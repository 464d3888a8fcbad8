//! The bytes of a static file, `.umbs`, for other programs that read or write them.
//!
//! Integers are little-endian. The head is a header of 64 bytes, a text and the directory, one row of 36 bytes a chunk:
//!
//! ```text
//! 0      4   5    6     7     8    9    10   12     16     24   32     40     56    64
//! │ UMBS │ver│role│value│check│hash│bits│form│crc32c│key id│keys│others│digest│bytes│ form text │ row │ row │ …
//! │  4   │u8 │ u8 │ u8  │ u8  │ u8 │ u8 │u16 │ u32  │ u64  │u64 │ u64  │ u128 │ u64 │
//!
//! ver     1                                      keys    different keys; of an exact set its members
//! role    1 filter, 2 map, 3 exact set           others  different others of an exact set; else 0
//!         4 reserved for ribbon                  digest  sum of the hashes of keys and others
//! value   bits of a value; exact set: 1; else 0          modulo 2^128, hi in the upper half
//! check   bits of a fingerprint                  bytes   length of the file
//! hash    1 XXH3-128, 2 SipHash-1-3-128          form    bytes of a text in UTF-8, which says what of a
//! bits    b, so that there are 2^b chunks                record is a key; it means nothing here
//! key id  seed of XXH3, name of a SipHash key
//! crc32c  over bytes 0..12 and from 16 to the end of the directory
//!
//! 0        8        12     16         20     22  23  24     28         32     34  35  36
//! │ offset │ crc32c │ keys │ segments │ seed │ s │ 0 │ keys │ segments │ seed │ s │ 0 │
//! │  u64   │  u32   │ u32  │   u32    │ u16  │u8 │u8 │ u32  │   u32    │ u16  │u8 │u8 │
//!
//! offset  of the chunk in the file               segments  and s: the table has segments · 2^s cells
//! crc32c  over its bytes                         seed      the one that placed all keys
//! ```
//!
//! A chunk is one table, of an exact set two: first a filter of the members, then a map of one bit. Chunks follow the
//! head and each other without a gap. A table without keys is all zeros here, and has no cells.
//!
//! ```text
//! filter     cells of `check` bits              value of a key: its fingerprint
//! map        cells of `value` + `check` bits    its value, and above it its fingerprint
//! exact set  cells of `check` bits              fingerprint of a member
//!            cells of 1 bit                     1 of a member, 0 of another that the first table takes for one
//! ```
//!
//! Cell i of w bits lies at bits [i · w, (i + 1) · w) of the table, bit j being bit j mod 8 of byte ⌊j / 8⌋, counted
//! from the least significant. A table has 8 · ⌈cells · w / 64⌉ + 8 bytes, or none if it has no bits. If `check` is 0, the
//! first table of an exact set is left out, and the second has all keys and others. Where a key lies, b being the bits
//! that choose its chunk, and everything modulo 2^64:
//!
//! ```text
//! chunk        the upper b bits of hi
//! segment      t = ⌊(hi · 2^b) · (segments − 2) / 2^64⌋, and the next two
//! mix          m = upper XOR lower 64 bits of (lo XOR (A + seed · C)) · (hi XOR B), a product of 128 bits
//! cells        (t + j) · 2^s + (⌊m / 2^(21 j)⌋ mod 2^s) for j = 0, 1, 2
//! fingerprint  (hi XOR (lo rotated left by 32)) mod 2^check
//!
//! A = 0x9e3779b97f4a7c15   B = 0xe7037ed1a0b428db   C = 0xd1342543de82ef95
//! ```
//!
//! A file that is read encodes to the same bytes. Who builds gives the same bytes for the same keys, whatever their order
//! and the number of threads: hashes of a chunk are sorted, and the first seed that places them all is taken.
