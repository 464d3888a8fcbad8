//! Pieces of a filter that is being loaded, and the parts of an import that they complete.

use umbel_coordinator::transfers::{CopyEnd, CopyFrame, ImportHead, ImportPart, one_shard};
use umbel_engine::ShardId;
use umbel_engine::meta::FilterName;
use umbel_filter::Kind;
use umbel_resp::Refusal;

use super::dump_bytes::{NoCopy, PartReader};
use crate::redis_bloom_dump::{DumpPieceError, DumpReader};

/// Bits of an iterator for the number of the piece: 2^20 pieces are 384 GiB.
pub(super) const PIECE_NUMBER_BITS: u32 = 20;

/// The iterator of the header of RedisBloom's dumps.
pub(super) const HEADER_ITERATOR: i64 = 1;

/// The format of the arriving pieces.
pub(super) enum Coming {
    /// Umbel's own.
    Parts {
        reader: PartReader,
        /// The number of the last piece that was taken.
        last: u64,
        /// Whether the filter must be of a kind that tells copies, as those of `CF.*`.
        is_cuckoo: bool,
    },
    /// RedisBloom's.
    Chain(Box<DumpReader>),
}

/// The number of the copy and the number of the piece.
pub(super) fn split(iterator: i64) -> Option<(u64, u64)> {
    let iterator = u64::try_from(iterator).ok()?;
    let number = iterator & ((1 << PIECE_NUMBER_BITS) - 1);
    (number > 0).then_some((iterator >> PIECE_NUMBER_BITS, number))
}

impl Coming {
    /// The parts that a piece completes, and whether all have arrived. A piece that was taken before completes
    /// none.
    pub(super) fn take(
        &mut self,
        name: &FilterName,
        iterator: i64,
        data: &[u8],
    ) -> Result<(Vec<ImportPart>, bool), Refusal> {
        match self {
            Self::Chain(reader) => take_of_chain(reader, name, iterator, data),
            Self::Parts { reader, last, is_cuckoo } => {
                let (_, number) = split(iterator).ok_or(Refusal::BadData)?;
                if number == *last {
                    return Ok((Vec::new(), reader.is_complete()));
                }
                if number != *last + 1 {
                    return Err(Refusal::BadData);
                }
                reader.push(data);
                *last = number;
                let mut parts = Vec::new();
                while let Some(part) = reader.next(name).map_err(|NoCopy| Refusal::BadData)? {
                    if let ImportPart::Head(head) = &part
                        && *is_cuckoo
                        && !head.kind().is_some_and(Kind::tells_copies)
                    {
                        return Err(Refusal::BadData);
                    }
                    parts.push(part);
                }
                Ok((parts, reader.is_complete()))
            }
        }
    }
}

/// The parts that one of RedisBloom's pieces completes: the settings for the header, and for the last
/// piece also the end.
fn take_of_chain(
    reader: &mut DumpReader,
    name: &FilterName,
    iterator: i64,
    data: &[u8],
) -> Result<(Vec<ImportPart>, bool), Refusal> {
    if iterator == HEADER_ITERATOR && !data.is_empty() {
        let (name, settings) = (name.clone(), reader.settings());
        let head = ImportHead { name, ranges: one_shard(), settings };
        return Ok((vec![ImportPart::Head(head)], false));
    }
    let frames = reader.push(iterator, data).map_err(|error| match error {
        DumpPieceError::NoLink { .. } => {
            Refusal::Other("ERR invalid offset - no link found".into())
        }
        DumpPieceError::TooLarge { .. } => {
            Refusal::Other("ERR invalid chunk - Too big for current filter".into())
        }
        _ => Refusal::BadData,
    })?;
    let frame = |frame| ImportPart::Frame(CopyFrame { shard: ShardId(0), frame });
    let mut parts: Vec<ImportPart> = frames.into_iter().map(frame).collect();
    let is_complete = reader.is_complete();
    if is_complete {
        let (frame_count, checksum) = reader.end();
        parts.push(ImportPart::End(CopyEnd { frame_count, checksum }));
    }
    Ok((parts, is_complete))
}
