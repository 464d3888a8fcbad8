//! Common wrapper of all calls: measures them and turns failures into gRPC statuses.

use std::future::Future;

use tokio::time::Instant;
use tonic::{Code, Response, Status};
use umbel_node::metrics;

use super::errors::{code_name, status};
use crate::errors::Result;

/// Runs a call and records its duration and status. If the client disconnects, the call is dropped and
/// not counted.
pub(super) async fn measured<T>(
    method: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<Response<T>, Status> {
    let began = Instant::now();
    let outcome = call.await;
    let seconds = began.elapsed().as_secs_f64();
    match outcome {
        Ok(answer) => {
            metrics::call_answered(method, code_name(Code::Ok), seconds);
            Ok(Response::new(answer))
        }
        Err(failure) => {
            let status = status(&failure);
            metrics::call_answered(method, code_name(status.code()), seconds);
            if status.code() == Code::Internal {
                tracing::error!(method, error = %failure, "a call failed");
            } else {
                tracing::debug!(method, error = %failure, "a call was refused");
            }
            Err(status)
        }
    }
}
