//! gRPC calls of a hostile client over HTTP/2 streams, which it sends and reads as slowly as it likes.

use std::future::poll_fn;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use crate::frames::connect;

/// Longest wait for an answer, which only ends a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Most bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An HTTP/2 connection.
pub(crate) struct Caller {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

/// The result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A response, with the gRPC status if there is one.
    Status { http: u16, grpc: Option<i32>, message: String, body: Bytes },
    /// The stream or the connection was aborted.
    Cut(String),
}

impl Answer {
    /// The gRPC status, if there is one.
    pub(crate) fn grpc(&self) -> Option<i32> {
        match self {
            Self::Status { grpc, .. } => *grpc,
            Self::Cut(_) => None,
        }
    }

    /// Whether the call succeeded.
    pub(crate) fn is_success(&self) -> bool {
        self.grpc() == Some(0)
    }

    /// The first message of the response.
    pub(crate) fn message<M: Message + Default>(&self) -> M {
        match self {
            Self::Status { grpc: Some(0), body, .. } => M::decode(body.slice(5..)).unwrap(),
            other => panic!("refused: {other:?}"),
        }
    }
}

impl Caller {
    /// Opens a connection without TLS.
    pub(crate) async fn open(address: &str) -> Self {
        Self::over(connect(address).await).await
    }

    /// Makes an HTTP/2 connection over an open stream.
    pub(crate) async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::try_over(io).await.unwrap()
    }

    /// Like `Self::over`, where the other end may refuse.
    pub(crate) async fn try_over(
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, h2::Error> {
        let (requests, connection) = h2::client::handshake(io).await?;
        // Its error if the node closes the connection is ignored, since calls return one, too.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { requests, connection })
    }

    /// Another caller on the same connection.
    pub(crate) fn another(&self) -> Self {
        Self { requests: self.requests.clone(), connection: tokio::spawn(async {}) }
    }

    /// Starts a call, unless the connection is closed.
    pub(crate) async fn begin(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut request = Request::post(format!("http://node{path}"));
        let has_kind = headers.iter().any(|(name, _)| *name == "content-type");
        if !has_kind {
            request = request.header("content-type", "application/grpc");
        }
        request = request.header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        self.requests.clone().ready().await?.send_request(request, false)
    }

    /// Makes a whole call with these bytes as its body.
    pub(crate) async fn send(&self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let call = async {
            let (response, mut stream) = self.begin(path, headers).await?;
            let pushed = push(&mut stream, body, true).await;
            match response.await {
                Ok(response) => read(response).await,
                // A response counts even if the node did not accept the whole body.
                Err(error) => Err(pushed.err().unwrap_or(error)),
            }
        };
        let answered = tokio::time::timeout(PATIENCE, call).await;
        let answered = answered.unwrap_or_else(|_| panic!("{path}: no answer in {PATIENCE:?}"));
        answered.unwrap_or_else(|error| Answer::Cut(error.to_string()))
    }

    /// Makes a whole call with one message.
    pub(crate) async fn call(&self, path: &str, message: &impl Message) -> Answer {
        self.send(path, &[], framed(&message.encode_to_vec())).await
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A message with its gRPC prefix.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    lying(0, u32::try_from(message.len()).unwrap(), message)
}

/// A message whose gRPC prefix has this flag and claims this length.
pub(crate) fn lying(flag: u8, said_bytes: u32, message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 5);
    bytes.extend_from_slice(&[flag]);
    bytes.extend_from_slice(&said_bytes.to_be_bytes());
    bytes.extend_from_slice(message);
    bytes.freeze()
}

/// Sends bytes as fast as the node accepts them.
pub(crate) async fn push(
    stream: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    is_end: bool,
) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let Some(capacity) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return Err(h2::Reason::CANCEL.into());
        };
        let part = bytes.split_to(capacity?.min(bytes.len()));
        stream.send_data(part, false)?;
    }
    if is_end {
        stream.send_data(Bytes::new(), true)?;
    }
    Ok(())
}

async fn read(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut body) = response.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        if bytes.len() < ANSWER_BYTES_MAX {
            bytes.extend_from_slice(&part);
        }
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let of = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let grpc = of(&head.headers, "grpc-status").or_else(|| of(&trailers, "grpc-status"));
    let message = of(&head.headers, "grpc-message").or_else(|| of(&trailers, "grpc-message"));
    Ok(Answer::Status {
        http: head.status.as_u16(),
        grpc: grpc.and_then(|status| status.parse().ok()),
        message: message.unwrap_or_default(),
        body: bytes.freeze(),
    })
}
