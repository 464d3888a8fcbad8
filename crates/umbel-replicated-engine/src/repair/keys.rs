//! The keys of a session, and the hashes that use them.
//!
//! K is SipHash-2-4-128 over the shape and both nonces under the domain; the key of the first frame
//! leaves out the responder's nonce. Roots and estimates use SipHash, too. Blocks are compared with
//! seeded XXH3, which is ten times as fast: the nonces are drawn for the session, so bits that collide
//! could only be chosen during it, by the peer, which may send any bits anyway.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as Sip128};
use umbel_filter::{ItemHasher, RunningHash};
use umbel_sketch::{BLOCK_WORDS, Estimator};

use super::table::ResidueTable;

/// The key of a session, or of its first frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairKey {
    key: [u8; 16],
    block_seed: u64,
}

impl RepairKey {
    pub(crate) fn derive(domain: &[u8; 16], shape_id: u64, nonces: [u64; 2]) -> Self {
        let mut hasher = Sip128::new_with_key(domain);
        hasher.write(b"umbel/repair/1");
        for word in [shape_id, nonces[0], nonces[1]] {
            hasher.write(&word.to_le_bytes());
        }
        let key = hasher.finish128().as_bytes();
        Self { key, block_seed: SipHasher24::new_with_key(&key).hash(b"block") }
    }

    /// The value by which a side shows that it has the same key.
    pub(crate) fn check(&self) -> u64 {
        SipHasher24::new_with_key(&self.key).hash(b"check")
    }

    /// The digest of the residues of the whole array.
    pub(crate) fn root(&self, table: &ResidueTable) -> u128 {
        let mut hasher = Sip128::new_with_key(&self.key);
        for residue in table.residues() {
            hasher.write(&residue.to_le_bytes());
        }
        hasher.finish128().as_u128()
    }

    /// The estimator over block numbers with their residues: each dirty block makes two items differ.
    pub(crate) fn estimator(&self, table: &ResidueTable) -> Estimator {
        let mut estimator = Estimator::new();
        for block in 0..table.block_count() {
            estimator.add(SipHasher24::new_with_key(&self.key).hash(&block_item(table, block)));
        }
        estimator
    }

    /// A hasher for one hash over several blocks, one after the other.
    pub(crate) fn block_hasher(&self) -> BlockHasher {
        BlockHasher { running: ItemHasher::Xxh3 { seed: self.block_seed }.running() }
    }
}

/// A block as an item of a set: its number and its residues.
pub(crate) fn block_item(table: &ResidueTable, block: u32) -> [u8; 20] {
    let mut item = [0; 20];
    let (number, residues) = item.split_at_mut(4);
    number.copy_from_slice(&block.to_le_bytes());
    for (bytes, residue) in residues.chunks_exact_mut(8).zip(table.of_block(block)) {
        bytes.copy_from_slice(&residue.to_le_bytes());
    }
    item
}

/// A hash over several blocks.
#[derive(Debug)]
pub(crate) struct BlockHasher {
    running: RunningHash,
}

impl BlockHasher {
    pub(crate) fn add(&mut self, words: &[u64; BLOCK_WORDS]) {
        let mut bytes = [0; 8 * BLOCK_WORDS];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.running.update(&bytes);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.running.finish().hi()
    }
}
