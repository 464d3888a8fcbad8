//! A peer that sends any frames at all, with right checksums, to one half of a session that reconciles
//! sets or repairs bits: it refuses or follows them, never panics, and says nothing after its end.
//!
//! Input: see `umbel_fuzz::sessions`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_fuzz::sessions::run(input));
