//! How far the parameters of codes go.

/// Largest parameter B: the low bits of a u64 with a one-bit quotient.
pub const LOW_BITS_MAX: u32 = 63;

/// Largest quotient, 2^24 - 1: a code of 2 MiB. A block filter of N items has quotients below
/// 1.5 · N and N below 2^24; without a limit a single value could ask for 2^61 bytes.
pub const PLAIN_QUOTIENT_MAX: u32 = (1 << 24) - 1;

/// Least ratio, 1/2 in 256ths: quotients of mean 1.
pub const ANS_RATIO_MIN: u8 = 128;

/// Largest ratio: quotients of mean 15. Larger ones would crowd the table.
pub const ANS_RATIO_MAX: u8 = 240;
