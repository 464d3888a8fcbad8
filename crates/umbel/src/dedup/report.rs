//! The report of dropped records: which one was dropped for which, in input order, one JSON object a line.

use super::chunks::Chunk;
use super::inputs::Source;
use super::local_pass::ChunkFacts;
use super::sink::Sink;
use super::spill::{GroupWriter, GroupedBytes};
use anyhow::{Context, Result};
use serde::Serialize;
use umbel_engine::dedup::{Keep, Place};

/// Groups of chunks: a group's drops are sorted in memory, so there are many.
const GROUPS_MAX: usize = 1024;

/// Bytes of lines that are worth a write.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes of a pair of places.
const PAIR_BYTES: usize = 16;

/// How many groups the drops of so many chunks are put into.
pub(crate) fn group_count(chunks: usize) -> usize {
    chunks.clamp(1, GROUPS_MAX)
}

fn group_of(place: Place, chunks: usize) -> usize {
    place.chunk() as usize * group_count(chunks) / chunks
}

/// One thread's way to record drops.
pub(crate) struct DropWriter<'a> {
    writer: GroupWriter<'a>,
    chunks: usize,
}

impl<'a> DropWriter<'a> {
    /// A writer for a job with so many chunks.
    pub(crate) fn new(writer: GroupWriter<'a>, chunks: usize) -> Self {
        Self { writer, chunks }
    }

    /// Records a dropped place and the place kept in its stead.
    pub(crate) fn append(&mut self, place: Place, kept: Place) -> Result<()> {
        self.writer.append(group_of(place, self.chunks), |buffer| {
            buffer.extend(place.to_bits().to_le_bytes());
            buffer.extend(kept.to_bits().to_le_bytes());
        })
    }

    /// Hands on what is left.
    pub(crate) fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

/// One line of the report. Parts and scores come with granularities and keep rules that have them.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    record: u64,
    part: Option<u64>,
    kept_file: &'a str,
    kept_record: u64,
    kept_part: Option<u64>,
    cause: &'static str,
    score: Option<f64>,
}

/// Writes the report.
pub(crate) fn write(
    sources: &[Source],
    chunks: &[Chunk],
    facts: &[ChunkFacts],
    store: &GroupedBytes,
    keep: Keep,
    sink: &mut Sink,
) -> Result<()> {
    let records_before = records_before(chunks, facts);
    let name = |place: Place| {
        let chunk = place.chunk() as usize;
        let file = &sources[chunks[chunk].source].name[..];
        (file, records_before[chunk] + place.item() + 1)
    };
    let mut lines = Vec::new();
    for group in 0..store.group_count() {
        let bytes = store.take(group)?;
        let (pairs, _) = bytes.as_chunks::<PAIR_BYTES>();
        let mut pairs: Vec<(Place, Place)> = pairs.iter().map(decode_pair).collect();
        pairs.sort_unstable();
        resolve(&mut pairs, keep);
        for (place, kept) in pairs {
            let (file, record) = name(place);
            let (kept_file, kept_record) = name(kept);
            let (part, kept_part, score) = (None, None, None);
            let cause = "input";
            let line = Line { file, record, part, kept_file, kept_record, kept_part, cause, score };
            serde_json::to_writer(&mut lines, &line).context("report line")?;
            lines.push(b'\n');
            if lines.len() >= WRITE_BYTES {
                sink.write(&lines)?;
                lines.clear();
            }
        }
    }
    sink.write(&lines)
}

/// Makes every pair name the record that stays in the end: one that a near repeat was dropped for may have been dropped
/// itself, and then stands in the same chunk, so in the same group. Every record is dropped for a better one, so from
/// the best to the worst each chain is one step long.
fn resolve(pairs: &mut [(Place, Place)], keep: Keep) {
    for step in 0..pairs.len() {
        let at = if keep == Keep::First { step } else { pairs.len() - 1 - step };
        let kept = pairs[at].1;
        if let Ok(next) = pairs.binary_search_by_key(&kept, |&(dropped, _)| dropped) {
            pairs[at].1 = pairs[next].1;
        }
    }
}

fn decode_pair(pair: &[u8; PAIR_BYTES]) -> (Place, Place) {
    let (first, second) = pair.split_at(8);
    let place =
        |bytes: &[u8]| Place::from_bits(u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    (place(first), place(second))
}

/// For each chunk, how many records of its source lie before it.
pub(crate) fn records_before(chunks: &[Chunk], facts: &[ChunkFacts]) -> Vec<u64> {
    let mut source = usize::MAX;
    let mut records = 0;
    let rows = chunks.iter().zip(facts);
    rows.map(|(chunk, facts)| {
        if chunk.source != source {
            (source, records) = (chunk.source, 0);
        }
        let before = records;
        records += facts.records;
        before
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_near_repeats_end_at_the_record_that_stays() {
        let place = |item| Place::new(0, item);
        let kept_elsewhere = Place::new(9, 9);
        let mut pairs: Vec<_> = (0..1000).map(|item| (place(item), place(item + 1))).collect();
        pairs.push((place(1000), kept_elsewhere));
        resolve(&mut pairs, Keep::Last);
        assert!(pairs.iter().all(|&(_, kept)| kept == kept_elsewhere));
        let mut pairs = vec![(place(1), place(0)), (place(5), place(4)), (place(7), place(5))];
        resolve(&mut pairs, Keep::First);
        assert_eq!(pairs, [(place(1), place(0)), (place(5), place(4)), (place(7), place(4))]);
    }
}
