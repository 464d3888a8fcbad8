//! Reads any bytes as an index of files, as they are and with lengths and checksums put right, and asks it. What is read
//! must encode to the same bytes, and all ways of asking must agree.
//!
//! Input: the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::{Contains, ItemHash};
use umbel_fuzz::sliced_files::{forged, hash};
use umbel_static::sliced::SlicedFile;

fuzz_target!(|input: &[u8]| {
    read(input);
    if let Some(forged) = forged(input) {
        read(&forged);
    }
});

fn read(bytes: &[u8]) {
    let Ok(file) = SlicedFile::parse(bytes) else { return };
    let head = file.head();
    assert_eq!(head.to_bytes(), bytes[..head.head_bytes()]);
    let ends = [ItemHash::new(0, 0), ItemHash::new(u64::MAX, u64::MAX)];
    let hashes: Vec<ItemHash> = (0..10).map(hash).chain(ends).collect();
    let mut counts = vec![0; head.sets().len()];
    for hash in &hashes {
        for set in file.sets_with(*hash) {
            counts[set] += 1;
        }
    }
    assert_eq!(file.counts(&hashes), counts);
    for (set, count) in counts.into_iter().enumerate().take(20) {
        let filter = file.filter(set).expect("the bytes pay for it").expect("it is there");
        assert_eq!(hashes.iter().filter(|hash| filter.contains(**hash)).count(), count as usize);
    }
}
