//! Which sessions a shard has forgotten: one number per owner, up to which sessions may have been known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{OwnerId, SessionId};
use crate::shard::digest::Digest;

/// For each owner, the highest forgotten session.
#[derive(Clone, Debug)]
pub(super) struct Forgotten {
    through: BTreeMap<OwnerId, SessionId>,
    /// Applies to every owner.
    through_of_all: SessionId,
}

impl Forgotten {
    pub(super) const fn new() -> Self {
        Self { through: BTreeMap::new(), through_of_all: SessionId(0) }
    }

    /// Whether a session that is unknown now may have been known before.
    pub(super) fn has(&self, owner: OwnerId, session: SessionId) -> bool {
        let own = self.through.get(&owner).copied().unwrap_or_default();
        session <= own.max(self.through_of_all)
    }

    /// Records that a session was forgotten. With more than `owners_max` owners, the entry of the owner
    /// with the lowest session is removed and its session applied to all owners.
    pub(super) fn add(&mut self, owner: OwnerId, session: SessionId, owners_max: usize) {
        let through = self.through.entry(owner).or_default();
        *through = session.max(*through);
        if self.through.len() > owners_max
            && let Some((&oldest, &through)) = self.through.iter().min_by_key(|&(_, &to)| to)
        {
            self.through.remove(&oldest);
            self.through_of_all = through.max(self.through_of_all);
        }
    }

    /// What counts as forgotten if either of two shards may have known it.
    pub(super) fn merged(&self, other: &Self, owners_max: usize) -> Self {
        let through_of_all = self.through_of_all.max(other.through_of_all);
        let mut merged = Self { through: self.through.clone(), through_of_all };
        for (&owner, &session) in &other.through {
            merged.add(owner, session, owners_max);
        }
        merged
    }

    pub(super) fn head(&self) -> ForgottenHead {
        let through = self.through.iter().map(|(&owner, &session)| (owner, session)).collect();
        ForgottenHead { through, through_of_all: self.through_of_all }
    }

    /// Restores the value from a snapshot, or returns what is wrong with it.
    pub(super) fn from_head(head: &ForgottenHead, owners_max: usize) -> Result<Self, String> {
        let ForgottenHead { through, through_of_all } = head;
        if through.len() > owners_max || !through.is_sorted_by(|(a, _), (b, _)| a < b) {
            let got = through.len();
            return Err(format!("{got} owners of sessions, expected at most {owners_max}, sorted"));
        }
        let through = through.iter().copied().collect();
        Ok(Self { through, through_of_all: *through_of_all })
    }
}

/// The forgotten sessions as a snapshot carries them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ForgottenHead {
    /// In ascending order of owners.
    through: Vec<(OwnerId, SessionId)>,
    through_of_all: SessionId,
}

impl ForgottenHead {
    pub(super) fn push_digest(&self, digest: &mut Digest) {
        digest.push(self.through_of_all.0);
        digest.push(self.through.len() as u64);
        for (owner, session) in &self.through {
            digest.push(owner.0);
            digest.push(session.0);
        }
    }
}
