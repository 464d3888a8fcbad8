//! Exports, imports, backups, restores and scrubs, as streams.

use std::future::Future;
use std::time::Duration;

use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};
use umbel_proto::v1::backup_chunk::Part as BackupPart;
use umbel_proto::v1::export_chunk::Part as ExportPart;
use umbel_proto::v1::scrub_report::Part as ScrubPart;
use umbel_proto::v1::{
    BackupChunk, BackupRequest, ExportChunk, ExportRequest, ExportSince, FilterSummary,
    ImportChunk, KnownFrames, RestoreResponse, ScrubReport, ScrubRequest,
};

use crate::caller::{CallPolicy, Failed, Progress, Repeat};
use crate::client::{Client, missing};
use crate::error::{ClientError, Result};
use crate::failure::Failure;
use crate::nodes::Node;

/// Deadline of a filter's export or import. Without one, nodes end such a stream after a quarter of an
/// hour; they grant a day at most.
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A request for a stream that may take that long.
fn long<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(STREAM_TIMEOUT);
    request
}

/// The chunks of a stream from a node.
///
/// A broken stream is not resumed automatically. What was written of it must not be used before the last
/// chunk, the end, has arrived.
pub struct Chunks<T> {
    stream: Streaming<T>,
    target: String,
    node: String,
    patience: Duration,
    is_complete: bool,
}

/// Whether a chunk is the last one.
pub(crate) trait IsEnd {
    fn is_end(&self) -> bool;
}

impl IsEnd for ExportChunk {
    fn is_end(&self) -> bool {
        matches!(self.part, Some(ExportPart::End(_)))
    }
}

impl IsEnd for BackupChunk {
    fn is_end(&self) -> bool {
        matches!(self.part, Some(BackupPart::End(_)))
    }
}

impl IsEnd for ScrubReport {
    fn is_end(&self) -> bool {
        matches!(self.part, Some(ScrubPart::Done(_)))
    }
}

/// Options of an export.
///
/// ```
/// let options = umbel_client::ExportOptions::default();
/// assert!(options.known.is_none() && !options.snapshot);
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExportOptions {
    /// Digests of the frames of an earlier export that the caller has. In place of a frame, the cluster
    /// may then send its difference to the known frame at the same place; the result is a complete copy
    /// either way. With this option, arrays are encoded as plain words, so that a later export finds more
    /// equal pieces.
    pub known: Option<Vec<KnownFrames>>,
    /// Whether the slices of all shards are copied as of one moment of the call: the copy has all inserts
    /// that were answered before that moment, and none that began after it. Otherwise each slice is
    /// copied when its turn comes. Writes wait while slices are copied, and nodes hold the copies in
    /// memory until they are sent.
    pub snapshot: bool,
}

#[expect(private_bounds, reason = "chunks are those of this crate only")]
impl<T: IsEnd> Chunks<T> {
    /// The next chunk; None after the end.
    ///
    /// # Errors
    /// [`ClientError`] if the stream breaks or ends early, or if no chunk arrives within the timeout of
    /// the options. Nothing is changed.
    pub async fn next(&mut self) -> Result<Option<T>> {
        if self.is_complete {
            return Ok(None);
        }
        let failure = match tokio::time::timeout(self.patience, self.stream.message()).await {
            Ok(Ok(Some(chunk))) => {
                self.is_complete = chunk.is_end();
                return Ok(Some(chunk));
            }
            Ok(Ok(None)) => {
                let text = "the stream stops before its end".to_owned();
                let failure = Failure::bad_answer(text, &self.target, &self.node);
                return Err(ClientError::BadAnswer(Box::new(failure)));
            }
            Ok(Err(status)) => Failure::from_status(&status, &self.target, &self.node),
            Err(_) => Failure::silence(&self.target, &self.node, self.patience),
        };
        let is_transient = failure.is_transient();
        Err(Failed { failure, is_transient, repeat: Repeat::Freely }.into())
    }
}

