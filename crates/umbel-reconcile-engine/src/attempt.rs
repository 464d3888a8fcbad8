//! The current attempt: its number, its key, and the symbols that it uses.

use super::keys::{KeySource, SessionKey};
use super::offline::SketchSpec;
use super::options::Options;
use umbel_step::planted::{self, Planted};

/// One try of the session under one key.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) source: KeySource,
    pub(crate) key: SessionKey,
    pub(crate) number: u8,
    /// Number of keys tried.
    pub(crate) tried: u32,
    /// Whether the key is that of the stored sketches.
    pub(crate) is_stored: bool,
    /// Bits of the symbols currently in use.
    pub(crate) symbol_bits: u8,
}

impl Attempt {
    pub(crate) fn new(options: &Options, is_initiator: bool) -> Self {
        let source = KeySource {
            seed: options.domain,
            dataset_id: options.dataset_id,
            nonce_initiator: if is_initiator { options.nonce } else { 0 },
            nonce_responder: if is_initiator { 0 } else { options.nonce },
        };
        let key = SessionKey::derive(&source, 0, options.kind);
        Self { source, key, number: 0, tried: 1, is_stored: false, symbol_bits: 64 }
    }

    /// Switches to the key of the attempt with this number.
    pub(crate) fn begin(&mut self, number: u8) {
        self.number = number;
        self.is_stored = false;
        let salt = if planted::on(Planted::RetryKeepsKey) { number.min(1) } else { number };
        self.key = SessionKey::derive(&self.source, salt, self.key.kind());
    }

    /// Switches to the key of a sketch for attempt 0.
    pub(crate) fn begin_stored(&mut self, spec: &SketchSpec) {
        self.key = spec.key();
        self.is_stored = true;
    }
}
