//! `umbel cluster status --ready`: whether one node is ready for clients, for health checks that run a command.

use super::connect::ClusterArgs;
use crate::cluster_client;
use crate::exit::{Exit, refuse};
use crate::printer::print;
use anyhow::Result;
use serde_json::json;
use std::time::Duration;
use umbel_client::{ClientOptions, NodeReadiness};

/// How long the node may take: it answers at once whether or not it is ready, and health checks give up after some seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the node once, and prints what its page `/readyz` says.
///
/// # Errors
///
/// If several nodes are named, credentials cannot be used, or the node does not answer.
pub(super) async fn show(cluster: &ClusterArgs) -> Result<Exit> {
    let address = cluster.addresses();
    if address.contains(',') {
        refuse!("--ready asks one node, and {address} are several: name it by --cluster HOST:PORT");
    }
    let options = ClientOptions {
        timeout: PATIENCE,
        attempt_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        attempt_count_max: 1,
        learns_nodes: false,
        ..ClientOptions::default()
    };
    let client = cluster_client::connect(&address, options, &cluster.credentials()?)?;
    let NodeReadiness { is_ready, text } = client.readiness().await?;
    print(cluster.json, &json!({ "ready": is_ready, "text": text }), || format!("{text}\n"))?;
    Ok(if is_ready { Exit::Done } else { Exit::No })
}
