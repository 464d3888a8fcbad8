//! Filters out of the cluster and in again: exports, which contain no secret, and backups, which contain
//! the hash keys.
//!
//! ```text
//! export   head  frame frame ...  end
//! backup   head  filter frame frame ... filter-end  filter ... filter-end  end
//! ```
//!
//! Both are streams of parts that hold one frame each, so memory does not depend on the size of a filter
//! that is cut into shards; for a replicated one a node holds one more copy meanwhile. Parts are produced
//! on request: a client that stops reading stops the work.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use umbel_codec::FRAME_HEADER_BYTES;
use umbel_engine::meta::{
    Distribution, FilterName, FilterRecord, FilterSettings, FilterVerb, HashKey, MetaState,
    PrincipalName, Rights,
};
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{KeyName, PartError, SliceShape};
use umbel_engine::{FilterId, ShardId};
use umbel_filter::{HashFunction, Kind, RedisBloomShape};
use umbel_ports::encoding::{decode, encode};

use super::sizes::{copy_bytes, memory_bytes};
use crate::Result;
use umbel_node::export_change::FrameChange;
use umbel_node::failure::CallFailure;
use umbel_node::limits::{CALL_TIMEOUT_DEFAULT, EXPORT_FRAME_PAYLOAD_BYTES_MAX};

mod incoming;
mod inside;
mod loading;
mod outgoing;
mod slice_export;
mod snapshot;
mod whole;

pub use inside::Destination;
pub use whole::one_shard;

pub use outgoing::{ExportParts, ExportWish, KnownFrames};

/// Version of the layout of backups.
const BACKUP_FORMAT: u32 = 1;

/// Largest settings that are accepted, in bytes: usual ones have about 100.
const SETTINGS_BYTES_MAX: usize = 1024;

/// Largest frame that is accepted, in bytes: twice what an export produces, so that later releases may
/// produce somewhat larger ones. A frame is one entry of a shard's log.
pub const FRAME_BYTES_MAX: usize = 2 * EXPORT_FRAME_PAYLOAD_BYTES_MAX + FRAME_HEADER_BYTES;

/// Frames of one copy that are in flight to shards at once: 16 MiB at most.
const LOADS_IN_FLIGHT_MAX: usize = 8;

/// Timeout of one step of a copy (loading a frame, creating a filter).
const STEP_TIMEOUT: Duration = CALL_TIMEOUT_DEFAULT;

/// A client that sends nothing for this long counts as gone, and what it holds is released. A client that copies
/// from another server sends a frame once it has all of it: of a server that it allows a minute, and then
/// 16 KiB a second, a frame of 1 MiB takes 124 s.
const QUIET_MAX: Duration = Duration::from_secs(150);

/// What is exported: the first part of an export.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportHead {
    /// The number of the filter.
    pub filter: FilterId,
    /// Its record in the catalogue.
    pub record: FilterRecord,
    /// How the shards are cut.
    pub ranges: ShardRanges,
    /// Kind, figures and the key's name.
    pub settings: Bytes,
    /// For a snapshot, by shard: the last entry of its log that may have changed the slice before it was
    /// copied. Otherwise empty.
    pub log_indexes: Vec<u64>,
}

/// A part of an export.
#[derive(Clone, PartialEq, Debug)]
pub enum ExportPart {
    /// The first part.
    Head(Box<ExportHead>),
    /// A frame.
    Frame(CopyFrame),
    /// Instead of a frame of a shard: how it differs from the frame that the client has at this position.
    Change(ShardId, FrameChange),
    /// The last part.
    End(CopyEnd),
}

/// A part of an import.
#[derive(Clone, PartialEq, Debug)]
pub enum ImportPart {
    /// The first part.
    Head(ImportHead),
    /// A frame.
    Frame(CopyFrame),
    /// The last part.
    End(CopyEnd),
}

/// What is imported: the first part of an import.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportHead {
    /// The name of the new filter.
    pub name: FilterName,
    /// How the shards of the exporting cluster were cut.
    pub ranges: ShardRanges,
    /// The settings as they were exported.
    pub settings: Bytes,
}

