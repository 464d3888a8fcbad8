//! Answers to requests that cannot be read: they are larger than a message may be, compressed, or no messages. tonic refuses them
//! before any service sees them, with a status without details, and no service measures them.

use axum::http::Uri;
use axum::response::Response;
use tokio::time::Instant;
use umbel_node::metrics;
use umbel_proto::v1;

use super::access::AccessService;
use super::admin::AdminService;
use super::enrolment::EnrolmentService;
use super::errors::{code_name, unread_answer};
use super::filters::FiltersService;
use super::item_streams::ItemRequest as _;
use super::jobs::JobsService;

/// The response to a call; if its request could not be read, a response that says so, which is measured here.
pub(super) fn answered(uri: &Uri, began: Instant, response: Response) -> Response {
    let Some(status) = unread_answer(response.headers()) else { return response };
    let Some(label) = label_of(uri.path()) else { return response };
    metrics::call_answered(label, code_name(status.code()), began.elapsed().as_secs_f64());
    status.into_http()
}

/// The label under which a call of a client is measured, or each request of a stream; None for all other calls.
fn label_of(path: &str) -> Option<&'static str> {
    let (service, method) = path.strip_prefix("/umbel.v1.")?.split_once('/')?;
    let methods = match (service, method) {
        ("Filters", "InsertStream") => return Some(v1::InsertRequest::METHOD),
        ("Filters", "ContainsStream") => return Some(v1::ContainsRequest::METHOD),
        ("Filters", _) => FiltersService::METHODS,
        ("Admin", _) => AdminService::METHODS,
        ("Jobs", _) => JobsService::METHODS,
        ("Access", _) => AccessService::METHODS,
        ("Enrolment", _) => EnrolmentService::METHODS,
        _ => return None,
    };
    // `ContainsAny` is called `contains_any` in Rust.
    let is_meant = |name: &str| {
        let letters = name.bytes().filter(|&byte| byte != b'_');
        letters.eq(method.bytes().map(|byte| byte.to_ascii_lowercase()))
    };
    methods.iter().find(|(name, _)| is_meant(name)).map(|&(_, label)| label)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use tonic::{Code, Status};
    use umbel_node::failure::CallFailure;

    use super::*;
    use crate::errors;

    #[test]
    fn every_call_of_clients_has_its_label() {
        let files = prost_types::FileDescriptorSet::decode(umbel_proto::DESCRIPTORS).unwrap();
        let services = ["Filters", "Admin", "Jobs", "Access", "Enrolment"];
        for service in files.file.iter().flat_map(|file| &file.service) {
            for method in &service.method {
                let path = format!("/umbel.v1.{}/{}", service.name(), method.name());
                assert_eq!(label_of(&path).is_some(), services.contains(&service.name()), "{path}");
            }
        }
        assert_eq!(label_of("/umbel.v1.Filters/ContainsAny"), Some("contains_any"));
        assert_eq!(label_of("/umbel.v1.Admin/Remove"), Some("remove_node"));
        assert_eq!(label_of("/umbel.v1.Filters/InsertStream"), Some("insert_stream"));
        assert_eq!(label_of("/livez"), None);
    }

    #[test]
    fn only_statuses_of_the_decoder_are_replaced() {
        let refused = errors::status(&CallFailure::Invalid { what: "no".to_owned() });
        let table = [
            (Status::out_of_range("too long"), Code::ResourceExhausted),
            (Status::internal("no message"), Code::InvalidArgument),
            (Status::unimplemented(""), Code::Unimplemented),
            (refused, Code::InvalidArgument),
        ];
        for (status, code) in table {
            let response = status.clone().into_http();
            let uri = Uri::from_static("/umbel.v1.Filters/Drop");
            let response = answered(&uri, Instant::now(), response);
            let got = Status::from_header_map(response.headers()).unwrap();
            assert_eq!(got.code(), code, "{status}");
            assert!(got.message().ends_with(status.message()), "{got}");
        }
        let unlabelled = Status::internal("a node's").into_http();
        let uri = Uri::from_static("/umbel.v1.Peer/Adopt");
        let response = answered(&uri, Instant::now(), unlabelled);
        assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::Internal);
    }
}
