//! Set-difference sketches: find the difference of two sets in about as many bytes as the
//! difference has.
//!
//! Two parties hold sets, or arrays of bits, that mostly agree. Each makes a sketch. The XOR of the
//! sketches is the sketch of the difference, however large the common part is, and can be decoded.
//!
//! | question | take | bytes | time, one core |
//! |---|---|---|---|
//! | which few symbols differ? | [`PinSketch`] | t · b / 8 for t − 1 differences | 60 ns a symbol at t = 31; decode 2 µs a difference |
//! | the same of many, spread over buckets | [`toggle_buckets`], [`thresholds`] | 1.2 · b / 8 a difference | the same |
//! | the same without knowing how many | [`RibltEncoder`], [`RibltDecoder`] | 12 · 1.4 a difference | 0.2 to 0.6 µs a symbol; decode 0.3 to 0.7 µs |
//! | about how many differ? ± 18 % | [`Estimator`] | 97 for a million items | 10 ns an item |
//! | which bits of 4 KiB differ? | [`BlockCode`] | 2 a flip, and 2 spare | 0.4 µs a block of two words |
//!
//! *Symbols* are numbers of b bits that stand for items: keyed hashes, so that nobody can choose
//! items that collide, or keyed permutations of ids. Two equal symbols cancel: a symbol that is
//! added twice is not in the sketch. If a decoder succeeds, the sketch is that of its result; a
//! digest of the items themselves must confirm that the sets agree after that.
//!
//! Input from a peer may be arbitrary: decoders return a result, `None` or an error, in bounded
//! time and memory. Nothing here reads a file, a clock or a random generator; seeds and keys are
//! arguments.
//!
//! *Bytes* of a [`PinSketch`] of t syndromes s_1 … s_t, s_j = Σ x^(2j−1), in a field of b bits: one
//! little-endian integer with s_j at bits [(j−1)·b, j·b), padded with zeros to whole bytes, byte for
//! byte that of bitcoin-core/minisketch. Bits of [`LsbWriter`] fill bytes from the least significant
//! one up; those of `umbel-bits` from the most significant one down.
//!
//! ```
//! use umbel_sketch::{Field, PinSketch};
//!
//! let symbol = |item: u64| item.wrapping_mul(0x9e37_79b9_7f4a_7c15); // keyed, in earnest
//! let field = Field::new(40)?;
//! let (mut ours, mut theirs) = (PinSketch::new(field, 8), PinSketch::new(field, 8));
//! (0..1000).for_each(|item| ours.toggle(symbol(item) >> 24));
//! (3..1003).for_each(|item| theirs.toggle(symbol(item) >> 24));
//! ours.merge(&theirs).expect("one field and capacity");
//! assert_eq!(ours.to_bytes().len(), 40); // for 6 differences of 5 bytes
//! assert_eq!(ours.decode(7).map(|symbols| symbols.len()), Some(6));
//! # Ok::<(), umbel_sketch::FieldError>(())
//! ```
//!
//! Papers: PinSketch, Dodis et al. 2008, doi:10.1137/060651380; decoding, Massey 1969,
//! doi:10.1109/TIT.1969.1054260, and Berlekamp 1970, doi:10.1090/S0025-5718-1970-0276200-X; rateless
//! IBLT, Yang et al. 2024, doi:10.1145/3651890.3672219; tug of war, Alon et al. 1999,
//! doi:10.1006/jcss.1997.1545; BCH codes, Bose & Ray-Chaudhuri 1960,
//! doi:10.1016/S0019-9958(60)90287-4.

mod block_code;
mod estimator;
mod gf2;
mod lsb;
mod pinsketch;
mod riblt;
pub mod thresholds;

pub use block_code::{
    BLOCK_BITS, BLOCK_WORDS, BlockCode, BlockCodeError, FLIPS_PER_WORD, RESIDUE_WORDS_MAX,
    block_syndromes, decode_block,
};
pub use estimator::{COUNTER_COUNT, Estimator, EstimatorError};
pub use gf2::{FIELD_BITS_MAX, FIELD_BITS_MIN, Field, FieldError};
pub use lsb::{LsbError, LsbReader, LsbWriter};
pub use pinsketch::{
    PinSketch, SketchMismatch, SyndromesError, decode_syndromes, toggle_buckets, toggle_symbols,
    toggle_syndromes,
};
pub use riblt::{CodedSymbol, Inconsistent, Indices, RibltDecoder, RibltEncoder};
