//! A connection to a node on which nothing arrives for longer than ordinary calls wait for a probe.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use umbel_client::{Client, ClientOptions, Connecting, Connector, NewFilter, proto};

use super::fake::Cluster;
use super::options;

/// Longer than the interval and the timeout of a probe together.
const STALL: Duration = Duration::from_millis(900);

struct Slow;

/// A stream on which bytes arrive only after the stall.
struct SlowStream {
    stream: TcpStream,
    stall: Pin<Box<Sleep>>,
}

impl Connector for Slow {
    fn connect(&self, address: &str) -> Connecting {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            Ok(Box::new(SlowStream { stream, stall: Box::pin(sleep(STALL)) }) as _)
        })
    }
}

impl AsyncRead for SlowStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.stall.is_elapsed() {
            std::task::ready!(self.stall.as_mut().poll(cx));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SlowStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn copies_and_changes_wait_longer_for_a_probe_than_questions() {
    let cluster = Cluster::start(1).await;
    let address = cluster.addresses[0].as_str();
    let probe_timeout = ClientOptions::default().probe_timeout;
    let options = ClientOptions { probe_timeout, ..options() };
    let client = Client::connect_through(address, options, Slow).unwrap();
    // Sent once: if the connection were dropped, the call would fail.
    let header = proto::ImportHeader { name: "copy".into(), exported: None };
    let part = Some(proto::import_chunk::Part::Header(header));
    let copied = client.import(tokio_stream::iter([proto::ImportChunk { part }])).await.unwrap();
    assert_eq!(copied.name, "copy");
    client.create("seen", &NewFilter::for_rate(100, 0.01)).await.unwrap();
}
