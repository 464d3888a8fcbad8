//! What the fuzz targets share: comparing bits, and the seeds that the corpora begin with.
//!
//! A target's input begins with its parameters in fixed places, little-endian, and goes on with the
//! bytes to decode. Inputs too short for the parameters are left alone.

use umbel_bits::BitReader;

pub mod exchange;
pub mod saved;
pub mod seeds;
pub mod sessions;
pub mod sketches;
pub mod sliced_files;
pub mod static_files;

/// Panics unless two slices begin with the same `bit_len` bits.
pub fn assert_same_bits(ours: &[u8], theirs: &[u8], bit_len: u64) {
    let mut readers = [BitReader::new(ours), BitReader::new(theirs)];
    for at in 0..bit_len {
        let [ours, theirs] = readers.each_mut().map(|reader| reader.read_bits(1));
        assert_eq!(ours, theirs, "bit {at} of {bit_len}");
    }
}
