//! Records the lines of the audit log that the thread of a test writes.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};
use umbel_ports::locked;

/// The lines, as text: the message, and the fields that have a value.
#[derive(Clone, Default)]
pub(crate) struct AuditRecorder(Arc<Mutex<Vec<String>>>);

impl AuditRecorder {
    /// Records what this thread writes, until the guard is dropped.
    pub(crate) fn begin(&self) -> DefaultGuard {
        set_default(self.clone())
    }

    /// What was written.
    pub(crate) fn lines(&self) -> Vec<String> {
        locked(&self.0).clone()
    }
}

impl Subscriber for AuditRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "umbel::audit"
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        // The target is asked again: a place of the code that another thread records, too, may not ask before.
        if event.metadata().target() != "umbel::audit" {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        locked(&self.0).push(line.message + &line.fields);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("a text takes all");
    }
}
