//! Generates messages and services from `proto/` with a compiler written in Rust: no `protoc`.

use std::path::PathBuf;

const FILES: [&str; 9] = [
    "umbel/v1/access.proto",
    "umbel/v1/admin.proto",
    "umbel/v1/dedup.proto",
    "umbel/v1/enrolment.proto",
    "umbel/v1/errors.proto",
    "umbel/v1/filters.proto",
    "umbel/v1/jobs.proto",
    "umbel/v1/ledger.proto",
    "umbel/v1/peer.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES.map(|file| root.join(file)), [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("umbel.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::BoundedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
