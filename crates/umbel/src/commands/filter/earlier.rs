//! Incremental exports: what the cluster leaves out is taken from the file of an earlier export.

use crate::commands::cluster::chunk_file::{self, ChunkReader};
use anyhow::{Result, anyhow};
use std::path::{Path, PathBuf};
use umbel_client::proto::export_chunk::Part;
use umbel_client::proto::{ExportChange, ExportChunk, ExportFrame, KnownFrames};
use umbel_node::export_change::{DIGEST_BYTES, FrameChange, piece_digests};

/// Most bytes of digests in the request: a message has at most 17 MiB. These are the digests of 8 GiB;
/// frames beyond are transferred completely.
const DIGESTS_BYTES_MAX: usize = 16 << 20;

/// The digests of the frames of an earlier export, by shard. The whole file is checked.
///
/// # Errors
///
/// If the file is damaged or no export.
pub(super) fn known(path: &Path) -> Result<Vec<KnownFrames>> {
    let mut reader = ChunkReader::<ExportChunk>::open(path, None)?;
    let mut known: Vec<(u32, Vec<u32>, Vec<u8>)> = Vec::new();
    let mut room_bytes = DIGESTS_BYTES_MAX;
    while let Some(ExportChunk { part }) = reader.next()? {
        let Some(Part::Frame(ExportFrame { shard, frame })) = part else { continue };
        if room_bytes == 0 {
            continue;
        }
        let of_frame = piece_digests(&frame);
        room_bytes = room_bytes.saturating_sub(of_frame.len());
        if known.last().is_none_or(|(last, ..)| *last != shard) {
            known.push((shard, Vec::new(), Vec::new()));
        }
        if let Some((_, piece_counts, digests)) = known.last_mut() {
            piece_counts.push(u32::try_from(of_frame.len() / DIGEST_BYTES)?);
            digests.extend(of_frame);
        }
    }
    let named = known.into_iter().map(|(shard, piece_counts, digests)| KnownFrames {
        shard,
        piece_counts,
        digests: digests.into(),
    });
    Ok(named.collect())
}

/// Completes the new export with the frames of an earlier one, which is read in parallel.
pub(super) struct Frames {
    path: PathBuf,
    reader: ChunkReader<ExportChunk>,
    /// The place of the frame that was read last: its shard, and its number within the shard.
    at: Option<(u32, u64)>,
    /// That frame, until it is used.
    ahead: Option<ExportFrame>,
    /// The place of the next frame of the new export.
    next: (u32, u64),
    /// Count and checksum of what the cluster sent.
    received: chunk_file::Frames,
    /// Count and checksum of what is written to the new file.
    written: chunk_file::Frames,
}

