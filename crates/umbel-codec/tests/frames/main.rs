//! Frames of every kind of filter: golden files, laws of cutting and merging, assembly.

#![allow(clippy::unwrap_used)]

mod assembly;
mod filters;
mod golden;
mod laws;
