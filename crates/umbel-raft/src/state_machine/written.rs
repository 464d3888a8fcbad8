//! Writes the body of a snapshot: length-prefixed records, the head first.

use std::io;

use bytes::{Bytes, BytesMut};
use umbel_engine::limits::SNAPSHOT_FRAME_BYTES_CUT;
use umbel_engine::shard::ShardSnapshot;
use umbel_ports::encoding::encode;
use umbel_storage::SnapshotWriter;

use super::Copied;
use super::head::Head;

/// Writes a copy of a state.
pub(super) async fn write_copied(writer: &mut SnapshotWriter, copied: Copied) -> io::Result<()> {
    match copied {
        Copied::Meta(state) => writer.write(record(&encode(&Head::of_meta(&state)))?).await,
        Copied::Shard(snapshot) => write_shard(writer, *snapshot).await,
    }
}

/// Writes slice by slice and drops each slice afterwards: until then, a change to the slice has to keep what it
/// changes, or to copy the slice.
pub(super) async fn write_shard(
    writer: &mut SnapshotWriter,
    mut snapshot: ShardSnapshot,
) -> io::Result<()> {
    let head = encode(&Head::of_shard(snapshot.head()));
    writer.write(record(&head)?).await?;
    while let Some(slice) = snapshot.take_slice() {
        for frame in slice.frames(SNAPSHOT_FRAME_BYTES_CUT).map_err(io::Error::other)? {
            writer.write(record(&frame.map_err(io::Error::other)?)?).await?;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

fn record(bytes: &[u8]) -> io::Result<Bytes> {
    let byte_count = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut record = BytesMut::with_capacity(4 + bytes.len());
    record.extend_from_slice(&byte_count.to_le_bytes());
    record.extend_from_slice(bytes);
    Ok(record.freeze())
}
