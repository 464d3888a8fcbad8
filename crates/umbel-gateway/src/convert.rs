//! Conversions between messages and the node's types, in both directions.

use bytes::Bytes;
use tonic::{Code, Status};
use umbel_coordinator::AckLevel;
use umbel_coordinator::catalogue::{FilterPage, FilterRequest, Hashing};
use umbel_coordinator::sizes::FilterSize;
use umbel_coordinator::transfers::{
    BackupFilter, BackupHead, BackupPart, CopyEnd, CopyFrame, ExportPart, ImportHead, ImportPart,
};
use umbel_coordinator::{ClientRequest, ReadLevel};
use umbel_engine::meta::{
    Distribution, FilterName, FilterRecord, FilterState, FilterVerb, HashKey,
};
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::Bitmap;
use umbel_engine::{FilterId, OwnerId, RequestId, SessionId, ShardId};
use umbel_filter::Kind;
use umbel_node::VERSION;
use umbel_node::export_change::FrameChange;
use umbel_node::failure::CallFailure;
use umbel_proto::v1;

use super::caller::Caller;
use crate::errors::Result;

mod known;
mod window;

pub(super) use known::known_frames;
use window::{window_to_proto, with_window};

/// The kind with this number on the wire; None if it is unspecified.
fn kind_of(number: i32) -> Result<Option<Kind>> {
    let is_it = |kind: &Kind| kind_to_proto(kind.id()) as i32 == number;
    match Kind::ALL.into_iter().find(is_it) {
        None if number != v1::Kind::Unspecified as i32 => {
            Err(invalid(format!("kind is {number}, which this release does not know")))
        }
        known => Ok(known),
    }
}

pub(super) fn kind_to_proto(id: u8) -> v1::Kind {
    match Kind::from_id(id) {
        None => v1::Kind::Unspecified,
        Some(Kind::Blocked) => v1::Kind::Blocked,
        Some(Kind::Classic) => v1::Kind::Classic,
        Some(Kind::SingleShot) => v1::Kind::SingleShot,
        Some(Kind::Counting) => v1::Kind::Counting,
        Some(Kind::Scalable) => v1::Kind::Scalable,
        Some(Kind::Partitioned) => v1::Kind::Partitioned,
        Some(Kind::Window) => v1::Kind::Window,
        Some(Kind::Aging) => v1::Kind::Aging,
        Some(Kind::Stable) => v1::Kind::Stable,
        Some(Kind::Cuckoo) => v1::Kind::Cuckoo,
        Some(Kind::Quotient) => v1::Kind::Quotient,
        Some(Kind::RedisBloom) => v1::Kind::Redisbloom,
    }
}

/// How items are hashed; None if it is unspecified. Filters of RedisBloom's kind always have RedisBloom's
/// hashes, which are public: a client that asks for secret hashes must not get these instead.
fn hashing_of(number: i32, kind: Option<Kind>) -> Result<Option<Hashing>> {
    let is_theirs = kind == Some(Kind::RedisBloom);
    let own = || {
        let what = "hashing: redisbloom filters are hashed as RedisBloom hashes, and no others are";
        Err(invalid(what.to_owned()))
    };
    match v1::Hashing::try_from(number) {
        Ok(v1::Hashing::Unspecified) => Ok(None),
        Ok(v1::Hashing::Redisbloom) if is_theirs => Ok(None),
        Ok(v1::Hashing::Redisbloom) => own(),
        Ok(_) if is_theirs => own(),
        Ok(v1::Hashing::Keyed) => Ok(Some(Hashing::Keyed)),
        Ok(v1::Hashing::Public) => Ok(Some(Hashing::Public)),
        Err(_) => Err(invalid(format!("hashing is {number}, which this release does not know"))),
    }
}

/// How a filter is distributed over the nodes; None if it is unspecified.
fn distribution_of(number: i32) -> Result<Option<Distribution>> {
    match v1::Distribution::try_from(number) {
        Ok(v1::Distribution::Unspecified) => Ok(None),
        Ok(v1::Distribution::Partitioned) => Ok(Some(Distribution::Partitioned)),
        Ok(v1::Distribution::Replicated) => Ok(Some(Distribution::Replicated)),
        Err(_) => {
            Err(invalid(format!("distribution is {number}, which this release does not know")))
        }
    }
}

