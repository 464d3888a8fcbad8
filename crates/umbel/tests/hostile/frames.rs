//! HTTP/2 frames that are built by hand, since no library would send them.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Hostile clients connect from another address of this machine than honest ones.
const STRANGER: &str = "127.0.0.2:0";

/// The first bytes of an HTTP/2 connection (RFC 9113, 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Longest wait for a connection; once a node has enough of them, further ones stay in the system's
/// queue.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// How long a flood continues when the node does not read any more.
const FLOOD_PATIENCE: Duration = Duration::from_secs(2);

/// Types of frames (RFC 9113, 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flag of DATA and HEADERS: the last frame of the stream.
pub(crate) const END_STREAM: u8 = 1;

/// Flag of HEADERS and CONTINUATION: the headers are complete.
pub(crate) const END_HEADERS: u8 = 4;

/// A hostile client's TCP connection.
pub(crate) async fn connect(address: &str) -> TcpStream {
    try_connect(address).await.unwrap()
}

/// Like `connect`, where the node may be down.
pub(crate) async fn try_connect(address: &str) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(STRANGER.parse().expect("an address"))?;
    let stream = socket.connect(address.parse().expect("an address")).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    lying_frame(payload.len(), kind, flags, stream, payload)
}

/// A frame whose claimed length differs from that of its payload.
pub(crate) fn lying_frame(
    said_bytes: usize,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) -> Vec<u8> {
    let length = u32::try_from(said_bytes).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header field that is neither in a table nor added to one (RFC 7541, 6.2.2).
pub(crate) fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    put_text(&mut bytes, name.as_bytes());
    put_text(&mut bytes, value);
    bytes
}

/// A header field that is added to the table (RFC 7541, 6.2.1).
pub(crate) fn indexed_field(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = field(name, value);
    bytes[0] = 0x40;
    bytes
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    // The rest of a length of 127 or more is encoded in groups of seven bits.
    match text.len() {
        length @ 0..127 => bytes.push(u8::try_from(length).unwrap()),
        length => {
            bytes.push(127);
            let mut left = length - 127;
            while left >= 128 {
                bytes.push(u8::try_from(left % 128).unwrap() | 128);
                left /= 128;
            }
            bytes.push(u8::try_from(left).unwrap());
        }
    }
    bytes.extend(text);
}

/// The encoded headers of a gRPC call.
pub(crate) fn call_head(path: &str) -> Vec<u8> {
    let fields: [(&str, &[u8]); 6] = [
        (":method", b"POST"),
        (":scheme", b"http"),
        (":path", path.as_bytes()),
        (":authority", b"node"),
        ("content-type", b"application/grpc"),
        ("te", b"trailers"),
    ];
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// An empty SETTINGS frame, which changes nothing.
pub(crate) fn settings() -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[])
}

/// The result of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flood {
    /// The node accepted everything.
    Taken,
    /// The node does not read any more.
    Stuck,
    /// The node closed the connection.
    Closed,
}

/// A connection on which the HTTP/2 preface was sent.
pub(crate) struct Raw {
    stream: TcpStream,
}

impl Raw {
    pub(crate) async fn open(address: &str) -> Self {
        Self::try_open(address).await.unwrap()
    }

    /// Like `open`, where the node may refuse.
    pub(crate) async fn try_open(address: &str) -> io::Result<Self> {
        let mut stream = try_connect(address).await?;
        stream.write_all(PREFACE).await?;
        stream.write_all(&settings()).await?;
        Ok(Self { stream })
    }

    /// Sends the bytes repeatedly and reads nothing.
    pub(crate) async fn flood(&mut self, bytes: &[u8], times: usize) -> Flood {
        for _ in 0..times {
            match tokio::time::timeout(FLOOD_PATIENCE, self.stream.write_all(bytes)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Flood::Closed,
                Err(_) => return Flood::Stuck,
            }
        }
        Flood::Taken
    }

    /// Sends the bytes; returns whether the node accepted them.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Flood {
        self.flood(bytes, 1).await
    }

    /// Reads until the node closes the connection; returns false if it does not within the limit.
    pub(crate) async fn is_closed_within(&mut self, limit: Duration) -> bool {
        closes_within(&mut self.stream, limit).await
    }
}

/// Reads until the other end closes the connection; returns false if it does not within the limit.
pub(crate) async fn closes_within(stream: &mut TcpStream, limit: Duration) -> bool {
    let mut sink = vec![0; 64 << 10];
    let read = async { while matches!(stream.read(&mut sink).await, Ok(1..)) {} };
    tokio::time::timeout(limit, read).await.is_ok()
}
