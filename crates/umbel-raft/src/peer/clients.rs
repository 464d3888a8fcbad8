//! Clients of the peer service, for calls before there is a link.

use std::io;
use std::sync::Arc;

use tonic::transport::Channel;
use umbel_ports::channel::{channel, channel_to};
use umbel_ports::{Net, NodeIdentity};
use umbel_proto::v1::peer_client::PeerClient;

use super::limits::LINK_MESSAGE_BYTES_MAX;

/// A client of the peer service at `host:port`, for [`Adopt`] and [`WhoAreYou`]; calls travel over
/// `Links`.
///
/// # Errors
/// `InvalidInput` if the text is not an address.
///
/// [`Adopt`]: umbel_proto::v1::AdoptRequest
/// [`WhoAreYou`]: umbel_proto::v1::WhoAreYouRequest
pub fn peer_client(net: &Arc<dyn Net>, address: &str) -> io::Result<PeerClient<Channel>> {
    Ok(limited(channel(net, address)?))
}

/// A client of the peer service of a particular node at `host:port`.
///
/// # Errors
/// `InvalidInput` if the text is not an address.
pub fn member_client(
    net: &Arc<dyn Net>,
    address: &str,
    wanted: NodeIdentity,
) -> io::Result<PeerClient<Channel>> {
    Ok(limited(channel_to(net, address, Some(wanted))?))
}

fn limited(channel: Channel) -> PeerClient<Channel> {
    PeerClient::new(channel)
        .max_decoding_message_size(LINK_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(LINK_MESSAGE_BYTES_MAX)
}
