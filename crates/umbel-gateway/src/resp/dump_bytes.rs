//! A copy of a filter as bytes: those of the file that `umbel filter export` writes, so that the
//! concatenated pieces of a copy are such a file.
//!
//! ```text
//! │ UMBLEXP1 │ length, u32 LE │ ExportChunk (protobuf) │ length │ ExportChunk │ …      the end comes last
//! ```

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message as _;
use umbel_coordinator::transfers::{
    CopyEnd, CopyFrame, ExportPart, FRAME_BYTES_MAX, ImportHead, ImportPart,
};
use umbel_engine::ShardId;
use umbel_engine::meta::FilterName;
use umbel_node::export_change::EXPORT_FILE_MAGIC;
use umbel_proto::v1;

use crate::convert::{export_chunk, shard_ranges};

/// Bytes of the length before each message.
const LENGTH_BYTES: usize = 4;

/// Longest message, in bytes: a frame and the fields around it.
const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX + 1024;

/// Appends a part; before the first part also the magic bytes with which such files begin.
pub(super) fn write_part(part: ExportPart, bytes: &mut Vec<u8>) {
    if matches!(part, ExportPart::Head(_)) {
        bytes.extend(EXPORT_FILE_MAGIC);
    }
    let message = export_chunk(part).encode_to_vec();
    let length = u32::try_from(message.len()).expect("a frame has some megabytes at most");
    bytes.extend(length.to_le_bytes());
    bytes.extend(message);
}

/// The bytes are not a copy of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoCopy;

/// Reads parts from pieces of any size.
#[derive(Default)]
pub(super) struct PartReader {
    /// Bytes that are not a whole part yet.
    rest: BytesMut,
    has_begun: bool,
    has_ended: bool,
}

impl PartReader {
    /// Appends a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// Whether the last part has been read, and nothing follows it.
    pub(super) fn is_complete(&self) -> bool {
        self.has_ended && self.rest.is_empty()
    }

    /// The next part, for a filter of this name; None if more bytes are needed.
    pub(super) fn next(&mut self, name: &FilterName) -> Result<Option<ImportPart>, NoCopy> {
        if self.has_ended {
            if !self.rest.is_empty() {
                return Err(NoCopy);
            }
            // Even empty it holds the memory of the last parts.
            self.rest = BytesMut::new();
            return Ok(None);
        }
        if !self.has_begun {
            let magic = EXPORT_FILE_MAGIC;
            let begins = self.rest.iter().zip(magic).all(|(&got, expected)| got == expected);
            if !begins {
                return Err(NoCopy);
            }
            if self.rest.len() < magic.len() {
                return Ok(None);
            }
            self.rest.advance(magic.len());
            self.has_begun = true;
        }
        let Some(length) = self.rest.first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| NoCopy)?;
        if length > MESSAGE_BYTES_MAX {
            return Err(NoCopy);
        }
        if self.rest.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.rest.advance(LENGTH_BYTES);
        let message = self.rest.split_to(length).freeze();
        self.read(message, name).map(Some)
    }

    fn read(&mut self, message: Bytes, name: &FilterName) -> Result<ImportPart, NoCopy> {
        use v1::export_chunk::Part;
        let chunk = v1::ExportChunk::decode(message).map_err(|_| NoCopy)?;
        Ok(match chunk.part {
            Some(Part::Header(v1::ExportHeader {
                shard_count, shards_founded, settings, ..
            })) => {
                let ranges = shard_ranges(shard_count, shards_founded).map_err(|_| NoCopy)?;
                ImportPart::Head(ImportHead { name: name.clone(), ranges, settings })
            }
            Some(Part::Frame(v1::ExportFrame { shard, frame })) => {
                ImportPart::Frame(CopyFrame { shard: ShardId(shard), frame })
            }
            Some(Part::End(v1::ExportEnd { frame_count, checksum })) => {
                self.has_ended = true;
                ImportPart::End(CopyEnd { frame_count, checksum })
            }
            // Changes are only for clients that have the rest of the export.
            Some(Part::Change(_)) | None => return Err(NoCopy),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> FilterName {
        FilterName::new("copy").unwrap()
    }

    fn parts() -> Vec<ExportPart> {
        let frame = |shard, byte| CopyFrame {
            shard: ShardId(shard),
            frame: Bytes::from(vec![byte; 1000 * usize::from(byte)]),
        };
        vec![
            ExportPart::Frame(frame(0, 3)),
            ExportPart::Frame(frame(1, 0)),
            ExportPart::End(CopyEnd { frame_count: 2, checksum: 7 }),
        ]
    }

    fn written() -> Vec<u8> {
        let mut bytes = EXPORT_FILE_MAGIC.to_vec();
        parts().into_iter().for_each(|part| write_part(part, &mut bytes));
        bytes
    }

    /// Whatever the size of the pieces, the parts are those that were written.
    #[test]
    fn parts_come_back_from_pieces() {
        let bytes = written();
        for piece in [1, 7, 1_000, bytes.len()] {
            let (mut reader, mut read) = (PartReader::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                assert!(!reader.is_complete());
                reader.push(piece);
                while let Some(part) = reader.next(&name()).unwrap() {
                    read.push(part);
                }
            }
            assert!(reader.is_complete());
            let [ImportPart::Frame(first), ImportPart::Frame(_), ImportPart::End(end)] = &read[..]
            else {
                panic!("{read:?}")
            };
            assert_eq!(first.frame, vec![3; 3000]);
            assert_eq!(*end, CopyEnd { frame_count: 2, checksum: 7 });
        }
    }

    #[test]
    fn what_is_no_copy_is_refused_as_soon_as_it_shows() {
        let read = |bytes: &[u8]| {
            let mut reader = PartReader::default();
            reader.push(bytes);
            loop {
                match reader.next(&name()) {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(reader.is_complete()),
                    Err(NoCopy) => return Err(NoCopy),
                }
            }
        };
        let bytes = written();
        assert_eq!(read(&bytes), Ok(true));
        assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(false));
        assert_eq!(read(b""), Ok(false));
        assert_eq!(read(b"UX"), Err(NoCopy));
        let more = [&bytes[..], b"x"].concat();
        assert_eq!(read(&more), Err(NoCopy));
        // The reader does not wait for a message of impossible length.
        assert_eq!(read(b"UMBLEXP1\xff\xff\xff\xff"), Err(NoCopy));
        assert_eq!(read(b"UMBLEXP1\x02\x00\x00\x00\xff\xff"), Err(NoCopy));
        assert_eq!(read(b"UMBLEXP1\x00\x00\x00\x00"), Err(NoCopy));
    }
}
