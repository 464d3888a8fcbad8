//! Ctrl-C leaves no half output: files and directories that are still being written are removed before the process ends,
//! and uploads aborted.

use umbel_objects::abort_open_uploads;

pub(crate) use umbel_files::{BegunEmpty, OWNER_ONLY, PartialFile};

/// Exit code of a process that was interrupted, as shells have it: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// From now on SIGINT, SIGTERM and SIGHUP put the terminal back, remove all partial files, abort all uploads and end the
/// process.
pub(crate) fn remove_partial_files_on_interrupt() {
    // Without a handler an interrupt still ends the process; only the partial files would stay.
    let _ = ctrlc::set_handler(|| {
        crate::screen::leave();
        umbel_files::remove_partial_and_exit(|| {
            abort_open_uploads(true);
            INTERRUPTED
        })
    });
}
