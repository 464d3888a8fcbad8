//! Filters into files and out of them.

use crate::commands::cluster::chunk_file::{ChunkReader, ChunkWriter, stream};
use crate::commands::cluster::connect::ClusterArgs;
use crate::commands::cluster::show::{facts, print};
use crate::exit::Exit;
use anyhow::{Context, Result};
use serde_json::json;
use std::path::Path;
use umbel_client::Client;
use umbel_client::proto::{ExportChunk, ImportChunk, ImportHeader, export_chunk, import_chunk};

/// Copies a filter into a file.
///
/// # Errors
///
/// As the cluster; if the file cannot be written. There is no file then.
pub(crate) async fn export(
    client: &Client,
    name: &str,
    out: &Path,
    overwrite: bool,
    json: bool,
) -> Result<()> {
    let mut file = ChunkWriter::<ExportChunk>::create(out, overwrite, None)?;
    let mut chunks = client.export(name).await?;
    while let Some(chunk) = chunks.next().await? {
        file.write(&chunk)?;
    }
    let byte_count = file.finish()?;
    let out = out.display().to_string();
    print(json, &json!({ "file": out, "bytes": byte_count }), || {
        facts(&[("file", out.clone()), ("bytes", byte_count.to_string())])
    })
}

/// Makes a filter from a file.
///
/// # Errors
///
/// If the file is damaged, before anybody is asked; as the cluster.
pub(crate) async fn import(cluster: &ClusterArgs, name: &str, file: &Path) -> Result<Exit> {
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
        });
        ImportChunk { part }
    })?;
    let outcome = client.import(chunks).await;
    // Damage of the file is the cause of what the cluster says then.
    reading.await.context("the reading thread broke off")??;
    super::show::print_summary(cluster.json, &outcome?)?;
    Ok(Exit::Done)
}
