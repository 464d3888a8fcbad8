//! Responses that are produced as the client reads them, and ended when it stops reading.
//!
//! HTTP/2 polls a body for more when the client's window has room. A body that is not polled cannot end
//! itself, so a separate task owns the source of the responses.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use umbel_node::failure::CallFailure;
use umbel_node::metrics;
use umbel_ports::ConnectionHandle;

use crate::errors::status;
use crate::limits::UNREAD_TIMEOUT;

type Part = Result<Frame<Bytes>, axum::Error>;

/// A body whose parts are produced as they are read. If the client reads none within `UNREAD_TIMEOUT`,
/// the body is dropped and the connection closed, because HTTP/2's buffers for it live as long as the
/// connection.
pub(super) fn paced(
    body: Body,
    connection: Option<ConnectionHandle>,
    ends_at: Option<Instant>,
) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (asking, asked) = mpsc::channel(1);
    let (sender, parts) = mpsc::channel(1);
    tokio::spawn(make(body, asked, sender, connection, ends_at));
    Body::new(Paced { asking, parts, is_asked: false })
}

/// Produces parts until the body or its reader ends.
async fn make(
    mut body: Body,
    mut asked: mpsc::Receiver<()>,
    sender: mpsc::Sender<Part>,
    connection: Option<ConnectionHandle>,
    ends_at: Option<Instant>,
) {
    loop {
        match timeout(UNREAD_TIMEOUT, asked.recv()).await {
            Ok(Some(())) => {}
            Ok(None) => return,
            Err(_) => {
                // Dropped before the connection ends, so that everything that it holds is free by then.
                drop(body);
                metrics::stream_ended("unread");
                if let Some(connection) = connection {
                    metrics::connection_refused("unread");
                    connection.end();
                }
                return;
            }
        }
        let over = async {
            match ends_at {
                Some(ends_at) => sleep_until(ends_at).await,
                None => std::future::pending().await,
            }
        };
        let part = tokio::select! {
            biased;
            () = sender.closed() => return,
            () = over => {
                metrics::stream_ended("too_long");
                // The reader may be gone.
                let _ = sender.send(Ok(Frame::trailers(too_long()))).await;
                return;
            }
            part = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)) => part,
        };
        let Some(part) = part else { return };
        if sender.send(part).await.is_err() {
            return;
        }
    }
}

/// The trailers of a stream that took too long.
fn too_long() -> HeaderMap {
    let what =
        "the stream took longer than it may in all: name a time (grpc-timeout) if it needs more";
    let mut trailers = HeaderMap::new();
    let added = status(&CallFailure::TooSlow { what: what.to_owned() }).add_header(&mut trailers);
    added.expect("the text is a header's");
    trailers
}

struct Paced {
    asking: mpsc::Sender<()>,
    parts: mpsc::Receiver<Part>,
    /// Whether the next part has been requested.
    is_asked: bool,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        if !self.is_asked {
            self.is_asked = true;
            // The channel has room, as one part is requested at a time; the task may have ended.
            let _ = self.asking.try_send(());
        }
        let part = std::task::ready!(self.parts.poll_recv(cx));
        self.is_asked = false;
        Poll::Ready(part)
    }
}