impl Client {
    /// Exports a filter: a header, frames, and an end.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
    /// let mut chunks = client.export("seen").await?;
    /// while let Some(chunk) = chunks.next().await? {
    ///     println!("{:?}", chunk.part);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn export(&self, name: &str) -> Result<Chunks<ExportChunk>> {
        self.export_with(name, ExportOptions::default()).await
    }

    /// Exports a filter with options.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn export_with(
        &self,
        name: &str,
        options: ExportOptions,
    ) -> Result<Chunks<ExportChunk>> {
        let target = format!("filter {name:?}");
        let ExportOptions { known, snapshot } = options;
        let since = known.map(|known| ExportSince { known });
        let message = ExportRequest { name: name.to_owned(), since, snapshot };
        self.download(target, |node| {
            let message = message.clone();
            async move { node.filters().export(long(message)).await }
        })
        .await
    }

    /// Imports a filter: a name with the exported header, then the frames and the end as they were
    /// exported. The filter stays invisible until its last frame is verified.
    ///
    /// It is sent to one node, and never retried. To abort it, end the stream without an end chunk:
    /// nothing of it is kept then.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if the filter may have become visible.
    pub async fn import<S>(&self, chunks: S) -> Result<FilterSummary>
    where
        S: Stream<Item = ImportChunk> + Send + 'static,
    {
        let answer =
            self.upload("import", |node| async move { node.filters().import(long(chunks)).await });
        answer.await?.filter.ok_or_else(|| missing("the filter", "import"))
    }

    /// Exports all filters with their hash keys. Anyone who has the copy can query the filters and forge
    /// items.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn backup(&self) -> Result<Chunks<BackupChunk>> {
        self.backup_as(BackupRequest { snapshot: false }).await
    }

    /// The same, but each filter is copied as all its shards were at one moment (see
    /// [`ExportOptions::snapshot`]). Different filters are copied at different moments.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn backup_snapshots(&self) -> Result<Chunks<BackupChunk>> {
        self.backup_as(BackupRequest { snapshot: true }).await
    }

    async fn backup_as(&self, message: BackupRequest) -> Result<Chunks<BackupChunk>> {
        self.download("backup".to_owned(), |node| async move { node.admin().backup(message).await })
            .await
    }

    /// Restores filters of a backup, and returns the names of those that were created, and of those that were
    /// left out because their names are taken (nodes of earlier builds do not return these).
    ///
    /// It is sent to one node, and never retried.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if some filters may be restored.
    pub async fn restore<S>(&self, chunks: S) -> Result<RestoreResponse>
    where
        S: Stream<Item = BackupChunk> + Send + 'static,
    {
        self.upload("restore", |node| async move { node.admin().restore(chunks).await }).await
    }

    /// Compares the replicas of a filter, or of all filters, bit by bit and repairs them: for a
    /// replicated filter the copies of each pair of partners in the hypercube, for a partitioned filter
    /// the replicas of each shard. Reports arrive as comparisons finish, which may take minutes for large
    /// filters that differ; the end follows.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
    /// let mut reports = client.scrub(Some("seen")).await?;
    /// while let Some(report) = reports.next().await? {
    ///     println!("{:?}", report.part);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn scrub(&self, filter: Option<&str>) -> Result<Chunks<ScrubReport>> {
        let filter = filter.unwrap_or_default().to_owned();
        let message = ScrubRequest { filter };
        let reports = self.download("scrub".to_owned(), |node| {
            let message = message.clone();
            async move { node.admin().scrub(message).await }
        });
        Ok(Chunks { patience: self.caller.options.transfer_timeout, ..reports.await? })
    }

    /// Begins a download, at another node if one does not answer.
    async fn download<T, F, A>(&self, target: String, mut begin: F) -> Result<Chunks<T>>
    where
        F: FnMut(Node) -> A,
        A: Future<Output = Result<Response<Streaming<T>>, Status>>,
    {
        self.caller.keep_map_fresh();
        let policy = CallPolicy::freely(&target);
        let mut progress = Progress::default();
        let mut node_address = String::new();
        let begun = self.caller.call(&policy, &mut progress, |node, _| {
            node_address = node.address.to_string();
            begin(self.caller.nodes.patient(node))
        });
        let stream = begun.await?;
        let patience = self.caller.options.timeout;
        Ok(Chunks { stream, target, node: node_address, patience, is_complete: false })
    }

    /// Sends a stream to one node, without retries.
    async fn upload<R, F, A>(&self, target: &str, send: F) -> Result<R>
    where
        F: FnOnce(Node) -> A,
        A: Future<Output = Result<Response<R>, Status>>,
    {
        self.caller.keep_map_fresh();
        let node = self.caller.nodes.pick(None, None);
        let address = node.address.clone();
        let node = self.caller.nodes.patient(node);
        let patience = self.caller.options.transfer_timeout;
        let failure = match tokio::time::timeout(patience, send(node)).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => Failure::from_status(&status, target, &address),
            Err(_) => Failure::silence(target, &address, patience),
        };
        if failure.blames_node() {
            self.caller.nodes.failed(&address);
        }
        let is_transient = failure.is_transient();
        Err(Failed { failure, is_transient, repeat: Repeat::IfUnchanged }.into())
    }
}
