//! How far the parameters of codes go.

/// Largest parameter B: the low bits of a u64 with a one-bit quotient.
pub const LOW_BITS_MAX: u32 = 63;

/// Least ratio, 1/2 in 256ths: quotients of mean 1.
pub const ANS_RATIO_MIN: u8 = 128;

/// Largest ratio: quotients of mean 15. Larger ones would crowd the table.
pub const ANS_RATIO_MAX: u8 = 240;
