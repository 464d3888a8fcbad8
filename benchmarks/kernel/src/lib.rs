//! The kernel benchmark: filters beside their peers and beside what memory allows.
//!
//! # Method
//!
//! * *Keys are hashes already*, 64 bits for the peers, 128 for ours: outputs of `SplitMix64` on a
//!   counter, so all differ. They are made in chunks of 16,384 outside the timed regions; a timed
//!   region is the loop over one chunk. So neither hashing nor reading a key array is measured.
//!   Static structures are the exception: they are built from an array of all keys.
//! * *Structures take turns*: a round measures every structure once, freshly built, with no other
//!   one in memory; the median of the rounds counts. Cases that take less than 50 ms are repeated
//!   within the round.
//! * *Memory is touched before* the first timed insert, by clearing, where the interface has that.
//! * *Queries* are random: half of them inserted keys in random order, half of them fresh.
//! * *Two threads* run their chunks at the same time, each starting when both keys are made; a
//!   chunk takes as long as the slower one, and is divided by the operations of both.
//! * *Every inserted key* is asked for once per structure and case, and a denied one fails the run.
//!   The measured rate is that of four million fresh keys.
//! * *The limit* is a loop that touches one random line of 64 bytes an operation, on huge pages,
//!   with the best of several prefetch distances, over an array as large as the blocked filter's.
//! * *Each peer* gets its fastest documented calls; see [`peers`].
//!
//! | question | module |
//! |---|---|
//! | which keys? | [`keys`] |
//! | what is timed? | [`clock`], [`measure`] |
//! | who takes part? | [`structure`], [`ours`], [`windows`], [`static_files`], [`peers`] |
//! | what would be the best? | [`limit`], [`bulk`] |
//! | how is it written? | [`table`] |

pub mod bulk;
pub mod clock;
pub mod keys;
pub mod library_types;
pub mod limit;
pub mod measure;
pub mod ours;
pub mod peers;
pub mod static_files;
pub mod structure;
pub mod table;
pub mod windows;
