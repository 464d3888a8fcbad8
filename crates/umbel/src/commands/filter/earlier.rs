//! Exports since an earlier one: what the cluster leaves out stands in that one's file.

use crate::commands::cluster::chunk_file::{self, ChunkReader};
use anyhow::{Result, anyhow};
use std::path::Path;
use umbel_client::proto::export_chunk::Part;
use umbel_client::proto::{ExportChange, ExportChunk, ExportFrame, KnownFrames};

/// Bytes of the pieces that frames are compared by.
const PIECE_BYTES: usize = 4096;

/// Bytes of a piece's digest.
const DIGEST_BYTES: usize = 8;

/// Most bytes of digests that are sent: a message has at most 17 MiB. They are those of 8 GiB; what lies behind
/// travels whole.
const DIGESTS_BYTES_MAX: usize = 16 << 20;

/// Names the frames of an export, by their shards. The whole file is checked.
///
/// # Errors
///
/// If it is damaged or no export.
pub(super) fn known(path: &Path) -> Result<Vec<KnownFrames>> {
    let mut reader = ChunkReader::<ExportChunk>::open(path, None)?;
    let mut known: Vec<(u32, Vec<u32>, Vec<u8>)> = Vec::new();
    let mut room_bytes = DIGESTS_BYTES_MAX;
    while let Some(ExportChunk { part }) = reader.next()? {
        let Some(Part::Frame(ExportFrame { shard, frame })) = part else { continue };
        let piece_count = frame.len().div_ceil(PIECE_BYTES);
        room_bytes = room_bytes.saturating_sub(DIGEST_BYTES * piece_count);
        if room_bytes == 0 {
            continue;
        }
        if known.last().is_none_or(|(last, ..)| *last != shard) {
            known.push((shard, Vec::new(), Vec::new()));
        }
        if let Some((_, piece_counts, digests)) = known.last_mut() {
            piece_counts.push(u32::try_from(piece_count)?);
            digests.extend(frame.chunks(PIECE_BYTES).flat_map(digest_of));
        }
    }
    let named = known.into_iter().map(|(shard, piece_counts, digests)| KnownFrames {
        shard,
        piece_counts,
        digests: digests.into(),
    });
    Ok(named.collect())
}

fn digest_of(piece: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&blake3::hash(piece).as_bytes()[..DIGEST_BYTES]);
    digest
}

/// The frames of an earlier export, read along with the new one.
pub(super) struct Frames {
    name: String,
    reader: ChunkReader<ExportChunk>,
    /// The place of the frame that was read last: its shard, and its number in that.
    at: Option<(u32, u64)>,
    /// That frame, if nobody has asked for it yet.
    ahead: Option<ExportFrame>,
    /// The place of the next frame of the new export.
    next: (u32, u64),
    /// What came.
    received: chunk_file::Frames,
    /// What the new file has.
    written: chunk_file::Frames,
}

impl Frames {
    /// Opens the file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no export.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            name: path.display().to_string(),
            reader: ChunkReader::open(path, None)?,
            at: None,
            ahead: None,
            next: (0, 0),
            received: chunk_file::Frames::default(),
            written: chunk_file::Frames::default(),
        })
    }

    /// A chunk as it stands in the new file.
    ///
    /// # Errors
    ///
    /// If what was left out is not in the earlier file, or what came does not add up.
    pub(super) fn completed(&mut self, chunk: ExportChunk) -> Result<ExportChunk> {
        let part = match chunk.part {
            Some(Part::Change(change)) => {
                self.received.add(&change.others);
                let shard = change.shard;
                let place = self.place(shard);
                let base = self.frame_at(place)?.unwrap_or_default();
                let frame = put_together(&base, &change).map_err(|said| {
                    let (shard, number) = place;
                    anyhow!("{}: frame {number} of shard {shard}: {said}", self.name)
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
                compared.map_err(|said| anyhow!("the cluster sent a wrong export: {said}"))?;
                Some(Part::End(self.written.end()))
            }
            other => other,
        };
        Ok(ExportChunk { part })
    }

    /// The place of a frame that came, of this shard.
    fn place(&mut self, shard: u32) -> (u32, u64) {
        let place = if self.next.0 == shard { self.next } else { (shard, 0) };
        self.next = (shard, place.1 + 1);
        place
    }

    /// The earlier frame of a place; None if there was none. Places are asked for in rising order.
    fn frame_at(&mut self, place: (u32, u64)) -> Result<Option<Vec<u8>>> {
        while self.at.is_none_or(|at| at < place) {
            let Some(ExportChunk { part }) = self.reader.next()? else { return Ok(None) };
            let Some(Part::Frame(frame)) = part else { continue };
            let number = match self.at {
                Some((shard, number)) if shard == frame.shard => number + 1,
                _ => 0,
            };
            self.at = Some((frame.shard, number));
            self.ahead = Some(frame);
        }
        let is_there = self.at == Some(place);
        Ok(if is_there { self.ahead.take().map(|frame| frame.frame.to_vec()) } else { None })
    }
}

/// The frame that differs so from an earlier one.
fn put_together(base: &[u8], change: &ExportChange) -> Result<Vec<u8>, String> {
    let byte_count = usize::try_from(change.byte_count).unwrap_or(usize::MAX);
    let mut others = &change.others[..];
    let (mut frame, mut start) = (Vec::new(), 0);
    while start < byte_count {
        let (at, length) = (start / PIECE_BYTES, PIECE_BYTES.min(byte_count - start));
        let is_kept = change.kept.get(at / 8).is_some_and(|bits| bits >> (at % 8) & 1 == 1);
        let piece = match is_kept {
            true => base.get(start..start + length),
            false => others.split_off(..length),
        };
        let lacking = if is_kept { "this file" } else { "what the cluster sent" };
        frame.extend_from_slice(piece.ok_or_else(|| format!("{lacking} lacks piece {at}"))?);
        start += length;
    }
    if others.is_empty() { Ok(frame) } else { Err("the cluster sent too much".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_from_the_earlier_frame_and_from_the_change() {
        let base = vec![1; 2 * PIECE_BYTES + 5];
        let others = [vec![2; PIECE_BYTES], vec![3; 2]].concat();
        let byte_count = u32::try_from(2 * PIECE_BYTES + 2).unwrap();
        let change = |kept: u8, others: &[u8]| ExportChange {
            shard: 0,
            byte_count,
            kept: vec![kept].into(),
            others: others.to_vec().into(),
        };
        let frame = put_together(&base, &change(0b010, &others)).unwrap();
        let expected = [vec![2; PIECE_BYTES], vec![1; PIECE_BYTES], vec![3; 2]].concat();
        assert_eq!(frame, expected);
        for (kept, others, said) in [
            (0b010, &others[1..], "what the cluster sent lacks piece 2"),
            (0b110, &others[..], "the cluster sent too much"),
            (0b000, &others[..], "what the cluster sent lacks piece 1"),
        ] {
            assert_eq!(put_together(&base, &change(kept, others)), Err(said.to_owned()));
        }
        let lacking = put_together(&base[..PIECE_BYTES], &change(0b010, &others));
        assert_eq!(lacking, Err("this file lacks piece 1".to_owned()));
        // A size that no message has makes nothing large.
        let absurd = ExportChange { byte_count: u32::MAX, ..change(0, &[]) };
        assert!(put_together(&base, &absurd).is_err());
    }
}
