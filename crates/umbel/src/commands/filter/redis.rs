//! Copies filters from and to servers that speak RedisBloom's dialect: a Redis server with RedisBloom, or
//! a node's port for the Redis protocol.

mod address;
mod answer;
mod file;
mod scan;
mod server;
mod source;

#[cfg(test)]
mod source_test;

pub(super) use address::{Address, Place, parse_address};
pub(super) use file::{FileArgs, Given};
pub(super) use source::SourceArgs;

use crate::exit::{Exit, UsageError, refuse};
use crate::printer::{facts, print};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use file::{key_of, parse_given, send_filter};
use serde_json::json;
use server::Server;
use source::cuckoo_refused;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use umbel_client::proto::{
    ExportChunk, ExportEnd, ExportFrame, ExportHeader, FilterSummary, ImportChunk, ImportHeader,
    export_chunk, import_chunk,
};
use umbel_client::{Client, Kind, kind_name};
use umbel_gateway::redis_bloom_dump::{DumpReader, DumpWriter};
use umbel_gateway::redis_bloom_value::CUCKOO_TYPE_NAME;
use umbel_tls::{ForeignFiles, KeyPairFiles};

/// Most messages, of some megabytes each, that are read ahead of sending.
const WAITING_CHUNKS_MAX: usize = 4;

/// Bytes of a chunk that is sent to a server; every server accepts chunks of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Whom a server with TLS is believed, and what it is shown.
#[derive(Args)]
pub(super) struct TrustArgs {
    /// Trust rediss:// servers that this authority has signed, instead of the system's authorities
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Present this certificate to rediss:// servers that request one
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,
    /// The private key of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
}

impl TrustArgs {
    /// The certificate files to connect to this server.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if a file is named and the address is not one with TLS.
    pub(super) fn checked(&self, place: Option<&Place>) -> Result<ForeignFiles, UsageError> {
        if !place.is_some_and(|place| place.is_tls) {
            for (name, file) in [("--cacert", &self.cacert), ("--cert", &self.cert)] {
                if file.is_some() {
                    refuse!("{name} is for addresses that begin with rediss://");
                }
            }
        }
        let pair = self.cert.clone().zip(self.cert_key.clone());
        Ok(ForeignFiles {
            ca: self.cacert.clone(),
            pair: pair.map(|(certificate, key)| KeyPairFiles { certificate, key }),
        })
    }
}

/// Creates a filter as a copy of a server's filter.
///
/// # Errors
///
/// If the server cannot be reached or has no such filter, or the call to the cluster fails. No filter is
/// created then.
pub(super) async fn import(
    client: &Client,
    name: &str,
    (from, files): (&Address, &ForeignFiles),
    is_json: bool,
) -> Result<Exit> {
    let begun = async {
        let mut server = Server::connect(from.place(), files).await?;
        let piece = first_piece(&mut server, from).await?;
        let reader = DumpReader::new(&piece).with_context(|| {
            "the server's copy is not in RedisBloom's form: of an Umbel node, `umbel filter export` copies \
             filters of other kinds"
        })?;
        anyhow::Ok((server, reader))
    };
    let (server, reader) = begun.await.with_context(|| from.to_string())?;
    let (chunks, sent) = mpsc::channel(WAITING_CHUNKS_MAX);
    let (name, place) = (name.to_owned(), from.clone());
    let reading = tokio::spawn(async move { send(server, &place, reader, name, &chunks).await });
    let outcome = client.import(ReceiverStream::new(sent)).await;
    // If reading from the server failed, that caused the failure of the call; it is reported first.
    let read = reading.await.context("the reading task broke off")?;
    read.with_context(|| from.to_string())?;
    super::show::print_summary(is_json, &outcome?)?;
    Ok(Exit::Done)
}

