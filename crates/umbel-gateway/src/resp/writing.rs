//! Writes answers to a client, which may be slow within limits.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::{READING_BYTES_PER_SECOND_MIN, UNREAD_TIMEOUT};

/// Writes all of the answers. While the client takes none, `read_ahead` may read what it sends; it returns how many
/// bytes came.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the client neither takes nor sends anything for [`UNREAD_TIMEOUT`], or less than
/// [`READING_BYTES_PER_SECOND_MIN`] for longer than that; any error of the stream, and of `read_ahead`.
pub(super) async fn write_answers<S: AsyncWrite + Unpin>(
    stream: &mut S,
    answers: &[u8],
    mut read_ahead: impl FnMut(&mut S, &mut Context<'_>) -> io::Result<usize>,
) -> io::Result<()> {
    let mut rest = answers;
    // Since when the node has been waiting for the client; most clients take everything at once.
    let mut began = None;
    let mut came = 0;
    loop {
        let taken = (answers.len() - rest.len()) as u64;
        let mut late = None;
        let written = poll_fn(|cx| {
            let stage = Pin::new(&mut *stream);
            let written = if rest.is_empty() {
                // A TLS stream may have buffered a part, or all.
                stage.poll_flush(cx).map_ok(|()| 0)
            } else {
                stage.poll_write(cx, rest)
            };
            if written.is_pending() {
                let count = read_ahead(stream, cx)? as u64;
                came += count;
                // It was not idle: its time begins anew.
                late = late.take().filter(|_| count == 0);
            }
            or_late(written, cx, &mut late, || patience(&mut began, taken + came))
        });
        match written.await? {
            _ if rest.is_empty() => return Ok(()),
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => rest = rest.get(count..).unwrap_or_default(),
        }
    }
}

/// The time until which a client that has taken or sent this many bytes may take none.
fn patience(began: &mut Option<Instant>, taken: u64) -> Instant {
    let now = Instant::now();
    let began = *began.get_or_insert(now);
    let earned = Duration::from_millis(taken * 1000 / READING_BYTES_PER_SECOND_MIN);
    now.min(began + earned) + UNREAD_TIMEOUT
}

/// The stream's result, or an error once it has been pending until then.
fn or_late<T>(
    result: Poll<io::Result<T>>,
    cx: &mut Context<'_>,
    late: &mut Option<Pin<Box<Sleep>>>,
    until: impl FnOnce() -> Instant,
) -> Poll<io::Result<T>> {
    if result.is_ready() {
        return result;
    }
    let late = late.get_or_insert_with(|| Box::pin(sleep_until(until())));
    late.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that takes `byte_count` bytes after each `pause`.
    struct Slow {
        byte_count: usize,
        pause: Duration,
        next: Pin<Box<Sleep>>,
        taken: usize,
        flushes: bool,
    }

    impl Slow {
        fn new(byte_count: usize, pause: Duration) -> Self {
            let next = Box::pin(sleep_until(Instant::now() + pause));
            Self { byte_count, pause, next, taken: 0, flushes: true }
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            std::task::ready!(self.next.as_mut().poll(cx));
            let until = Instant::now() + self.pause;
            self.next.as_mut().reset(until);
            let count = self.byte_count.min(bytes.len());
            self.taken += count;
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.flushes { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes an answer of 8 MiB; returns the error and the seconds that it took.
    async fn written(slow: &mut Slow) -> (Option<io::ErrorKind>, u64) {
        let began = Instant::now();
        let outcome = write_answers(slow, &vec![b'x'; 8 << 20], |_, _| Ok(0)).await;
        (outcome.err().map(|error| error.kind()), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_an_answer_byte_by_byte_is_not_waited_for() {
        let late = Some(io::ErrorKind::TimedOut);
        let second = Duration::from_secs(1);
        // Each byte is taken in time, but all of them would take eight years.
        let mut slow = Slow::new(1, UNREAD_TIMEOUT - second);
        assert_eq!((written(&mut slow).await, slow.taken), ((late, UNREAD_TIMEOUT.as_secs()), 1));
        // Half of the minimum rate: after a minute the client is 30 s behind.
        let least = usize::try_from(READING_BYTES_PER_SECOND_MIN).unwrap();
        assert_eq!(written(&mut Slow::new(least / 2, second)).await, (late, 59));
        // A client that reads at the minimum rate, or slowly at first, receives everything.
        assert_eq!(written(&mut Slow::new(least, second)).await, (None, 128));
        let first = UNREAD_TIMEOUT - second;
        assert_eq!(written(&mut Slow::new(8 << 20, first)).await, (None, first.as_secs()));
    }

    /// It sends a pipeline, and reads nothing before it has sent all of it.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_is_waited_for() {
        // The stream takes nothing, or it has buffered everything.
        for (flushes, first) in [(true, UNREAD_TIMEOUT * 100), (false, Duration::ZERO)] {
            let mut silent = Slow { flushes, ..Slow::new(1, UNREAD_TIMEOUT * 100) };
            silent.next = Box::pin(sleep_until(Instant::now() + first));
            let (began, mut pieces) = (Instant::now(), vec![8 << 20; 3]);
            let read_ahead = |slow: &mut Slow, _: &mut Context<'_>| {
                let is_stuck = slow.flushes || slow.taken > 0;
                Ok(if is_stuck { pieces.pop().unwrap_or(0) } else { 0 })
            };
            let outcome = write_answers(&mut silent, b"x", read_ahead).await;
            assert!(outcome.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut));
            // Each time the node looks there is another piece, and then none.
            assert_eq!(began.elapsed().as_secs(), UNREAD_TIMEOUT.as_secs() * 3);
        }
    }

    /// However much the client has taken before.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_is_not_waited_for() {
        let (late, minute) = (Some(io::ErrorKind::TimedOut), Duration::from_secs(60));
        let mut slow = Slow::new(7 << 20, minute);
        slow.next = Box::pin(sleep_until(Instant::now()));
        let outcome = written(&mut slow).await;
        assert_eq!((outcome, slow.taken), ((late, UNREAD_TIMEOUT.as_secs()), 7 << 20));
        let mut silent = Slow { flushes: false, ..Slow::new(8 << 20, Duration::ZERO) };
        assert_eq!(written(&mut silent).await, (late, UNREAD_TIMEOUT.as_secs()));
    }
}
