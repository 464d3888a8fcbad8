//! How a node renews a certificate that the cluster issued: it authenticates with the current one, and
//! keeps its key. A certificate of another origin that others refuse is warned of.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::NodeId;
use umbel_ports::IssuedFiles;
use umbel_ports::channel::channel_to;
use umbel_proto::v1::enrolment_client::EnrolmentClient;
use umbel_proto::v1::{EnrolResponse, RenewRequest};
use umbel_tls::{names_host, why_refused};

use crate::config::{Config, host_of};
use crate::local::Local;

/// How often a node checks whether its certificate is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Pause after a failed renewal: weeks are left, and other nodes may be starting.
const RENEW_AGAIN: Duration = Duration::from_secs(5);

/// Time limit of the request to one node.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Warns if others refuse the node's certificate, because of the host at which they reach the node or of who signed it.
/// The node can start all the same, and only those who call it, or whom it calls, would find out.
pub fn warn_of_refused_certificate(config: &Config) {
    let advertised = config.advertise.as_ref().unwrap_or(&config.listen);
    let (Some(file), Some(host)) = (&config.tls_cert, host_of(advertised)) else { return };
    // A file that cannot be used is refused elsewhere.
    if names_host(Path::new(file), host).is_ok_and(|is_named| !is_named) {
        tracing::warn!(
            "{file} is not for {host}, where others reach this node, so that clients and nodes refuse it there: \
             `umbel cluster certs node {host}` makes one that is, or advertise names another address"
        );
    }
    let Some(ca) = &config.tls_ca else { return };
    if let Ok(Some(why)) = why_refused(Path::new(ca), Path::new(file)) {
        tracing::warn!(
            "{file} {why}, so that clients and nodes that trust {ca} refuse it: `umbel cluster certs node {host}` makes \
             one that they accept, or tls_ca names another authority"
        );
    }
}

/// Renews the certificate that the cluster issued before it expires; never ends.
pub(crate) async fn keep_certificate(local: Arc<Local>) {
    loop {
        let pause = match local.net().due_certificate() {
            None => LOOK_INTERVAL,
            Some(files) => match renew(&local, files).await {
                Ok(by) => {
                    tracing::info!(%by, "the cluster has issued the next certificate");
                    // It stays due until the listener has loaded it.
                    LOOK_INTERVAL
                }
                Err(why) => {
                    tracing::warn!(why, "the certificate was not renewed; it is asked for again");
                    RENEW_AGAIN
                }
            },
        };
        tokio::time::sleep(pause).await;
    }
}

/// Asks the nodes in turn until one signs; returns that node.
async fn renew(local: &Local, files: &IssuedFiles) -> Result<NodeId, String> {
    let addresses = local.addresses();
    let own = addresses.get(&local.node()).ok_or("this node is not a member yet")?;
    let host = host_of(own).ok_or("its address has no host")?;
    let key = files.request().map_err(|error| error.to_string())?;
    let request = key.der(host).map_err(|error| error.to_string())?;
    let mut why = "no node has the authority's key (tls_ca_key)".to_owned();
    for (&node, address) in &addresses {
        let wanted = local.identity().member(node);
        let channel = channel_to(local.net(), address, Some(wanted)).map_err(|e| e.to_string())?;
        let mut client = EnrolmentClient::new(channel);
        let asked = client.renew(RenewRequest { request: request.clone().into() });
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(answer)) if answer.get_ref().certificate.is_empty() => {}
            Ok(Ok(answer)) => {
                let EnrolResponse { certificate, authorities, .. } = answer.into_inner();
                files.keep(&certificate, &authorities).map_err(|error| error.to_string())?;
                return Ok(node);
            }
            Ok(Err(status)) => why = format!("{node}: {}", status.message()),
            Err(_) => why = format!("{node} did not answer"),
        }
    }
    Err(why)
}
