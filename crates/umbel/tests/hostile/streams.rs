//! Streams that nobody reads, streams that trickle, and expensive calls.

use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use prost::Message;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use umbel_client::proto::{
    BackupRequest, ErrorCode, ExportChunk, ExportRequest, ImportChunk, ImportHeader, InfoRequest,
    InsertRequest, Items, export_chunk, import_chunk,
};
use umbel_client::{Client, ClientError, Distribution, NewFilter};

use crate::calls::{Caller, framed, push};
use crate::honest::FILTER;
use crate::siege::{Bounds, Siege, scaled};

/// Memory of the filter of which copies are requested: more than flow control windows hold.
const LARGE_BYTES: u64 = 32 << 20;

/// Most memory of its copies in transit: those of four exports, and what they send.
const BOUNDS: Bounds = Bounds { memory_mib: 160, descriptors: 16 };

/// The call that describes a filter, which counts its bits.
const INFO: &str = "/umbel.v1.Filters/Info";

/// Concurrent calls of a stranger.
const CALLS_AT_ONCE: usize = 32;

/// Streams of a connection that send requests, and bytes of the item of each.
const STREAMS: usize = 8;
const ITEM_BYTES: usize = 4 << 10;

/// Longest wait of an honest copy for those of strangers, which are dropped after a minute at the latest.
const PATIENCE: Duration = Duration::from_secs(180);

/// The name of the large filter.
const LARGE: &str = "large";

/// A node with a large filter.
async fn with_large_filter(distribution: Distribution) -> Siege {
    let mut siege = Siege::begin().await;
    let large = NewFilter { distribution, ..NewFilter::for_memory(1_000_000, LARGE_BYTES) };
    siege.honest.client().create(LARGE, &large).await.unwrap();
    siege.honest.client().filter(LARGE).insert(["a", "b"]).await.unwrap();
    siege.rests();
    siege
}

/// Starts a call with one message and reads nothing of its answer.
async fn unread(caller: &Caller, path: &str, message: &impl Message) -> Option<RecvStream> {
    let (response, mut stream) = caller.begin(path, &[]).await.ok()?;
    push(&mut stream, framed(&message.encode_to_vec()), true).await.ok()?;
    Some(response.await.ok()?.into_body())
}

