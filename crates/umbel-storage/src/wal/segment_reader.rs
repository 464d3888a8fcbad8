//! Reads a segment record by record, with a piece of it in memory at a time.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use umbel_ports::File;

use super::format::{Found, RECORD_HEADER_BYTES, SegmentName, body_at, record_at};

/// A segment that is read from its beginning to its end.
pub(super) struct SegmentReader {
    file: Arc<dyn File>,
    byte_count: u32,
    piece_bytes: usize,
    /// Offset of the piece in memory.
    start: u32,
    piece: Bytes,
}

impl SegmentReader {
    /// A reader of a segment of `byte_count` bytes, in pieces of so many bytes. Records that are longer are pieces of
    /// their own.
    pub(super) fn new(file: Arc<dyn File>, byte_count: u32, piece_bytes: usize) -> Self {
        Self { file, byte_count, piece_bytes, start: 0, piece: Bytes::new() }
    }

    /// These bytes of the segment, as far as it has them.
    pub(super) async fn bytes(&mut self, range: Range<u32>) -> io::Result<Bytes> {
        let byte_count = range.end.saturating_sub(range.start) as usize;
        self.load(range.start, byte_count).await?;
        let from = (range.start - self.start) as usize;
        let to = from.saturating_add(byte_count).min(self.piece.len());
        Ok(self.piece.slice(from.min(to)..to))
    }

    /// All bytes of the segment.
    pub(super) async fn whole(&mut self) -> io::Result<Bytes> {
        self.bytes(0..self.byte_count).await
    }

    /// The record at `offset`; None if there is no complete record. The next one comes from the same piece as long as
    /// it lies in it.
    pub(super) async fn record(
        &mut self,
        offset: u32,
        name: SegmentName,
    ) -> io::Result<Option<Found>> {
        self.load(offset, RECORD_HEADER_BYTES).await?;
        if let Some(body) = body_at(&self.piece, self.start, offset) {
            self.load(offset, RECORD_HEADER_BYTES + body.len()).await?;
        }
        Ok(record_at(&self.piece, self.start, offset, name))
    }

    /// Has so many bytes from `offset` on in memory, as far as the segment has them.
    async fn load(&mut self, offset: u32, byte_count: usize) -> io::Result<()> {
        let end = (u64::from(offset) + byte_count as u64).min(self.byte_count.into());
        let is_loaded =
            self.start <= offset && end <= u64::from(self.start) + self.piece.len() as u64;
        if !is_loaded {
            // Its memory is for the next one.
            self.piece = Bytes::new();
            let byte_count = byte_count.max(self.piece_bytes);
            self.piece = self.file.read_at(offset.into(), byte_count).await?;
            self.start = offset;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use umbel_engine::GroupId;
    use umbel_ports::Disk;

    use super::super::format::{Record, SEGMENT_HEADER_BYTES};
    use super::*;
    use crate::testing::{FaultDisk, id};

    const NAME: SegmentName = SegmentName { nonce: 9, number: 3 };
    const FIRST_OFFSET: u32 = 32;

    /// A segment with records of many lengths.
    fn segment() -> (Vec<Record>, BytesMut) {
        let entry = |(index, byte_count): (u64, usize)| {
            Record::Entry(GroupId::META, id(1, index), Bytes::from(vec![7; byte_count]))
        };
        let lengths = [0, 1, 70, 3000, 5, 64, 1000, 0, 2];
        let records: Vec<Record> = (1..).zip(lengths).map(entry).collect();
        let mut bytes = BytesMut::zeroed(SEGMENT_HEADER_BYTES);
        for record in &records {
            let offset = u32::try_from(bytes.len()).unwrap();
            record.put(&mut bytes, NAME, offset, 0);
        }
        (records, bytes)
    }

    async fn reader_of(bytes: &[u8], piece_bytes: usize) -> SegmentReader {
        let disk = FaultDisk::new();
        disk.put("segment", bytes);
        let file = disk.open("segment", false).await.unwrap();
        SegmentReader::new(file, u32::try_from(bytes.len()).unwrap(), piece_bytes)
    }

    #[tokio::test]
    async fn records_are_read_whole_wherever_pieces_end() {
        let (records, bytes) = segment();
        for piece_bytes in [1, 12, 13, 64, 100, 1500, 1 << 20] {
            let mut reader = reader_of(&bytes, piece_bytes).await;
            let (mut read, mut offset) = (Vec::new(), FIRST_OFFSET);
            while let Some(found) = reader.record(offset, NAME).await.unwrap() {
                let record_bytes = (found.end - offset) as usize;
                assert!(reader.piece.len() <= piece_bytes.max(record_bytes));
                read.extend(Record::decode(&found.body));
                offset = found.end;
            }
            assert_eq!((&read, offset as usize), (&records, bytes.len()), "{piece_bytes}");
        }
    }

    #[tokio::test]
    async fn records_end_where_one_is_damaged_or_cut() {
        let (records, bytes) = segment();
        let long = 3;
        let before = &records[..long];
        let start: usize =
            SEGMENT_HEADER_BYTES + before.iter().map(Record::byte_count).sum::<usize>();
        let mut damaged = bytes.clone();
        damaged[start + 2000] ^= 1;
        let mut too_long = bytes.clone();
        too_long[start + 3] = 0xff;
        let cut = BytesMut::from(&bytes[..start + 2000]);
        for bytes in [damaged, too_long, cut] {
            let mut reader = reader_of(&bytes, 100).await;
            let (mut count, mut offset) = (0, FIRST_OFFSET);
            while let Some(found) = reader.record(offset, NAME).await.unwrap() {
                (count, offset) = (count + 1, found.end);
            }
            assert_eq!((count, offset as usize), (long, start));
        }
    }

    #[tokio::test]
    async fn bytes_come_from_anywhere_and_end_with_the_segment() {
        let (_, bytes) = segment();
        let end = u32::try_from(bytes.len()).unwrap();
        let mut reader = reader_of(&bytes, 100).await;
        for (from, to) in [(0, 32), (500, 520), (10, 3000), (end - 5, end), (end, end), (0, end)] {
            let read = reader.bytes(from..to).await.unwrap();
            assert_eq!(read, bytes[from as usize..to as usize], "{from}..{to}");
        }
        assert_eq!(reader.bytes(end - 5..end + 5).await.unwrap(), bytes[end as usize - 5..]);
        assert_eq!(reader.whole().await.unwrap(), bytes);
    }
}
