//! Reads entries: the newest from memory, older ones from the segments.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use openraft::storage::LogState;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::File;
use umbel_ports::encoding::decode;

use super::Wal;
use super::chain::Chain;
use super::format::{Record, SegmentName, record_at, segment_path};
use super::members::Voters;
use super::state::{Location, Plan};
use crate::types::{LogEntry, LogId, Types, Vote};
use crate::wrapping;

type Stored = (LogId, Location, Arc<dyn File>);

impl Wal {
    pub(crate) fn log_state(&self, group: GroupId) -> LogState<Types> {
        let state = self.state();
        let chain = state.fronts.get(&group).map(|front| &front.chain);
        LogState {
            last_purged_log_id: chain.and_then(Chain::purged),
            last_log_id: chain.and_then(Chain::last),
        }
    }

    pub(crate) fn vote(&self, group: GroupId) -> Option<Vote> {
        self.state().vote(group)
    }

    pub(crate) fn committed(&self, group: GroupId) -> Option<LogId> {
        self.state().fronts.get(&group)?.committed
    }

    pub(crate) fn last_proposed_by(&self, group: GroupId, node: NodeId) -> Option<LogId> {
        self.state().fronts.get(&group)?.chain.last_proposed_by(node)
    }

    /// The entries that name the group's members, the oldest first.
    pub(crate) fn member_entries(&self, group: GroupId) -> Vec<(LogId, Voters)> {
        let state = self.state();
        let front = state.fronts.get(&group);
        front.map_or_else(Vec::new, |front| state.members.of(group, &front.chain))
    }

    pub(crate) fn key_log_ids(&self, group: GroupId, from: u64, to: u64) -> Vec<LogId> {
        let state = self.state();
        state.fronts.get(&group).map_or_else(Vec::new, |front| front.chain.key_log_ids(from, to))
    }

    /// Existing entries from `from` and before `to`, up to about `bytes_max` bytes but at least one;
    /// and the group's vote at the same moment.
    pub(crate) async fn read(
        &self,
        group: GroupId,
        from: u64,
        to: u64,
        bytes_max: u64,
    ) -> io::Result<(Option<Vote>, Vec<LogEntry>)> {
        let Plan { vote, stored, cached } = self.state().plan(group, from, to, bytes_max);
        if stored.is_empty() {
            return Ok((vote, cached));
        }
        let mut entries = Vec::with_capacity(stored.len() + cached.len());
        let mut rest = &stored[..];
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at(batch_length(rest, self.read_bytes_max));
            self.read_batch(group, batch, &mut entries).await?;
            rest = behind;
        }
        entries.extend(cached);
        Ok((vote, entries))
    }

    /// Reads records of one segment. Records of other groups are between them, mostly.
    async fn read_batch(
        &self,
        group: GroupId,
        batch: &[Stored],
        entries: &mut Vec<LogEntry>,
    ) -> io::Result<()> {
        let [(_, Location { segment, .. }, file), ..] = batch else { return Ok(()) };
        let name = SegmentName { nonce: self.nonce, number: *segment };
        let pieces = runs_of(batch).map(piece_of).collect();
        for (run, bytes) in runs_of(batch).zip(file.read_pieces(pieces).await?) {
            self.decode_run(group, run, (&bytes, name), entries)?;
        }
        Ok(())
    }

    /// Decodes adjacent records from their bytes.
    fn decode_run(
        &self,
        group: GroupId,
        run: &[Stored],
        (bytes, name): (&Bytes, SegmentName),
        entries: &mut Vec<LogEntry>,
    ) -> io::Result<()> {
        let start = run.first().map_or(0, |(_, first, _)| first.offset);
        for (id, place, _) in run {
            let record = record_at(bytes, start, place.offset, name)
                .and_then(|found| Record::decode(&found.body));
            let entry = match record {
                Some(Record::Entry(of, found, bytes)) if (of, found) == (group, *id) => {
                    wrapping::entry_in(self.wrapping.as_deref(), (group, *id), bytes)
                        .and_then(|bytes| entry_of(&bytes))
                }
                _ => Err("damaged".to_owned()),
            };
            entries.push(entry.map_err(|what| {
                let path = segment_path(place.segment);
                let message = format!(
                    "{path}: record of {} bytes at offset {}, entry {id} of {group}: {what}",
                    place.byte_count, place.offset
                );
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?);
        }
        Ok(())
    }
}

/// Decodes an entry whose record is whole: if this release does not know it, it is not damaged.
fn entry_of(bytes: &[u8]) -> Result<LogEntry, String> {
    let newer = "a newer release wrote it: start that one with this folder";
    decode(bytes).map_err(|error| format!("{error}; {newer}"))
}

/// How many of the first records are in one segment, within the limit of one read or only one.
fn batch_length(stored: &[Stored], bytes_max: u32) -> usize {
    let segment = stored.first().map(|(_, place, _)| place.segment);
    let mut byte_count = 0_u32;
    let fits = |(number, (_, place, _)): &(usize, &Stored)| {
        byte_count = byte_count.saturating_add(place.byte_count);
        Some(place.segment) == segment && (*number == 0 || byte_count <= bytes_max)
    };
    stored.iter().enumerate().take_while(fits).count()
}

/// The records in runs of adjacent ones.
fn runs_of(batch: &[Stored]) -> impl Iterator<Item = &[Stored]> {
    batch.chunk_by(|(_, one, _), (_, next, _)| one.end() == next.offset)
}

/// Offset and number of bytes of adjacent records.
fn piece_of(run: &[Stored]) -> (u64, usize) {
    let offset = run.first().map_or(0, |(_, first, _)| u64::from(first.offset));
    (offset, run.iter().map(|(_, place, _)| place.byte_count as usize).sum())
}

#[cfg(test)]
mod tests {
    use umbel_ports::Disk;

    use super::*;
    use crate::testing::{FaultDisk, id};

    /// Bytes that are read with one call.
    const LIMIT: u32 = 1000;

    #[tokio::test]
    async fn records_of_a_segment_are_read_with_one_call_up_to_a_limit() {
        let file = FaultDisk::new().open("segment", true).await.unwrap();
        let stored = |(segment, offset, byte_count)| {
            (id(1, 1), Location { segment, offset, byte_count }, Arc::clone(&file))
        };
        let batch = |places: &[(u32, u32, u32)]| {
            let stored: Vec<Stored> = places.iter().copied().map(stored).collect();
            let batch = &stored[..batch_length(&stored, LIMIT)];
            runs_of(batch).map(piece_of).collect::<Vec<_>>()
        };
        // Two adjacent ones, one behind those of other groups, and one of the next segment.
        let places = [(1, 32, 10), (1, 42, 8), (1, 100, 5), (2, 105, 9)];
        assert_eq!(batch(&places), [(32, 18), (100, 5)]);
        let long = LIMIT - 5;
        let limit = LIMIT as usize;
        assert_eq!(batch(&[(1, 32, long), (1, 32 + long, 5), (1, 37 + long, 5)]), [(32, limit)]);
        assert_eq!(batch(&[(1, 32, long), (1, 40 + long, 6)]), [(32, long as usize)]);
        assert_eq!(batch(&[(1, 32, 2 * long), (1, 40 + 2 * long, 1)]), [(32, 2 * long as usize)]);
    }

    #[test]
    fn an_entry_that_is_unknown_names_the_release_to_start() {
        let error = entry_of(&[u8::MAX]).unwrap_err();
        assert!(
            error.ends_with("; a newer release wrote it: start that one with this folder"),
            "{error}"
        );
    }
}