/// All chunks of a copy, retried until there is room for it.
async fn exported(client: &Client, name: &str) -> Vec<ExportChunk> {
    loop {
        match try_exported(client, name).await {
            Ok(chunks) => return chunks,
            // The node has not noticed yet that the others have disconnected.
            Err(ClientError::Unavailable(failure)) if failure.cause == ErrorCode::Overloaded => {
                tokio::time::sleep(failure.retry_after.unwrap()).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn try_exported(client: &Client, name: &str) -> Result<Vec<ExportChunk>, ClientError> {
    let mut chunks = client.export(name).await?;
    let mut all = Vec::new();
    while let Some(chunk) = chunks.next().await? {
        all.push(chunk);
    }
    Ok(all)
}

/// Strangers that request copies and do not read them.
async fn unread_copies(siege: &Siege) -> (Vec<Caller>, Vec<RecvStream>) {
    let (mut callers, mut held) = (Vec::new(), Vec::new());
    for _ in 0..scaled(4) {
        let caller = Caller::open(&siege.address()).await;
        for _ in 0..4 {
            for snapshot in [false, true] {
                let export = ExportRequest { name: LARGE.to_owned(), since: None, snapshot };
                held.extend(unread(&caller, "/umbel.v1.Filters/Export", &export).await);
                let backup = BackupRequest { snapshot };
                held.extend(unread(&caller, "/umbel.v1.Admin/Backup", &backup).await);
            }
        }
        callers.push(caller);
    }
    (callers, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_nobody_reads_are_bounded_and_come_back() {
    let siege = with_large_filter(Distribution::Partitioned).await;
    let held = unread_copies(&siege).await;
    siege.holds("unread copies", BOUNDS).await;
    drop(held);
    // The permits are released.
    let client = siege.honest.client();
    let asked = tokio::time::timeout(PATIENCE, exported(&client, LARGE));
    assert!(asked.await.expect("a copy in time").len() > 2);
    siege.recovers("unread copies").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: waits for limits in time"]
async fn copies_that_nobody_reads_keep_nobody_from_his() {
    let siege = with_large_filter(Distribution::Replicated).await;
    let held = unread_copies(&siege).await;
    let client = siege.honest.client();
    let asked = tokio::time::timeout(PATIENCE, exported(&client, LARGE));
    assert!(asked.await.expect("a copy in time").len() > 2);
    drop(held);
    siege.recovers("unread copies").await;
}

fn import(part: import_chunk::Part) -> Bytes {
    framed(&ImportChunk { part: Some(part) }.encode_to_vec())
}

/// Imports that are started and not continued.
async fn trickling(
    siege: &Siege,
    chunks: &[ExportChunk],
) -> (Vec<Caller>, Vec<(ResponseFuture, SendStream<Bytes>)>) {
    let Some(export_chunk::Part::Header(header)) = &chunks[0].part else { panic!("no header") };
    let (mut callers, mut held) = (Vec::new(), Vec::new());
    for caller_number in 0..scaled(4) {
        let caller = Caller::open(&siege.address()).await;
        for number in 0..4 {
            let name = format!("trickle {caller_number} {number}");
            let begun = caller.begin("/umbel.v1.Filters/Import", &[]).await;
            let Ok((response, mut stream)) = begun else { break };
            let head = ImportHeader { name, exported: Some(header.clone()) };
            let sent = push(&mut stream, import(import_chunk::Part::Header(head)), false).await;
            if sent.is_ok() {
                // An incomplete frame.
                let _ = push(&mut stream, Bytes::from_static(&[0, 0, 16, 0, 0, 7]), false).await;
                held.push((response, stream));
            }
        }
        callers.push(caller);
    }
    (callers, held)
}

/// Imports a copy under another name.
async fn imports(client: &Client, name: &str, chunks: &[ExportChunk]) -> Result<(), ClientError> {
    let part = |chunk: &ExportChunk| {
        Some(match chunk.part.clone()? {
            export_chunk::Part::Header(header) => import_chunk::Part::Header(ImportHeader {
                name: name.to_owned(),
                exported: Some(header),
            }),
            export_chunk::Part::Frame(frame) => import_chunk::Part::Frame(frame),
            export_chunk::Part::End(end) => import_chunk::Part::End(end),
            export_chunk::Part::Change(_) => panic!("nothing was known"),
        })
    };
    let chunks: Vec<ImportChunk> =
        chunks.iter().map(|chunk| ImportChunk { part: part(chunk) }).collect();
    client.import(tokio_stream::iter(chunks)).await.map(drop)
}

/// A node with a small replicated filter, and its copy; imports of such are assembled in memory.
async fn with_copy() -> (Siege, Vec<ExportChunk>) {
    let siege = Siege::begin().await;
    let client = siege.honest.client();
    let replicated = NewFilter {
        distribution: Distribution::Replicated,
        ..NewFilter::for_memory(100_000, 8 << 20)
    };
    client.create("small", &replicated).await.unwrap();
    client.filter("small").insert(["a"]).await.unwrap();
    let chunks = exported(&client, "small").await;
    (siege, chunks)
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_that_trickle_are_bounded_and_come_back() {
    let (siege, chunks) = with_copy().await;
    let held = trickling(&siege, &chunks).await;
    siege.holds("trickling imports", Bounds { memory_mib: 96, descriptors: 16 }).await;
    drop(held);
    crate::servers::until("names of unfinished imports", || async {
        let listed = siege.honest.client().list("trickle").await.ok()?;
        listed.is_empty().then_some(())
    })
    .await;
    imports(&siege.honest.client(), "honest copy", &chunks).await.unwrap();
    siege.recovers("trickling imports").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: waits for limits in time"]
async fn imports_that_trickle_keep_nobody_from_his() {
    let (siege, chunks) = with_copy().await;
    let held = trickling(&siege, &chunks).await;
    let client = siege.honest.client();
    // A refused import must be repeated by the caller, since its stream can only be sent once.
    crate::servers::until("room for an honest import", || async {
        match imports(&client, "honest copy", &chunks).await {
            Ok(()) => Some(()),
            Err(ClientError::Unavailable(_)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    drop(held);
    siege.recovers("trickling imports").await;
}

/// Clients that send requests of streams as fast as the node reads them, and read no answer.
async fn unread_answers(siege: &Siege) -> (Vec<Caller>, JoinSet<()>) {
    let items = vec![Bytes::from(vec![7; ITEM_BYTES])];
    let insert = InsertRequest {
        filter: FILTER.to_owned(),
        items: Some(Items { items, ..Items::default() }),
        ..InsertRequest::default()
    };
    let insert = framed(&insert.encode_to_vec());
    let (mut callers, mut senders) = (Vec::new(), JoinSet::new());
    for _ in 0..scaled(4) {
        let caller = Caller::open(&siege.address()).await;
        for _ in 0..STREAMS {
            let begun = caller.begin("/umbel.v1.Filters/InsertStream", &[]).await;
            let Ok((response, mut stream)) = begun else { break };
            let insert = insert.clone();
            senders.spawn(async move {
                // Until the node closes the connection.
                while push(&mut stream, insert.clone(), false).await.is_ok() {}
                drop(response);
            });
        }
        callers.push(caller);
    }
    (callers, senders)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_streams_that_nobody_reads_are_bounded() {
    let siege = Siege::begin().await;
    let held = unread_answers(&siege).await;
    siege.holds("unread answers", BOUNDS).await;
    drop(held);
    siege.recovers("unread answers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_dear_starve_nobody() {
    let siege = with_large_filter(Distribution::Partitioned).await;
    let attackers = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for _ in 0..scaled(2) {
        let address = siege.address();
        attackers.spawn(async move {
            let caller = Caller::open(&address).await;
            let info = framed(&InfoRequest { name: LARGE.to_owned() }.encode_to_vec());
            for _ in 0..CALLS_AT_ONCE {
                let (caller, info) = (caller.another(), info.clone());
                tokio::spawn(async move {
                    while caller.send(INFO, &[], info.clone()).await.is_success() {}
                });
            }
            std::future::pending::<()>().await;
        });
    }
    siege.holds("dear calls", BOUNDS).await;
    attackers.shutdown_background();
    siege.recovers("dear calls").await;
}
