//! Loads any bytes as a saved filter, as they are and with all checksums put right. What is loaded must
//! come back from the bytes that it is saved as.
//!
//! Input: the saved filter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_codec::SavedFilter;
use umbel_fuzz::saved::forged;

/// Most memory of a loaded filter: enough for every kind, and fast to compare.
const FILTER_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    load(input);
    if let Some(forged) = forged(input) {
        load(&forged);
    }
});

fn load(bytes: &[u8]) {
    if let Ok(saved) = SavedFilter::from_bytes(bytes, FILTER_BYTES_MAX) {
        let again = saved.to_bytes().expect("what was in frames fits into frames");
        assert_eq!(SavedFilter::from_bytes(&again, FILTER_BYTES_MAX), Ok(saved));
    }
}
