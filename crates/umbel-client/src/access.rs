//! Principals of a cluster: their rights and quotas.

use umbel_proto::v1::{
    ListPrincipalsRequest, Principal, PutPrincipalRequest, Quota, RevokePrincipalRequest,
    SetQuotaRequest, SetQuotaResponse, WhoAmIRequest, WhoAmIResponse,
};

use crate::caller::{CallPolicy, ask};
use crate::client::Client;
use crate::error::Result;

impl Client {
    /// Adds or changes a principal, as the request says. To give it a token, the caller draws a secret and
    /// sends only the secret's BLAKE3 hash. Once a first principal exists, the cluster denies whatever is not
    /// granted.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn put_principal(&self, request: PutPrincipalRequest) -> Result<()> {
        let name = request.principal.as_ref().map_or("", |principal| &principal.name);
        let target = format!("principal {name}");
        ask!(self, CallPolicy::order(&target), access.put, request)?;
        Ok(())
    }

    /// Removes a principal: its later requests are refused.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError). If an earlier attempt had no answer, `Refused` may mean that it removed the
    /// principal.
    pub async fn revoke_principal(&self, name: &str) -> Result<()> {
        let target = format!("principal {name}");
        let message = RevokePrincipalRequest { name: name.to_owned() };
        ask!(self, CallPolicy::order(&target), access.revoke, message)?;
        Ok(())
    }

    /// Sets limits of a principal's quota or of the cluster's, as the request says, and returns the quota with
    /// its usage. A request that sets and removes no limits only reads them.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn set_quota(&self, request: SetQuotaRequest) -> Result<SetQuotaResponse> {
        let target = match &*request.principal {
            "" => "quota of the cluster".to_owned(),
            name => format!("quota of principal {name}"),
        };
        let sets = request.change.as_ref().is_some_and(|change| *change != Quota::default());
        let changes = sets || request.from_none;
        let policy = if changes { CallPolicy::order(&target) } else { CallPolicy::freely(&target) };
        Ok(ask!(self, policy, access.set_quota, request)?)
    }

    /// All principals, sorted by name.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); nothing is changed.
    pub async fn principals(&self) -> Result<Vec<Principal>> {
        let policy = CallPolicy::freely("principals");
        Ok(ask!(self, policy, access.list_principals, ListPrincipalsRequest {})?.principals)
    }

    /// How the cluster identifies this client, and what rights it has.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); nothing is changed.
    pub async fn who_am_i(&self) -> Result<WhoAmIResponse> {
        Ok(ask!(self, CallPolicy::freely("whoami"), access.who_am_i, WhoAmIRequest {})?)
    }
}