impl Frames {
    /// Opens the file of the earlier export.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no export.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            reader: ChunkReader::open(path, None)?,
            at: None,
            ahead: None,
            next: (0, 0),
            received: chunk_file::Frames::default(),
            written: chunk_file::Frames::default(),
        })
    }

    /// Turns a received chunk into the chunk for the new file.
    ///
    /// # Errors
    ///
    /// If the earlier file lacks what the cluster left out, or the received count or checksum does not
    /// match.
    pub(super) fn completed(&mut self, chunk: ExportChunk) -> Result<ExportChunk> {
        let part = match chunk.part {
            Some(Part::Change(ExportChange { shard, byte_count, kept, others })) => {
                self.received.add(&others);
                let place = self.place(shard);
                let earlier = self.frame_at(place)?.unwrap_or_default();
                let change = FrameChange { byte_count, kept, others };
                let frame = change.put_together(&earlier).map_err(|error| {
                    let (shard, number) = place;
                    let path = self.path.display();
                    anyhow!("{path}: frame {number} of shard {shard}: {error}")
                })?;
                self.written.add(&frame);
                Some(Part::Frame(ExportFrame { shard, frame: frame.into() }))
            }
            Some(Part::Frame(frame)) => {
                self.received.add(&frame.frame);
                self.written.add(&frame.frame);
                self.place(frame.shard);
                Some(Part::Frame(frame))
            }
            Some(Part::End(end)) => {
                let compared = self.received.compare(end.frame_count, end.checksum);
                compared.map_err(|error| anyhow!("the cluster sent a wrong export: {error}"))?;
                Some(Part::End(self.written.end()))
            }
            other => other,
        };
        Ok(ExportChunk { part })
    }

    /// The place of the next received frame, given its shard.
    fn place(&mut self, shard: u32) -> (u32, u64) {
        let place = if self.next.0 == shard { self.next } else { (shard, 0) };
        self.next = (shard, place.1 + 1);
        place
    }

    /// The earlier frame at a place; None if there is none. Shards come in the order of their ranges, which
    /// is not that of their numbers. Both exports have the same order, and the file is read once, unless
    /// their clusters were founded with different numbers of shards: then it is read again from its
    /// beginning for a shard that lies before.
    fn frame_at(&mut self, place: (u32, u64)) -> Result<Option<Vec<u8>>> {
        let mut is_read_again = false;
        while self.at != Some(place) {
            let Some(ExportChunk { part }) = self.reader.next()? else {
                if is_read_again {
                    return Ok(None);
                }
                is_read_again = true;
                self.reader = ChunkReader::open(&self.path, None)?;
                self.at = None;
                continue;
            };
            let Some(Part::Frame(frame)) = part else { continue };
            let number = match self.at {
                Some((shard, number)) if shard == frame.shard => number + 1,
                _ => 0,
            };
            self.at = Some((frame.shard, number));
            self.ahead = Some(frame);
        }
        Ok(self.ahead.take().map(|frame| frame.frame.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cluster::chunk_file::ChunkWriter;
    use bytes::Bytes;
    use umbel_client::proto::ExportHeader;

    /// Two frames of each of three shards, in the order that a cluster has that was founded with one.
    const PLACES: [(u32, u64); 6] = [(0, 0), (0, 1), (2, 0), (2, 1), (1, 0), (1, 1)];

    fn frame((shard, number): (u32, u64)) -> Vec<u8> {
        format!("frame {number} of shard {shard}").into_bytes()
    }

    fn write_export(path: &Path) {
        let mut sum = chunk_file::Frames::default();
        let mut parts = vec![Part::Header(ExportHeader::default())];
        for place in PLACES {
            sum.add(&frame(place));
            parts.push(Part::Frame(ExportFrame { shard: place.0, frame: frame(place).into() }));
        }
        parts.push(Part::End(sum.end()));
        let mut file = ChunkWriter::create(path, false, None).unwrap();
        for part in parts {
            file.write(&ExportChunk { part: Some(part) }).unwrap();
        }
        file.finish().unwrap();
    }

    /// The frame that is written for one whose only piece is known.
    fn completed(frames: &mut Frames, place: (u32, u64)) -> Result<ExportChunk> {
        let byte_count = u32::try_from(frame(place).len()).unwrap();
        let (kept, others) = (Bytes::from_static(&[1]), Bytes::new());
        let change = ExportChange { shard: place.0, byte_count, kept, others };
        frames.completed(ExportChunk { part: Some(Part::Change(change)) })
    }

    fn assert_completed(frames: &mut Frames, place: (u32, u64)) {
        let expected = ExportFrame { shard: place.0, frame: frame(place).into() };
        let chunk = completed(frames, place).unwrap();
        assert_eq!(chunk.part, Some(Part::Frame(expected)));
    }

    #[test]
    fn shards_come_in_the_order_of_their_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        write_export(&path);
        let mut frames = Frames::open(&path).unwrap();
        for place in PLACES {
            assert_completed(&mut frames, place);
        }
        // A frame that the cluster sent as a whole is passed over.
        let mut frames = Frames::open(&path).unwrap();
        let whole = ExportFrame { shard: 2, frame: Bytes::from_static(b"new") };
        frames.completed(ExportChunk { part: Some(Part::Frame(whole)) }).unwrap();
        assert_completed(&mut frames, (2, 1));
        // The cluster never leaves out what the file does not have.
        let error = completed(&mut frames, (3, 0)).unwrap_err().to_string();
        let expected = format!("{}: frame 0 of shard 3", path.display());
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn a_cluster_that_was_founded_otherwise_has_another_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        write_export(&path);
        let mut frames = Frames::open(&path).unwrap();
        for place in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
            assert_completed(&mut frames, place);
        }
    }
}
