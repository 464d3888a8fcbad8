//! An object, pinned to the version that was opened.

use crate::address::ObjectAddress;
use crate::error::ObjectError;
use crate::read_ahead::{ObjectReader, PartSource};
use crate::store::ObjectStore;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use umbel_filter::ItemHasher;
use umbel_records::{ByteSpan, RemoteBytes, RemoteReader};

/// An object. Every read returns bytes of the version that was opened, or fails.
#[derive(Clone)]
pub struct Object {
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) address: ObjectAddress,
    /// Its entity tag, which the store changes with the content.
    pub(crate) tag: String,
    pub(crate) bytes: u64,
    /// The cause of the first failed read, if one failed.
    failure: Arc<OnceLock<ReadFailure>>,
}

/// Why bytes of an object could not be read. The readers of records see only that the input ends.
#[derive(Clone, Debug)]
pub enum ReadFailure {
    /// The object is now another one.
    Changed,
    /// Anything else, as a text that names the offset.
    Other(String),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {})", self.address, self.tag)
    }
}

impl Object {
    pub(crate) fn new(
        store: &Arc<ObjectStore>,
        address: &ObjectAddress,
        tag: String,
        bytes: u64,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            address: address.clone(),
            tag,
            bytes,
            failure: Arc::default(),
        }
    }

    /// The cause of the first failed read, if one failed.
    pub fn failure(&self) -> Option<ReadFailure> {
        self.failure.get().cloned()
    }

    /// A number that changes with the object's version, as the modification time does for a file.
    pub fn state(&self) -> i64 {
        ItemHasher::Xxh3 { seed: 0 }.hash(self.tag.as_bytes()).lo().cast_signed()
    }
}

impl PartSource for Object {
    fn fetch(&self, span: (u64, u64), stop: &AtomicBool) -> Result<Vec<u8>, ObjectError> {
        self.store.fetch(self, span, stop)
    }

    fn has_failed(&self, offset: u64, error: &ObjectError) {
        // Only the first failure is kept.
        let _ = self.failure.set(match error {
            ObjectError::Changed => ReadFailure::Changed,
            error => ReadFailure::Other(format!("cannot read at byte {offset}: {error}")),
        });
    }
}

impl RemoteBytes for Object {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn open(&self, span: ByteSpan) -> Box<dyn RemoteReader> {
        let source = Arc::new(self.clone());
        Box::new(ObjectReader::new(source, self.bytes, span.end, Arc::clone(&self.store.budget)))
    }
}
