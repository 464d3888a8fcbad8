//! Configurations that are rebuilt when their files are replaced.

use crate::clock::now;
use crate::error::TlsError;
use crate::files::{Life, Loaded, Stamp, TlsFiles};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A value made from the files, and made again when they change.
pub(crate) struct Reloading<T> {
    files: TlsFiles,
    make: fn(&TlsFiles, Loaded) -> Result<T, TlsError>,
    current: RwLock<Current<T>>,
    /// The stamp of the files when they were last read, successfully or not.
    looked: Mutex<Stamp>,
}

struct Current<T> {
    made: Arc<T>,
    /// The validity of this end's certificate, if there is one.
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

    /// Reads the files again if they have changed since they were last read; returns whether they have.
    /// While they stay damaged, the error is returned only once.
    pub(crate) fn refresh(&self) -> Result<bool, TlsError> {
        // Taken before the files are read, so that a change in between is noticed by the next call.
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
