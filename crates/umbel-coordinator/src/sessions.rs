//! Sessions of clients: opened by the meta group, and checked before a request reaches a shard.

use tokio::time::Instant;
use umbel_engine::SessionId;
use umbel_engine::meta::{MetaCommand, MetaReply, MetaState, SessionKey, SessionStanding};
use umbel_engine::shard::PartError;
use umbel_ports::Purpose;
use umbel_step::planted::{self, Planted};

use super::{ClientRequest, Result};
use umbel_node::leader_calls::{LeaderCalls, unexpected};

/// The sessions of clients.
#[derive(Clone, Copy)]
pub struct Sessions<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl Sessions<'_> {
    /// Opens a session for a client.
    pub async fn open(self, owner: String, deadline: Instant) -> Result<SessionId> {
        let mut key = [0; 16];
        self.calls.seed().fill(Purpose::SessionKey, &mut key);
        let command = MetaCommand::OpenSession { key: SessionKey::new(key), owner };
        match self.calls.meta_propose(command, deadline).await? {
            MetaReply::Session(session) => Ok(session),
            other => Err(unexpected(&other)),
        }
    }

    /// The request with its owner as shards know it. Refuses a request in a session that the owner has
    /// not opened: a shard would take its number for one of the cluster's sessions, and forget other
    /// sessions for it.
    pub async fn check(
        self,
        request: Option<ClientRequest>,
        owner: &str,
        deadline: Instant,
    ) -> Result<Option<ClientRequest>> {
        let Some(request) = request else { return Ok(None) };
        let id = request.id;
        let standing = |state: &MetaState| state.session_standing(id.session, owner);
        let mut found = self.calls.read_meta(standing)?;
        if !self.is_answer(found)? {
            // Another node may just have opened it.
            self.calls.meta_refresh(deadline).await?;
            found = self.calls.read_meta(standing)?;
        }
        match found {
            SessionStanding::Given { owner, .. } if self.is_answer(found)? => {
                Ok(Some(ClientRequest { owner, ..request }))
            }
            SessionStanding::Foreign if planted::on(Planted::ForeignSessionAccepted) => {
                Ok(Some(request))
            }
            _ => Err(PartError::SessionExpired { id }.into()),
        }
    }

    /// Whether this node knows enough to decide: a client that found out the tag of a future entry could
    /// otherwise push out all other sessions.
    fn is_answer(self, found: SessionStanding) -> Result<bool> {
        Ok(match found {
            SessionStanding::Given { log_index, .. } => {
                log_index < self.calls.local()?.meta().replica().first_unapplied()
            }
            SessionStanding::Foreign => true,
            SessionStanding::Unknown => false,
        })
    }
}
