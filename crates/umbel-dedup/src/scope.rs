//! Scopes: records are compared only with records of the same scope.
//!
//! The hash covers the scope, so that items of different scopes have different hashes. The scope's hash has
//! 128 bits: with a seed of 64 bits, two of a million files would have equal seeds far more often than two
//! items have equal hashes. It is made under another seed than the items' own: an item that is the name of its
//! scope's file would otherwise have hash 0 in every file.

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

/// What the seed of scopes' hashes differs by from that of items.
const SCOPE_SEED: u64 = 0x5c09_e5c0_9e5c_09e5;

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

    /// The hash function for a source's items under the job's seed.
    pub(crate) fn hasher(self, seed: u64, source: &Source, worker: Option<u16>) -> ScopedHasher {
        match self {
            Self::Global => ScopedHasher::global(seed),
            _ => ScopedHasher::of_scope(seed, &self.tag(source, worker)),
        }
    }
}

/// The hash function of one scope.
#[derive(Clone, Copy)]
pub(crate) struct ScopedHasher {
    hasher: ItemHasher,
    scope: ItemHash,
}

impl ScopedHasher {
    fn global(seed: u64) -> Self {
        Self { hasher: ItemHasher::Xxh3 { seed }, scope: ItemHash::new(0, 0) }
    }

    fn of_scope(seed: u64, tag: &[u8]) -> Self {
        let scope = ItemHasher::Xxh3 { seed: seed ^ SCOPE_SEED }.hash(tag);
        Self { scope, ..Self::global(seed) }
    }

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
        assert_eq!(ScopedHasher::global(7).hash(b"x"), hasher.hash(b"x"));
        let scoped = ScopedHasher::of_scope(7, b"a.txt");
        assert_ne!(scoped.hash(b"x"), hasher.hash(b"x"));
    }

    /// Items that are names of files: of the own one, and each of the other one.
    #[test]
    fn items_that_name_scopes_have_hashes_of_their_own() {
        let [a, b] = [b"a", b"b"].map(|tag| ScopedHasher::of_scope(7, tag));
        assert_ne!(a.hash(b"a"), b.hash(b"b"));
        assert_ne!(a.hash(b"b"), b.hash(b"a"));
    }
}
