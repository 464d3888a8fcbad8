//! Uploads that this process has begun and neither finished nor aborted: it aborts them when it ends, as far
//! as the store responds. The parts of an upload that stays open are invisible, but they take up storage; a
//! lifecycle rule of the bucket removes them.

use crate::address::ObjectAddress;
use crate::error::ObjectError;
use crate::store::ObjectStore;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Aborts that run at a time: each waits for one response of the store.
const ABORTING_THREADS: usize = 16;

static OPEN: Mutex<BTreeMap<u64, Begun>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// What is needed to abort an upload.
struct Begun {
    store: Arc<ObjectStore>,
    address: ObjectAddress,
    id: String,
}

/// An upload that has begun.
pub(crate) struct OpenUpload {
    number: u64,
    id: String,
}

impl OpenUpload {
    /// Begins an upload.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub(crate) fn begin(
        store: &Arc<ObjectStore>,
        address: &ObjectAddress,
        mark: &str,
    ) -> Result<Self, ObjectError> {
        let id = store.begin(address, mark)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (store, address) = (Arc::clone(store), address.clone());
        lock().insert(number, Begun { store, address, id: id.clone() });
        Ok(Self { number, id })
    }

    /// The store's id of the upload.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Removes it from the open uploads: it has ended, or another process is responsible for it.
    pub(crate) fn forget(&self) {
        lock().remove(&self.number);
    }
}

impl ObjectStore {
    /// Begins an upload and aborts it at once, to check that the caller may write there.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn try_upload(self: &Arc<Self>, address: &ObjectAddress) -> Result<(), ObjectError> {
        let open = OpenUpload::begin(self, address, "trial")?;
        self.abort(address, &open.id, None)?;
        open.forget();
        Ok(())
    }
}

/// Whether the process is ending, so that nothing more may be committed.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Aborts all open uploads when the process ends. With `in_haste` (an interrupt), commits fail from now on,
/// and each abort is tried only once. After one abort that the store did not answer, the others are tried
/// once at most.
pub fn abort_open_uploads(in_haste: bool) {
    if in_haste {
        IS_ENDING.store(true, Ordering::SeqCst);
    }
    let begun: Vec<Begun> = std::mem::take(&mut *lock()).into_values().collect();
    let (next, is_away) = (AtomicUsize::new(0), AtomicBool::new(in_haste));
    let work = || {
        while let Some(upload) = begun.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Begun { store, address, id } = upload;
            match store.abort(address, id, Some(&is_away)) {
                Err(ObjectError::Unreachable { .. }) if in_haste => {}
                Err(ObjectError::Unreachable { .. }) => {
                    is_away.store(true, Ordering::Relaxed);
                    return;
                }
                _ => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..ABORTING_THREADS.min(begun.len()) {
            scope.spawn(work);
        }
    });
}

fn lock() -> MutexGuard<'static, BTreeMap<u64, Begun>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}
