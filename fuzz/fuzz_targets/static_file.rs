//! Reads any bytes as a static file, as they are and with length and checksums put right, and asks it. What is read must
//! encode to the same bytes, and all ways of asking must agree.
//!
//! Input: the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::ItemHash;
use umbel_fuzz::static_files::{forged, hash};
use umbel_static::StaticFile;

fuzz_target!(|input: &[u8]| {
    read(input);
    if let Some(forged) = forged(input) {
        read(&forged);
    }
});

fn read(bytes: &[u8]) {
    let Ok(file) = StaticFile::parse(bytes) else { return };
    let head = file.head();
    assert_eq!(head.to_bytes(), bytes[..head.head_bytes()]);
    let ends = [ItemHash::new(0, 0), ItemHash::new(u64::MAX, u64::MAX)];
    let hashes: Vec<ItemHash> = (0..60).map(hash).chain(ends).collect();
    let (mut answers, mut values) = (Vec::new(), Vec::new());
    file.contains_batch(&hashes, &mut answers);
    file.value_batch(&hashes, &mut values);
    for ((hash, answer), value) in hashes.iter().zip(answers).zip(values) {
        assert_eq!((file.contains(*hash), file.value(*hash)), (answer, value));
        assert_eq!(answer, value.is_some());
        let number = head.chunk_of(*hash);
        let range = head.chunk_range(number).expect("the head has every chunk");
        let range = usize::try_from(range.start).expect("it is there")
            ..usize::try_from(range.end).expect("it is there");
        let chunk = head.chunk(number, &bytes[range]).expect("it was checked");
        assert_eq!((chunk.contains(*hash), chunk.value(*hash)), (answer, value));
    }
}