/// The level of an insert; None for the filter's default.
pub(super) fn ack_level(number: i32) -> Result<Option<AckLevel>> {
    match v1::AckLevel::try_from(number) {
        Ok(v1::AckLevel::Unspecified) => Ok(None),
        Ok(v1::AckLevel::Local) => Ok(Some(AckLevel::Local)),
        Ok(v1::AckLevel::OnePartner) => Ok(Some(AckLevel::OnePartner)),
        Ok(v1::AckLevel::Majority) => Ok(Some(AckLevel::Majority)),
        Err(_) => Err(invalid(format!("level is {number}, which this release does not know"))),
    }
}

pub(super) const fn ack_level_to_proto(level: AckLevel) -> v1::AckLevel {
    match level {
        AckLevel::Local => v1::AckLevel::Local,
        AckLevel::OnePartner => v1::AckLevel::OnePartner,
        AckLevel::Majority => v1::AckLevel::Majority,
    }
}

/// The level of a read; None for the filter's default.
pub(super) fn read_level(number: i32) -> Result<Option<ReadLevel>> {
    match v1::ReadLevel::try_from(number) {
        Ok(v1::ReadLevel::Unspecified) => Ok(None),
        Ok(v1::ReadLevel::Linearizable) => Ok(Some(ReadLevel::Linearizable)),
        Ok(v1::ReadLevel::AnyReplica) => Ok(Some(ReadLevel::AnyReplica)),
        Ok(v1::ReadLevel::Local) => Ok(Some(ReadLevel::Local)),
        Ok(v1::ReadLevel::Majority) => Ok(Some(ReadLevel::Majority)),
        Err(_) => Err(invalid(format!("level is {number}, which this release does not know"))),
    }
}

pub(super) const fn read_level_to_proto(level: ReadLevel) -> v1::ReadLevel {
    match level {
        ReadLevel::Linearizable => v1::ReadLevel::Linearizable,
        ReadLevel::AnyReplica => v1::ReadLevel::AnyReplica,
        ReadLevel::Local => v1::ReadLevel::Local,
        ReadLevel::Majority => v1::ReadLevel::Majority,
    }
}

pub(super) fn client_request(request: Option<v1::RequestId>) -> Result<Option<ClientRequest>> {
    let Some(v1::RequestId { session, sequence, acknowledged_below }) = request else {
        return Ok(None);
    };
    if session == 0 {
        return Err(invalid("request.session is 0, expected one that was opened".to_owned()));
    }
    if sequence == 0 || sequence == u64::MAX {
        return Err(invalid(format!("request.sequence is {sequence}, expected 1 to 2^64 - 2")));
    }
    if acknowledged_below > sequence {
        let what = format!(
            "request.acknowledged_below is {acknowledged_below}, expected at most {sequence}, the \
             sequence"
        );
        return Err(invalid(what));
    }
    let id = RequestId { session: SessionId(session), sequence };
    Ok(Some(ClientRequest { id, acknowledged_below, owner: OwnerId::default() }))
}

