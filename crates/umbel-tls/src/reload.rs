//! Files that are replaced while somebody uses what was in them.

use crate::clock::now;
use crate::error::TlsError;
use crate::files::{Life, Loaded, Stamp, TlsFiles};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What is made of the files, and made again when they change.
pub(crate) struct Reloading<T> {
    files: TlsFiles,
    make: fn(&TlsFiles, Loaded) -> Result<T, TlsError>,
    current: RwLock<Current<T>>,
    /// What the files looked like when they were last read, in vain or not.
    looked: Mutex<Stamp>,
}

struct Current<T> {
    made: Arc<T>,
    /// That of the own certificate, if there is one.
    life: Option<Life>,
}

impl<T> Reloading<T> {
    /// Reads the files for the first time.
    pub(crate) fn open(
        files: TlsFiles,
        make: fn(&TlsFiles, Loaded) -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let looked = Mutex::new(files.stamp());
        let current = RwLock::new(load(&files, make)?);
        Ok(Self { files, make, current, looked })
    }

    /// Reads the files again if they changed since they were last read, and says whether they did.
    /// While they stay damaged, the error comes once.
    pub(crate) fn refresh(&self) -> Result<bool, TlsError> {
        // Taken before the files are read: a change in between shows at the next look.
        let stamp = self.files.stamp();
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if *looked == stamp {
            return Ok(false);
        }
        *looked = stamp;
        let current = load(&self.files, self.make)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(true)
    }

    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).made)
    }

    pub(crate) fn life(&self) -> Option<Life> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).life
    }
}

fn load<T>(
    files: &TlsFiles,
    make: fn(&TlsFiles, Loaded) -> Result<T, TlsError>,
) -> Result<Current<T>, TlsError> {
    let loaded = files.load(now())?;
    let life = loaded.pair.as_ref().map(|pair| pair.life);
    Ok(Current { made: Arc::new(make(files, loaded)?), life })
}
