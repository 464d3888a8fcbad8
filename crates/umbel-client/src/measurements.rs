//! A node's metrics, in the text format of Prometheus.

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

impl Client {
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

async fn measurements(node: &Node) -> Result<Response<String>, Status> {
    let request = Request::get("/metrics").body(Body::empty());
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
            let text = format!("its measurements have more than {MEASUREMENTS_BYTES_MAX} bytes");
            return Err(Status::internal(text));
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let code = match status {
        StatusCode::OK => return Ok(Response::new(text)),
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        _ => Code::Unknown,
    };
    Err(Status::new(code, text.trim().to_owned()))
}