/// The first piece of a filter. Where there is none because the key has a cuckoo filter of RedisBloom's, the error
/// says so: the server's `WRONGTYPE` does not tell that it can never be copied.
async fn first_piece(server: &mut Server, from: &Address) -> Result<Bytes> {
    match server.dump(from, 0).await {
        Ok(dump) => Ok(dump.context("no header came")?.piece),
        Err(error) if error.to_string().contains("WRONGTYPE") => {
            match server.type_of(&from.key).await.as_deref() {
                Ok(CUCKOO_TYPE_NAME) => Err(cuckoo_refused()),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Parses where a filter is copied from: an address or the path of a file.
///
/// # Errors
///
/// If the text looks like an address and cannot be parsed.
pub(super) fn parse_filter_source(text: &str) -> Result<Given<Address>, String> {
    parse_given(text, parse_address)
}

/// Creates a filter as a copy of one in a database file.
///
/// # Errors
///
/// If the file cannot be read, is damaged or has no such filter, or the call to the cluster fails. No
/// filter is created then.
pub(super) async fn import_file(
    connect: impl FnOnce() -> Result<Client>,
    name: &str,
    (path, args): (&Path, &FileArgs),
    is_json: bool,
) -> Result<Exit> {
    let database = args.database(path);
    let key = args.key();
    let what = match &key {
        Some(key) => key_of(&database, key),
        None => database.to_string(),
    };
    let searched = database.clone();
    let found = tokio::task::spawn_blocking(move || searched.at_filter(key)).await;
    let (key, reader) = found.context("the reading thread broke off")?.context(what)?;
    let client = connect()?;
    let (chunks, sent) = mpsc::channel(WAITING_CHUNKS_MAX);
    let (name, what) = (name.to_owned(), key_of(&database, &key));
    let reading = tokio::task::spawn_blocking(move || send_filter(reader, &name, &chunks));
    let outcome = client.import(ReceiverStream::new(sent)).await;
    // If the file is damaged, that caused the failure of the call; it is reported first.
    reading.await.context("the reading thread broke off")?.context(what)?;
    super::show::print_summary(is_json, &outcome?)?;
    Ok(Exit::Done)
}

/// Forwards a dump to the cluster, piece by piece. If the server fails, the stream ends without its end
/// message.
async fn send(
    mut server: Server,
    from: &Address,
    mut reader: DumpReader,
    name: String,
    chunks: &mpsc::Sender<ImportChunk>,
) -> Result<()> {
    let exported = ExportHeader {
        filter: None,
        shard_count: 1,
        shards_founded: 1,
        settings: reader.settings(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        log_indexes: Vec::new(),
    };
    let header = ImportHeader { name, exported: Some(exported) };
    let chunk = |part| ImportChunk { part: Some(part) };
    let mut iterator = 1;
    let mut parts = vec![import_chunk::Part::Header(header)];
    loop {
        for part in parts.drain(..) {
            if chunks.send(chunk(part)).await.is_err() {
                return Ok(()); // The call has failed and reports why.
            }
        }
        // The size comes from the header. What was inserted after the header was read lies beyond it.
        if reader.is_complete() {
            break;
        }
        let Some(dump) = server.dump(from, iterator).await? else {
            bail!("the dump ends early: has the filter been replaced meanwhile?");
        };
        let frames = reader.push(dump.iterator, &dump.piece)?;
        // Without this check, a server that returns no progress would be asked forever.
        if dump.iterator <= iterator {
            bail!("iterator {} behind {iterator}: the dump does not go on", dump.iterator);
        }
        iterator = dump.iterator;
        let frame = |frame| import_chunk::Part::Frame(ExportFrame { shard: 0, frame });
        parts.extend(frames.into_iter().map(frame));
    }
    let (frame_count, checksum) = reader.end();
    let end = import_chunk::Part::End(ExportEnd { frame_count, checksum });
    let _ = chunks.send(chunk(end)).await;
    Ok(())
}

/// Refuses a filter that a server with RedisBloom does not know.
fn check_kind(header: &ExportHeader) -> Result<()> {
    match header.filter.as_ref().map(FilterSummary::kind) {
        None | Some(Kind::Redisbloom) => Ok(()),
        Some(kind) => bail!(
            "the filter is {}, and filters of --kind redisbloom alone go to such a server",
            kind_name(kind).unwrap_or("of an unknown kind")
        ),
    }
}

/// Copies a filter to a server: first to a temporary key, which is renamed once the copy is complete.
///
/// # Errors
///
/// If the filter is not of kind redisbloom, or a call to the cluster or the server fails. The temporary
/// key is deleted then, unless the server does not answer any more.
pub(super) async fn export(
    client: &Client,
    name: &str,
    (to, files): (&Address, &ForeignFiles),
    is_json: bool,
) -> Result<()> {
    let mut chunks = client.export(name).await?;
    let mut writer = DumpWriter::default();
    let connected = async { Server::connect(to.place(), files).await?.check_free(to).await };
    let mut server = connected.await.with_context(|| to.to_string())?;
    let beside = to.beside();
    let copied = async {
        let mut begun = false;
        while let Some(ExportChunk { part }) = chunks.next().await? {
            let frame = match part {
                Some(export_chunk::Part::Header(header)) => {
                    check_kind(&header)?;
                    continue;
                }
                Some(export_chunk::Part::Frame(frame)) => frame,
                _ => continue,
            };
            writer.push(&frame.frame).map_err(|error| {
                anyhow!("{error}; filters of --kind redisbloom alone go to such a server")
            })?;
            if let Some(header) = writer.header().filter(|_| !begun) {
                server.load(&beside, 1, &header.to_bytes()).await?;
                begun = true;
            }
            while let Some((iterator, piece)) = writer.next_piece(PIECE_BYTES) {
                server.load(&beside, iterator, &piece).await?;
            }
        }
        if !writer.is_complete() {
            bail!("frames are missing");
        }
        server.rename(&beside, to).await
    };
    if let Err(error) = copied.await {
        // If the server does not answer, the partial copy stays under a temporary key that nobody uses.
        let _ = server.delete(&beside).await;
        return Err(error.context(to.to_string()));
    }
    let value = json!({ "to": to.to_string(), "bytes": writer.given_bytes() });
    print(is_json, &value, || {
        facts(&[("to", to.to_string()), ("bytes", writer.given_bytes().to_string())])
    })
}
