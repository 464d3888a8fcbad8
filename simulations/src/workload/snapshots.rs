//! Filters that are copied out, as they were at one moment.

use tokio::time::timeout;
use umbel_client::ExportOptions;
use umbel_client::proto::export_chunk::Part;

use super::{Clients, request_timeout};

impl Clients {
    /// The frames of a snapshot, each with its shard. Who reads too slowly leaves it half read.
    pub(super) async fn snapshot(
        &self,
        client: u32,
        via: u32,
        filter: &str,
    ) -> Result<Vec<(u32, Vec<u8>)>, String> {
        let copied = timeout(request_timeout(client), self.copy_out(client, via, filter));
        copied.await.map_err(|_| "it was not copied in time".to_owned())?
    }

    async fn copy_out(
        &self,
        client: u32,
        via: u32,
        filter: &str,
    ) -> Result<Vec<(u32, Vec<u8>)>, String> {
        let options = ExportOptions { known: None, snapshot: true };
        let client = self.client(client, via);
        let chunks = client.export_with(filter, options).await;
        let mut chunks = chunks.map_err(|error| error.to_string())?;
        let mut frames = Vec::new();
        while let Some(chunk) = chunks.next().await.map_err(|error| error.to_string())? {
            if let Some(Part::Frame(frame)) = chunk.part {
                frames.push((frame.shard, frame.frame.to_vec()));
            }
        }
        Ok(frames)
    }
}
