//! The alternate screen of a terminal, for output that is redrawn repeatedly. The terminal is restored
//! however the process ends.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";

/// Shows the cursor and switches back to the normal screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What `leave` must undo while a screen is open.
static OPEN: Mutex<Option<Entered>> = Mutex::new(None);

struct Entered {
    /// The terminal modes before `single_keys` changed them; None if it did not.
    modes: Option<Termios>,
}

fn open() -> MutexGuard<'static, Option<Entered>> {
    // A poisoned lock is safe to use: the holder only writes to the terminal and cannot panic in between.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the terminal if a screen is open. Also called when a signal ends the process.
pub(crate) fn leave() {
    let Some(Entered { modes }) = open().take() else { return };
    let mut out = io::stdout();
    let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    if let Some(modes) = modes {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &modes);
    }
}

/// An open screen; dropping it restores the terminal.
pub(crate) struct Screen(());

impl Screen {
    /// Opens the screen. If standard input is a terminal, its keys are read one by one and not echoed.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be written to.
    pub(crate) fn enter() -> io::Result<Self> {
        let modes = io::stdin().is_terminal().then(single_keys).flatten();
        *open() = Some(Entered { modes });
        let screen = Self(());
        let mut out = io::stdout();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(screen)
    }

    /// Draws lines over the previous ones, cut to the size of the terminal.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be written to.
    pub(crate) fn draw(&self, lines: &str) -> io::Result<()> {
        let size = terminal_size::terminal_size();
        let (columns, rows) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
        let mut text = "\x1b[H".to_owned();
        for (number, line) in lines.lines().take(rows.into()).enumerate() {
            if number > 0 {
                text += "\r\n";
            }
            text += &cut(line, columns.into());
            text += "\x1b[K";
        }
        text += "\x1b[J";
        let opened = open();
        if opened.is_some() {
            let mut out = io::stdout();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        drop(opened);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Turns off line buffering and echo of standard input and returns the modes from before. Ctrl-C still
/// sends its signal.
fn single_keys() -> Option<Termios> {
    let before = tcgetattr(io::stdin()).ok()?;
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Now, &modes).ok()?;
    Some(before)
}

/// Waits, with a thread of its own, until one of `keys` is pressed; waits forever if standard input is no
/// terminal.
pub(crate) async fn key(keys: &'static [u8]) {
    if !io::stdin().is_terminal() {
        return std::future::pending().await;
    }
    let (pressed, waiting) = tokio::sync::oneshot::channel();
    let read = move || {
        let mut bytes = io::stdin().lock().bytes();
        let is_one = |byte: &io::Result<u8>| byte.as_ref().is_ok_and(|byte| keys.contains(byte));
        if bytes.by_ref().any(|byte| is_one(&byte)) {
            // The receiver is gone if the screen was left meanwhile.
            let _ = pressed.send(());
        }
    };
    tokio::task::spawn_blocking(read);
    if waiting.await.is_err() {
        // The terminal's input has ended; only a signal can end the command now.
        std::future::pending::<()>().await;
    }
}

/// The first columns of a line. Escape sequences count as no columns, and those after the cut are kept.
fn cut(line: &str, columns: usize) -> String {
    let mut text = String::new();
    let (mut left, mut is_escape) = (columns, false);
    for c in line.chars() {
        is_escape |= c == '\x1b';
        if is_escape || left > 0 {
            text.push(c);
        }
        if is_escape {
            is_escape = !c.is_ascii_alphabetic();
        } else {
            left = left.saturating_sub(1);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_what_is_seen_of_it() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("a\x1b[31mbcd\x1b[0mef", 3), "a\x1b[31mbc\x1b[0m");
        assert_eq!(cut("██░", 2), "██");
        assert_eq!(cut("", 2), "");
    }
}
