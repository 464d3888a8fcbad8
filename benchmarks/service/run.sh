#!/usr/bin/env bash
# Builds the server and this benchmark, and runs it. From anywhere:
#
#     benchmarks/service/run.sh all
#     benchmarks/service/run.sh throughput --systems umbel-1,redis --seconds 2
#     benchmarks/service/run.sh --help
#
# Needs rustup's stable toolchain and redis-server. Tables go to target/bench/service.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --release --locked --package umbel --package umbel-service-benchmark
# Where cargo puts what it builds, also with CARGO_TARGET_DIR.
exec "${CARGO_TARGET_DIR:-target}/release/umbel-service-benchmark" "$@"
