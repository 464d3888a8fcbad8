//! The machine's network.

use std::io;

use tokio::net::{TcpListener, TcpStream};

use super::connections::ConnectionSlots;
use super::{Incoming, Listener, Net, PortFuture, Stream};

/// TCP. Small messages are sent at once (no Nagle delay).
pub struct RealNet;

impl Net for RealNet {
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            let local_address = listener.local_addr()?.to_string();
            let slots = ConnectionSlots::of_process();
            Ok(Box::new(RealListener { listener, local_address, slots }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move { Ok(Box::new(connect(address).await?) as Box<dyn Stream>) })
    }
}

/// Connects without Nagle's delay.
pub(super) async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What to do about an address that cannot be bound, as the continuation of "cannot listen on ADDRESS"; empty where the
/// system's error says it.
#[must_use]
pub fn listen_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ", where another process listens already: stop it, or name another address"
        }
        io::ErrorKind::AddrNotAvailable => {
            ", which is no address of this machine: name one that it has, or 0.0.0.0 for all of them, with advertise"
        }
        _ => "",
    }
}

struct RealListener {
    listener: TcpListener,
    local_address: String,
    slots: ConnectionSlots,
}

impl Listener for RealListener {
    fn local_address(&self) -> String {
        self.local_address.clone()
    }

    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>> {
        Box::pin(async move {
            loop {
                self.slots.room().await;
                let (stream, from) = self.listener.accept().await?;
                let Some(slot) = self.slots.enter(from.ip()) else { continue };
                stream.set_nodelay(true)?;
                let incoming = Incoming::unchecked(stream, from.to_string());
                return Ok(Incoming { slot: Some(slot), ..incoming });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_pass_between_both_ends() {
        let mut listener = RealNet.listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_address();
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
        let (accepted, connected) = tokio::join!(listener.accept(), RealNet.connect(&address));
        let (Incoming { stream: mut there, from, .. }, mut here) =
            (accepted.unwrap(), connected.unwrap());
        assert!(from.starts_with("127.0.0.1:"), "{from}");
        here.write_all(b"ping").await.unwrap();
        let mut got = [0; 4];
        there.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ping");
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_bound_comes_with_advice() {
        let first = RealNet.listen("127.0.0.1:0").await.unwrap();
        let taken = RealNet.listen(&first.local_address()).await.err().unwrap();
        assert!(listen_advice(&taken).contains("another process"), "{taken}");
        // Reserved for documents (RFC 5737).
        let foreign = RealNet.listen("192.0.2.1:0").await.err().unwrap();
        assert!(listen_advice(&foreign).contains("no address of this machine"), "{foreign}");
    }

    #[tokio::test]
    async fn who_is_not_there_is_an_error() {
        let listener = RealNet.listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_address();
        drop(listener);
        assert!(RealNet.connect(&address).await.is_err());
    }
}
