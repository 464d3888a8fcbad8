//! Exports and backups: round trips, and truncation and damage at every byte.

use super::chunk_file::{Chunk, ChunkReader, ChunkWriter, broken_off};
use crate::exit::UsageError;
use anyhow::Result;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use umbel_client::proto::{
    BackupChunk, BackupEnd, BackupFilter, BackupFilterEnd, BackupFrame, BackupHeader, ExportChunk,
    ExportEnd, ExportFrame, ExportHeader, backup_chunk, export_chunk,
};
use umbel_client::{Client, ClientOptions};
use umbel_ports::WrappingKey;

/// CRC-32C of "123456789", from the catalogue of CRCs.
const CHECKSUM: u32 = 0xe306_9283;

fn export(checksum: u32, frame_count: u64) -> Vec<ExportChunk> {
    let frame = |text: &'static str| {
        export_chunk::Part::Frame(ExportFrame {
            shard: 0,
            frame: Bytes::from_static(text.as_bytes()),
        })
    };
    let parts = [
        export_chunk::Part::Header(ExportHeader { shard_count: 1, ..ExportHeader::default() }),
        frame("12345"),
        frame("6789"),
        export_chunk::Part::End(ExportEnd { frame_count, checksum }),
    ];
    parts.map(|part| ExportChunk { part: Some(part) }).into()
}

fn backup(filter_count: u64) -> Vec<BackupChunk> {
    let parts = [
        backup_chunk::Part::Header(BackupHeader { format: 1, ..BackupHeader::default() }),
        backup_chunk::Part::Filter(BackupFilter { name: "a".into(), settings: Bytes::new() }),
        backup_chunk::Part::FilterEnd(BackupFilterEnd { frame_count: 0, checksum: 0 }),
        backup_chunk::Part::Filter(BackupFilter { name: "b".into(), settings: Bytes::new() }),
        backup_chunk::Part::Frame(BackupFrame {
            shard: 0,
            frame: Bytes::from_static(b"123456789"),
        }),
        backup_chunk::Part::FilterEnd(BackupFilterEnd { frame_count: 1, checksum: CHECKSUM }),
        backup_chunk::Part::End(BackupEnd { filter_count }),
    ];
    parts.map(|part| BackupChunk { part: Some(part) }).into()
}

fn write<C: Chunk>(path: &Path, chunks: &[C]) -> Result<u64> {
    let mut writer = ChunkWriter::create(path, false, None)?;
    for chunk in chunks {
        writer.write(chunk)?;
    }
    writer.finish()
}

fn read<C: Chunk>(path: &Path) -> Result<Vec<C>> {
    let mut reader = ChunkReader::open(path, None)?;
    let mut chunks = Vec::new();
    while let Some(chunk) = reader.next()? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

#[test]
fn what_is_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e");
    let byte_count = write(&path, &export(CHECKSUM, 2)).unwrap();
    assert_eq!(byte_count, path.metadata().unwrap().len());
    assert_eq!(read::<ExportChunk>(&path).unwrap(), export(CHECKSUM, 2));
    assert_eq!(ChunkReader::<ExportChunk>::verify(&path, None).unwrap(), 4);
    assert!(read::<BackupChunk>(&path).unwrap_err().to_string().contains("not an umbel backup"));
    let again = write(&path, &export(CHECKSUM, 2)).unwrap_err();
    assert!(again.is::<UsageError>() && again.to_string().contains("--overwrite"));
}

#[test]
#[cfg(unix)]
fn backups_and_exports_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    write(&path, &backup(2)).unwrap();
    assert_eq!(mode(&path), 0o600);
    let path = folder.path().join("e");
    write(&path, &export(CHECKSUM, 2)).unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_backup_counts_its_filters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b");
    write(&path, &backup(2)).unwrap();
    assert_eq!(read::<BackupChunk>(&path).unwrap(), backup(2));
    assert!(write(&folder.path().join("c"), &backup(3)).unwrap_err().to_string().contains("3"));
}

/// Without the key the file shows nothing of its content; with the key, every flipped bit after the magic
/// is found.
#[test]
fn a_wrapped_backup_is_read_with_its_key_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b");
    let key = |byte: u8| {
        let path = folder.path().join(format!("key {byte}"));
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Some(Arc::new(WrappingKey::read(&path).unwrap()))
    };
    let mut writer = ChunkWriter::create(&path, false, key(1)).unwrap();
    backup(2).iter().for_each(|chunk| writer.write(chunk).unwrap());
    writer.finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert!(!whole.windows(9).any(|window| window == b"123456789"));
    let read = |key| {
        let mut reader = ChunkReader::<BackupChunk>::open(&path, key)?;
        let mut chunks = Vec::new();
        while let Some(chunk) = reader.next()? {
            chunks.push(chunk);
        }
        Ok::<_, anyhow::Error>(chunks)
    };
    assert_eq!(read(key(1)).unwrap(), backup(2));
    let error = read(None).unwrap_err();
    assert!(error.is::<UsageError>() && error.to_string().contains("--key-file"), "{error}");
    let error = read(key(2)).unwrap_err().to_string();
    assert!(error.contains("wrapped by another key, or damaged (--key-file"), "{error}");
    for at in 8..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(read(key(1)).is_err(), "byte {at}");
    }
}

