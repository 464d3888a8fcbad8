//! The bytes of frames and of saved filters, for other programs that read or write them.
//!
//! # Frames
//!
//! Integers are little-endian, code bits go from the most significant one down. Header, 60 bytes:
//!
//! ```text
//! 0      4   5    6   7    8      16    24   32  40    48 49 50    52     56     60
//! │ UMBL │ver│kind│enc│hash│key id│start│last│ m │count│B │k │lines│length│crc32c│ payload
//! │  4   │u8 │ u8 │u8 │ u8 │ u64  │ u64 │u64 │u64│ u64 │u8│u8│ u16 │ u32  │ u32  │
//!
//! ver     1                                    count   codes in the payload; raw: set positions
//! kind    1 single-shot, 2 blocked, 3 classic  B       low bits of the payload's code; raw: 0
//!         4 partitioned, 5 counting, 6 level,  k       probes an item; single-shot: 0; window, cuckoo:
//!         7 window, 8 aging, 9 stable,                 bits of a fingerprint; quotient: of a remainder
//!         10 cuckoo, 11 quotient
//! enc     1 gaps, 2 probes, 3 holes, 4 raw,    lines   positions of a block / 512; single-shot: 0;
//!         5 part, 6 ans gaps, 7 ans holes              quotient: quotients of a page / 64 + 2048 · bits of a count
//!         8 ans part                           length  bytes of payload
//! hash    1 XXH3-128, 2 SipHash-1-3-128        crc32c  over bytes 0..56 and the payload
//! key id  seed of XXH3, name of a SipHash key
//! start   first hash of the frame's range      last    last hash of the range, inclusive
//! m       blocks over the whole hash space; single-shot: positions over the whole hash space
//! ```
//!
//! A frame covers a hash range: a whole filter, or the slice of its blocks that lie there
//! (`umbel_filter::BlockMap`). Positions count from the slice's first block. Payloads, padded with
//! zeros to the end of the byte; a gap is the Rice code of the number of positions in between
//! (`umbel_bits::encode_indexes`), but of blocks their difference:
//!
//! ```text
//! gaps      of a 1 … │ gap │ gap │ …                              count: ones
//!           counting │ gap │ c−1 ones, 0 │ gap │ …                count: counters c above 0; c = 15
//!                                                                 is 14 ones and no 0
//! probes    blocked  │ block gap │ seed, 32 bits │ block gap │ …  count: insertions, by block and seed
//! holes     of a 0 … │ gap │ gap │ …                              count: zeros
//! raw       the words, 8 bytes each, low byte first               count: ones, or counters above 0
//! part      │ start of the filter, u64 │ gap │ gap │ …            count: ones
//! ans …     as gaps, holes or part, but the gaps are │ ratio, u8 │ ANS list of all of them │
//! window    │ oldest slice, u64 │ newest, u64 │ the words          count: slots that are taken
//! cuckoo    the words                                             count: slots that are taken
//! quotient  the words                                             count: slots that are taken
//! aging     │ pace, u64 │ count, u64 │ count, u64 │ gaps, holes, ans gaps, ans holes or raw
//!           items of a generation over the whole hash space; those that the newer took, and those of the older
//! stable    │ pace, u64 │ count, u64 │ 0, u64 │ as counting has: gaps or raw
//!           16 · cells that an insert lowers + what it sets its own to; inserts
//! level     │ level, see below, 32 bytes │ gaps, holes, ans gaps, ans holes or raw
//! link      │ link, see below, 40 bytes │ gaps, holes, ans gaps, ans holes or raw
//! ```
//!
//! | kind | encodings |
//! |---|---|
//! | single-shot | gaps, part, ans gaps, ans part |
//! | blocked | gaps, probes, holes, raw, ans gaps, ans holes |
//! | classic, partitioned, level, link, aging | gaps, holes, raw, ans gaps, ans holes |
//! | counting, stable | gaps, raw |
//! | window, cuckoo, quotient | raw |
//!
//! *ANS.* A list of positions, without anything in between, may be an `umbel_bits::AnsGapCode` of B
//! low bits: shorter than the Rice codes of long lists. Its ratio stands behind the fixed part of
//! the payload, and the list fills the rest.
//!
//! *Part.* A single-shot filter over a range from `origin` on has position
//! ⌊hi·m / 2^64⌋ − ⌊origin·m / 2^64⌋. A later part carries the origin; it begins at the first hash of a
//! position x of the filter, and its gaps count from x. A first part, whose range begins at the origin, is a
//! plain filter of gaps.
//!
//! A frame that decodes encodes to the same bytes.
//!
//! # Levels of scalable filters
//!
//! What stands before the codes of a level:
//!
//! ```text
//! 0      4       8     16       24     32
//! │level │levels │rate │capacity│items │ codes
//! │ u32  │ u32   │ f64 │ u64    │ u64  │
//!
//! level     number of the level, from 0 on       rate      false-positive rate of all levels
//! levels    how many there are                   capacity  items that level 0 is made for
//!                                                          over the whole hash space
//!                                                items     new items that the level took
//! ```
//!
//! The items are those of the filter's hash range, whatever part of it the frame has, and at most the range's share of the
//! level's capacity.
//!
//! # Links of RedisBloom's chains
//!
//! As levels, but with the rate of link 0 and the items of all links, which says how many each has; and behind that
//!
//! ```text
//! 32         36      40
//! │expansion │fixed  │ codes
//! │ u32      │ 0 or 1│
//! ```
//!
//! The array of a link, in whole lines of 64 bytes, is cut as if it were one of as many blocks by hash: the frame's
//! range says which lines it has, and the ranges of a link's frames tile the hash space. The header has blocks of
//! one line and one probe; how many an item has follows from the shape.
//!
//! # Saved filters
//!
//! ```text
//! 0      4   5   8      16     24     32     36
//! │ UMBF │ver│ 0 │start │ last │length│crc32c│ frame │ frame │ …
//! │  4   │u8 │ 3 │ u64  │ u64  │ u64  │ u32  │
//!
//! ver    1                                 length   bytes of all frames together
//! start  first hash of the filter's range  crc32c   over bytes 0..32
//! last   last hash of the range, inclusive
//! ```
//!
//! Integers are little-endian. The head says how much belongs to the filter, so bytes that were cut
//! between two frames are not taken for a smaller one; each frame has a checksum of its own. Frames of
//! any sizes are read; those that are written are as large as frames may be.
