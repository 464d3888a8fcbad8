//! `umbel cluster restore`: creates the filters of a backup.

use super::chunk_file::{ChunkReader, stream};
use crate::printer::print;
use anyhow::{Context, Error, Result, anyhow, bail};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use umbel_client::proto::backup_chunk::Part;
use umbel_client::proto::{BackupChunk, BackupHeader, ShardStatus};
use umbel_client::{Applied, Client, ClientError};
use umbel_engine::ShardId;
use umbel_engine::meta::{Distribution, FilterSettings};
use umbel_engine::placement::ShardRanges;
use umbel_ports::WrappingKey;
use umbel_ports::encoding::decode;

/// What a backup holds, without the frames.
#[derive(Default)]
pub(super) struct Contents {
    /// The names of its filters.
    names: Vec<String>,
    /// How the shards of its cluster were cut; None if this release cannot tell.
    ranges: Option<ShardRanges>,
    /// The first filter that is cut as those shards are.
    cut: Option<String>,
}

impl Contents {
    /// Reads and checks the whole file.
    ///
    /// # Errors
    ///
    /// As [`ChunkReader::open`] and [`ChunkReader::next`].
    pub(super) fn read(file: &Path, key: Option<Arc<WrappingKey>>) -> Result<Self> {
        let mut reader = ChunkReader::<BackupChunk>::open(file, key)?;
        let mut contents = Self::default();
        while let Some(chunk) = reader.next()? {
            match chunk.part {
                Some(Part::Header(header)) => contents.ranges = ranges_of(&header),
                Some(Part::Filter(filter)) => contents.add(filter.name, &filter.settings),
                _ => {}
            }
        }
        Ok(contents)
    }

    /// Adds a filter. What this release cannot read of its settings, the node may know.
    fn add(&mut self, name: String, settings: &[u8]) {
        let settings = decode::<FilterSettings>(settings).ok();
        if self.cut.is_none() && settings.is_some_and(|settings| is_cut(&settings)) {
            self.cut = Some(name.clone());
        }
        self.names.push(name);
    }

    /// Refuses a backup with a filter that does not fit these shards: the cluster would refuse that one alone, after
    /// it had created those before it.
    fn check_fit(&self, ours: ShardRanges) -> Result<()> {
        let (Some(theirs), Some(name)) = (self.ranges, &self.cut) else { return Ok(()) };
        let fits = ours.check_copy(theirs);
        fits.map_err(|error| {
            anyhow!("nothing was restored: filter {name:?} of the backup: {error}")
        })
    }
}

/// Whether the slices of a filter are those of the shards; a filter that lies in one shard fits any cluster.
fn is_cut(settings: &FilterSettings) -> bool {
    settings.distribution == Distribution::Partitioned && settings.shape.place().is_none()
}

fn ranges_of(header: &BackupHeader) -> Option<ShardRanges> {
    let count = header.shard_count;
    let founded = if header.shards_founded == 0 { count } else { header.shards_founded };
    ShardRanges::new(founded, count).ok()
}

/// How the shards that a status lists are cut; None if that cannot be told, as while one is split. Of the numbers of
/// shards at first that give these ranges it is the greatest: two shards that nobody has split are two, not one that was.
fn ranges_of_status(shards: &[ShardStatus]) -> Option<ShardRanges> {
    let count = u32::try_from(shards.len()).ok()?;
    let is_cut_so = |ranges: &ShardRanges| {
        shards.iter().all(|shard| {
            let range = ranges.range(ShardId(shard.shard));
            range.is_some_and(|range| range.start() == shard.range_start)
        })
    };
    (1..=count).rev().filter_map(|founded| ShardRanges::new(founded, count).ok()).find(is_cut_so)
}

