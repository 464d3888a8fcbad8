//! Pages of a node: its metrics, in the text format of Prometheus, and whether it is ready.

use std::pin::pin;

use tonic::body::Body;
use tonic::codegen::http::{Request, Response as HttpResponse, StatusCode};
use tonic::codegen::{Body as _, Bytes};
use tonic::{Code, Response, Status};
use tower::ServiceExt;

use crate::caller::CallPolicy;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::limits::MEASUREMENTS_BYTES_MAX;
use crate::nodes::Node;

/// Whether a node is ready for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeReadiness {
    /// Whether it is.
    pub is_ready: bool,
    /// `ready`, or what the node lacks; then, on lines of their own, the groups of which it hears no majority, and the nodes of
    /// these that it does not hear.
    pub text: String,
}

impl Client {
    /// Whether a node is ready, as its `/readyz` says. The next node in turn is asked; a client that knows only one node and
    /// learns no others asks that one. A node that is not ready is no error.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn readiness(&self) -> Result<NodeReadiness> {
        let policy = CallPolicy::freely("readiness");
        self.caller
            .request(&policy, (), |node, _| async move { readiness(&node).await })
            .await
            .map_err(ClientError::from)
    }

    /// The text of a node's `/metrics`. It comes from the next node in turn; a client that knows only one
    /// node and learns no others reads that node's.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn measurements(&self) -> Result<String> {
        let policy = CallPolicy::freely("measurements");
        self.caller
            .simple(&policy, (), |node, _| async move { measurements(&node).await })
            .await
            .map_err(ClientError::from)
    }
}

async fn readiness(node: &Node) -> Result<Response<NodeReadiness>, Status> {
    let (status, text) = page(node, "/readyz").await?;
    let is_ready = status == StatusCode::OK;
    if is_ready || status == StatusCode::SERVICE_UNAVAILABLE {
        return Ok(Response::new(NodeReadiness { is_ready, text: text.trim().to_owned() }));
    }
    Err(refusal(status, &text))
}

async fn measurements(node: &Node) -> Result<Response<String>, Status> {
    let (status, text) = page(node, "/metrics").await?;
    if status == StatusCode::OK { Ok(Response::new(text)) } else { Err(refusal(status, &text)) }
}

/// The status and the text of a page.
async fn page(node: &Node, path: &str) -> Result<(StatusCode, String), Status> {
    let request = Request::get(path).body(Body::empty());
    let request = request.map_err(|error| Status::internal(error.to_string()))?;
    let sent = node.pages().oneshot(request).await;
    let answer: HttpResponse<_> = sent.map_err(|error| Status::from_error(error.into()))?;
    let status = answer.status();
    let mut body = pin!(answer.into_body());
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let data: Bytes = frame?.into_data().unwrap_or_default();
        bytes.extend_from_slice(&data);
        if bytes.len() > MEASUREMENTS_BYTES_MAX {
            let text = format!("its page {path} has more than {MEASUREMENTS_BYTES_MAX} bytes");
            return Err(Status::internal(text));
        }
    }
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The status of gRPC for a page that was refused.
fn refusal(status: StatusCode, text: &str) -> Status {
    let code = match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        _ => Code::Unknown,
    };
    Status::new(code, text.trim().to_owned())
}
