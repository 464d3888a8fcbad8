//! Reads any bytes as a database file of Redis, and as a payload of `DUMP`, in every way. A value whose items can be read
//! is passed over to the same place.
//!
//! Input: the file, whose checksum is put right by leaving it out: eight zeros at its end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_rdb::{
    Key, ModuleReader, RdbError, RdbReader, Value, checked_payload, read_module_value,
};

fuzz_target!(|input: &[u8]| {
    let as_payload = |value: &[u8]| {
        let _ = read_module_value(value, |_, module| parts(module));
    };
    if let Ok(value) = checked_payload(input) {
        as_payload(value);
    }
    as_payload(input);
    let mut file = input.to_vec();
    if let Some(at) = file.len().checked_sub(8).filter(|&at| at > 9) {
        file[at..].fill(0);
    }
    let passed = keys(&file);
    if let Ok(read) = items(&file) {
        assert_eq!(passed.expect("what is read can be passed over"), read);
    }
});

fn keys(file: &[u8]) -> Result<Vec<Key>, RdbError> {
    let mut reader = RdbReader::new(file)?;
    let mut keys = Vec::new();
    while let Some(key) = reader.next_key()? {
        keys.push(key);
    }
    Ok(keys)
}

fn items(file: &[u8]) -> Result<Vec<Key>, RdbError> {
    let mut reader = RdbReader::new(file)?;
    let mut keys = Vec::new();
    while let Some(key) = reader.next_key()? {
        match key.value {
            Value::Module(_) => reader.read_module(|_, module| parts(module))?,
            Value::List | Value::Set | Value::SortedSet | Value::Hash => {
                reader.read_items(|_| Ok::<(), RdbError>(()))?;
            }
            _ => {}
        }
        keys.push(key);
    }
    Ok(keys)
}

/// The parts of a filter of RedisBloom's with one link.
fn parts(module: &mut ModuleReader<'_, &[u8]>) -> Result<(), RdbError> {
    for _ in 0..5 {
        module.unsigned()?;
    }
    module.double()?;
    module.unsigned()?;
    module.double()?;
    module.unsigned()?;
    module.unsigned()?;
    module.string()?.read_all()?;
    module.unsigned().map(drop)
}
