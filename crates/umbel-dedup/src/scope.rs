//! Scopes: records are compared only with records of the same scope.
//!
//! The hash covers the scope, so that items of different scopes have different hashes. The scope's hash has
//! 128 bits: with a seed of 64 bits, two of a million files would have equal seeds far more often than two
//! items have equal hashes.

use super::inputs::Source;
use std::path::PathBuf;
use umbel_filter::{ItemHash, ItemHasher, RunningHash};

/// Which records may be compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All.
    Global,
    /// Those of files in one directory.
    Directory,
    /// Those of one file.
    File,
}

impl Scope {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Directory => "dir",
            Self::File => "file",
        }
    }

    /// The tag of a source's scope, the same for all sources of the scope; empty if there is only one scope.
    /// `worker` is the one that has read the source, in a job over many machines: there equal paths are one
    /// directory, but different files.
    pub(crate) fn tag(self, source: &Source, worker: Option<u16>) -> Vec<u8> {
        let directory = |path: &PathBuf| path.parent().unwrap_or(path).to_owned();
        let (path, worker) = match (self, worker) {
            (Self::Global, _) => return Vec::new(),
            (Self::Directory, None) => (directory(&source.relative), None),
            (Self::Directory, Some(_)) => (directory(&source.absolute), None),
            (Self::File, _) if source.identity.is_none() => {
                return source.name.clone().into_bytes();
            }
            (Self::File, None) => (source.relative.clone(), None),
            (Self::File, Some(worker)) => (source.absolute.clone(), Some(worker)),
        };
        let mut tag = path.into_os_string().into_encoded_bytes();
        tag.extend(worker.into_iter().flat_map(u16::to_le_bytes));
        tag
    }

    /// The hash function for a source's items.
    pub(crate) fn hasher(
        self,
        hasher: ItemHasher,
        source: &Source,
        worker: Option<u16>,
    ) -> ScopedHasher {
        let nothing = ItemHash::new(0, 0);
        let scope = match self {
            Self::Global => nothing,
            _ => hasher.hash(&self.tag(source, worker)),
        };
        ScopedHasher { hasher, scope }
    }
}

/// The hash function of one scope.
#[derive(Clone, Copy)]
pub(crate) struct ScopedHasher {
    hasher: ItemHasher,
    scope: ItemHash,
}

impl ScopedHasher {
    /// Hashes an item.
    #[inline]
    pub(crate) fn hash(&self, item: &[u8]) -> ItemHash {
        let hash = self.hasher.hash(item);
        self.scoped(hash)
    }

    /// Begins to hash an item that is read in pieces.
    pub(crate) fn running(self) -> ScopedRunning {
        ScopedRunning { running: self.hasher.running(), hasher: self }
    }

    #[inline]
    fn scoped(&self, hash: ItemHash) -> ItemHash {
        ItemHash::new(hash.hi() ^ self.scope.hi(), hash.lo() ^ self.scope.lo())
    }
}

/// The running hash of an item that is read in pieces.
pub(crate) struct ScopedRunning {
    running: RunningHash,
    hasher: ScopedHasher,
}

impl ScopedRunning {
    /// Adds the next piece.
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.running.update(piece);
    }

    /// The hash of all pieces.
    pub(crate) fn finish(&self) -> ItemHash {
        self.hasher.scoped(self.running.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_scope_changes_no_hash_and_others_all() {
        let hasher = ItemHasher::Xxh3 { seed: 7 };
        let global = ScopedHasher { hasher, scope: ItemHash::new(0, 0) };
        assert_eq!(global.hash(b"x"), hasher.hash(b"x"));
        let scoped = ScopedHasher { hasher, scope: hasher.hash(b"a.txt") };
        assert_ne!(scoped.hash(b"x"), hasher.hash(b"x"));
    }
}
