//! Connections to a single node, for calls that must not go to any other. Each call carries the token, if
//! any.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use umbel_ports::Net;

use crate::net::SimNet;

/// A connection whose calls show a token.
pub(crate) type NodeChannel = InterceptedService<Channel, Bearer>;

/// Adds the token, if there is one, to every call.
#[derive(Clone, Default)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// The header for a token in its printed form.
    pub(crate) fn new(token: Option<&str>) -> Self {
        let header = |token| format!("Bearer {token}").parse().expect("tokens here are letters");
        Self(token.map(header))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// A connection to a node. It is established on first use, and again after it broke.
pub(crate) fn node_channel(net: &SimNet, address: String, token: Option<&str>) -> NodeChannel {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .expect("the hosts' addresses are addresses")
        .connect_timeout(Duration::from_secs(1));
    let net = net.clone();
    let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let (net, address) = (net.clone(), address.clone());
        async move {
            let stream = Net::connect(&net, &address).await?;
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
        }
    }));
    InterceptedService::new(channel, Bearer::new(token))
}
