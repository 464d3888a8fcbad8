//! The end of a connection whose client is still sending: what was refused is read, and dropped, because bytes that
//! nobody reads make the system reset the connection, and the client lose the answer that names the reason.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;
use umbel_ports::{ConnectionHandle, Stream};

use crate::limits::{ARRIVAL_TIMEOUT, RESP_DROPPED_BYTES_MAX, RESP_READ_BYTES};

/// Tells the client that nothing more is answered, and drops what it sends until it has closed its side, for
/// [`ARRIVAL_TIMEOUT`] and [`RESP_DROPPED_BYTES_MAX`] at most.
pub(super) async fn part(stream: &mut Box<dyn Stream>, connection: &ConnectionHandle) {
    let parting = async {
        // A client that is gone reads nothing, and sends nothing.
        if stream.shutdown().await.is_ok() {
            drop_rest(stream, connection).await;
        }
    };
    // What a client sends after that, it sends for nothing.
    let _ = timeout(ARRIVAL_TIMEOUT, parting).await;
}

async fn drop_rest(stream: &mut Box<dyn Stream>, connection: &ConnectionHandle) {
    let mut left = RESP_DROPPED_BYTES_MAX;
    poll_fn(|cx| {
        while left > 0 && connection.poll_ended(cx).is_pending() {
            let mut space = [const { MaybeUninit::<u8>::uninit() }; RESP_READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    left = left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    fn parted() -> (DuplexStream, JoinHandle<()>) {
        let (client, node) = duplex(RESP_READ_BYTES);
        let mut stream: Box<dyn Stream> = Box::new(node);
        let parting = async move { part(&mut stream, &ConnectionHandle::default()).await };
        (client, tokio::spawn(parting))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_send_the_rest_before_it_reads() {
        let (mut client, parting) = parted();
        client.write_all(&vec![b'x'; 5 << 20]).await.unwrap();
        assert_eq!(client.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        assert!(!parting.is_finished());
        drop(client);
        parting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_has_a_bound() {
        let (mut client, parting) = parted();
        let more = vec![b'x'; RESP_DROPPED_BYTES_MAX + 2 * RESP_READ_BYTES];
        assert!(client.write_all(&more).await.is_err());
        parting.await.unwrap();
        let (client, parting) = parted();
        let began = Instant::now();
        parting.await.unwrap();
        assert_eq!(began.elapsed(), ARRIVAL_TIMEOUT);
        drop(client);
    }
}
