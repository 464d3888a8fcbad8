//! Filters and whole clusters in and out, as streams.

use std::future::Future;
use std::time::Duration;

use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};
use umbel_proto::v1::backup_chunk::Part as BackupPart;
use umbel_proto::v1::export_chunk::Part as ExportPart;
use umbel_proto::v1::scrub_report::Part as ScrubPart;
use umbel_proto::v1::{
    BackupChunk, BackupRequest, ExportChunk, ExportRequest, ExportSince, FilterSummary,
    ImportChunk, KnownFrames, ScrubReport, ScrubRequest,
};

use crate::caller::{Ask, Failed, First, Progress, Repeat};
use crate::client::{Client, missing};
use crate::error::{ClientError, Failure};
use crate::nodes::Node;

/// How long a filter may take out of a cluster or into it: nodes end such a stream after a quarter of an
/// hour unless they are told otherwise, and grant a day at most.
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A request for a stream that may take its time.
fn long<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(STREAM_TIMEOUT);
    request
}

/// Chunks that come from a node, one after the other.
///
/// A stream that breaks is not begun again by itself: what was written of it is worth nothing
/// until its last chunk, the end, has come.
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

/// How a filter is copied out.
///
/// ```
/// let options = umbel_client::ExportOptions::default();
/// assert!(options.known.is_none() && !options.snapshot);
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExportOptions {
    /// Frames of an earlier export that whoever asks has, named by digests, as the message says: in place of a frame may come
    /// how it differs from the known one at its place. Whatever is known, the copy is whole. Its arrays are written as
    /// words then, so that a later one finds much that is the same.
    pub known: Option<Vec<KnownFrames>>,
    /// Whether the slices of all shards are copied as they were at one moment of the call: what was inserted and answered
    /// before is in the copy, what was inserted after it is not. Else each is copied when its turn comes. Writes
    /// wait while slices are copied, and nodes hold the copies in memory until they are sent.
    pub snapshot: bool,
}

#[expect(private_bounds, reason = "chunks are those of this crate only")]
impl<T: IsEnd> Chunks<T> {
    /// The next chunk; None behind the end.
    ///
    /// # Errors
    /// [`ClientError`] if the stream breaks, ends early, or nothing comes within the timeout of the
    /// options. Nothing is changed.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
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
        Err(Failed { failure, is_transient }.into_error(Repeat::Freely))
    }
}

impl Client {
    /// Copies a filter out: a header, frames, and an end.
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
    pub async fn export(&self, name: &str) -> Result<Chunks<ExportChunk>, ClientError> {
        self.export_with(name, ExportOptions::default()).await
    }

    /// Copies a filter out, with options.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn export_with(
        &self,
        name: &str,
        options: ExportOptions,
    ) -> Result<Chunks<ExportChunk>, ClientError> {
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

    /// Copies a filter in: a name with the exported header, then frames and the end as they were
    /// exported. It stays invisible until the last frame is verified.
    ///
    /// It is sent to one node once. To give it up, end the stream without an end chunk: nothing
    /// stays of it.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if the filter may have gone live.
    pub async fn import<S>(&self, chunks: S) -> Result<FilterSummary, ClientError>
    where
        S: Stream<Item = ImportChunk> + Send + 'static,
    {
        let answer =
            self.upload("import", |node| async move { node.filters().import(long(chunks)).await });
        answer.await?.filter.ok_or_else(|| missing("the filter", "import"))
    }

    /// Copies all filters with their keys out: whoever has the copy can ask and forge them.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn backup(&self) -> Result<Chunks<BackupChunk>, ClientError> {
        self.backup_as(BackupRequest { snapshot: false }).await
    }

    /// The same, each filter as all its shards were at one moment (see [`ExportOptions::snapshot`]); two filters are not
    /// of the same moment.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn backup_snapshots(&self) -> Result<Chunks<BackupChunk>, ClientError> {
        self.backup_as(BackupRequest { snapshot: true }).await
    }

    async fn backup_as(&self, message: BackupRequest) -> Result<Chunks<BackupChunk>, ClientError> {
        self.download("backup".to_owned(), |node| async move { node.admin().backup(message).await })
            .await
    }

    /// Copies filters of a backup in and returns their names.
    ///
    /// It is sent to one node once.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` if a name is taken; `ChangeUnknown` if some may be restored.
    pub async fn restore<S>(&self, chunks: S) -> Result<Vec<String>, ClientError>
    where
        S: Stream<Item = BackupChunk> + Send + 'static,
    {
        let answer =
            self.upload("restore", |node| async move { node.admin().restore(chunks).await });
        Ok(answer.await?.restored)
    }

    /// Has a filter, or all of them, compared bit by bit wherever it is more than once, and mended: of a
    /// replicated filter the copies of each pair of partners in the cube, of a partitioned one the
    /// replicas of each shard. The reports come as they are done, which may take minutes for large
    /// filters that differ, and then the end.
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
    pub async fn scrub(&self, filter: Option<&str>) -> Result<Chunks<ScrubReport>, ClientError> {
        let filter = filter.unwrap_or_default().to_owned();
        let message = ScrubRequest { filter };
        let reports = self.download("scrub".to_owned(), |node| {
            let message = message.clone();
            async move { node.admin().scrub(message).await }
        });
        Ok(Chunks { patience: self.caller.options.transfer_timeout, ..reports.await? })
    }

    /// Begins a download, at another node if one does not answer.
    async fn download<T, F, A>(
        &self,
        target: String,
        mut begin: F,
    ) -> Result<Chunks<T>, ClientError>
    where
        F: FnMut(Node) -> A,
        A: Future<Output = Result<Response<Streaming<T>>, Status>>,
    {
        self.caller.keep_map_fresh();
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        let mut progress = Progress::default();
        let mut node_address = String::new();
        let begun = self.caller.call(&ask, &mut progress, |node, _| {
            node_address = node.address.to_string();
            begin(self.caller.nodes.patient(node))
        });
        let stream = begun.await.map_err(|failed| failed.into_error(Repeat::Freely))?;
        let patience = self.caller.options.timeout;
        Ok(Chunks { stream, target, node: node_address, patience, is_complete: false })
    }

    /// Sends a stream to one node, once.
    async fn upload<R, F, A>(&self, target: &str, send: F) -> Result<R, ClientError>
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
        Err(Failed { failure, is_transient }.into_error(Repeat::IfUnchanged))
    }
}
