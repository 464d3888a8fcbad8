//! Bit streams, Golomb and Rice codes, coded gap lists: short, fast, and total on hostile input.
//!
//! Everything that reads is *total*: whatever the bytes, the outcome is a value or an error that
//! names what was expected and what came, never a panic, and never an allocation that the bytes
//! at hand do not pay for. Everything that is read and accepted encodes to the same bits again,
//! so equal values have equal bytes; only [`Leb128::padded`] accepts more, for formats that do.
//!
//! | question | module |
//! |---|---|
//! | how do bits become bytes? Most significant bit first | `bit_writer`, `bit_reader` |
//! | how is one number written in few bits? | `rice` (modulus 2^B, fast), `golomb` (any modulus) |
//! | how is one number written in whole bytes? | `leb128` |
//! | how is a sorted list written? | `gaps` |
//! | how is a long sorted list written in the fewest bits? | `ans` |
//! | how short could any code be? | `entropy` |
//! | how are bytes shown to people? | `hex` |
//!
//! # Formats
//!
//! Bits fill bytes from the most significant one down; the last byte ends with zeros. With B low bits
//! a value v is written as
//!
//! ```text
//! Rice         ⌊v / 2^B⌋ < 32:  ⌊v / 2^B⌋ ones │ 0 │ the B low bits of v      B = 2, v = 5:  10 01
//!              otherwise:       32 ones │ v in 64 bits                         the escape; no code exceeds 96 bits
//! Golomb       with M for 2^B: ⌊v / M⌋ ones │ 0 │ v mod M in truncated binary  the same escape from 32 ones on
//!
//! positions    each minus the one before it, the first as it is                3 4 4 9:  3 1 0 5
//! indexes      the number of those left out before each                        3 4 6 9:  3 0 1 2
//! ```
//!
//! A value that is escaped without need is refused, so every list has one code.
//!
//! ```
//! use umbel_bits::{BitReader, BitWriter, RiceCode, decode_positions, encode_positions};
//!
//! let code = RiceCode::new(2)?;
//! let mut writer = BitWriter::new();
//! encode_positions(code, [3, 4, 9].into_iter(), &mut writer);
//! // Gaps 3, 1, 5: (0 11) (0 01) (10 01), and six zeros of padding.
//! let bytes = writer.finish();
//! assert_eq!(bytes, [0b0110_0110, 0b0100_0000]);
//!
//! let mut positions = Vec::new();
//! decode_positions(&mut BitReader::new(&bytes), code, 3, 10, &mut positions)?;
//! assert_eq!(positions, [3, 4, 9]);
//! # Ok::<(), umbel_bits::CodeError>(())
//! ```

// Input is hostile here: an index out of bounds must be an error, not a panic.
#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod ans;
mod bit_reader;
mod bit_writer;
mod entropy;
mod error;
mod gaps;
mod golomb;
mod hex;
mod leb128;
mod limits;
mod rice;

pub use ans::{ANS_START_BITS, AnsGapCode, AnsReader};
pub use bit_reader::BitReader;
pub use bit_writer::BitWriter;
pub use entropy::{binary_entropy_bits, gap_entropy_bits};
pub use error::{CodeError, ProbabilityOutOfRange};
pub use gaps::{
    decode_indexes, decode_positions, encode_indexes, encode_positions, indexes_bits,
    positions_bits,
};
pub use golomb::GolombCode;
pub use hex::Hex;
pub use leb128::{LEB128_BYTES_MAX, Leb128, Leb128Error, put_leb128};
pub use limits::{ANS_RATIO_MAX, ANS_RATIO_MIN, LOW_BITS_MAX};
pub use rice::{QUOTIENT_ESCAPE, RiceCode};
