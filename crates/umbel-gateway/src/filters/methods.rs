//! The methods of the service `Filters` as its trait wants them.

use std::future::ready;

use tonic::Streaming;
use tonic::codegen::BoxStream;
use umbel_proto::v1;
use umbel_proto::v1::filters_server;

use super::super::service_methods::{service_method, service_methods};
use super::FiltersService;

service_methods! { FiltersService: filters_server::Filters => {
    create(v1::CreateRequest) -> v1::CreateResponse;
    drop(v1::DropRequest) -> v1::DropResponse;
    list(v1::ListRequest) -> v1::ListResponse;
    info(v1::InfoRequest) -> v1::InfoResponse;
    insert(v1::InsertRequest) -> v1::InsertResponse;
    contains(v1::ContainsRequest) -> v1::ContainsResponse;
    contains_any(v1::ContainsAnyRequest) -> v1::ContainsAnyResponse;
    remove(v1::RemoveRequest) -> v1::RemoveResponse;
    clear(v1::ClearRequest) -> v1::ClearResponse;
    rotate(v1::RotateRequest) -> v1::RotateResponse;
    rename(v1::RenameRequest) -> v1::RenameResponse;
    merge(v1::MergeRequest) -> v1::MergeResponse;
    intersect(v1::MergeRequest) -> v1::MergeResponse;
    expire(v1::ExpireRequest) -> v1::ExpireResponse;
    overlap(v1::OverlapRequest) -> v1::OverlapResponse;
    flush(v1::FlushRequest) -> v1::FlushResponse;
    export(v1::ExportRequest) -> BoxStream<v1::ExportChunk>;
    import(Streaming<v1::ImportChunk>) -> v1::ImportResponse;
    open_session(v1::OpenSessionRequest) -> v1::OpenSessionResponse;
    {
        type InsertStreamStream = BoxStream<v1::InsertAnswer>;
        type ContainsStreamStream = BoxStream<v1::ContainsAnswer>;
        type ExportStream = BoxStream<v1::ExportChunk>;

        // What is measured is each request of a stream, not the stream.
        service_method! { FiltersService:
            insert_stream(Streaming<v1::InsertRequest>) -> BoxStream<v1::InsertAnswer>,
            |service, request| ready(service.open_stream(request))
        }
        service_method! { FiltersService:
            contains_stream(Streaming<v1::ContainsRequest>) -> BoxStream<v1::ContainsAnswer>,
            |service, request| ready(service.open_stream(request))
        }
    }
} }
