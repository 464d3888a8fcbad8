//! How long a connection waits for a request.

use tokio::io::{AsyncWriteExt as _, duplex};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_behind_a_slow_command_has_its_own_time() {
    let (mut client, node) = duplex(RESP_READ_BYTES);
    let mut stream: Box<dyn Stream> = Box::new(node);
    let mut input = Input::new(ConnectionHandle::default(), true, &Budget::new(1 << 20));
    // A command, and half of the next one.
    client.write_all(b"PING\r\n*2\r\n$4\r\nECHO\r\n$4\r\nab").await.unwrap();
    assert!(input.read(&mut stream).await.is_none());
    assert_eq!(std::mem::take(&mut input.requests).len(), 1);
    // Carrying out the command takes longer than a request may take to arrive.
    tokio::time::advance(ARRIVAL_TIMEOUT * 2).await;
    let behind = Instant::now();
    let (end, sent) = tokio::join!(input.read(&mut stream), async {
        tokio::time::advance(ARRIVAL_TIMEOUT / 2).await;
        client.write_all(b"cd\r\n*2\r\n$4\r\nECHO\r\n").await
    });
    assert!(end.is_none() && sent.is_ok());
    assert_eq!(std::mem::take(&mut input.requests)[0].get(1), Some(&b"abcd"[..]));
    // What never arrives is given up as before.
    assert!(matches!(input.read(&mut stream).await, Some(End::Late)));
    assert!(behind.elapsed() >= ARRIVAL_TIMEOUT * 3 / 2);
}

/// What is decoded later than it was read counts as arriving, too.
#[tokio::test(start_paused = true)]
async fn half_a_request_of_a_stranger_is_given_up() {
    let (mut client, node) = duplex(RESP_READ_BYTES);
    let mut stream: Box<dyn Stream> = Box::new(node);
    let mut input = Input::new(ConnectionHandle::default(), false, &Budget::new(1 << 20));
    client.write_all(b"PING\r\nPING\r\n*2\r\n$4\r\nECHO\r\n").await.unwrap();
    for _ in 0..2 {
        assert!(input.read(&mut stream).await.is_none());
        assert_eq!(std::mem::take(&mut input.requests).len(), 1);
    }
    assert!(matches!(input.read(&mut stream).await, Some(End::Late)));
}

/// It holds a place that others need; a client that has authenticated may be silent for as long as it likes.
#[tokio::test(start_paused = true)]
async fn a_stranger_that_sends_nothing_is_given_up() {
    let (mut client, node) = duplex(RESP_READ_BYTES);
    let mut stream: Box<dyn Stream> = Box::new(node);
    let mut input = Input::new(ConnectionHandle::default(), false, &Budget::new(1 << 20));
    let began = Instant::now();
    assert!(matches!(input.read(&mut stream).await, Some(End::Late)));
    assert_eq!(began.elapsed(), ARRIVAL_TIMEOUT);

    input.set_known(true);
    let (end, sent) = tokio::join!(input.read(&mut stream), async {
        tokio::time::advance(ARRIVAL_TIMEOUT * 100).await;
        client.write_all(b"PING\r\n").await
    });
    assert!(end.is_none() && sent.is_ok());
}