impl ImportHead {
    /// The filter's kind; None if this release does not know the kind, or the settings cannot be read, which the
    /// import refuses.
    pub fn kind(&self) -> Option<Kind> {
        let settings: ExportedSettings = decode_settings(&self.settings).ok()?;
        Kind::from_id(settings.kind)
    }
}

/// A part of a backup.
#[derive(Clone, PartialEq, Debug)]
pub enum BackupPart {
    /// The first part.
    Head(BackupHead),
    /// The first part of a filter.
    Filter(BackupFilter),
    /// A frame of the filter.
    Frame(CopyFrame),
    /// The last part of the filter.
    FilterEnd(CopyEnd),
    /// The last part.
    End {
        /// Filters in the backup.
        filter_count: u64,
    },
}

/// First part of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupHead {
    /// The version of the format.
    pub format: u32,
    /// The cluster that was backed up.
    pub cluster: u128,
    /// How its shards were cut.
    pub ranges: ShardRanges,
    /// When the backup began, in milliseconds since 1970.
    pub begun_ms: u64,
}

/// First part of a filter in a backup.
#[derive(Clone, PartialEq)]
pub struct BackupFilter {
    /// The name of the filter.
    pub name: String,
    /// Kind, figures and the key itself.
    pub settings: Bytes,
}

impl std::fmt::Debug for BackupFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupFilter").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a restore did with the filters of its backup, by their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Those that were created.
    pub restored: Vec<String>,
    /// Those that were left out because their names were taken.
    pub skipped: Vec<String>,
}

/// A frame of a slice, or of a replicated filter's copy, which counts as the slice of shard 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyFrame {
    /// The shard.
    pub shard: ShardId,
    /// The bytes of the frame.
    pub frame: Bytes,
}

/// Count and checksum of all frames of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyEnd {
    /// Frames of the filter.
    pub frame_count: u64,
    /// CRC-32C over the frames' bytes in order.
    pub checksum: u32,
}

/// Counts frames and computes their checksum.
#[derive(Clone, Debug, Default)]
struct FrameSum {
    frame_count: u64,
    checksum: umbel_codec::Crc32c,
}

impl FrameSum {
    fn add(&mut self, frame: &[u8]) {
        self.frame_count += 1;
        self.checksum.update(frame);
    }

    fn end(&self) -> CopyEnd {
        CopyEnd { frame_count: self.frame_count, checksum: self.checksum.value() }
    }
}

/// Settings as they leave the cluster: without the key, but with its name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct ExportedSettings {
    distribution: Distribution,
    kind: u8,
    capacity: u64,
    false_positive_rate: f64,
    shape: SliceShape,
    key: KeyName,
}

impl ExportedSettings {
    fn of(settings: &FilterSettings) -> Self {
        let FilterSettings {
            distribution,
            kind,
            capacity,
            false_positive_rate,
            shape,
            key,
            memory_bytes: _,
        } = *settings;
        let key = key.key_name();
        Self { distribution, kind, capacity, false_positive_rate, shape, key }
    }

    /// Adds the key of that name, as this cluster knows it.
    fn with_key(self, state: &MetaState) -> Result<FilterSettings> {
        let KeyName { function, key_id } = self.key;
        let key = match HashFunction::from_id(function) {
            Some(HashFunction::Xxh3Seeded) => HashKey::Xxh3 { seed: key_id },
            Some(HashFunction::RedisBloomPair) => HashKey::RedisBloom,
            Some(HashFunction::SipHash13Keyed) => {
                state.key(key_id).ok_or_else(|| unknown_key(key_id))?
            }
            None => return Err(invalid(format!("settings name hash function {function}"))),
        };
        let Self { distribution, kind, capacity, false_positive_rate, shape, key: _ } = self;
        let memory_bytes = 0;
        Ok(FilterSettings {
            distribution,
            kind,
            capacity,
            false_positive_rate,
            shape,
            memory_bytes,
            key,
        })
    }
}

/// The bytes of an export's settings.
fn encode_exported(settings: &FilterSettings) -> Bytes {
    encode(&ExportedSettings::of(settings))
}

