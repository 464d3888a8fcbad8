//! Values written by hand, in the order of `BFRdbSave`.

use umbel_codec::{FrameView, REDIS_BLOOM_KEY, frames};
use umbel_filter::{Insert, ItemHasher, RedisBloom, RedisBloomShape};
use umbel_rdb::{checked_payload, read_module_value};

use super::*;
use crate::redis_bloom_dump::tests::filters;

/// Writes the numbers of a filter as `BFRdbSave` does.
fn saved(filter: &RedisBloom, form: u16) -> PayloadWriter {
    let header = RedisBloomHeader::of(filter);
    let mut writer = PayloadWriter::new(ModuleId::new(TYPE_NAME, form));
    writer.unsigned(header.item_count());
    writer.unsigned(header.links().len() as u64);
    writer.unsigned(header.options().into());
    if form >= 4 {
        writer.unsigned(header.shape().expansion().into());
    }
    for (at, link) in filter.links().iter().enumerate() {
        let stored = header.stored_link(at).unwrap();
        writer.unsigned(stored.capacity);
        writer.double(stored.rate);
        writer.unsigned(stored.probe_count.into());
        writer.double(stored.bits_per_item);
        writer.unsigned(stored.bit_count);
        writer.unsigned(0);
        writer.string(stored.byte_count);
        let bytes: Vec<u8> = link.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        writer.bytes(&bytes[..usize::try_from(stored.byte_count).unwrap()]);
        writer.unsigned(stored.item_count);
    }
    writer
}

fn read(payload: &[u8]) -> Result<Vec<ValuePart>, ValueError> {
    let value = checked_payload(payload).expect("its checksum is right");
    let mut parts = Vec::new();
    read_module_value(value, |id, module| {
        read_value(id, module, |part| {
            parts.push(part);
            Ok(())
        })
    })?;
    Ok(parts)
}

/// A file written by another program, with compressed and uncompressed arrays; see testdata/README.md
/// of umbel-rdb.
#[test]
fn filters_of_a_file_are_those_that_the_same_items_make() {
    let file = &include_bytes!("../../umbel-rdb/testdata/redisbloom.rdb")[..];
    let mut reader = umbel_rdb::RdbReader::new(file).unwrap();
    let mut found = Vec::new();
    while let Some(key) = reader.next_key().unwrap() {
        if key.value.type_name() != "MBbloom--" {
            continue;
        }
        let mut frames = Vec::new();
        reader
            .read_module(|id, module| {
                read_value(id, module, |part| {
                    if let ValuePart::Frame(frame) = part {
                        frames.push(frame.to_vec());
                    }
                    Ok(())
                })
            })
            .unwrap();
        found.push((key.database, String::from_utf8(key.name).unwrap(), frames));
    }
    let made = |capacity, items: &[String]| {
        let shape = RedisBloomShape::for_rate(capacity, 0.01).unwrap();
        let mut filter = RedisBloom::with_shape(shape).unwrap();
        for item in items {
            filter.insert(ItemHasher::RedisBloom.hash(item.as_bytes())).unwrap();
        }
        frames_of(&filter)
    };
    let users = made(100, &["foo".to_owned()]);
    let items: Vec<String> = (0..100).map(|item| item.to_string()).collect();
    assert!(
        found
            == [
                (0, "users".to_owned(), users.clone()),
                (2, "chain".to_owned(), made(10, &items)),
                (2, "users".to_owned(), users),
            ]
    );
}

fn frames_of(filter: &RedisBloom) -> Vec<Vec<u8>> {
    frames(filter, REDIS_BLOOM_KEY, 1 << 20).map(Result::unwrap).collect()
}

