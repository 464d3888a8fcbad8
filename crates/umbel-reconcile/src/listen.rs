//! A set that others may reconcile with, over TCP.

use super::drive::{Driving, answer};
use super::endpoint::Connection;
use super::set::ItemSet;
use crate::error::UsageError;
use crate::error::{Context, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use umbel_engine::reconcile::Options;

/// Answers sessions, one after another, each with the file as it is then. With a folder of journals, those that are cut
/// can go on.
///
/// # Errors
///
/// If the address cannot be listened on, or may not be; with `once`, if the session fails.
pub fn listen(
    address: &str,
    is_insecure: bool,
    once: bool,
    open: impl Fn() -> Result<Box<dyn ItemSet>>,
    options: impl Fn(&dyn ItemSet) -> Result<Options>,
    driving: Driving<'_>,
) -> Result<()> {
    let addresses: Vec<SocketAddr> =
        address.to_socket_addrs().with_context(|| address.to_owned())?.collect();
    if !is_insecure && addresses.iter().any(|address| !address.ip().is_loopback()) {
        let text = format!(
            "{address}: whoever reaches it could read the set, and nobody is asked who they are: \
             --insecure allows that"
        );
        return Err(UsageError(text).into());
    }
    let listener =
        TcpListener::bind(&addresses[..]).with_context(|| format!("{address}: cannot listen"))?;
    driving.observer.notice(format_args!("listening on {}", listener.local_addr()?));
    loop {
        let (stream, peer) = listener.accept().with_context(|| address.to_owned())?;
        let session = || {
            let set = open()?;
            let connection = Connection::tcp(stream, peer.to_string())?;
            answer(&*set, options(&*set)?, connection, driving)
        };
        match session() {
            Ok(None) => driving.observer.notice(format_args!("{peer}: nothing was left to do")),
            Ok(Some(ended)) => driving.observer.notice(format_args!(
                "{peer}: {} items came, {} bytes sent, {} received",
                ended.change.added.len() + ended.change.replaced.len(),
                ended.outcome.sent_bytes,
                ended.outcome.received_bytes
            )),
            Err(error) if once => return Err(error),
            Err(error) => driving.observer.notice(format_args!("{error:#}")),
        }
        if once {
            return Ok(());
        }
    }
}