/// The bytes of the settings of RedisBloom's chain, as if it had been exported.
pub fn exported_chain(chain: RedisBloomShape) -> Bytes {
    encode(&ExportedSettings {
        distribution: Distribution::Partitioned,
        kind: Kind::RedisBloom.id(),
        capacity: chain.first_capacity(),
        false_positive_rate: chain.false_positive_rate(),
        shape: chain.into(),
        key: HashKey::RedisBloom.key_name(),
    })
}

/// Checks that a cluster with these shards can have a filter with settings that came from outside.
/// Computes the memory that they take, whatever the settings say.
fn checked(mut settings: FilterSettings, ranges: ShardRanges) -> Result<FilterSettings> {
    let kind = Kind::from_id(settings.kind);
    if kind.is_none() || settings.shape.kind().ok() != kind {
        let (kind, shape) = (settings.kind, settings.shape);
        return Err(invalid(format!("settings name kind {kind}, but their shape is {shape:?}")));
    }
    let FilterSettings { distribution, shape, capacity, .. } = settings;
    settings.memory_bytes = match distribution {
        Distribution::Partitioned => memory_bytes(&shape, capacity, ranges.widest())?,
        Distribution::Replicated => copy_bytes(&shape, capacity)?,
    };
    Ok(settings)
}

/// Decodes the settings of an export or a backup.
fn decode_settings<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if bytes.len() > SETTINGS_BYTES_MAX {
        let got = bytes.len();
        let what = format!("settings has {got} bytes, at most {SETTINGS_BYTES_MAX} are expected");
        return Err(invalid(what));
    }
    decode(bytes).map_err(|error| invalid(format!("settings cannot be read: {error}")))
}

/// Slices that were cut for some shards can be cut further, but not joined; a filter that lies in one
/// shard fits any cluster.
fn check_ranges(got: ShardRanges, shape: &SliceShape, ours: ShardRanges) -> Result<()> {
    if shape.place().is_some() {
        return Ok(());
    }
    ours.check_copy(got)
        .map_err(|error| PartError::ShapeMismatch { what: error.to_string() }.into())
}

/// Refuses a secret key to a principal that may read no filter which has it: with a filter of its own under the same key it
/// could compute which items set the positions of the other one, which an export does not tell. Without a principal it is a node, or
/// nobody is restricted.
fn check_key(state: &MetaState, key: &HashKey, owner: Option<&PrincipalName>) -> Result<()> {
    let (HashKey::SipHash { key_id, .. }, Some(owner)) = (key, owner) else { return Ok(()) };
    let rights = state.principal(owner.as_str()).map(|principal| &principal.rights);
    let may_use = |rights: &Rights| {
        let with_key = state.filters().filter(|(_, record)| record.settings.key == *key);
        let mut names = with_key.map(|(_, record)| record.name.as_str());
        names.any(|name| rights.may(FilterVerb::Read, name))
    };
    if rights.is_some_and(may_use) {
        return Ok(());
    }
    let what = format!(
        "principal {owner} may read no filter with hash key {key_id:#018x}, which the copy has: a grant of read on one of them \
         is needed"
    );
    Err(CallFailure::Denied { what })
}

fn unknown_key(key_id: u64) -> CallFailure {
    let what = format!(
        "this cluster does not have hash key {key_id:#018x}: a filter with keyed hashing can be \
         imported where a filter with that key is: the one that was exported, or one of a backup that was \
         restored"
    );
    PartError::ShapeMismatch { what }.into()
}

fn invalid(what: String) -> CallFailure {
    CallFailure::Invalid { what }
}

fn step_deadline() -> Instant {
    Instant::now() + STEP_TIMEOUT
}

#[cfg(test)]
mod tests {
    use umbel_codec::crc32c;

    use super::*;

    fn settings(key: HashKey) -> FilterSettings {
        FilterSettings {
            distribution: Distribution::Partitioned,
            kind: Kind::Blocked.id(),
            capacity: 1000,
            false_positive_rate: 0.01,
            shape: SliceShape::Blocks {
                kind: Kind::Blocked.id(),
                block_count: 40,
                block_bits: 512,
                probe_count: 6,
            },
            memory_bytes: 40 * 64,
            key,
        }
    }

