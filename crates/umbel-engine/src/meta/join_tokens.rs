//! Join tokens: each admits one node, for a limited time.

use super::join_token::{Applicant, JoinToken, TokenUse};
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use crate::meta::Result;

/// Most unexpired tokens of a cluster; that many nodes may join at once. A token takes a few hundred
/// bytes on every node.
pub const JOIN_TOKEN_COUNT_MAX: usize = 256;

impl MetaState {
    /// Whether there is a token whose secret has this hash, used or unused.
    #[must_use]
    pub fn has_join_token(&self, digest: &[u8; 32]) -> bool {
        self.join_tokens.contains_key(digest)
    }

    /// Stores a token until it expires, and drops expired ones. A retried request is harmless.
    pub(super) fn put_join_token(
        &mut self,
        digest: [u8; 32],
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<MetaReply> {
        self.join_tokens.retain(|_, token| token.expires_ms > now_ms);
        if self.join_tokens.contains_key(&digest) {
            return Ok(MetaReply::Done);
        }
        if self.join_tokens.len() >= JOIN_TOKEN_COUNT_MAX {
            let what = format!(
                "there are {JOIN_TOKEN_COUNT_MAX} tokens for joining already: the first of them \
                 expires before another one can be drawn"
            );
            return Err(MetaError::Quota { what });
        }
        self.join_tokens.insert(digest, JoinToken { expires_ms, used: None });
        Ok(MetaReply::Done)
    }

    /// Adds a node and marks its token as used, or does neither.
    pub(super) fn admit_node(&mut self, applicant: &Applicant) -> Result<MetaReply> {
        let Applicant { address, nonce, digest, key, now_ms } = applicant;
        let bad = |what: &str| Err(MetaError::BadJoinToken { what: what.to_owned() });
        // Only hashes are compared, so timing reveals nothing about the secret.
        let Some(token) = self.join_tokens.get(digest).filter(|token| token.expires_ms > *now_ms)
        else {
            return bad(
                "the token for joining is unknown or expired: `umbel cluster token --join` draws another one",
            );
        };
        if let Some(used) = token.used {
            let is_again = (used.nonce, &used.key) == (*nonce, key) && self.is_live(used.node);
            return if is_again {
                Ok(MetaReply::Node(used.node))
            } else {
                bad("the token for joining has been used: each node needs one of its own")
            };
        }
        if self.nodes().any(|(_, record)| record.nonce() == Some(*nonce)) {
            return bad("the node is a member already: it needs no token");
        }
        let reply = self.add_node(address, *nonce)?;
        if let (MetaReply::Node(node), Some(token)) = (&reply, self.join_tokens.get_mut(digest)) {
            token.used = Some(TokenUse { node: *node, nonce: *nonce, key: *key });
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::meta::MetaCommand;
    use crate::meta::testing::form;

    const DIGEST: [u8; 32] = [7; 32];

    fn with_token() -> MetaState {
        let mut state = MetaState::new();
        state.apply(1, &form(3, 1, 3));
        assert_eq!(put(&mut state, DIGEST, 100, 10), MetaReply::Done);
        state
    }

    fn put(state: &mut MetaState, digest: [u8; 32], expires_ms: u64, now_ms: u64) -> MetaReply {
        state.apply(2, &MetaCommand::PutJoinToken { digest, expires_ms, now_ms })
    }

    fn applicant(number: u8) -> Applicant {
        let address = format!("joiner{number}:7070");
        Applicant { address, nonce: number.into(), digest: DIGEST, key: [number; 32], now_ms: 20 }
    }

    fn admit(state: &mut MetaState, index: u64, applicant: Applicant) -> MetaReply {
        state.apply(index, &MetaCommand::AdmitNode(applicant))
    }

    fn refusal(reply: &MetaReply) -> String {
        let MetaReply::Refused(error) = reply else { panic!("{reply:?} is no refusal") };
        error.to_string()
    }

    #[test]
    fn of_two_with_one_token_exactly_one_joins_and_may_ask_again() {
        let mut state = with_token();
        assert_eq!(admit(&mut state, 9, applicant(1)), MetaReply::Node(NodeId(4)));
        let before = state.clone();
        assert!(refusal(&admit(&mut state, 10, applicant(2))).contains("has been used"));
        assert_eq!(admit(&mut state, 11, applicant(1)), MetaReply::Node(NodeId(4)));
        // Only the nonce, or only the key, does not make it the same node.
        for other in [
            Applicant { key: [2; 32], ..applicant(1) },
            Applicant { nonce: 2, ..applicant(1) },
            Applicant { address: "elsewhere:1".to_owned(), nonce: 3, ..applicant(1) },
        ] {
            assert!(refusal(&admit(&mut state, 12, other)).contains("has been used"));
        }
        assert_eq!(state, before, "whoever is refused changes nothing");
        state.apply(13, &MetaCommand::RemoveNode { node: NodeId(4) });
        assert!(refusal(&admit(&mut state, 14, applicant(1))).contains("has been used"));
    }

    #[test]
    fn unknown_and_expired_tokens_admit_nobody() {
        let mut state = with_token();
        let before = state.clone();
        let strange = Applicant { digest: [8; 32], ..applicant(1) };
        let late = Applicant { now_ms: 100, ..applicant(1) };
        for refused in [strange, late] {
            assert!(refusal(&admit(&mut state, 9, refused)).contains("unknown or expired"));
        }
        assert_eq!(state, before);
    }

    #[test]
    fn a_node_that_cannot_be_added_keeps_its_token() {
        let mut state = with_token();
        let taken = state.node_address(NodeId(1)).unwrap().to_owned();
        let reply = admit(&mut state, 9, Applicant { address: taken, ..applicant(1) });
        assert!(matches!(reply, MetaReply::Refused(MetaError::AddressTaken { .. })));
        // A member's nonce does not admit it under another number.
        state.apply(10, &MetaCommand::AddNode { address: "d:1".to_owned(), nonce: 4 });
        assert!(refusal(&admit(&mut state, 11, applicant(4))).contains("a member already"));
        assert_eq!(admit(&mut state, 12, applicant(1)), MetaReply::Node(NodeId(5)));
    }

    #[test]
    fn tokens_are_counted_and_expired_ones_go() {
        let mut state = with_token();
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        };
        for number in 1..JOIN_TOKEN_COUNT_MAX {
            assert_eq!(put(&mut state, digest(number), 200, 10), MetaReply::Done);
        }
        assert_eq!(put(&mut state, DIGEST, 100, 20), MetaReply::Done, "it came again");
        assert!(refusal(&put(&mut state, digest(0), 200, 20)).contains("256 tokens"));
        assert_eq!(put(&mut state, digest(0), 200, 100), MetaReply::Done);
        assert!(!state.has_join_token(&DIGEST), "it had expired");
    }
}