#[test]
fn a_value_is_the_filter_and_comes_back() {
    for filter in filters() {
        for form in [2, 3, 4] {
            let parts = read(&saved(&filter, form).finish()).unwrap();
            let shape = RedisBloomHeader::of(&filter).shape();
            let reader = DumpReader::of(RedisBloomHeader::of(&filter));
            let byte_count = RedisBloomHeader::of(&filter).data_bytes();
            assert_eq!(parts[0], ValuePart::Head { settings: reader.settings(), byte_count });
            let mut back = RedisBloom::with_shape(shape).unwrap();
            let mut frame_count = 0;
            for part in &parts[1..parts.len() - 1] {
                let ValuePart::Frame(frame) = part else { panic!("{part:?}") };
                let view = FrameView::parse(frame).unwrap().0;
                view.merge_into(&mut back, REDIS_BLOOM_KEY).unwrap();
                frame_count += 1;
            }
            assert!(back == filter);
            let Some(ValuePart::End { frame_count: text, .. }) = parts.last() else { panic!() };
            assert_eq!(*text, frame_count);
        }
        let mut payload = PayloadOfFrames::new(1 << 24);
        for frame in frames_of(&filter) {
            payload.push(&frame).unwrap();
        }
        assert!(payload.finish().unwrap() == saved(&filter, 4).finish());
    }
}

#[test]
fn a_filter_that_is_too_large_or_lacks_frames_is_no_payload() {
    let small = &frames_of(&filters()[0]);
    let mut payload = PayloadOfFrames::new(279);
    let error = payload.push(&small[0]).unwrap_err();
    assert_eq!(error.to_string(), "the filter has 280 bytes, and a payload 279 at most");
    let mut payload = PayloadOfFrames::new(280);
    payload.push(&small[0]).unwrap();
    assert!(matches!(payload.finish(), Err(BloomValueError::Missing)));
}

#[test]
fn values_that_are_no_such_filter_are_refused() {
    let filter = &filters()[0];
    let text = |payload: Vec<u8>| read(&payload).unwrap_err().to_string();
    assert_eq!(text(saved(filter, 5).finish()), "form 5 of MBbloom--, expected 2 to 4");
    assert_eq!(text(saved(filter, 1).finish()), "form 1 of MBbloom--, expected 2 to 4");
    let other = PayloadWriter::new(ModuleId::new(b"MBbloomCF", 4)).finish();
    assert_eq!(text(other), "a value of type MBbloomCF, expected MBbloom--");
    let mut more = saved(filter, 4);
    more.unsigned(0);
    assert!(text(more.finish()).ends_with("has part 2, expected 0"));
    // One number at a time is changed.
    let with = |numbers: [u64; 8]| {
        let [items, links, options, growth, capacity, probes, bits, power] = numbers;
        let mut writer = PayloadWriter::new(ModuleId::new(TYPE_NAME, 4));
        [items, links, options, growth, capacity].into_iter().for_each(|n| writer.unsigned(n));
        writer.double(0.005);
        writer.unsigned(probes);
        writer.double(11.027_753_418_256_411);
        writer.unsigned(bits);
        writer.unsigned(power);
        writer.string(16);
        writer.bytes(&[0; 16]);
        writer.unsigned(items);
        read(&writer.finish())
    };
    let good = [0, 1, 5, 2, 10, 8, 128, 0];
    with(good).unwrap();
    for (at, value) in [
        (0, 11),
        (0, u64::MAX),
        (1, 0),
        (1, 2),
        (1, u64::MAX),
        (2, 1),
        (2, 1 << 32 | 5),
        (3, 1 << 32 | 2),
        (4, 0),
        (4, u64::MAX),
        (5, 9),
        (5, 1 << 32 | 8),
        (6, 64),
        (7, 1),
        (7, 256),
    ] {
        let mut numbers = good;
        numbers[at] = value;
        assert!(with(numbers).is_err(), "{numbers:?}");
    }
}

/// Each bit of a small value flipped under a correct checksum, and each truncation.
#[test]
fn damage_is_an_error_or_other_bits() {
    let payload = saved(&filters()[0], 4).finish();
    let value = checked_payload(&payload).unwrap();
    let read =
        |value: &[u8]| read_module_value(value, |id, module| read_value(id, module, |_| Ok(())));
    read(value).unwrap();
    for cut in 0..value.len() {
        assert!(read(&value[..cut]).is_err(), "{cut}");
    }
    let mut damaged = value.to_vec();
    for bit in 0..value.len() * 8 {
        damaged[bit / 8] ^= 1 << (bit % 8);
        let _ = read(&damaged);
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    let unwanted = read_module_value(value, |id, module| read_value(id, module, |_| Err(Unwanted)));
    assert!(matches!(unwanted, Err(ValueError::Unwanted)));
}
