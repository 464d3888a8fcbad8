//! Places for open pages: limited in all, and for each principal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use umbel_ports::locked;

/// Event streams that a node serves at once: one for each open page. Pages that watch the same topic
/// share its samples, so a page costs its connection and what is written to it.
pub(super) const STREAMS_MAX: usize = 1024;

/// Streams of one principal: a client with many windows does not keep operators out.
pub(super) const STREAMS_OF_PRINCIPAL_MAX: usize = STREAMS_MAX / 4;

/// How many places each owner has; callers that are no principal share the empty name.
#[derive(Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    count: usize,
    by_owner: BTreeMap<String, usize>,
}

/// A place for one stream; dropping it frees the place.
pub(super) struct StreamPlace {
    places: Arc<Places>,
    owner: String,
}

/// No place is free. Close a page, or use another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoPlace {
    /// All places of the node are taken.
    #[error("{STREAMS_MAX} pages are open already: close one, or ask another node")]
    OfNode,
    /// The principal has all places of its share.
    #[error(
        "this principal has {STREAMS_OF_PRINCIPAL_MAX} open pages already: close one, or ask another node"
    )]
    OfPrincipal,
}

impl Places {
    /// Takes a place for `owner`.
    pub(super) fn take(self: &Arc<Self>, owner: &str) -> Result<StreamPlace, NoPlace> {
        let mut taken = locked(&self.0);
        if taken.count >= STREAMS_MAX {
            return Err(NoPlace::OfNode);
        }
        let own = taken.by_owner.get(owner).copied().unwrap_or(0);
        if !owner.is_empty() && own >= STREAMS_OF_PRINCIPAL_MAX {
            return Err(NoPlace::OfPrincipal);
        }
        taken.by_owner.insert(owner.to_owned(), own + 1);
        taken.count += 1;
        Ok(StreamPlace { places: Arc::clone(self), owner: owner.to_owned() })
    }

    /// How many places are taken.
    pub(super) fn count(&self) -> usize {
        locked(&self.0).count
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut taken = locked(&self.places.0);
        taken.count -= 1;
        match taken.by_owner.get_mut(&self.owner) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.by_owner.remove(&self.owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_its_share_and_the_node_its_bound() {
        let places = Arc::<Places>::default();
        let own: Vec<_> =
            (0..STREAMS_OF_PRINCIPAL_MAX).map(|_| places.take("crawler").unwrap()).collect();
        assert_eq!(places.take("crawler").err(), Some(NoPlace::OfPrincipal));
        let others: Vec<_> = (own.len()..STREAMS_MAX).map(|_| places.take("").unwrap()).collect();
        assert_eq!(places.take("root").err(), Some(NoPlace::OfNode));
        assert_eq!(places.take("").err(), Some(NoPlace::OfNode));
        assert_eq!(places.count(), STREAMS_MAX);
        drop((own, others));
        assert!(places.count() == 0 && locked(&places.0).by_owner.is_empty());
        assert!(places.take("crawler").is_ok());
    }
}
