//! Reads entries: the newest from memory, older ones from the segments.

use std::io;
use std::sync::Arc;

use openraft::storage::LogState;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::File;
use umbel_ports::encoding::decode;

use super::Wal;
use super::chain::Chain;
use super::format::{Record, SegmentName, record_at, segment_path};
use super::state::{Location, Plan};
use crate::types::{LogEntry, LogId, Types, Vote};
use crate::wrapping;

/// Most bytes of adjacent records that are read with one call.
const RUN_BYTES_MAX: u32 = 4 << 20;

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
            let (run, behind) = rest.split_at(run_length(rest));
            self.read_run(group, run, &mut entries).await?;
            rest = behind;
        }
        entries.extend(cached);
        Ok((vote, entries))
    }

    /// Reads adjacent records.
    async fn read_run(
        &self,
        group: GroupId,
        run: &[Stored],
        entries: &mut Vec<LogEntry>,
    ) -> io::Result<()> {
        let [(_, first, file), ..] = run else { return Ok(()) };
        let byte_count: usize = run.iter().map(|(_, place, _)| place.byte_count as usize).sum();
        let bytes = file.read_at(u64::from(first.offset), byte_count).await?;
        let name = SegmentName { nonce: self.nonce, number: first.segment };
        for (id, place, _) in run {
            let record = record_at(&bytes, first.offset, place.offset, name)
                .and_then(|found| Record::decode(&found.body));
            let entry = match record {
                Some(Record::Entry(of, found, bytes)) if (of, found) == (group, *id) => {
                    wrapping::entry_in(self.wrapping.as_deref(), (group, *id), bytes).and_then(
                        |bytes| decode::<LogEntry>(&bytes).map_err(|error| error.to_string()),
                    )
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

/// How many of the first records are adjacent, within the limit of one read.
fn run_length(stored: &[Stored]) -> usize {
    let mut byte_count = 0_u32;
    let mut end = None;
    let follows = |(_, place, _): &&Stored| {
        byte_count = byte_count.saturating_add(place.byte_count);
        let fits = match end {
            None => true,
            Some(end) => end == (place.segment, place.offset) && byte_count <= RUN_BYTES_MAX,
        };
        end = Some((place.segment, place.offset + place.byte_count));
        fits
    };
    stored.iter().take_while(follows).count()
}
