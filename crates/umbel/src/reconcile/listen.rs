//! A set that others may reconcile with, over TCP.

use super::drive::{Initiative, answer};
use super::endpoint::Connection;
use super::link::Patience;
use super::set::ItemSet;
use crate::exit::UsageError;
use crate::say::say_line;
use anyhow::{Context, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use umbel_engine::reconcile::Options;

/// Answers sessions, one after another, each with the file as it is then. With a folder of journals, those that are cut
/// can go on.
///
/// # Errors
///
/// If the address cannot be listened on, or may not be; with `once`, if the session fails.
pub(crate) fn listen(
    address: &str,
    is_insecure: bool,
    once: bool,
    (open, journals): (impl Fn() -> Result<Box<dyn ItemSet>>, Option<&Path>),
    options: impl Fn(&dyn ItemSet) -> Result<Options>,
    initiative: Initiative,
    patience: Patience,
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
    say_line(format_args!("listening on {}", listener.local_addr()?));
    loop {
        let (stream, peer) = listener.accept().with_context(|| address.to_owned())?;
        let session = || {
            let set = open()?;
            let connection = Connection::tcp(stream, peer.to_string())?;
            answer(&*set, options(&*set)?, initiative, connection, patience, journals)
        };
        match session() {
            Ok(None) => say_line(format_args!("{peer}: nothing was left to do")),
            Ok(Some(ended)) => say_line(format_args!(
                "{peer}: {} items came, {} bytes sent, {} received",
                ended.change.added.len() + ended.change.replaced.len(),
                ended.outcome.sent_bytes,
                ended.outcome.received_bytes
            )),
            Err(error) if once => return Err(error),
            Err(error) => say_line(format_args!("{error:#}")),
        }
        if once {
            return Ok(());
        }
    }
}
