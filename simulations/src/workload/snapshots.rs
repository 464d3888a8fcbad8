//! Snapshots of filters as of one moment.

use tokio::time::timeout;
use umbel_client::ExportOptions;
use umbel_client::proto::export_chunk::Part;
use umbel_engine::placement::ShardRanges;

use super::{Clients, request_timeout};

/// The hash ranges of the shards, and the frames, each with its shard.
type Copied = (Option<ShardRanges>, Vec<(u32, Vec<u8>)>);

impl Clients {
    /// Takes a snapshot: the shards' ranges and the frames. It fails if it is not complete within the
    /// timeout.
    pub(super) async fn snapshot(
        &self,
        client: u32,
        via: u32,
        filter: &str,
    ) -> Result<Copied, String> {
        let copied = timeout(request_timeout(client), self.copy_out(client, via, filter));
        copied.await.map_err(|_| "it was not copied in time".to_owned())?
    }

    async fn copy_out(&self, client: u32, via: u32, filter: &str) -> Result<Copied, String> {
        let options = ExportOptions { known: None, snapshot: true };
        let client = self.client(client, via);
        let chunks = client.export_with(filter, options).await;
        let mut chunks = chunks.map_err(|error| error.to_string())?;
        let (mut ranges, mut frames) = (None, Vec::new());
        while let Some(chunk) = chunks.next().await.map_err(|error| error.to_string())? {
            match chunk.part {
                Some(Part::Header(head)) => {
                    ranges = ShardRanges::new(head.shards_founded, head.shard_count).ok();
                }
                Some(Part::Frame(frame)) => frames.push((frame.shard, frame.frame.to_vec())),
                _ => {}
            }
        }
        Ok((ranges, frames))
    }
}
