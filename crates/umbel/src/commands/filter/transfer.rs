//! Exports filters to files and servers, and imports them.

use super::earlier;
use super::redis::{self, Address, FileArgs, Given, TrustArgs, parse_address, parse_filter_source};
use crate::commands::cluster::chunk_file::{ChunkReader, ChunkWriter, broken_off, stream};
use crate::commands::cluster::connect::ClusterArgs;
use crate::exit::Exit;
use crate::printer::{facts, print};
use anyhow::{Context, Result, bail};
use clap::Args;
use prost::Message;
use serde_json::json;
use std::path::{Path, PathBuf};
use umbel_client::proto::{ExportChunk, ImportChunk, ImportHeader, export_chunk, import_chunk};
use umbel_client::{Client, ExportOptions};

/// Where a filter is copied to.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// Its name
    name: String,
    /// The file
    #[arg(long, value_name = "FILE", required_unless_present = "to")]
    out: Option<PathBuf>,
    /// A free key of a server that speaks RedisBloom's dialect, for a filter of --kind redisbloom:
    /// `redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY`, rediss:// for TLS, with the password here or in
    /// REDISCLI_AUTH
    #[arg(long, value_name = "URL", value_parser = parse_address, conflicts_with_all = ["out", "since", "snapshot", "overwrite"])]
    to: Option<Address>,
    #[command(flatten)]
    trust: TrustArgs,
    /// File of an earlier export: only blocks of 4 KiB that differ from it are sent; the new file is complete
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Copy all shards as they were at one moment; writes wait for some milliseconds
    #[arg(long)]
    snapshot: bool,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Where a filter comes from.
#[derive(Args)]
pub(crate) struct ImportArgs {
    /// Its name, which must be free
    name: String,
    #[command(flatten)]
    source: ImportSource,
    #[command(flatten)]
    file_key: FileArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct ImportSource {
    /// The file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A key of a server that speaks RedisBloom's dialect, bit by bit:
    /// `redis://[USER:PASSWORD@]HOST:PORT[/DB]/KEY`, rediss:// for TLS, with the password here or in
    /// REDISCLI_AUTH; or a database file of Redis (.rdb), its only filter or that of --key
    #[arg(long, value_name = "URL|FILE", value_parser = parse_filter_source)]
    from: Option<Given<Address>>,
}

/// Exports a filter to a file or a server.
///
/// # Errors
///
/// If a call to the cluster or the server fails, or a file cannot be read or written. No new file is left
/// then.
pub(crate) async fn export(client: &Client, args: &ExportArgs, json: bool) -> Result<()> {
    let ExportArgs { name, out, to, trust, since, snapshot, overwrite } = args;
    let files = trust.checked(to.as_ref().map(Address::place))?;
    if let Some(to) = to {
        return redis::export(client, name, (to, &files), json).await;
    }
    let out = out.as_deref().context("--out or --to is required")?;
    let known = since.as_deref().map(earlier::known).transpose()?;
    let mut earlier = since.as_deref().map(earlier::Frames::open).transpose()?;
    let mut file = ChunkWriter::<ExportChunk>::create(out, *overwrite, None)?;
    let options = ExportOptions { known, snapshot: *snapshot };
    let mut chunks = client.export_with(name, options).await?;
    let mut received_bytes = 0;
    let broken = |error| broken_off::<ExportChunk>(error, out);
    while let Some(chunk) = chunks.next().await.map_err(broken)? {
        received_bytes += chunk.encoded_len() as u64;
        match &mut earlier {
            Some(earlier) => file.write(&earlier.completed(chunk)?)?,
            None => file.write(&chunk)?,
        }
    }
    let byte_count = file.finish()?;
    let out = out.display().to_string();
    let value = json!({ "file": out, "bytes": byte_count, "received_bytes": received_bytes });
    print(json, &value, || {
        let mut rows = vec![("file", out.clone()), ("bytes", byte_count.to_string())];
        if since.is_some() {
            rows.push(("received", received_bytes.to_string()));
        }
        facts(&rows)
    })
}

/// Creates a filter from a file, or from a key of a server.
///
/// # Errors
///
/// If the file is damaged, which is found before the cluster is called; if a call to the server or the
/// cluster fails.
pub(crate) async fn import(cluster: &ClusterArgs, args: &ImportArgs) -> Result<Exit> {
    let ImportArgs { name, source: ImportSource { file, from }, file_key, trust } = args;
    let place = match from {
        Some(Given::Server(from)) => Some(from.place()),
        _ => None,
    };
    let files = trust.checked(place)?;
    match (file, from) {
        (_, Some(Given::Server(from))) => {
            file_key.refused_for_servers()?;
            let from = (from, &files);
            redis::import(&cluster.client()?, name, from, cluster.json).await
        }
        (_, Some(Given::File(path))) => {
            redis::import_file(|| cluster.client(), name, (path, file_key), cluster.json).await
        }
        (Some(file), None) => {
            file_key.refused_without_from()?;
            import_file(cluster, name, file).await
        }
        (None, None) => bail!("--file or --from is required"),
    }
}

async fn import_file(cluster: &ClusterArgs, name: &str, file: &Path) -> Result<Exit> {
    ChunkReader::<ExportChunk>::verify(file, None)?;
    let client = cluster.client()?;
    let name = name.to_owned();
    let (chunks, reading) = stream(file, None, move |chunk: ExportChunk| {
        let part = chunk.part.map(|part| match part {
            export_chunk::Part::Header(exported) => import_chunk::Part::Header(ImportHeader {
                name: name.clone(),
                exported: Some(exported),
            }),
            export_chunk::Part::Frame(frame) => import_chunk::Part::Frame(frame),
            export_chunk::Part::End(end) => import_chunk::Part::End(end),
            export_chunk::Part::Change(_) => unreachable!("the file was verified"),
        });
        ImportChunk { part }
    })?;
    let outcome = client.import(chunks).await;
    // If the file is damaged, that caused the failure of the call; it is reported first.
    reading.await.context("the reading thread broke off")??;
    super::show::print_summary(cluster.json, &outcome?)?;
    Ok(Exit::Done)
}
