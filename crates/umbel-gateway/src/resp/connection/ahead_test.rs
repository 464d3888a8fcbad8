//! What a connection reads ahead of a client that takes no answers, and when it gives that up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use tokio::io::{AsyncWriteExt as _, duplex};

use super::*;

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn no_more_is_read_ahead_than_there_is_room_for() {
    let (mut client, node) = duplex(RESP_READ_BYTES * 8);
    let mut stream: Box<dyn Stream> = Box::new(node);
    client.write_all(&vec![b'x'; RESP_READ_BYTES * 8]).await.unwrap();
    let (woken, budget) = (Arc::<Woken>::default(), Budget::new(RESP_READ_BYTES as u64 * 3));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut stranger = Input::new(ConnectionHandle::default(), false, &budget);
    assert_eq!(stranger.read_ahead(&mut stream, &mut cx).unwrap(), 0);
    let mut input = Input::new(ConnectionHandle::default(), true, &budget);
    let came = input.read_ahead(&mut stream, &mut cx).unwrap();
    assert_eq!((came, input.rest.len()), (RESP_READ_BYTES * 3, RESP_READ_BYTES * 3));
    // Others need the room: what has come ahead is given up with its connection, at once.
    let other = Holding::new(&budget);
    assert!(other.set(1, false).is_ok() && woken.0.load(Ordering::Relaxed));
    let ended = input.read_ahead(&mut stream, &mut cx).map_err(|error| error.kind());
    assert_eq!(ended, Err(io::ErrorKind::OutOfMemory));
    // Who only reads slowly keeps what it holds.
    let (_client, node) = duplex(1);
    let mut slow = Input::new(ConnectionHandle::default(), true, &budget);
    slow.carried = RESP_READ_BYTES;
    assert_eq!(slow.read_ahead(&mut (Box::new(node) as Box<dyn Stream>), &mut cx).unwrap(), 0);
    assert!(Holding::new(&budget).set(RESP_READ_BYTES as u64 * 2, false).is_err());
}

/// A client sends on after an argument that is too large, and takes no answers.
#[tokio::test]
async fn what_follows_a_refused_request_is_not_kept() {
    let (mut client, node) = duplex(RESP_READ_BYTES * 8);
    let mut stream: Box<dyn Stream> = Box::new(node);
    let budget = Budget::new(RESP_READ_BYTES as u64 * 3);
    let mut input = Input::new(ConnectionHandle::default(), true, &budget);
    let mut cx = Context::from_waker(Waker::noop());
    // Of the request itself, or of one before it.
    input.carried = RESP_READ_BYTES;
    input.failed = Some(ProtocolError::InlineTooBig);
    client.write_all(&vec![b'x'; RESP_READ_BYTES * 8]).await.unwrap();
    assert_eq!(input.read_ahead(&mut stream, &mut cx).unwrap(), RESP_READ_BYTES * 8);
    assert!(input.rest.is_empty() && input.holding.is_some());
    // That has a bound, too.
    input.dropped_bytes = RESP_DROPPED_BYTES_MAX;
    client.write_all(b"x").await.unwrap();
    assert_eq!(input.read_ahead(&mut stream, &mut cx).unwrap(), 0);
    // While it parts, all of the room is for others.
    let all = |budget| Holding::new(budget).set(RESP_READ_BYTES as u64 * 3, false);
    assert_eq!(all(&budget), Err(NoRoom));
    input.let_go();
    assert_eq!(all(&budget), Ok(()));
}

/// A command that waited has begun, and must not end with its connection for what came behind it.
#[tokio::test]
async fn what_has_come_ahead_of_a_command_that_runs_gives_way_to_nobody() {
    let (mut client, node) = duplex(RESP_READ_BYTES * 2);
    let mut stream: Box<dyn Stream> = Box::new(node);
    let budget = Budget::new(RESP_READ_BYTES as u64 * 3);
    let mut input = Input::new(ConnectionHandle::default(), true, &budget);
    let mut cx = Context::from_waker(Waker::noop());
    client.write_all(&vec![b'x'; RESP_READ_BYTES * 2]).await.unwrap();
    assert!(!input.is_gone(&mut stream, &mut cx).unwrap());
    input.read_enough();
    assert_eq!(Holding::new(&budget).set(RESP_READ_BYTES as u64 * 2, false), Err(NoRoom));
    // What is left of the room is for others.
    assert_eq!(Holding::new(&budget).set(RESP_READ_BYTES as u64, false), Ok(()));
    assert!(!input.is_gone(&mut stream, &mut cx).unwrap());
}