/// Restores the filters of a backup file, which has these contents.
///
/// # Errors
///
/// If the cluster refuses a filter, or its name is taken, or the file or the cluster fails.
pub(super) async fn restore(
    client: &Client,
    contents: &Contents,
    (file, key): (&Path, Option<Arc<WrappingKey>>),
    json: bool,
) -> Result<()> {
    match client.status().await {
        Ok(status) => {
            ranges_of_status(&status.shards).map_or(Ok(()), |ours| contents.check_fit(ours))?;
        }
        // Whoever may restore need not be allowed to see the status. The node checks again.
        Err(ClientError::Refused(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let (chunks, reading) = stream(file, key, |chunk: BackupChunk| chunk)?;
    let outcome = client.restore(chunks).await;
    // If the file is damaged, that caused the failure of the call; it is reported first.
    reading.await.context("the reading thread broke off")??;
    // A node of an earlier build does not say which were skipped: those of the file that were not restored.
    let names = outcome.map_err(broken_off)?.restored;
    print(json, &json!({ "restored": names }), || {
        names.iter().map(|name| format!("restored\t{name}\n")).collect()
    })?;
    let taken: Vec<&str> =
        contents.names.iter().filter(|name| !names.contains(name)).map(String::as_str).collect();
    if !taken.is_empty() {
        bail!(
            "left out, because filters of these names exist: {} (a restore that broke off may have restored them); drop \
             one only if the backup's is to take its place",
            taken.join(", ")
        );
    }
    Ok(())
}

/// The error of a restore of which a part may be done.
fn broken_off(error: ClientError) -> Error {
    match error {
        // The node has said what was restored.
        ClientError::ChangeUnknown(failure) if failure.applied == Applied::Partly => {
            anyhow!("restored in part: {failure}")
        }
        ClientError::ChangeUnknown(failure) => anyhow!(
            "restored in part, or not: {failure}; `umbel filter list` shows which filters of the backup exist: restore it \
             again once none of them is `creating` or `importing`, which leaves out those that exist"
        ),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(founded: u32, count: u32) -> ShardRanges {
        ShardRanges::new(founded, count).unwrap()
    }

    fn status(ranges: ShardRanges) -> Vec<ShardStatus> {
        let shard = |shard: ShardId| ShardStatus {
            shard: shard.0,
            range_start: ranges.range(shard).unwrap().start(),
            ..ShardStatus::default()
        };
        ranges.shards().map(shard).collect()
    }

    #[test]
    fn the_cut_of_shards_is_read_from_the_status() {
        for (founded, count) in [(1, 1), (1, 5), (3, 4), (8, 8), (3, 12)] {
            let ranges = ranges(founded, count);
            let read = ranges_of_status(&status(ranges)).unwrap();
            assert!(read.refine(ranges) && ranges.refine(read), "{founded}, {count}");
        }
        let mut torn = status(ranges(2, 4));
        torn[3].range_start += 1;
        assert_eq!(ranges_of_status(&torn), None);
    }

    /// One shard that was split has the same ranges as two.
    #[test]
    fn shards_are_said_to_be_as_many_at_first_as_they_can_have_been() {
        for (founded, count, said) in
            [(2, 2, "this cluster has 2 shards, and"), (2, 4, "4 shards that were 2, and")]
        {
            let read = ranges_of_status(&status(ranges(founded, count))).unwrap();
            let error = read.check_copy(ranges(3, 3)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_backup_of_more_shards_is_refused_before_anything_is_created() {
        let of = |cut: Option<&str>| Contents {
            ranges: Some(ranges(4, 4)),
            cut: cut.map(str::to_owned),
            ..Contents::default()
        };
        let error = of(Some("seen")).check_fit(ranges(2, 2)).unwrap_err().to_string();
        assert!(
            error.starts_with("nothing was restored: filter \"seen\" of the backup: "),
            "{error}"
        );
        assert!(error.ends_with("umbel cluster split --to 4, then load it"), "{error}");
        of(Some("seen")).check_fit(ranges(2, 8)).unwrap();
        of(None).check_fit(ranges(2, 2)).unwrap();
    }

    #[test]
    fn settings_that_cannot_be_read_are_left_to_the_node() {
        let mut contents = Contents::default();
        contents.add("later".to_owned(), b"of another release");
        assert_eq!((contents.names.len(), contents.cut), (1, None));
    }
}
