//! Repair of bit arrays: finds the bits in which two copies of a filter differ, and makes the copies equal.
//!
//! An array of bits is a vector, not a set, so an error-correcting code finds the differences: the two
//! copies are words of the code with errors between them, and parity of one copy lets the other locate the
//! errors. Each block of 4 KiB has its own binary BCH code ([`BlockCode`](umbel_sketch::BlockCode)): t
//! syndromes of 16 bits correct up to t flips.
//!
//! ```text
//!   initiator                                     responder
//!     │  Hello (shape, root of the residues)  ──►   equal? then that was all
//!     │  ◄── Welcome (root, estimator)
//!     │  ◄─► Find: which blocks differ, by reconciling (block, residues); left out if most of them do
//!     │  Window (blocks)  Ask (t syndromes)   ──►      of up to sixteen windows at once
//!     │  ◄── Answer                                 XOR, decode; ask more for what does not decode
//!     │  Ask (hashes)                         ──►
//!     │  ◄── Answer                                 one for 64 blocks; where it is wrong, one for each; then the blocks
//!     │  Push (bits that only the initiator has)    if both copies shall become their OR
//!     │  Done (root)                         ◄──►
//! ```
//!
//! A session reports no difference of a block before a hash over it has matched, and succeeds only if both
//! sides' roots over the residues of all blocks are equal. A [`RepairSession`] implements both roles. It
//! owns no socket and no array: it reads blocks of the copy that is passed to each step, and outputs which
//! bits to flip.
//!
//! Bose & Ray-Chaudhuri 1960, doi:10.1016/S0019-9958(60)90287-4. Sending syndromes instead of copies:
//! Dodis, Ostrovsky, Reyzin, Smith 2008, doi:10.1137/060651380.

mod core;
mod error;
mod event;
mod filter_bits;
mod finder;
#[cfg(test)]
mod hostile_test;
mod initiator;
mod keys;
mod ladder;
mod message;
mod options;
#[cfg(test)]
mod repair_test;
mod responder;
mod session;
mod table;
#[cfg(test)]
mod testing;
mod window;
mod windows;

pub use error::{RepairError, RepairRefusal, TableError};
pub use event::{RepairInput, RepairOutput};
pub use filter_bits::{FilterBits, FilterBitsError};
pub use options::{
    BlockDifference, Policy, RepairBytes, RepairLimits, RepairOptions, RepairOutcome,
};
pub use session::RepairSession;
pub use table::{BitBlocks, ResidueTable};