    #[test]
    fn an_export_has_no_secret() {
        let secret = *b"0123456789abcdef";
        let own = settings(HashKey::SipHash { key_id: 7, secret });
        let bytes = encode_exported(&own);
        assert!(bytes.windows(4).all(|window| !secret.windows(4).any(|part| part == window)));
        let exported: ExportedSettings = decode_settings(&bytes).unwrap();
        assert_eq!(exported.key, KeyName { function: 2, key_id: 7 });
        // A cluster that does not have the key refuses.
        let error = exported.with_key(&MetaState::new()).unwrap_err();
        assert!(error.to_string().contains("does not have hash key 0x0000000000000007"), "{error}");
        assert!(format!("{own:?}").contains(".."));
    }

    #[test]
    fn public_settings_come_back() {
        for distribution in [Distribution::Partitioned, Distribution::Replicated] {
            let own = FilterSettings { distribution, ..settings(HashKey::Xxh3 { seed: 3 }) };
            let exported: ExportedSettings = decode_settings(&encode_exported(&own)).unwrap();
            let back = exported.with_key(&MetaState::new()).unwrap();
            let ranges = ShardRanges::new(4, 4).unwrap();
            assert_eq!(checked(back, ranges).unwrap(), own);
            let name = FilterName::new("k").unwrap();
            let head = ImportHead { name, ranges, settings: encode_exported(&own) };
            assert_eq!(head.kind(), Kind::from_id(own.kind));
            assert_eq!(ImportHead { settings: Bytes::new(), ..head }.kind(), None);
        }
    }

    #[test]
    fn hostile_settings_are_refused() {
        let ranges = ShardRanges::new(1, 1).unwrap();
        let kind = Kind::Classic.id();
        let other_kind = FilterSettings { kind, ..settings(HashKey::Xxh3 { seed: 3 }) };
        assert!(checked(other_kind, ranges).is_err());
        let mut huge = settings(HashKey::Xxh3 { seed: 3 });
        let kind = huge.kind;
        huge.shape =
            SliceShape::Blocks { kind, block_count: 1 << 40, block_bits: 512, probe_count: 6 };
        assert!(checked(huge, ranges).is_err());
        for bytes in [&[][..], &[1], &[2; 60], &[0; SETTINGS_BYTES_MAX + 1]] {
            assert!(decode_settings::<FilterSettings>(bytes).is_err());
            assert!(decode_settings::<ExportedSettings>(bytes).is_err());
        }
        let exported = ExportedSettings::of(&settings(HashKey::Xxh3 { seed: 3 }));
        let unknown = KeyName { function: 9, key_id: 1 };
        let unknown = ExportedSettings { key: unknown, ..exported };
        assert!(unknown.with_key(&MetaState::new()).is_err());
    }

    #[test]
    fn shards_must_be_cut_as_often() {
        let ranges = |founded, count| ShardRanges::new(founded, count).unwrap();
        let (ours, shape) = (ranges(8, 12), settings(HashKey::Xxh3 { seed: 3 }).shape);
        for theirs in [ours, ranges(8, 8), ranges(4, 4), ranges(1, 5)] {
            assert_eq!(check_ranges(theirs, &shape, ours), Ok(()), "{theirs:?}");
        }
        let chain = RedisBloomShape::for_rate(10, 0.01).unwrap();
        assert_eq!(check_ranges(ranges(3, 3), &SliceShape::from(chain), ours), Ok(()));
        let refused = |theirs| check_ranges(theirs, &shape, ours).unwrap_err().to_string();
        let error = refused(ranges(16, 16));
        let expected = "the copy was made on 16 shards, this cluster has 12 shards that were 8, and must be split as \
                        often: umbel cluster split --to 16, then load it";
        assert!(error.contains(expected), "{error}");
        let error = refused(ranges(3, 3));
        assert!(error.contains("on 3 shards, this"), "{error}");
        assert!(
            error.contains("no split of these is one of those: load it where they are"),
            "{error}"
        );
    }

    #[test]
    fn sums_are_over_all_frames() {
        let mut sum = FrameSum::default();
        assert_eq!(sum.end(), CopyEnd { frame_count: 0, checksum: 0 });
        sum.add(b"1234");
        sum.add(b"56789");
        assert_eq!(sum.end(), CopyEnd { frame_count: 2, checksum: crc32c(&[b"123456789"]) });
    }
}
