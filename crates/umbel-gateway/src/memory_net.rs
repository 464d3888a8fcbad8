//! An in-memory network for tests: pipes instead of sockets, so that time can be paused.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use umbel_node::ports::{Incoming, Listener, Net, PortFuture, Stream};

/// Listeners by address.
#[derive(Default)]
pub(crate) struct MemoryNet {
    listeners: Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>>,
}

impl Net for MemoryNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        let (sender, incoming) = mpsc::channel(64);
        self.listeners.lock().unwrap().insert(address.to_owned(), sender);
        let listener = MemoryListener { address: address.to_owned(), incoming };
        Box::pin(async { Ok(Box::new(listener) as Box<dyn Listener>) })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        let listener = self.listeners.lock().unwrap().get(address).cloned();
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let (here, there) = tokio::io::duplex(1 << 20);
            listener.ok_or_else(refused)?.send(there).await.map_err(|_| refused())?;
            Ok(Box::new(here) as Box<dyn Stream>)
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
