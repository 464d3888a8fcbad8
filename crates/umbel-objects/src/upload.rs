//! An output that becomes an object: uploaded in parts, and visible only after the commit.

use crate::address::ObjectAddress;
use crate::error::ObjectError;
use crate::open_uploads::{OpenUpload, is_ending};
use crate::part::{PARTS_MAX, PartBuffer, part_bytes};
use crate::store::ObjectStore;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the longest object, by the limits of S3: 5 TiB.
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// The destination of an output.
#[derive(Clone)]
struct Target {
    store: Arc<ObjectStore>,
    address: ObjectAddress,
    /// The mark of the object.
    mark: String,
    overwrite: bool,
}

/// An output that is being written.
pub struct Upload {
    target: Target,
    part: PartBuffer,
    /// Begun with the first full part; a short output needs none.
    open: Option<OpenUpload>,
    tags: Vec<String>,
    bytes: u64,
}

/// What a later process needs to finish an upload, or to see that it is finished.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptUpload {
    /// The store's id of the upload.
    pub id: String,
    /// The mark of the object.
    mark: String,
    /// The entity tags of all parts, in order.
    tags: Vec<String>,
}

/// An output that is complete, at the store or (if it is small) in memory, but not yet visible under its key.
pub struct PendingObject {
    target: Target,
    content: Content,
}

enum Content {
    Held(Vec<u8>),
    Parts { open: OpenUpload, tags: Vec<String> },
}

impl Upload {
    /// An empty upload; parts wait in the directory `scratch` until they are complete.
    pub fn new(
        store: &Arc<ObjectStore>,
        address: ObjectAddress,
        overwrite: bool,
        scratch: &Path,
    ) -> Self {
        let target = Target { store: Arc::clone(store), address, mark: fresh_mark(), overwrite };
        let part = PartBuffer::new(scratch);
        Self { target, part, open: None, tags: Vec::new(), bytes: 0 }
    }

    /// The same, with a mark that later processes know.
    pub fn with_mark(mut self, mark: String) -> Self {
        self.target.mark = mark;
        self
    }

    /// Begins the upload at once, so that it has an id and the store holds its parts, however short it is.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn begun(mut self) -> Result<Self, ObjectError> {
        let Target { store, address, mark, .. } = &self.target;
        self.open = Some(OpenUpload::begin(store, address, mark)?);
        Ok(self)
    }

    /// The store's id of the upload; empty if it has not begun.
    pub fn id(&self) -> &str {
        self.open.as_ref().map_or("", OpenUpload::id)
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), ObjectError> {
        if self.bytes + bytes.len() as u64 > OBJECT_BYTES_MAX {
            return Err(ObjectError::TooLong { bytes: OBJECT_BYTES_MAX });
        }
        while !bytes.is_empty() {
            let room = part_bytes(self.tags.len() as u64) - self.part.bytes();
            if room == 0 {
                self.send_part()?;
                continue;
            }
            let (now, later) =
                bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.part.add(now)?;
            self.bytes += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn send_part(&mut self) -> Result<(), ObjectError> {
        let Target { store, address, mark, .. } = &self.target;
        if self.open.is_none() {
            self.open = Some(OpenUpload::begin(store, address, mark)?);
        }
        let open = self.open.as_ref().expect("just begun");
        debug_assert!((self.tags.len() as u64) < PARTS_MAX, "the longest object has fewer parts");
        let hash = self.part.seal()?;
        let number = self.tags.len() + 1;
        let part = (&mut self.part, &hash[..]);
        self.tags.push(store.send_part(address, open.id(), number, part)?);
        self.part.clear()
    }

    /// Sends the last part, or holds the whole output in memory if it is small.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    #[expect(clippy::missing_panics_doc, reason = "who has sent a part has begun")]
    pub fn complete(mut self) -> Result<PendingObject, ObjectError> {
        if self.open.is_none()
            && let Some(held) = self.held()
        {
            return Ok(PendingObject { target: self.target, content: Content::Held(held) });
        }
        if self.part.bytes() > 0 || self.tags.is_empty() {
            self.send_part()?;
        }
        let Self { target, open, tags, .. } = self;
        let open = open.expect("a part was sent");
        Ok(PendingObject { target, content: Content::Parts { open, tags } })
    }

    /// All bytes, if they are in memory and the process's limit for such outputs allows it.
    fn held(&self) -> Option<Vec<u8>> {
        let bytes = self.part.in_memory()?;
        let subtract = |left: u64| left.checked_sub(bytes.len() as u64);
        let left = &self.target.store.held_left;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).ok()?;
        Some(bytes.to_vec())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl PendingObject {
    /// Its address.
    pub fn address(&self) -> &ObjectAddress {
        &self.target.address
    }

    /// Makes the object visible under its key.
    ///
    /// # Errors
    ///
    /// [`ObjectError`]; then the object is not there, as far as the store's responses show.
    pub fn commit(&self) -> Result<(), ObjectError> {
        if is_ending() {
            return Err(ObjectError::Interrupted);
        }
        let Target { store, address, mark, overwrite } = &self.target;
        match &self.content {
            Content::Held(bytes) => store.put(address, mark, bytes, *overwrite),
            Content::Parts { open, tags } => {
                store.finish(address, (open.id(), mark), tags, *overwrite)?;
                open.forget();
                Ok(())
            }
        }
    }

    /// Lets the upload outlive the process; `None` if the output is in memory and not at the store.
    pub fn keep(&self) -> Option<KeptUpload> {
        let Content::Parts { open, tags } = &self.content else { return None };
        open.forget();
        let (id, mark) = (open.id().to_owned(), self.target.mark.clone());
        Some(KeptUpload { id, mark, tags: tags.clone() })
    }

    /// Removes the committed object, if it replaced none: a replaced object would not come back. Errors are
    /// ignored.
    pub fn take_back(&self) {
        let Target { store, address, mark, overwrite } = &self.target;
        if !*overwrite {
            let _ = store.take_back(address, mark);
        }
    }
}

impl Drop for PendingObject {
    fn drop(&mut self) {
        if let Content::Held(bytes) = &self.content {
            self.target.store.held_left.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

impl ObjectStore {
    /// Whether a kept upload is still open, or its object exists.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn holds(&self, address: &ObjectAddress, upload: &KeptUpload) -> Result<bool, ObjectError> {
        let has_begun = self.is_open(address, &upload.id)?;
        Ok(has_begun || self.mark_of(address)?.as_ref() == Some(&upload.mark))
    }

    /// Finishes a kept upload, unless that is done already.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn commit(
        &self,
        address: &ObjectAddress,
        upload: &KeptUpload,
        overwrite: bool,
    ) -> Result<(), ObjectError> {
        let KeptUpload { id, mark, tags } = upload;
        self.finish(address, (id, mark), tags, overwrite)
    }

    /// Aborts an upload of another process. Errors are ignored.
    pub fn abort_upload(&self, address: &ObjectAddress, id: &str) {
        let _ = self.abort(address, id, None);
    }
}

/// A mark that no other object has.
#[expect(clippy::disallowed_methods, reason = "nothing but the identity of an object rests on it")]
fn fresh_mark() -> String {
    format!("{:032x}", rand::random::<u128>())
}
