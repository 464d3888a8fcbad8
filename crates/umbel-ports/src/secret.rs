//! A network whose ends prove to each other that they know the same secret, for processes that work
//! together without a cluster.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::timeout;
use umbel_tls::{SecretRefusal, SecretTls};

use super::{Incoming, Listener, Net, PortFuture, Stream};

/// Time limit from the connection to the proof. Two round trips and two signatures take less than a
/// second anywhere in the world.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Concurrent handshakes; further connections wait in the system's queue. Each handshake holds some ten
/// kilobytes.
const HANDSHAKES_MAX: usize = 256;

/// Receives the connections that were closed: their origin, and the reason.
pub type OnRefused = dyn Fn(&str, &SecretRefusal) + Send + Sync;

/// A network with TLS based on a secret. Neither end receives any data before both have proved that
/// they know the secret, and the secret is never sent.
pub struct SecretNet {
    net: Arc<dyn Net>,
    tls: SecretTls,
    refused: Arc<OnRefused>,
}

/// The called end does not prove that it knows the secret.
#[derive(Debug, Error)]
#[error("{address} did not prove that it knows the secret")]
pub struct NotProved {
    address: String,
    #[source]
    why: SecretRefusal,
}

impl NotProved {
    /// Whether the error or one of its causes is of this type and final: a retry is of no use before an
    /// operator has done something.
    #[must_use]
    pub fn is_final(error: &(dyn std::error::Error + 'static)) -> bool {
        let causes = std::iter::successors(Some(error), |error| error.source());
        let mut inner = causes.filter_map(|error| error.downcast_ref::<io::Error>()?.get_ref());
        inner
            .any(|inner| inner.downcast_ref::<Self>().is_some_and(|failure| failure.why.is_final()))
    }
}

impl SecretNet {
    /// Encrypts a network. `refused` receives the connections that were refused; it must return
    /// quickly.
    #[must_use]
    pub fn new(
        net: Arc<dyn Net>,
        tls: SecretTls,
        refused: impl Fn(&str, &SecretRefusal) + Send + Sync + 'static,
    ) -> Self {
        Self { net, tls, refused: Arc::new(refused) }
    }

    async fn dial(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        let proving = self.tls.connect(self.net.connect(address).await?);
        match timeout(HANDSHAKE_TIMEOUT, proving).await.unwrap_or_else(|_| Err(late())) {
            Ok(stream) => Ok(Box::new(stream)),
            Err(why) => Err(io::Error::other(NotProved { address: address.to_owned(), why })),
        }
    }
}

fn late() -> SecretRefusal {
    SecretRefusal::Late { seconds: HANDSHAKE_TIMEOUT.as_secs() }
}

impl Net for SecretNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.net.listen(address).await?;
            let (tls, refused) = (self.tls.clone(), Arc::clone(&self.refused));
            let handshakes = JoinSet::new();
            Ok(Box::new(SecretListener { listener, tls, refused, handshakes }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.dial(address))
    }
}

struct SecretListener {
    listener: Box<dyn Listener>,
    tls: SecretTls,
    refused: Arc<OnRefused>,
    /// Connections whose peer is proving its identity; a slow one delays no other.
    handshakes: JoinSet<Option<Incoming>>,
}

impl SecretListener {
    fn begin(&mut self, taken: Incoming) {
        let (tls, refused) = (self.tls.clone(), Arc::clone(&self.refused));
        self.handshakes.spawn(async move {
            let Incoming { stream, from, identity, slot } = taken;
            let proved = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
            match proved.unwrap_or_else(|_| Err(late())) {
                Ok(stream) => Some(Incoming { stream: Box::new(stream), from, identity, slot }),
                Err(why) => {
                    refused(&from, &why);
                    None
                }
            }
        });
    }
}

impl Listener for SecretListener {
    fn local_address(&self) -> String {
        self.listener.local_address()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    Some(done) = self.handshakes.join_next() => {
                        if let Ok(Some(incoming)) = done {
                            return Ok(incoming);
                        }
                    }
                    taken = self.listener.accept(), if self.handshakes.len() < HANDSHAKES_MAX => {
                        self.begin(taken?);
                    }
                }
            }
        })
    }
}
