//! The key by which a cluster knows the sessions that it issued.

use std::fmt;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::ids::OwnerId;

/// Bits of a session's number below the index of its entry.
pub(super) const TAG_BITS: u32 = 32;

/// The key of session tags: 16 random bytes. Its `Debug` omits them.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionKey([u8; 16]);

impl SessionKey {
    /// A key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The tag of a session that this owner opens by the entry with this index.
    pub(super) fn tag(self, index: u64, owner: &str) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(b"umbel/session/1");
        hasher.write(&index.to_le_bytes());
        hasher.write(owner.as_bytes());
        (hasher.finish() >> TAG_BITS) as u32
    }

    /// The owner's number, derived from its name: shards forget sessions per owner, and need no names for
    /// that.
    pub(super) fn owner(self, owner: &str) -> OwnerId {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(b"umbel/owner/1");
        hasher.write(owner.as_bytes());
        OwnerId(hasher.finish())
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_prints_the_key() {
        assert_eq!(format!("{:?}", SessionKey::new([7; 16])), "SessionKey(..)");
    }
}
