//! A client whose command waits for commands of others. Nothing is read from a connection while its command runs, so a
//! client that has gone would keep its place, and what it asked for would be done for nobody.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use umbel_resp::Refusal;

/// Whether a command of a connection waits for others, and whether its client has gone meanwhile. One task alone runs the
/// commands of a connection.
#[derive(Default)]
pub(super) struct Waiting {
    is_waiting: AtomicBool,
    has_gone: AtomicBool,
}

/// Why a command got no turn. It has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoTurn {
    /// Others took as long as the command may take.
    Late,
    /// The client has closed its side of the connection, or the connection must end.
    Gone,
}

impl NoTurn {
    /// What the client is answered, with this text if others took too long. A client that has closed only the half on
    /// which it sends still reads.
    pub(super) fn refusal(self, late: &'static str) -> Refusal {
        let what = match self {
            Self::Late => late,
            Self::Gone => {
                "TRYAGAIN this command waited for others, and the client closed its side of the connection"
            }
        };
        Refusal::Other(what.into())
    }
}

impl Waiting {
    /// Waits for the only permit of these commands, until the deadline, or until the client has gone.
    pub(super) async fn turn<'s>(
        &self,
        commands: &'s Semaphore,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'s>, NoTurn> {
        let mut asked = pin!(timeout_at(deadline, commands.acquire()));
        let turn = poll_fn(|cx| match asked.as_mut().poll(cx) {
            Poll::Ready(Ok(Ok(permit))) => Poll::Ready(Ok(permit)),
            Poll::Ready(_) => Poll::Ready(Err(NoTurn::Late)),
            Poll::Pending if self.has_gone.load(Ordering::Relaxed) => {
                Poll::Ready(Err(NoTurn::Gone))
            }
            Poll::Pending => {
                self.is_waiting.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        });
        let turn = turn.await;
        self.is_waiting.store(false, Ordering::Relaxed);
        turn
    }

    /// Runs commands of the connection to their end. While one of them waits, asks with `look` whether the client has
    /// gone; once it waits no longer and runs on, calls `look` once more, with false.
    ///
    /// # Errors
    /// Any error of `look`, at which the command is dropped.
    pub(super) async fn run<R>(
        &self,
        commands: impl Future<Output = R>,
        mut look: impl FnMut(&mut Context<'_>, bool) -> io::Result<bool>,
    ) -> io::Result<R> {
        let mut commands = pin!(commands);
        let mut was_waiting = false;
        let run = |cx: &mut Context<'_>| -> Poll<io::Result<R>> {
            loop {
                if let Poll::Ready(done) = commands.as_mut().poll(cx) {
                    return Poll::Ready(Ok(done));
                }
                let is_waiting = self.is_waiting.load(Ordering::Relaxed);
                let is_over = std::mem::replace(&mut was_waiting, is_waiting) && !is_waiting;
                let has_gone = (is_waiting || is_over) && look(cx, is_waiting)?;
                // Only what waits is given up: what has begun is carried out, as the client may have been sure of it.
                if !is_waiting || !has_gone {
                    return Poll::Pending;
                }
                self.has_gone.store(true, Ordering::Relaxed);
            }
        };
        poll_fn(run).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_the_wait_as_do_the_deadline_and_a_client_that_goes() {
        let (waiting, commands) = (Waiting::default(), Semaphore::new(1));
        let soon = || Instant::now() + Duration::from_secs(1);
        let stays = |_: &mut Context<'_>, _: bool| Ok(false);
        let turn = || waiting.turn(&commands, soon());
        let first = waiting.run(turn(), stays).await.unwrap().expect("nobody else has it");
        let late = waiting.run(turn(), stays).await.unwrap();
        assert_eq!(late.err(), Some(NoTurn::Late));
        let began = Instant::now();
        let gone = waiting.run(turn(), |_, _| Ok(true)).await.unwrap();
        assert_eq!((gone.err(), began.elapsed()), (Some(NoTurn::Gone), Duration::ZERO));
        // What it sent behind that is carried out where it need not wait.
        assert_eq!(waiting.run(turn(), stays).await.unwrap().err(), Some(NoTurn::Gone));
        drop(first);
        assert!(waiting.run(turn(), stays).await.unwrap().is_ok());
    }

    /// What runs may have changed something, and is not given up.
    #[tokio::test(start_paused = true)]
    async fn nobody_looks_while_no_command_waits() {
        let (waiting, commands) = (Waiting::default(), Semaphore::new(1));
        let running = async {
            let turn = waiting.turn(&commands, Instant::now()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            turn.is_ok()
        };
        let look = |_: &mut Context<'_>, _: bool| -> io::Result<bool> { panic!("nothing waits") };
        assert!(waiting.run(running, look).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_wait_is_told_once() {
        let (waiting, commands) = (Waiting::default(), Semaphore::new(1));
        let first = commands.acquire().await.unwrap();
        let running = async {
            let turn = waiting.turn(&commands, Instant::now() + Duration::from_secs(9)).await;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            turn.is_ok()
        };
        let mut looks = Vec::new();
        let look = |_: &mut Context<'_>, is_waiting: bool| {
            looks.push(is_waiting);
            Ok(false)
        };
        let (has_turn, ()) = tokio::join!(waiting.run(running, look), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        });
        assert!(has_turn.unwrap());
        // The other half of the test may wake the command while it waits.
        let waits = looks.iter().take_while(|is_waiting| **is_waiting).count();
        assert!(waits > 0);
        assert_eq!(looks[waits..], [false]);
    }
}
