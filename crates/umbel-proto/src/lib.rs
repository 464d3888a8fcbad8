//! The wire interface of Umbel: messages and services generated from `proto/umbel/v1`, where every
//! message and field is described.

mod codec;
mod details;

pub use codec::{BoundedCodec, BoundedDecoder};
pub use details::{StatusDetail, detail_of, details_of, former_details};

#[expect(
    missing_docs,
    unused_qualifications,
    clippy::large_enum_variant,
    clippy::missing_errors_doc,
    clippy::too_many_lines,
    reason = "generated code; its documentation is that of the .proto files"
)]
/// Version 1 of the interface.
pub mod v1 {
    tonic::include_proto!("umbel.v1");
}

/// Encoded descriptors of all files, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/umbel.bin"));
