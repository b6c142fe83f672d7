//! Traces contain your own spans and events if you use the crate `tracing`.

use std::sync::mpsc;
use std::thread;

use conformance::{Child, kernels_and_streams, tests};
use gpustream::timeline::{Instant, InstantKind, Span, SpanKind, Timeline};
use gpustream::{Device, Result, TraceLayer};
use gpustream_timeline_view::perfetto;
use tracing::field::Empty;
use tracing::subscriber::with_default;
use tracing::{Dispatch, dispatcher, info, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

tests! {
    Alone: program_spans_nest_around_what_they_submit, events_are_moments_with_their_message,
        span_on_several_threads_is_on_each_track, spans_count_while_a_trace_goes_on, two_layers_note_twice,
        events_in_host_closures_are_noted, spans_of_the_program_are_in_the_file;
    Part: spans;
}

const N: usize = 3000;

fn subscriber() -> Dispatch {
    Dispatch::new(registry().with(TraceLayer::new()))
}

fn listening<T>(work: impl FnOnce() -> T) -> T {
    dispatcher::with_default(&subscriber(), work)
}

/// Returns your spans with this label, in the order in which they start.
fn spans_named<'a>(timeline: &'a Timeline, label: &str) -> Vec<&'a Span> {
    let user = |span: &&Span| span.label == label && matches!(span.kind, SpanKind::User { .. });
    let mut found: Vec<_> = timeline.spans.iter().filter(user).collect();
    found.sort_by_key(|span| span.time.start);
    found
}

/// Returns a span's fields as the text `name=value name=value`.
fn fields(span: &Span) -> String {
    let SpanKind::User { fields } = &span.kind else { panic!("{span:?}") };
    text(fields)
}

