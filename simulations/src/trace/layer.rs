//! Events of `tracing` as lines of the trace.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{with_text, write_unhashed};

/// The host in lines whose host is unknown.
const NO_HOST: &str = "-";

thread_local! {
    /// The host that is running.
    static HOST: RefCell<String> = RefCell::new(String::from(NO_HOST));
    /// The latest simulated time that could be read, in microseconds.
    static AT_US: Cell<u64> = const { Cell::new(0) };
}

/// Writes the events of the whole process from now on. Further calls have no effect.
pub(super) fn install() {
    let subscriber = tracing_subscriber::registry().with(LineLayer.with_filter(LevelFilter::TRACE));
    // It fails if a subscriber is already set, which can only be this one.
    let _ = subscriber.try_init();
}

/// The layer that writes events as lines.
struct LineLayer;

/// The name of a host, kept with the span in which it runs.
struct HostName(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LineLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        // turmoil runs each host inside such a span.
        if metadata.name() != "node" || !metadata.target().starts_with("turmoil") {
            return;
        }
        let mut name = HostName(String::new());
        attributes.record(&mut name);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(name);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(HostName(name)) = span.extensions().get::<HostName>()
        {
            HOST.with_borrow_mut(|host| name.clone_into(host));
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && span.extensions().get::<HostName>().is_some()
        {
            HOST.with_borrow_mut(|host| NO_HOST.clone_into(host));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let at_us = now_us();
        let metadata = event.metadata();
        with_text(|text| {
            // Writing to a String fails only if a value's Debug does; what it wrote stays.
            HOST.with_borrow(|host| {
                let _ = write!(text, "{at_us} {host} {} {}", metadata.level(), metadata.target());
            });
            event.record(&mut Fields(text));
            text.push('\n');
            write_unhashed(text);
        });
    }
}

/// Simulated time. While turmoil changes its own state, it does not provide the time; this returns the
/// last one.
fn now_us() -> u64 {
    let elapsed = turmoil::sim_elapsed().as_ref().map(Duration::as_micros);
    if let Some(at_us) = elapsed.and_then(|at_us| u64::try_from(at_us).ok()) {
        AT_US.set(at_us);
    }
    AT_US.get()
}

impl Visit for HostName {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "name" {
            let _ = write!(self.0, "{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.0.push_str(value);
        }
    }
}

/// Writes the message without its name and other fields as ` name=value`, on one line.
struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let from = self.0.len();
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        self.escape_line_ends(from);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let from = self.0.len();
        let _ = match field.name() {
            "message" => write!(self.0, " {value}"),
            name => write!(self.0, " {name}={value}"),
        };
        self.escape_line_ends(from);
    }
}

impl Fields<'_> {
    /// Escapes line ends, so that an event stays on one line. They are rare, so text is copied only if
    /// there are any.
    fn escape_line_ends(&mut self, from: usize) {
        if self.0[from..].contains('\n') {
            let escaped = self.0[from..].replace('\n', "\\n");
            self.0.truncate(from);
            self.0.push_str(&escaped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_line_ends_stays_on_one_line() {
        let mut text = String::from("a\nb c=d\ne");
        Fields(&mut text).escape_line_ends(2);
        assert_eq!(text, "a\nb c=d\\ne");
        let mut text = String::from("plain");
        Fields(&mut text).escape_line_ends(0);
        assert_eq!(text, "plain");
    }
}
