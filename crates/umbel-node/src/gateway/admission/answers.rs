//! Answers that are made when somebody reads them, and given up when nobody does.
//!
//! HTTP/2 asks a body for more when there is room in the client's window. A body that is not asked is
//! not polled, and could not end itself: so a task beside it has what makes the answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::failure::CallFailure;
use crate::gateway::errors::status;
use crate::gateway::limits::UNREAD_TIMEOUT;
use crate::metrics;
use crate::ports::Connection;

type Part = Result<Frame<Bytes>, axum::Error>;

/// A body whose parts are made as they are read. When none is asked for in time it is dropped, and its
/// connection ends, for what HTTP/2 holds of it is held as long as the connection lives.
pub(super) fn paced(body: Body, connection: Option<Connection>, ends_at: Option<Instant>) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (asking, asked) = mpsc::channel(1);
    let (sender, parts) = mpsc::channel(1);
    tokio::spawn(make(body, (asked, sender), connection, ends_at));
    Body::new(Paced { asking, parts, is_asked: false })
}

/// Makes parts; ends with them, or with who reads them.
async fn make(
    mut body: Body,
    (mut asked, sender): (mpsc::Receiver<()>, mpsc::Sender<Part>),
    connection: Option<Connection>,
    ends_at: Option<Instant>,
) {
    loop {
        match timeout(UNREAD_TIMEOUT, asked.recv()).await {
            Ok(Some(())) => {}
            Ok(None) => return,
            Err(_) => {
                // Before the connection ends: whatever it holds is free then.
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
                // Who asked may have gone.
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

/// The end of a stream that took too long.
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
    /// Whether the part that comes next was asked for.
    is_asked: bool,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        if !self.is_asked {
            self.is_asked = true;
            // There is room, for one is asked for at a time; and whoever makes them may have ended.
            let _ = self.asking.try_send(());
        }
        let part = std::task::ready!(self.parts.poll_recv(cx));
        self.is_asked = false;
        Poll::Ready(part)
    }
}
