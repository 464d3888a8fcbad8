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

/// Writes a service's trait: methods, each of which calls the service's own `async` method of the same name, and measures the
/// call: under that name, or another one that is given. Then, in braces, what else the trait has.
///
/// The trait must not be in scope: one without its own method would call itself.
macro_rules! service_methods {
    ($service:ty: $service_trait:path => {
        $($method:ident($request:ty) -> $answer:ty $(as $label:literal)?;)+
        $({ $($other:tt)+ })?
    }) => {
        impl $service_trait for $service {
            $(crate::service_methods::service_method! { $service: $method($request) -> $answer,
                |service, request| crate::measure::measured(
                    crate::service_methods::method_label!($method $($label)?),
                    <$service>::$method(service, request),
                )
            })+
            $($($other)+)?
        }

        impl $service {
            /// The names of the methods, and the labels under which they are measured.
            pub(crate) const METHODS: &'static [(&'static str, &'static str)] = &[
                $((stringify!($method), crate::service_methods::method_label!($method $($label)?))),+
            ];
        }
    };
}

/// The label under which a method is measured: its name, if no other is given.
macro_rules! method_label {
    ($method:ident) => {
        stringify!($method)
    };
    ($method:ident $label:literal) => {
        $label
    };
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

pub(crate) use {method_label, service_method, service_methods};

#[cfg(test)]
mod tests {
    use crate::access::AccessService;
    use crate::admin::AdminService;
    use crate::enrolment::EnrolmentService;
    use crate::filters::FiltersService;
    use crate::jobs::JobsService;

    fn labels(methods: &[(&str, &str)]) -> String {
        methods.iter().map(|&(_, label)| label).collect::<Vec<_>>().join(" ")
    }

    /// Dashboards and alerts of users name them: a method may be renamed, its label stays.
    #[test]
    fn labels_stay() {
        let of_filters = "create drop list info insert contains contains_any remove clear rotate \
            rename merge intersect expire overlap flush export import open_session";
        let of_admin = "status shard_map join put_join_token drain remove_node move_shard upgrade \
            set_auto_split split_shard merge_shard backup restore scrub";
        let of_access = "put_principal revoke_principal set_quota list_principals who_am_i";
        let of_jobs = "submit_job list_jobs describe_job cancel_job resume_job";
        assert_eq!(labels(FiltersService::METHODS), of_filters);
        assert_eq!(labels(AdminService::METHODS), of_admin);
        assert_eq!(labels(AccessService::METHODS), of_access);
        assert_eq!(labels(JobsService::METHODS), of_jobs);
        assert_eq!(labels(EnrolmentService::METHODS), "enrol renew");
    }
}
