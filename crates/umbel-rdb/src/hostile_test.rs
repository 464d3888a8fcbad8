//! Reading any bytes ends in values or an error.

use std::io::{self, Read};

use proptest::prelude::*;

use crate::reader_test::{WITH_FREQUENCIES, file, items, keys};
use crate::{RdbError, RdbReader, Value, checked_payload, read_module_value};

/// Reads all that there is, in every way that the crate offers.
fn read(bytes: &[u8]) {
    let passed = keys(bytes);
    // What can be read can also be skipped.
    if items(bytes).is_ok() {
        passed.unwrap();
    }
    let modules = || {
        let mut reader = RdbReader::new(bytes)?;
        while let Some(key) = reader.next_key()? {
            if matches!(key.value, Value::Module(_)) {
                reader.read_module(|_, module| {
                    module.unsigned()?;
                    module.double()?;
                    module.string()?.read_all()
                })?;
            }
        }
        Ok::<(), RdbError>(())
    };
    let _ = modules();
    if let Ok(value) = checked_payload(bytes) {
        let _ = read_module_value(value, |_, module| module.unsigned());
    }
}

/// Bytes for types in all forms.
fn type_byte() -> impl Strategy<Value = u8> {
    prop_oneof![0_u8..28, Just(0xf7), Just(0xfa)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// A file as Redis wrote it, with flipped bits and truncated.
    #[test]
    fn damaged_files_end_in_an_error_or_a_value(
        flips in prop::collection::vec((0..WITH_FREQUENCIES.len(), 0_u8..8), 0..4),
        cut in 0..WITH_FREQUENCIES.len() * 3,
    ) {
        let mut bytes = WITH_FREQUENCIES.to_vec();
        for (at, bit) in &flips {
            bytes[*at] ^= 1 << bit;
        }
        let is_whole = bytes == WITH_FREQUENCIES && cut >= bytes.len();
        bytes.truncate(cut);
        read(&bytes);
        prop_assert_eq!(keys(&bytes).is_ok(), is_whole);
    }

    /// Values of every type with arbitrary bytes.
    #[test]
    fn values_of_any_bytes_end(
        type_byte in type_byte(),
        value in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..8, Just(0xff), Just(0xc3)], 0..200),
    ) {
        read(&file(type_byte, &value));
        let string = [&[0x40, u8::try_from(value.len()).unwrap()], &value[..]].concat();
        read(&file(type_byte, &string));
    }
}

/// A truncated file is refused at the offset where it ends.
#[test]
fn each_cut_is_told() {
    for cut in 9..WITH_FREQUENCIES.len() {
        let error = keys(&WITH_FREQUENCIES[..cut]).unwrap_err();
        assert_eq!(error.to_string(), format!("byte {cut}: it ends early"));
    }
}

/// Input that arrives one byte at a time, with interruptions.
#[test]
fn input_may_come_in_any_pieces() {
    struct Slow<'a>(&'a [u8], bool);
    impl Read for Slow<'_> {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = target.len().min(1);
            self.0.read(&mut target[..count])
        }
    }
    let mut reader = RdbReader::new(Slow(WITH_FREQUENCIES, false)).unwrap();
    let mut count = 0;
    while reader.next_key().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 16);
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    let error = RdbReader::new(Broken).err().unwrap();
    assert_eq!(error.to_string(), "byte 0: cannot read it: permission denied");
}
