//! The in-memory network as seen by one process: its connections can be cut, temporarily or for good.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use umbel_ports::testing::MemoryNet;
use umbel_ports::{Incoming, Listener, Net, PortFuture, Stream};

/// Generation of a process that has ended.
const DEAD: u64 = u64::MAX;

/// The network of one process.
pub(crate) struct CutNet {
    net: Arc<MemoryNet>,
    /// Connections of other generations are cut.
    generation: Arc<watch::Sender<u64>>,
    is_closed: AtomicBool,
}

impl CutNet {
    pub(super) fn new(net: &Arc<MemoryNet>) -> Self {
        Self {
            net: Arc::clone(net),
            generation: Arc::new(watch::Sender::new(0)),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Forbids new connections, or permits them again.
    pub(crate) fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::SeqCst);
    }

    /// Cuts all connections; new ones can be made.
    pub(crate) fn cut(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Cuts all connections for good.
    pub(super) fn kill(&self) {
        self.generation.send_replace(DEAD);
    }
}

/// Wraps a connection so that it is cut when its generation ends.
fn cuttable(stream: Box<dyn Stream>, generation: &watch::Sender<u64>) -> Box<dyn Stream> {
    let mut watched = generation.subscribe();
    let own = *watched.borrow();
    let cut = Box::pin(async move {
        // If the network of a process is gone, its connections are never cut.
        if watched.wait_for(|now| *now != own).await.is_err() {
            std::future::pending::<()>().await;
        }
    });
    Box::new(CutStream { stream, cut, is_cut: own == DEAD })
}

impl Net for CutNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.net.listen(address).await?;
            let generation = Arc::clone(&self.generation);
            Ok(Box::new(CutListener { listener, generation }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let is_closed = self.is_closed.load(Ordering::SeqCst);
            if is_closed || *self.generation.borrow() == DEAD {
                return Err(io::ErrorKind::NetworkUnreachable.into());
            }
            Ok(cuttable(self.net.connect(address).await?, &self.generation))
        })
    }
}

struct CutListener {
    listener: Box<dyn Listener>,
    generation: Arc<watch::Sender<u64>>,
}

impl Listener for CutListener {
    fn local_address(&self) -> String {
        self.listener.local_address()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            let taken = self.listener.accept().await?;
            Ok(Incoming { stream: cuttable(taken.stream, &self.generation), ..taken })
        })
    }
}

struct CutStream {
    stream: Box<dyn Stream>,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_cut: bool,
}

impl CutStream {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(cx).is_ready();
        if self.is_cut { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for CutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
