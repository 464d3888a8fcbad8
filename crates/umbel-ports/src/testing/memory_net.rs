//! An in-memory network for tests: pipes instead of sockets, so that time can be paused. And a seed
//! that counts up.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::{Incoming, Listener, Net, PeerIdentity, PortFuture, Purpose, Seed, Stream};

/// Listeners by address; counts connection attempts.
#[derive(Default)]
pub struct MemoryNet {
    listeners: Arc<Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>>>,
    connect_count: AtomicUsize,
}

impl MemoryNet {
    /// Number of connection attempts.
    pub fn connect_count(&self) -> usize {
        self.connect_count.load(Ordering::SeqCst)
    }
}

impl Net for MemoryNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        let (sender, incoming) = mpsc::channel(64);
        self.listeners
            .lock()
            .expect("no test panics while it has the table")
            .insert(address.to_owned(), sender);
        let listener = MemoryListener { address: address.to_owned(), incoming };
        Box::pin(async { Ok(Box::new(listener) as Box<dyn Listener>) })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        self.connect_count.fetch_add(1, Ordering::SeqCst);
        let listener = self
            .listeners
            .lock()
            .expect("no test panics while it has the table")
            .get(address)
            .cloned();
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let (here, there) = tokio::io::duplex(1 << 20);
            listener.ok_or_else(refused)?.send(there).await.map_err(|_| refused())?;
            Ok(Box::new(here) as Box<dyn Stream>)
        })
    }
}

/// A network whose listeners give this identity to every peer.
pub struct ProvingNet(pub MemoryNet, pub PeerIdentity);

impl Net for ProvingNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = ProvingListener(self.0.listen(address).await?, self.1.clone());
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        self.0.connect(address)
    }
}

struct ProvingListener(Box<dyn Listener>, PeerIdentity);

impl Listener for ProvingListener {
    fn local_address(&self) -> String {
        self.0.local_address()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            let taken = self.0.accept().await?;
            Ok(Incoming { identity: self.1.clone(), ..taken })
        })
    }
}

struct MemoryListener {
    address: String,
    incoming: mpsc::Receiver<DuplexStream>,
}

impl Listener for MemoryListener {
    fn local_address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            match self.incoming.recv().await {
                Some(stream) => Ok(Incoming::unchecked(stream, "memory".to_owned())),
                // Replaced by a later listener at the same address.
                None => std::future::pending().await,
            }
        })
    }
}

/// Draws 0, 1, 2 and so on.
#[derive(Default)]
pub struct CountingSeed(AtomicU64);

impl Seed for CountingSeed {
    fn fill(&self, _purpose: Purpose, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes()[0];
        }
    }

    fn wall_ms(&self) -> u64 {
        0
    }
}