/// Else a plain file in the place of an encrypted one would not be noticed.
#[test]
fn a_backup_that_is_not_encrypted_is_not_read_with_a_key() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("b"), folder.path().join("key"));
    write(&path, &backup(2)).unwrap();
    std::fs::write(&key, [1; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let key = Arc::new(WrappingKey::read(&key).unwrap());
    let error = ChunkReader::<BackupChunk>::verify(&path, Some(key)).unwrap_err();
    assert!(error.is::<UsageError>(), "{error}");
    assert!(error.to_string().contains("not encrypted: leave --key-file out"), "{error}");
}

/// It is empty when it is read for the second time; and who opens it without a writer waits.
#[test]
fn a_pipe_is_refused_before_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), folder.path()] {
        let error = ChunkReader::<BackupChunk>::verify(path, None).unwrap_err();
        assert!(error.is::<UsageError>(), "{error}");
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
    let error = ChunkReader::<BackupChunk>::verify(&folder.path().join("gone"), None).unwrap_err();
    assert!(!error.is::<UsageError>() && error.to_string().contains("gone: cannot read"));
}

#[test]
fn a_dash_is_no_file() {
    let path = Path::new("-");
    let written = ChunkWriter::<BackupChunk>::create(path, true, None).map(drop).unwrap_err();
    let read = ChunkReader::<BackupChunk>::verify(path, None).unwrap_err();
    for (error, expected) in [
        (written, "--out -: standard output, expected a file"),
        (read, "-: standard input, expected a file"),
    ] {
        assert!(error.is::<UsageError>() && error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn what_the_cluster_sends_is_verified_before_it_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e");
    for (chunks, expected) in [
        (export(CHECKSUM ^ 1, 2), "checksum e3069283, the end says e3069282"),
        (export(CHECKSUM, 3), "2 frames, but the end says 3"),
        (export(CHECKSUM, 2)[..3].to_vec(), "broke off"),
        (export(CHECKSUM, 2)[1..].to_vec(), "cannot stand here"),
        ([export(CHECKSUM, 2), export(CHECKSUM, 2)].concat(), "behind the end"),
    ] {
        let error = write(&path, &chunks).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{error}");
    }
}

/// Whoever reads of an overload, or of another address to try, looks in the wrong place.
#[tokio::test]
async fn a_copy_that_broke_off_is_to_be_begun_again() {
    let options = ClientOptions { attempt_count_max: 1, ..ClientOptions::default() };
    // Ordinary processes may not listen there.
    let client = Client::connect_with("127.0.0.1:1", options).unwrap();
    let failed = client.status().await.unwrap_err();
    let why = failed.failure().expect("it was sent").message.clone();
    let said = broken_off::<BackupChunk>(failed, Path::new("b")).to_string();
    let begins = "b: the backup broke off, and nothing of it was kept";
    assert_eq!(said, format!("{begins}: node 127.0.0.1:1: {why}; run it again"));
    let other = Client::connect("nowhere").unwrap_err();
    let other = broken_off::<ExportChunk>(other, Path::new("e"));
    let causes: Vec<_> = other.chain().map(ToString::to_string).collect();
    assert_eq!(causes[0], "e: the export broke off, and nothing of it was kept");
    assert!(causes[1].contains("nowhere"), "{causes:?}");
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_frame_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e");
    write(&path, &export(CHECKSUM, 2)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for byte_count in 0..whole.len() {
        std::fs::write(&path, &whole[..byte_count]).unwrap();
        let error = read::<ExportChunk>(&path).unwrap_err().to_string();
        let place = format!("damaged export at byte {byte_count}: the file ends within");
        assert!(error.contains(&place), "{error}");
    }
    let longer = [&whole[..], b"x"].concat();
    std::fs::write(&path, &longer).unwrap();
    let error = read::<ExportChunk>(&path).unwrap_err().to_string();
    assert!(error.ends_with(&format!("at byte {}: bytes behind the end", whole.len())), "{error}");
    let frame = whole.windows(5).position(|window| window == b"12345").unwrap();
    for at in (frame..frame + 5).chain(0..8) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, &damaged).unwrap();
        assert!(read::<ExportChunk>(&path).is_err(), "byte {at}");
    }
    let huge = [&whole[..8], &[0xff; 8]].concat();
    std::fs::write(&path, huge).unwrap();
    let error = read::<ExportChunk>(&path).unwrap_err().to_string();
    assert!(error.contains("at byte 8: a message of 4294967295 bytes"), "{error}");
}