fn text(fields: &[(std::borrow::Cow<'static, str>, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn events(timeline: &Timeline) -> Vec<(&Instant, String)> {
    let of = |instant: &'_ Instant| match &instant.kind {
        InstantKind::User { fields } => Some(text(fields)),
        _ => None,
    };
    timeline.instants.iter().filter_map(|instant| Some((instant, of(instant)?))).collect()
}

fn program_spans_nest_around_what_they_submit(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let trace = device.trace()?;
    let line = line!() + 2;
    listening(|| {
        let outer = info_span!("outer", part = 3, name = "first", found = Empty).entered();
        for _ in 0..2 {
            let _inner = info_span!("inner").entered();
            kernels.step(&a, &mut x, 1, N)?;
        }
        outer.record("found", 7.5);
        outer.record("part", 4);
        Ok::<(), gpustream::Error>(())
    })?;
    let timeline = trace.stop()?;
    let [outer] = spans_named(&timeline, "outer")[..] else { panic!("{:?}", timeline.spans) };
    assert_eq!(fields(outer), "part=4 name=first found=7.5");
    assert!(outer.place.file.ends_with("traces_layer.rs") && outer.place.line == line, "{outer:?}");
    let inner = spans_named(&timeline, "inner");
    let steps: Vec<_> = timeline.operations.iter().filter(|it| it.label == "step").collect();
    assert_eq!((inner.len(), steps.len()), (2, 2), "{timeline:?}");
    for (inner, step) in inner.iter().zip(steps) {
        assert_eq!((inner.thread, outer.thread), (step.thread, step.thread));
        assert_eq!(fields(inner), "");
        let times = [outer.time.start, inner.time.start, step.submitted.start];
        assert!(times.is_sorted(), "{times:?}");
        let times = [step.submitted.end, inner.time.end, outer.time.end];
        assert!(times.is_sorted(), "{times:?}");
    }
    Ok(())
}

fn events_are_moments_with_their_message(device: &Device) -> Result<()> {
    let trace = device.trace()?;
    let line = line!() + 2;
    listening(|| {
        info!(step = 4, kind = ?Some("warm"), "step {} is done", 4);
        info!(loss = 0.5);
    });
    let timeline = trace.stop()?;
    let events = events(&timeline);
    let [(one, fields), (two, others)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((one.label.as_ref(), fields.as_str()), ("step 4 is done", "step=4 kind=Some(\"warm\")"));
    assert!(one.place.file.ends_with("traces_layer.rs") && one.place.line == line, "{one:?}");
    assert!(two.label.starts_with("event ") && others == "loss=0.5", "{two:?}");
    assert!(one.time <= two.time && one.thread == two.thread);
    assert!(timeline.threads.iter().any(|thread| thread.id == one.thread));
    Ok(())
}

/// Tasks of an executor do this, because any thread may poll them.
fn span_on_several_threads_is_on_each_track(device: &Device) -> Result<()> {
    let trace = device.trace()?;
    let dispatch = subscriber();
    let span = dispatcher::with_default(&dispatch, || info_span!("task", id = 9));
    let here = span.enter();
    let there = thread::scope(|scope| {
        scope.spawn(|| dispatcher::with_default(&dispatch, || span.in_scope(|| span.in_scope(|| ())))).join()
    });
    there.expect("no panic");
    drop(here);
    span.in_scope(|| ());
    let timeline = trace.stop()?;
    let polls = spans_named(&timeline, "task");
    let [here, outer, inner, again] = &polls[..] else { panic!("{polls:?}") };
    assert!(polls.iter().all(|span| fields(span) == "id=9"));
    assert_eq!((here.thread, outer.thread), (again.thread, inner.thread));
    assert_ne!(here.thread, outer.thread);
    assert!(
        here.time.end >= inner.time.end && outer.time.end >= inner.time.end,
        "each entry has its own exit"
    );
    assert!(again.time.start >= here.time.end);
    Ok(())
}

fn spans_count_while_a_trace_goes_on(device: &Device) -> Result<()> {
    listening(|| {
        let before = info_span!("before", field = 1).entered();
        let trace = device.trace()?;
        let during = info_span!("during").entered();
        let before = before.exit();
        before.record("field", 2);
        before.in_scope(|| ());
        assert_eq!(
            spans_named(&trace.stop()?, "before").iter().map(|it| fields(it)).collect::<Vec<_>>(),
            ["field=2"]
        );
        // `during` ends between the two traces.
        let during = during.exit();
        let trace = device.trace()?;
        during.in_scope(|| ());
        let timeline = trace.stop()?;
        let [span] = spans_named(&timeline, "during")[..] else { panic!("{:?}", timeline.spans) };
        assert!(timeline.spans.len() == 1 && span.time.start <= span.time.end);
        Ok(())
    })
}

fn two_layers_note_twice(device: &Device) -> Result<()> {
    let trace = device.trace()?;
    let both = registry().with(TraceLayer::new()).with(TraceLayer::new());
    with_default(both, || info_span!("twice", n = 1).in_scope(|| ()));
    let timeline = trace.stop()?;
    let found: Vec<_> = spans_named(&timeline, "twice").into_iter().map(fields).collect();
    assert_eq!(found, ["n=1", "n=1"]);
    Ok(())
}

fn events_in_host_closures_are_noted(device: &Device) -> Result<()> {
    let a = device.stream()?;
    let trace = device.trace()?;
    let (send, receive) = mpsc::channel();
    a.host_fn(move || {
        listening(|| info_span!("closure").in_scope(|| info!("inside")));
        let _ = send.send(());
    })?;
    receive.recv().expect("the closure ran");
    let timeline = trace.stop()?;
    let events = events(&timeline);
    let [(event, _)] = &events[..] else { panic!("{events:?}") };
    let [span] = spans_named(&timeline, "closure")[..] else { panic!("{:?}", timeline.spans) };
    assert_eq!((event.label.as_ref(), event.thread), ("inside", span.thread));
    Ok(())
}

fn spans(device: &Device) -> Result<()> {
    listening(|| {
        let _load = info_span!("load", part = 3).entered();
        info!(elements = N, "uploaded");
        device.stream()?.upload(&[1u8; N])?;
        device.synchronize()
    })
}

fn spans_of_the_program_are_in_the_file(device: &Device) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.pftrace");
    let file = file.to_str().expect("a plain name");
    Child::of(device, "traces_layer::spans").env("GPUSTREAM_TRACE", file).succeeds()?;
    let timeline = perfetto::read(&std::fs::read(file).expect("the trace")).expect("a whole file");
    assert_eq!(spans_named(&timeline, "load").into_iter().map(fields).collect::<Vec<_>>(), ["part=3"]);
    let events = events(&timeline);
    let [(event, fields)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.label.as_ref(), fields.as_str()), ("uploaded", "elements=3000"));
    Ok(())
}
