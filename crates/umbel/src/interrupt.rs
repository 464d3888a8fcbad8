//! Ctrl-C leaves no partial output: before the process ends, it removes files and directories that are
//! still being written, and aborts uploads.

use crate::end_signals::{INTERRUPTED, on_end_signal};
use umbel_files::Interrupt;
use umbel_objects::abort_open_uploads;

pub(crate) use umbel_files::{BegunEmpty, OWNER_ONLY, PartialFile};

/// Installs a handler for SIGINT, SIGTERM and, unless it is ignored, SIGHUP that restores the terminal, removes all partial
/// files, aborts all uploads and ends the process. A signal that arrives while a job gives its outputs their
/// names waits until all have them, and the job then ends as if there had been none.
pub(crate) fn remove_partial_files_on_interrupt() {
    // If no handler can be installed, an interrupt still ends the process, but leaves partial files
    // behind.
    let _ = on_end_signal(|| {
        let interrupt = Interrupt::arrived();
        crate::screen::leave();
        interrupt.remove_partial_and_exit(|| {
            abort_open_uploads(true);
            INTERRUPTED
        });
    });
}
