//! Session numbers that cannot be guessed or forged.
//!
//! A shard tracks requests by session number, and when it forgets a session of an owner, it refuses all
//! lower numbers of that owner. So a number itself proves that the cluster issued it, and to whom:
//!
//! ```text
//! 63              32              0
//! │ index of the entry │ tag, 32 bits │    tag: SipHash-2-4 of index and owner under the cluster's session key
//! ```
//!
//! Later sessions have higher numbers. Every node that has the catalogue can verify a number.

use super::reply::{MetaError, MetaReply};
use super::session_key::{SessionKey, TAG_BITS};
use super::state::MetaState;
use crate::ids::{OwnerId, SessionId};
use crate::meta::Result;

/// The result of verifying a session's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionStanding {
    /// The cluster issued it to this owner, by the entry with this index.
    Given {
        /// The entry's index.
        log_index: u64,
        /// The owner's number, as shards use it.
        owner: OwnerId,
    },
    /// The cluster did not issue the number, or issued it to another owner.
    Foreign,
    /// This node does not know of any session yet, so it cannot verify the number.
    Unknown,
}

/// A session's number.
const fn number(log_index: u64, tag: u32) -> u64 {
    log_index << TAG_BITS | tag as u64
}

impl MetaState {
    /// Verifies that `owner` opened the session with this number. `owner` is the principal's name, empty
    /// for a caller that is not a principal.
    ///
    /// ```
    /// use umbel_engine::meta::{MetaCommand, MetaReply, MetaState, SessionKey, SessionStanding};
    /// use umbel_engine::{NodeId, SessionId};
    ///
    /// let mut state = MetaState::new();
    /// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 });
    /// let open = MetaCommand::OpenSession { key: SessionKey::new([7; 16]), owner: "alice".to_owned() };
    /// let MetaReply::Session(session) = state.apply(2, &open) else { panic!("it is opened") };
    /// assert_eq!(session.0 >> 32, 2);
    /// let standing = state.session_standing(session, "alice");
    /// assert!(matches!(standing, SessionStanding::Given { log_index: 2, .. }));
    /// assert_eq!(state.session_standing(session, "bob"), SessionStanding::Foreign);
    /// assert_eq!(state.session_standing(SessionId(u64::MAX), "alice"), SessionStanding::Foreign);
    /// ```
    #[must_use]
    pub fn session_standing(&self, session: SessionId, owner: &str) -> SessionStanding {
        let Some(key) = self.session_key else { return SessionStanding::Unknown };
        let log_index = session.0 >> TAG_BITS;
        if session.0 == number(log_index, key.tag(log_index, owner)) {
            SessionStanding::Given { log_index, owner: key.owner(owner) }
        } else {
            SessionStanding::Foreign
        }
    }

    /// Opens a session. The key of the first session's command becomes the key of all sessions.
    pub(super) fn open_session(
        &mut self,
        log_index: u64,
        key: SessionKey,
        owner: &str,
    ) -> Result<MetaReply> {
        if log_index >> (u64::BITS - TAG_BITS) != 0 {
            let what = format!("entry {log_index} of the catalogue's log can open no session");
            return Err(MetaError::Quota { what });
        }
        let key = *self.session_key.get_or_insert(key);
        Ok(MetaReply::Session(SessionId(number(log_index, key.tag(log_index, owner)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::MetaCommand;
    use crate::meta::testing::form;

    fn open(state: &mut MetaState, log_index: u64, key: u8, owner: &str) -> SessionId {
        let (key, owner) = (SessionKey::new([key; 16]), owner.to_owned());
        match state.apply(log_index, &MetaCommand::OpenSession { key, owner }) {
            MetaReply::Session(session) => session,
            other => panic!("{other:?}"),
        }
    }

    fn formed() -> MetaState {
        let mut state = MetaState::new();
        state.apply(1, &form(1, 1, 1));
        state
    }

    #[test]
    fn later_sessions_are_higher_whatever_key_is_brought() {
        let mut state = formed();
        let sessions: Vec<SessionId> = (2..40).map(|i| open(&mut state, i, i as u8, "")).collect();
        assert!(sessions.is_sorted_by(|a, b| a < b));
        let mut owners = None;
        for (index, session) in (2..).zip(&sessions) {
            let standing = state.session_standing(*session, "");
            let SessionStanding::Given { log_index, owner } = standing else {
                panic!("{standing:?}")
            };
            assert_eq!(log_index, index);
            assert_eq!(*owners.get_or_insert(owner), owner, "one owner has one number");
        }
    }

    #[test]
    fn what_is_near_a_session_is_none() {
        let mut state = formed();
        let session = open(&mut state, 9, 7, "alice").0;
        // By hand: another tag with the same index, and the same tag with another index.
        for other in [session ^ 1, session + 1, session + (1 << 32), session & !0xffff_ffff, 9, 0] {
            assert_eq!(state.session_standing(SessionId(other), "alice"), SessionStanding::Foreign);
        }
        assert_eq!(state.session_standing(SessionId(session), ""), SessionStanding::Foreign);
        assert_eq!(formed().session_standing(SessionId(session), ""), SessionStanding::Unknown);
    }

    #[test]
    fn an_index_that_has_no_room_opens_nothing() {
        let mut state = formed();
        let (key, owner) = (SessionKey::new([1; 16]), String::new());
        let open = MetaCommand::OpenSession { key, owner };
        assert!(matches!(state.apply(1 << 32, &open), MetaReply::Refused(MetaError::Quota { .. })));
        assert!(matches!(state.apply((1 << 32) - 1, &open), MetaReply::Session(_)));
    }
}
