//! Writing and reading, hostile bytes, and a golden file.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use umbel_filter::{CellCount, HashRange, ItemHash, ItemHasher};

fn spec(bits: IndexBits) -> IndexSpec {
    IndexSpec { bits, seed: 0x5eed, digest: SpecDigest([0xd1; 16]) }
}

fn write(bits: IndexBits, hashes: &BTreeSet<ItemHash>, expected: u64) -> Vec<u8> {
    let mut writer = IndexWriter::new(spec(bits), expected);
    let mut blocks = Vec::new();
    hashes.iter().for_each(|hash| writer.push(*hash, &mut blocks).unwrap());
    let mut file = writer.finish(&mut blocks);
    file.extend(blocks);
    file
}

/// Reads a range as a driver does: header, directory, then the blocks of the range.
fn read(file: &[u8], range: HashRange) -> Result<Vec<ItemHash>, IndexError> {
    let short = IndexError::Length { what: "the file", expected: 64, got: file.len() as u64 };
    let (head, rest) = file.split_first_chunk().ok_or(short.clone())?;
    let header = IndexHeader::decode(head)?;
    let length = usize::try_from(header.directory_bytes()).unwrap();
    let directory =
        IndexDirectory::decode(header, rest.get(..length).ok_or(short)?, file.len() as u64)?;
    let mut hashes = Vec::new();
    for block in directory.blocks_of(range) {
        let IndexExtent { offset, length } = directory.extent(block).unwrap();
        let bytes = &file[offset as usize..][..length as usize];
        directory.read_block(block, bytes, &mut hashes)?;
    }
    hashes.retain(|hash| range.contains(hash.hi()));
    Ok(hashes)
}

fn drawn(count: u64) -> BTreeSet<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: 1 };
    (0..count).map(|number| hasher.hash(&number.to_le_bytes())).collect()
}

proptest! {
    #[test]
    fn what_was_written_is_read_range_by_range(
        his in proptest::collection::vec((any::<u64>(), 0u64..3), 0..200),
        near in any::<bool>(),
        expected in 0u64..100_000,
        width in 0usize..3,
        cells in 1u32..9,
    ) {
        let bits = [IndexBits::Bits64, IndexBits::Bits96, IndexBits::Bits128][width];
        let hash = |&(hi, lo): &(u64, u64)| {
            ItemHash::new(if near { hi % 97 } else { hi }, lo << 31 | lo << 63)
        };
        let hashes: BTreeSet<ItemHash> = his.iter().map(hash).collect();
        let stored: BTreeSet<ItemHash> = hashes.iter().map(|hash| bits.apply(*hash)).collect();
        let file = write(bits, &hashes, expected);
        let cells = CellCount::new(cells).unwrap();
        let mut found = Vec::new();
        for cell in 0..cells.get() {
            found.extend(read(&file, HashRange::cell(cell, cells)).unwrap());
        }
        prop_assert!(found.iter().eq(&stored));
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), fix in any::<bool>()) {
        if fix && bytes.len() >= 64 {
            // A valid header before arbitrary bytes.
            let low_bits = u32::from(bytes[0] % 64);
            let header = IndexHeader {
                spec: spec(IndexBits::Bits96),
                count: u64::from(bytes[1]),
                gap_code: umbel_bits::RiceCode::new(low_bits).unwrap(),
                block_bits: u32::from(bytes[2] % 4),
            };
            bytes[..64].copy_from_slice(&header.encode());
        }
        let _ = read(&bytes, HashRange::WHOLE);
    }
}

#[test]
fn every_flipped_bit_every_cut_and_every_tail_is_found() {
    for bits in [IndexBits::Bits64, IndexBits::Bits128] {
        let hashes = drawn(40);
        let file = write(bits, &hashes, 4 * BLOCK_ITEMS_MEAN); // four blocks
        assert_eq!(read(&file, HashRange::WHOLE).unwrap().len(), 40);
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged, HashRange::WHOLE).is_err(), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(read(&file[..length], HashRange::WHOLE).is_err(), "{length} bytes");
        }
        assert!(read(&[&file[..], &[0]].concat(), HashRange::WHOLE).is_err());
    }
}

#[test]
fn an_item_costs_little_more_than_its_entropy() {
    for (bits, low) in
        [(IndexBits::Bits64, 0.0), (IndexBits::Bits96, 32.0), (IndexBits::Bits128, 64.0)]
    {
        let count = 20_000;
        let file = write(bits, &drawn(count), count);
        let each = 8.0 * file.len() as f64 / count as f64;
        let entropy = umbel_bits::gap_entropy_bits(2f64.powi(64) / count as f64) + low;
        assert!(each < entropy + 0.2, "{each} bits an item, entropy {entropy}");
    }
}

#[test]
fn hashes_out_of_order_are_refused() {
    let mut writer = IndexWriter::new(spec(IndexBits::Bits64), 2);
    let mut out = Vec::new();
    writer.push(ItemHash::new(5, 1), &mut out).unwrap();
    writer.push(ItemHash::new(5, 9), &mut out).unwrap(); // equal in the stored bits
    assert!(writer.push(ItemHash::new(4, 0), &mut out).is_err());
    assert_eq!(writer.count(), 1);
}

/// Later releases must read what this release writes.
#[test]
fn the_golden_file_is_written_and_read_as_ever() {
    let golden = include_bytes!("../../testdata/index_v1.bin");
    let hashes: BTreeSet<ItemHash> =
        (0..9u64).map(|n| ItemHash::new((n << 60) | (n * n), (n << 62) | n)).collect();
    let file = write(IndexBits::Bits96, &hashes, 2 * BLOCK_ITEMS_MEAN);
    assert_eq!(file, golden);
    let stored: Vec<_> = hashes.iter().map(|hash| IndexBits::Bits96.apply(*hash)).collect();
    assert_eq!(read(golden, HashRange::WHOLE).unwrap(), stored);
}
