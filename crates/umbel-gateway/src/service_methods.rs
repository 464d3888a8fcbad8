//! Methods of a service as its trait wants them: boxed futures that other threads may go on with.
//!
//! `#[tonic::async_trait]` writes the same, but then the compiler proves that a future may change threads under the bounds of
//! the trait's method, where it remembers nothing: it looks at all that a call may wait for, down to the log, again for
//! each part of it. That took three quarters of the time for checking this crate. Under no bounds each type is looked at once.

use std::future::Future;
use std::pin::Pin;

use tonic::{Response, Status};

/// The answer of a method of a service's trait, when it comes.
pub(crate) type Answering<'a, T> =
    Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

/// Writes the methods of a service's trait, each of which calls the service's own `async` method of the same name, and
/// measures the call: under that name, or another one that is given.
///
/// The trait must not be in scope: one without its own method would call itself.
macro_rules! service_methods {
    ($service:ty: $($method:ident($request:ty) -> $answer:ty $(as $label:literal)?;)+) => {$(
        crate::service_methods::service_method! { $service: $method($request) -> $answer,
            |service, request| crate::measure::measured(
                // The first is the name.
                [$($label,)? stringify!($method)][0],
                <$service>::$method(service, request),
            )
        }
    )+};
}

/// Writes one method of a service's trait, whose answer is that of this future.
macro_rules! service_method {
    ($service:ty: $method:ident($request:ty) -> $answer:ty, |$called:ident, $asked:ident| $answering:expr) => {
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            request: tonic::Request<$request>,
        ) -> crate::service_methods::Answering<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            // A function of its own does not have the bounds.
            fn answering(
                $called: &$service,
                $asked: tonic::Request<$request>,
            ) -> crate::service_methods::Answering<'_, $answer> {
                Box::pin($answering)
            }
            answering(self, request)
        }
    };
}

pub(crate) use {service_method, service_methods};
