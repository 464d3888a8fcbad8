//! Packs frames into messages: several small ones together, large ones in parts.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use umbel_proto::v1::JobFrames;

use super::limits::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FRAMES_MESSAGE_BYTES};

/// A frame that waits for a peer.
pub(super) struct Waiting {
    pub(super) frame: Bytes,
    /// Freed when the frame is taken from the queue.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// The stream of frames to a peer. Nothing is taken before the peer has accepted the stream, so that a
/// refused stream can be retried.
pub(super) struct Outgoing {
    accepted: oneshot::Receiver<mpsc::UnboundedReceiver<Waiting>>,
    frames: Option<mpsc::UnboundedReceiver<Waiting>>,
    /// The rest of a frame that was split.
    rest: Bytes,
}

impl Outgoing {
    /// Sends the frames of the receiver that arrives through `accepted`.
    pub(super) fn new(accepted: oneshot::Receiver<mpsc::UnboundedReceiver<Waiting>>) -> Self {
        Self { accepted, frames: None, rest: Bytes::new() }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.rest)));
        }
        match &mut self.frames {
            Some(frames) => frames.poll_recv(cx).map(|waiting| {
                let Waiting { frame, room } = waiting?;
                drop(room);
                Some(frame)
            }),
            None => Poll::Pending,
        }
    }
}

impl tokio_stream::Stream for Outgoing {
    type Item = JobFrames;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<JobFrames>> {
        if self.frames.is_none() {
            match Pin::new(&mut self.accepted).poll(cx) {
                Poll::Ready(Ok(frames)) => self.frames = Some(frames),
                Poll::Ready(Err(_)) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        let mut message = JobFrames::default();
        let mut room = FRAMES_MESSAGE_BYTES;
        while room > FRAME_HEAD_BYTES {
            let mut frame = match self.poll_frame(cx) {
                Poll::Ready(Some(frame)) => frame,
                Poll::Ready(None) if message.frames.is_empty() => return Poll::Ready(None),
                Poll::Pending if message.frames.is_empty() => return Poll::Pending,
                _ => break,
            };
            room -= FRAME_HEAD_BYTES;
            if frame.len() > room {
                self.rest = frame.split_off(room);
                message.is_cut = true;
            }
            room -= frame.len();
            message.frames.push(frame);
        }
        Poll::Ready(Some(message))
    }
}

/// Restores frames from messages.
#[derive(Default)]
pub(super) struct Unpacker {
    /// The beginning of a frame whose rest has not arrived.
    begun: Vec<u8>,
    is_cut: bool,
}

impl Unpacker {
    /// The frames that a message completes, in order; an error if the message is invalid.
    pub(super) fn take(&mut self, message: JobFrames) -> Result<Vec<Vec<u8>>, String> {
        if message.is_cut && message.frames.is_empty() {
            return Err("a message cuts a frame that it does not have".to_owned());
        }
        let last = message.frames.len().wrapping_sub(1);
        let mut whole = Vec::with_capacity(message.frames.len());
        for (index, part) in message.frames.into_iter().enumerate() {
            if !std::mem::replace(&mut self.is_cut, false) {
                self.begun.clear();
            }
            if self.begun.len() + part.len() > FRAME_BYTES_MAX {
                return Err(format!("a frame of more than {FRAME_BYTES_MAX} bytes"));
            }
            self.begun.extend_from_slice(&part);
            if index == last && message.is_cut {
                self.is_cut = true;
            } else {
                whole.push(std::mem::take(&mut self.begun));
            }
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio_stream::Stream;

    use super::*;

    fn sent(frames: &[Bytes]) -> Vec<JobFrames> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for frame in frames {
            let waiting = Waiting { frame: frame.clone(), room: None };
            assert!(sender.send(waiting).is_ok());
        }
        drop(sender);
        let (accept, accepted) = oneshot::channel();
        let mut outgoing = Outgoing::new(accepted);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut outgoing).poll_next(&mut cx), Poll::Pending);
        accept.send(receiver).unwrap();
        let mut messages = Vec::new();
        while let Poll::Ready(Some(message)) = Pin::new(&mut outgoing).poll_next(&mut cx) {
            let bytes: usize = message.frames.iter().map(|f| f.len() + FRAME_HEAD_BYTES).sum();
            assert!(bytes <= FRAMES_MESSAGE_BYTES && !message.frames.is_empty());
            messages.push(message);
        }
        messages
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let sizes = [3, 0, FRAMES_MESSAGE_BYTES - 20, 40, 5, 3 * FRAMES_MESSAGE_BYTES, 1];
        let frame =
            |(index, size): (usize, &usize)| Bytes::from(vec![u8::try_from(index).unwrap(); *size]);
        let frames: Vec<Bytes> = sizes.iter().enumerate().map(frame).collect();
        let messages = sent(&frames);
        assert!(messages.len() >= 4, "{}", messages.len());
        let mut unpacker = Unpacker::default();
        let got: Vec<Vec<u8>> =
            messages.into_iter().flat_map(|message| unpacker.take(message).unwrap()).collect();
        assert_eq!(got, frames);
    }

    #[test]
    fn a_cut_without_a_frame_is_refused() {
        let message = JobFrames { frames: vec![], is_cut: true };
        assert!(Unpacker::default().take(message).is_err());
        assert_eq!(Unpacker::default().take(JobFrames::default()), Ok(vec![]));
    }
}