pub(super) fn new_filter(
    caller: &Caller,
    request: v1::CreateRequest,
) -> Result<(FilterName, FilterRequest)> {
    let v1::CreateRequest {
        name,
        kind,
        capacity,
        false_positive_rate,
        memory_bytes,
        hashing,
        like,
        distribution,
        window,
    } = request;
    let name = caller.filter(FilterVerb::Manage, "name", name)?;
    let kind = kind_of(kind)?;
    let hashing = hashing_of(hashing, kind)?;
    let distribution = distribution_of(distribution)?;
    let has_rate = false_positive_rate != 0.0;
    if !like.is_empty() {
        let set = [
            ("kind", kind.is_some()),
            ("capacity", capacity != 0),
            ("false_positive_rate", has_rate),
            ("memory_bytes", memory_bytes != 0),
            ("hashing", hashing.is_some()),
            ("distribution", distribution.is_some()),
            ("window", window.is_some()),
        ];
        if let Some((field, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            return Err(invalid(format!("{field} is set, but like takes it from another filter")));
        }
        let like = caller.filter(FilterVerb::Read, "like", like)?;
        return Ok((name, FilterRequest::Like(like)));
    }
    let size = match (has_rate, memory_bytes) {
        (true, 0) => FilterSize::Rate(false_positive_rate),
        (false, 1..) => FilterSize::Bytes(memory_bytes),
        (true, 1..) => {
            return Err(invalid("false_positive_rate and memory_bytes are set".to_owned()));
        }
        (false, 0) => {
            let what = "neither false_positive_rate nor memory_bytes is set".to_owned();
            return Err(invalid(what));
        }
    };
    let (kind, size) = with_window(kind, size, window)?;
    let hashing = hashing.unwrap_or(Hashing::Keyed);
    let distribution = distribution.unwrap_or_default();
    Ok((name, FilterRequest::Planned { kind, distribution, capacity, size, hashing }))
}

/// What the catalogue knows of a filter. The number of a secret key tells which filters share it, and is for who may have
/// their bits.
pub(super) fn summary(id: FilterId, record: &FilterRecord, may_export: bool) -> v1::FilterSummary {
    let settings = &record.settings;
    let is_secret = matches!(settings.key, HashKey::SipHash { .. });
    let hashing = match settings.key {
        HashKey::Xxh3 { .. } => v1::Hashing::Public,
        HashKey::SipHash { .. } => v1::Hashing::Keyed,
        HashKey::RedisBloom => v1::Hashing::Redisbloom,
    };
    let state = match record.state {
        FilterState::Creating { .. } => "creating",
        FilterState::Importing => "importing",
        FilterState::Live => "live",
        FilterState::Clearing { .. } => "clearing",
        FilterState::Rotating { .. } => "rotating",
        FilterState::Renaming { .. } => "renaming",
        FilterState::Dropping => "dropping",
    };
    let distribution = match settings.distribution {
        Distribution::Partitioned => v1::Distribution::Partitioned,
        Distribution::Replicated => v1::Distribution::Replicated,
    };
    v1::FilterSummary {
        name: record.name.as_str().to_owned(),
        filter_id: id.0,
        kind: kind_to_proto(settings.kind).into(),
        capacity: settings.capacity,
        false_positive_rate: settings.false_positive_rate,
        memory_bytes: settings.memory_bytes,
        hashing: hashing.into(),
        // Clients hash by that of public hashing.
        key_id: if is_secret && !may_export { 0 } else { settings.key.key_name().key_id },
        generation: record.generation.0,
        state: state.to_owned(),
        distribution: distribution.into(),
        window: window_to_proto(settings),
        expires_ms: record.expires_ms,
    }
}

pub(super) fn list(
    page: &FilterPage,
    may_export: impl Fn(&str) -> bool,
    shard_map: Option<v1::ShardMapResponse>,
) -> v1::ListResponse {
    let row = |(id, record): &(FilterId, FilterRecord)| {
        summary(*id, record, may_export(record.name.as_str()))
    };
    let filters = page.filters.iter().map(row).collect();
    v1::ListResponse { filters, has_more: page.has_more, shard_map }
}

/// The number of ones, the number of zeros, and the bits.
pub(super) fn bits(bitmap: &Bitmap) -> (u32, u32, Bytes) {
    let one_count = bitmap.count_ones();
    (one_count, bitmap.len() - one_count, Bytes::copy_from_slice(bitmap.as_bytes()))
}

pub(super) fn export_chunk(part: ExportPart) -> v1::ExportChunk {
    use v1::export_chunk::Part;
    let part = match part {
        ExportPart::Head(head) => Part::Header(v1::ExportHeader {
            filter: Some(summary(head.filter, &head.record, true)),
            shard_count: head.ranges.count(),
            shards_founded: head.ranges.founded(),
            settings: head.settings,
            version: VERSION.to_owned(),
            log_indexes: head.log_indexes,
        }),
        ExportPart::Frame(CopyFrame { shard, frame }) => {
            Part::Frame(v1::ExportFrame { shard: shard.0, frame })
        }
        ExportPart::Change(shard, FrameChange { byte_count, kept, others }) => {
            Part::Change(v1::ExportChange { shard: shard.0, byte_count, kept, others })
        }
        ExportPart::End(CopyEnd { frame_count, checksum }) => {
            Part::End(v1::ExportEnd { frame_count, checksum })
        }
    };
    v1::ExportChunk { part: Some(part) }
}

/// How the shards were cut when the copy was made; `founded` is 0 in copies that do not mention splits,
/// whose shards had none.
pub(super) fn shard_ranges(shard_count: u32, founded: u32) -> Result<ShardRanges> {
    let founded = if founded == 0 { shard_count } else { founded };
    ShardRanges::new(founded, shard_count).map_err(|error| invalid(error.to_string()))
}

/// Converts a part of an import; the stream may have failed.
pub(super) fn import_part(
    caller: &Caller,
    chunk: Result<v1::ImportChunk, Status>,
) -> Result<ImportPart> {
    use v1::import_chunk::Part;
    Ok(match chunk.map_err(|status| broken(&status))?.part {
        Some(Part::Header(v1::ImportHeader { name, exported: Some(exported) })) => {
            let v1::ExportHeader { shard_count, shards_founded, settings, .. } = exported;
            let ranges = shard_ranges(shard_count, shards_founded)?;
            let name = caller.filter(FilterVerb::Manage, "header.name", name)?;
            ImportPart::Head(ImportHead { name, ranges, settings })
        }
        Some(Part::Header(v1::ImportHeader { exported: None, .. })) => {
            return Err(invalid("header.exported is not set".to_owned()));
        }
        Some(Part::Frame(v1::ExportFrame { shard, frame })) => {
            ImportPart::Frame(CopyFrame { shard: ShardId(shard), frame })
        }
        Some(Part::End(v1::ExportEnd { frame_count, checksum })) => {
            ImportPart::End(CopyEnd { frame_count, checksum })
        }
        None => return Err(no_part()),
    })
}

pub(super) fn backup_chunk(part: BackupPart) -> v1::BackupChunk {
    use v1::backup_chunk::Part;
    let part = match part {
        BackupPart::Head(head) => Part::Header(v1::BackupHeader {
            format: head.format,
            cluster_id: cluster_text(head.cluster),
            shard_count: head.ranges.count(),
            shards_founded: head.ranges.founded(),
            version: VERSION.to_owned(),
            begun_ms: head.begun_ms,
        }),
        BackupPart::Filter(BackupFilter { name, settings }) => {
            Part::Filter(v1::BackupFilter { name, settings })
        }
        BackupPart::Frame(CopyFrame { shard, frame }) => {
            Part::Frame(v1::BackupFrame { shard: shard.0, frame })
        }
        BackupPart::FilterEnd(CopyEnd { frame_count, checksum }) => {
            Part::FilterEnd(v1::BackupFilterEnd { frame_count, checksum })
        }
        BackupPart::End { filter_count } => Part::End(v1::BackupEnd { filter_count }),
    };
    v1::BackupChunk { part: Some(part) }
}

/// Converts a part of a backup; the stream may have failed.
pub(super) fn backup_part(chunk: Result<v1::BackupChunk, Status>) -> Result<BackupPart> {
    use v1::backup_chunk::Part;
    Ok(match chunk.map_err(|status| broken(&status))?.part {
        Some(Part::Header(header)) => {
            let v1::BackupHeader {
                format,
                cluster_id,
                shard_count,
                version: _,
                begun_ms,
                shards_founded,
            } = header;
            let ranges = shard_ranges(shard_count, shards_founded)?;
            let cluster = u128::from_str_radix(&cluster_id, 16).map_err(|_| {
                invalid("header.cluster_id is no number of 32 hexadecimal digits".to_owned())
            })?;
            BackupPart::Head(BackupHead { format, cluster, ranges, begun_ms })
        }
        Some(Part::Filter(v1::BackupFilter { name, settings })) => {
            BackupPart::Filter(BackupFilter { name, settings })
        }
        Some(Part::Frame(v1::BackupFrame { shard, frame })) => {
            BackupPart::Frame(CopyFrame { shard: ShardId(shard), frame })
        }
        Some(Part::FilterEnd(v1::BackupFilterEnd { frame_count, checksum })) => {
            BackupPart::FilterEnd(CopyEnd { frame_count, checksum })
        }
        Some(Part::End(v1::BackupEnd { filter_count })) => BackupPart::End { filter_count },
        None => return Err(no_part()),
    })
}

/// A cluster id as shown to people.
pub(super) fn cluster_text(cluster: u128) -> String {
    format!("{cluster:032x}")
}

fn broken(status: &Status) -> CallFailure {
    let what = status.message();
    match status.code() {
        // This node ended the stream, and the status has its reason.
        Code::DeadlineExceeded => CallFailure::TooSlow { what: what.to_owned() },
        Code::Unavailable => CallFailure::Overloaded { what: what.to_owned() },
        _ => invalid(format!("the client's stream broke: {what}")),
    }
}

fn no_part() -> CallFailure {
    invalid("part is not set, or one that this release does not know".to_owned())
}

fn invalid(what: String) -> CallFailure {
    CallFailure::Invalid { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(change: impl FnOnce(&mut v1::CreateRequest)) -> Result<FilterRequest, String> {
        let mut request = v1::CreateRequest {
            name: "f".to_owned(),
            capacity: 1000,
            false_positive_rate: 0.01,
            ..Default::default()
        };
        change(&mut request);
        new_filter(&Caller::node(), request).map(|(_, new)| new).map_err(|error| error.to_string())
    }

    #[test]
    fn kinds_come_back() {
        for kind in Kind::ALL {
            assert_eq!(kind_of(kind_to_proto(kind.id()).into()), Ok(Some(kind)));
        }
        // A kind of the protocol that is missing from `ALL` would be refused as unknown.
        for number in 1..=32 {
            let is_of_protocol = v1::Kind::try_from(number).is_ok();
            assert_eq!(kind_of(number).is_ok(), is_of_protocol, "kind {number}");
        }
        assert_eq!(kind_of(0), Ok(None));
        assert!(kind_of(99).is_err() && kind_of(-1).is_err());
        assert_eq!(kind_to_proto(99), v1::Kind::Unspecified);
    }

    #[test]
    fn levels_come_back() {
        use ReadLevel::{AnyReplica, Linearizable, Local, Majority};

        for level in [Linearizable, AnyReplica, Local, Majority] {
            assert_eq!(read_level(read_level_to_proto(level).into()), Ok(Some(level)));
        }
        assert_eq!(read_level(0), Ok(None));
        assert!(read_level(5).is_err());
        for level in [AckLevel::Local, AckLevel::OnePartner, AckLevel::Majority] {
            assert_eq!(ack_level(ack_level_to_proto(level).into()), Ok(Some(level)));
        }
        assert_eq!(ack_level(0), Ok(None));
        assert!(ack_level(4).is_err());
    }

    #[test]
    fn what_is_not_set_has_a_default() {
        let size = FilterSize::Rate(0.01);
        let (kind, hashing) = (Kind::Blocked, Hashing::Keyed);
        let distribution = Distribution::Partitioned;
        let expected = FilterRequest::Planned { kind, distribution, capacity: 1000, size, hashing };
        assert_eq!(create(|_| ()), Ok(expected));
    }

    #[test]
    fn a_filter_has_one_size() {
        let both = create(|request| request.memory_bytes = 1);
        assert_eq!(both.unwrap_err(), "false_positive_rate and memory_bytes are set");
        let neither = create(|request| request.false_positive_rate = 0.0);
        assert_eq!(neither.unwrap_err(), "neither false_positive_rate nor memory_bytes is set");
        let name = create(|request| request.name = String::new());
        assert_eq!(name.unwrap_err(), "name: a filter's name has 1 to 1024 bytes, not 0");
        assert!(create(|request| request.hashing = 4).unwrap_err().starts_with("hashing is 4"));
        // RedisBloom's kind has RedisBloom's hash, and no other kind has it.
        let theirs = |hashing: v1::Hashing| {
            create(|request| {
                (request.kind, request.hashing) = (v1::Kind::Redisbloom.into(), hashing.into());
            })
        };
        assert!(theirs(v1::Hashing::Keyed).unwrap_err().contains("hashed as RedisBloom"));
        assert!(theirs(v1::Hashing::Public).is_err());
        assert!(
            theirs(v1::Hashing::Redisbloom).is_ok() && theirs(v1::Hashing::Unspecified).is_ok()
        );
        assert!(create(|request| request.hashing = v1::Hashing::Redisbloom.into()).is_err());
    }

    #[test]
    fn like_stands_alone() {
        let error = create(|request| request.like = "g".to_owned()).unwrap_err();
        assert!(error.starts_with("capacity is set"), "{error}");
        let like = create(|request| {
            *request = v1::CreateRequest {
                name: "f".to_owned(),
                like: "g".to_owned(),
                ..Default::default()
            };
        });
        assert_eq!(like, Ok(FilterRequest::Like(FilterName::new("g").unwrap())));
    }

    #[test]
    fn requests_have_names() {
        let request = |session, sequence, acknowledged_below| {
            let request = v1::RequestId { session, sequence, acknowledged_below };
            client_request(Some(request)).map(|request| request.map(|request| request.id.sequence))
        };
        assert_eq!(request(1, 2, 2), Ok(Some(2)));
        assert_eq!(client_request(None), Ok(None));
        for (session, sequence, acknowledged_below) in [(0, 1, 0), (1, 0, 0), (1, 2, 3)] {
            assert!(request(session, sequence, acknowledged_below).is_err());
        }
    }

    #[test]
    fn bits_are_counted() {
        let (ones, zeros, bytes) = bits(&Bitmap::from_ones(10, [0, 9]));
        assert_eq!((ones, zeros, &bytes[..]), (2, 8, &[1, 2][..]));
        assert_eq!(bits(&Bitmap::zeros(0)), (0, 0, Bytes::new()));
    }

    #[test]
    fn backups_come_back() {
        let frame = CopyFrame { shard: ShardId(3), frame: Bytes::from_static(b"frame") };
        let end = CopyEnd { frame_count: 1, checksum: 5 };
        let (name, settings) = ("f".to_owned(), Bytes::from_static(b"settings"));
        let cluster = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        let parts = [
            BackupPart::Head(BackupHead {
                format: 1,
                cluster,
                ranges: ShardRanges::new(3, 4).unwrap(),
                begun_ms: 9,
            }),
            BackupPart::Filter(BackupFilter { name, settings }),
            BackupPart::Frame(frame),
            BackupPart::FilterEnd(end),
            BackupPart::End { filter_count: 1 },
        ];
        for part in parts {
            assert_eq!(backup_part(Ok(backup_chunk(part.clone()))), Ok(part));
        }
    }

    #[test]
    fn shards_take_the_numbers_of_requests_that_pass() {
        let numbered = |sequence| {
            client_request(Some(v1::RequestId { session: 1, sequence, acknowledged_below: 0 }))
        };
        for sequence in [0, u64::MAX] {
            let what = format!("request.sequence is {sequence}, expected 1 to 2^64 - 2");
            assert_eq!(numbered(sequence).err(), Some(invalid(what)));
        }
        for sequence in [1, u64::MAX - 1] {
            assert_eq!(numbered(sequence).unwrap().unwrap().id.sequence, sequence);
        }
    }

    #[test]
    fn empty_parts_are_refused() {
        assert!(import_part(&Caller::node(), Ok(v1::ImportChunk::default())).is_err());
        assert!(backup_part(Ok(v1::BackupChunk::default())).is_err());
        let broke = import_part(&Caller::node(), Err(Status::cancelled("gone"))).unwrap_err();
        assert_eq!(broke.to_string(), "the client's stream broke: gone");
        let header = v1::ImportHeader { name: "f".to_owned(), exported: None };
        let part = Some(v1::import_chunk::Part::Header(header));
        let error = import_part(&Caller::node(), Ok(v1::ImportChunk { part })).unwrap_err();
        assert_eq!(error.to_string(), "header.exported is not set");
    }
}
