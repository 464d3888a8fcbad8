//! Reads any bytes as a sketch file, as they are and with checksums put right, at once and in pieces, and
//! decodes it against a small set and against another sketch.
//!
//! Input: kind u8 (modulo 3), bytes of a piece u8, the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_fuzz::sketches::{file, forged};
use umbel_reconcile_engine::{
    ItemIndex, ItemRef, SketchDecoder, SketchReader, StoredSketch, SymbolKind,
};

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, piece], bytes)) = input.split_first_chunk() else { return };
    let kind = SymbolKind::ALL[usize::from(kind % 3)];
    read(kind, piece.into(), bytes);
    if let Some(forged) = forged(bytes) {
        read(kind, piece.into(), &forged);
    }
});

fn read(kind: SymbolKind, piece_bytes: usize, bytes: &[u8]) {
    let stored = StoredSketch::from_bytes(bytes);
    if let Ok(stored) = &stored {
        assert_eq!(stored.to_bytes(), bytes);
        let ours = StoredSketch::from_bytes(&file(kind, 0..20, 40)).expect("our own file");
        let _ = ours.difference(stored);
        let _ = stored.difference(&ours);
        let mut sum = ours.clone();
        if sum.add(stored).is_ok() {
            let _ = sum.remove(stored);
        }
    }
    let mut reader = SketchReader::new();
    let mut decoder: Option<SketchDecoder> = None;
    for piece in bytes.chunks(piece_bytes.max(1)) {
        let Ok(cells) = reader.push(piece) else {
            assert!(stored.is_err());
            return;
        };
        if decoder.is_none()
            && let Some(header) = reader.header()
        {
            let mut pass = header.pass();
            for id in 0..20u64 {
                let bytes = id.to_le_bytes();
                pass.add(
                    ItemIndex(id),
                    match header.spec().kind() {
                        SymbolKind::Id64 => ItemRef::Id(id),
                        SymbolKind::Hashed => ItemRef::Bytes(&bytes),
                        SymbolKind::Keyed => ItemRef::Keyed { key: &bytes, value: b"v" },
                    },
                );
            }
            decoder = SketchDecoder::new(header, pass, 1000).ok();
        }
        if let Some(decoder) = &mut decoder
            && decoder.push(&cells).is_err()
        {
            return;
        }
    }
    assert_eq!(reader.end().is_ok(), stored.is_ok());
    if let Some(decoder) = decoder {
        let _ = decoder.finish();
    }
}
