//! Principals: who may ask what of a cluster.

use umbel_proto::v1::{
    ListPrincipalsRequest, Principal, PutPrincipalRequest, RevokePrincipalRequest, SetQuotaRequest,
    SetQuotaResponse, WhoAmIRequest, WhoAmIResponse,
};

use crate::caller::{Ask, First, Repeat};
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Adds a principal, or changes one, as the request says. Who draws a token sends the BLAKE3 hash of
    /// its secret alone. With the first principal the cluster denies whatever is not granted.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn put_principal(&self, request: PutPrincipalRequest) -> Result<(), ClientError> {
        let name = request.principal.as_ref().map_or("", |principal| &principal.name);
        let target = format!("principal {name}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, request, |node, request| async move { node.access().put(request).await })
            .await
            .map(drop)
    }

    /// Removes a principal: what it asks later is refused.
    ///
    /// # Errors
    /// [`ClientError`]. After an attempt without an answer `Refused` may mean that it is done.
    pub async fn revoke_principal(&self, name: &str) -> Result<(), ClientError> {
        let target = format!("principal {name}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        let message = RevokePrincipalRequest { name: name.to_owned() };
        self.caller
            .simple(
                &ask,
                message,
                |node, request| async move { node.access().revoke(request).await },
            )
            .await
            .map(drop)
    }

    /// Sets limits of a principal's quota, or of the cluster's, as the request says; one that sets none tells
    /// what they are.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn set_quota(
        &self,
        request: SetQuotaRequest,
    ) -> Result<SetQuotaResponse, ClientError> {
        let target = match &*request.principal {
            "" => "quota of the cluster".to_owned(),
            name => format!("quota of principal {name}"),
        };
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(
                &ask,
                request,
                |node, request| async move { node.access().set_quota(request).await },
            )
            .await
    }

    /// All principals, sorted by name.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn principals(&self) -> Result<Vec<Principal>, ClientError> {
        let ask = Ask { target: "principals", repeat: Repeat::Freely, first: First::InTurn };
        let answer = self
            .caller
            .simple(&ask, ListPrincipalsRequest {}, |node, request| async move {
                node.access().list_principals(request).await
            })
            .await?;
        Ok(answer.principals)
    }

    /// Who this client is to the cluster.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn who_am_i(&self) -> Result<WhoAmIResponse, ClientError> {
        let ask = Ask { target: "whoami", repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, WhoAmIRequest {}, |node, request| async move {
                node.access().who_am_i(request).await
            })
            .await
    }
}
