//! Spans and events of the crate `tracing` as parts of traces.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{Debug, Write};

use gpustream_core::trace::{self, Fields, InstantKind, SpanKind};
use gpustream_timeline::{Nanos, SourceLine};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::events;

/// The name of the field that holds an event's text.
const MESSAGE: &str = "message";

/// A layer for `tracing-subscriber` that puts your own spans and events into running traces: [`Trace`](crate::Trace)s, and the
/// file and the report that the environment asks for. It needs the feature `tracing`.
///
/// ```
/// use gpustream::timeline::SpanKind;
/// use gpustream::{Device, TraceLayer};
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(TraceLayer::new());
/// tracing::subscriber::set_global_default(subscriber).expect("the first subscriber");
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let trace = device.trace()?;
/// {
///     let _load = tracing::info_span!("load", part = 3).entered();
///     stream.upload(&[1.0f32; 1000])?;
///     tracing::info!(elements = 1000, "uploaded");
/// }
/// let timeline = trace.stop()?;
///
/// let load = timeline.spans.iter().find(|span| span.label == "load").unwrap();
/// assert_eq!(load.kind, SpanKind::User { fields: vec![("part".into(), "3".into())] });
/// assert_eq!(timeline.instants[0].label, "uploaded");
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// We note a span when it is exited, on the track of the thread that entered it. If you enter a span several times, it is noted
/// each time, so a span around a future shows each poll. You see the line that made the span, and the fields that it has by
/// then. An event becomes a moment on its thread's track, labelled with its message. Levels and targets are not noted, because
/// a filter of `tracing-subscriber` can use them to choose what the layer gets. We leave out the library's own events, because
/// traces show the same things in another form.
///
/// If no trace is running, a span or an event costs the layer one load. If a trace begins later, a span that was made before
/// only has the fields that you recorded since, and if it was also entered before, that exit is not noted.
///
/// Methods do not block, except for short locks. You may use spans and events inside host closures.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceLayer(());

impl TraceLayer {
    /// Returns the layer. If you add two to one subscriber, everything is noted twice.
    pub const fn new() -> Self {
        Self(())
    }
}

/// The fields of a span that were set while a trace was running.
struct KnownFields(Fields);

/// A span that this thread is inside.
struct Entered {
    id: u64,
    start: Nanos,
}

thread_local!(static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) });

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if trace::is_heard() {
            let mut fields = Fields::new();
            attributes.record(&mut Visitor { fields: &mut fields, message: None });
            keep(fields, id, &context);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if trace::is_heard() {
            let mut fields = Fields::new();
            values.record(&mut Visitor { fields: &mut fields, message: None });
            keep(fields, id, &context);
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        if trace::is_heard() {
            let entered = Entered { id: id.into_u64(), start: trace::now() };
            // If the thread is ending, its list is gone and we note nothing more.
            let _ = ENTERED.try_with(|spans| spans.borrow_mut().push(entered));
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        // If the span was entered while a trace was running, we must remove it from the thread's list even if no trace runs
        // now.
        let entered = ENTERED.try_with(|spans| {
            let spans = &mut *spans.borrow_mut();
            let at = spans.iter().rposition(|entered| entered.id == id.into_u64())?;
            Some(spans.remove(at))
        });
        let Ok(Some(Entered { start, .. })) = entered else { return };
        if trace::is_heard()
            && let Some(span) = context.span(id)
        {
            let end = trace::now();
            let fields =
                span.extensions().get::<KnownFields>().map(|known| known.0.clone()).unwrap_or_default();
            let kind = SpanKind::User { fields };
            trace::note_span(start..end, span.name().into(), place(span.metadata()), kind);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_ours = event.metadata().target().starts_with(events::TARGETS);
        if trace::is_heard() && !is_ours {
            let mut fields = Fields::new();
            let mut visitor = Visitor { fields: &mut fields, message: Some(String::new()) };
            event.record(&mut visitor);
            let label = match visitor.message {
                Some(message) if !message.is_empty() => Cow::Owned(message),
                _ => Cow::Borrowed(event.metadata().name()),
            };
            trace::note_instant(label, place(event.metadata()), InstantKind::User { fields });
        }
    }
}

/// Adds fields to a span. If it already has one of them, that field gets the new value.
fn keep<S: Subscriber + for<'a> LookupSpan<'a>>(fields: Fields, id: &Id, context: &Context<'_, S>) {
    if fields.is_empty() {
        return;
    }
    let Some(span) = context.span(id) else { return };
    // The values are text by now. Your code turns them into text, so that must not happen under this lock.
    let mut extensions = span.extensions_mut();
    let Some(KnownFields(known)) = extensions.get_mut::<KnownFields>() else {
        extensions.insert(KnownFields(fields));
        return;
    };
    for (name, value) in fields {
        match known.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value,
            None => known.push((name, value)),
        }
    }
}

fn place(metadata: &'static Metadata<'static>) -> SourceLine {
    SourceLine { file: metadata.file().unwrap_or_default().into(), line: metadata.line().unwrap_or(0) }
}

/// Turns fields into text.
struct Visitor<'a> {
    fields: &'a mut Fields,
    /// An event's message, which we keep apart from its fields. `None` for a span, because spans have none.
    message: Option<String>,
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // If a value cannot be formatted completely, we keep what there is.
        let _ = write!(text, "{value:?}");
        self.put(field, text);
    }
}

impl Visitor<'_> {
    fn put(&mut self, field: &Field, text: String) {
        match &mut self.message {
            Some(message) if field.name() == MESSAGE => *message = text,
            _ => self.fields.push((field.name().into(), text)),
        }
    }
}
