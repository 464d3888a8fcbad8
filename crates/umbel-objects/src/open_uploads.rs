//! Uploads of this process that have begun and have no end: however the process ends, they are aborted, as well as the
//! store can be asked. What is left behind nobody sees, but it is stored; a lifecycle rule of the bucket removes it.

use crate::address::ObjectAddress;
use crate::error::ObjectError;
use crate::store::ObjectStore;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Uploads that are aborted at a time: each takes one answer of the store.
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
    /// Begins one.
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

    /// The store's name of it.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// It has come to its end, or others answer for it.
    pub(crate) fn forget(&self) {
        lock().remove(&self.number);
    }
}

impl ObjectStore {
    /// Begins an upload and ends it at once: whoever may do that may write there.
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

/// Whether the process is being ended, and nothing more may go under a name.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Aborts all uploads that have no end: at the end of the process, which may be in haste. A store that does not answer is
/// not waited for again.
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
