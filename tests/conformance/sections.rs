//! Another library can ask how far its work on a stream is. A section is such a part of the stream.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

use conformance::{Gate, assert_all, kernels_and_streams, on_threads, open_again, refused, tests, until};
use gpustream::hal::{FillPattern, RawStream};
use gpustream::interop::StreamWatcher;
use gpustream::{Arg, Buffer, Device, DeviceOptions, Error, ErrorKind, Result, Stream};

tests! {
    Plain: section_tells_when_its_work_begins_and_ends, work_behind_a_section_is_not_part_of_it,
        section_grows_at_the_streams_end_alone, section_that_grew_ends_behind_the_last_operation,
        section_behind_another_streams_work_begins_there, failed_and_panicking_calls_leave_a_section_usable,
        closures_ask_no_section, recordings_have_no_sections, replayed_steps_have_sections,
        streams_that_others_use_have_sections, section_outlives_its_stream, section_outlives_its_device,
        threads_have_sections_of_one_stream;
}

const N: usize = 1000;

/// Fills a buffer with another library's call, in a section.
fn fill(
    stream: &Stream,
    x: &mut Buffer<u32>,
    value: u32,
    grown: Option<&StreamWatcher>,
) -> Result<Option<StreamWatcher>> {
    fill_behind(stream, x, value, grown, |_| Ok(()))
}

/// Like [`fill`], but calls `first` before, with the same stream.
fn fill_behind(
    stream: &Stream,
    x: &mut Buffer<u32>,
    value: u32,
    grown: Option<&StreamWatcher>,
    first: impl FnOnce(RawStream) -> Result<()>,
) -> Result<Option<StreamWatcher>> {
    let (count, raw) = (x.len(), stream.device().raw());
    // SAFETY: the call goes to the stream that is given, and writes `x` alone; `first` has it wait for another stream at most.
    let called = unsafe {
        stream.external_watched("fill_raw", &[Arg::write(x)], grown, |stream, [to]| {
            first(stream)?;
            raw.fill(to, FillPattern::U32(value), count, stream)
        })
    };
    called.map(|((), section)| section)
}

/// Fills a buffer in a new section.
fn section(stream: &Stream, x: &mut Buffer<u32>, value: u32) -> Result<StreamWatcher> {
    Ok(fill(stream, x, value, None)?.expect("there is none to grow"))
}

fn section_tells_when_its_work_begins_and_ends(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let gate = Gate::on(&kernels, &a)?;
    let section = section(&a, &mut x, 1)?;
    assert!(!section.has_begun()? && !section.is_done()?);
    gate.open();
    until(|| section.is_done())?;
    assert!(section.has_begun()?);
    assert_all(&a, &x, 1)
}

/// Whatever comes next, we must record the section's last event before it.
fn work_behind_a_section_is_not_part_of_it(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, y) = (a.zeros::<u32>(N)?, b.zeros::<u32>(N)?);
    let mut z = a.zeros::<u32>(N)?;
    a.synchronize()?;
    for way in 0..4 {
        let section = section(&a, &mut x, way)?;
        let behind = a.record()?;
        let gate = Gate::new(device)?;
        match way {
            0 => gate.hold(&kernels, &a)?,
            1 => {
                gate.hold(&kernels, &b)?;
                a.wait(&b.record()?)?;
            }
            2 => a.capture(|s| gate.hold(&kernels, s))?.launch(&a)?,
            _ => {
                gate.hold(&kernels, &b)?;
                let (event, stream) = (b.record()?, a.as_raw());
                // SAFETY: event and stream are alive, of one device, and the event has been recorded.
                unsafe { device.raw().stream_wait_event(stream, event.as_raw()) }?;
            }
        }
        a.copy(&y, &mut z)?;
        behind.synchronize()?;
        assert!(section.has_begun()? && section.is_done()?, "way {way}");
        assert!(!a.is_done()?, "way {way}");
        gate.open();
    }
    assert_all(&a, &x, 3)
}

fn section_grows_at_the_streams_end_alone(device: &Device) -> Result<()> {
    let (_, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    let mut of_b = b.zeros::<u32>(N)?;
    a.synchronize()?;
    b.synchronize()?;
    let first = section(&a, &mut x, 1)?;
    assert!(fill(&a, &mut y, 2, Some(&first))?.is_none());
    assert!(fill(&a, &mut x, 3, Some(&first))?.is_none());
    assert!(fill(&b, &mut of_b, 4, Some(&first))?.is_some(), "on another stream");
    assert!(fill(&a, &mut y, 5, Some(&first))?.is_none(), "another stream's work is none of this one's");

    a.fill(&mut x, 6)?;
    assert!(fill(&a, &mut y, 7, Some(&first))?.is_some(), "behind an operation");
    let next = section(&a, &mut x, 8)?;
    assert!(fill(&a, &mut y, 9, Some(&first))?.is_some(), "behind another section");
    let asked = section(&a, &mut x, 10)?;
    asked.is_done()?;
    assert!(fill(&a, &mut y, 11, Some(&asked))?.is_some(), "after the question");
    let last = section(&a, &mut x, 12)?;
    a.wait(&b.record()?)?;
    assert!(fill(&a, &mut y, 13, Some(&last))?.is_some(), "behind a wait");
    let last = section(&a, &mut x, 14)?;
    assert!(fill(&a, &mut of_b, 15, Some(&last))?.is_some(), "with memory that another stream has used");
    let given = section(&a, &mut x, 16)?;
    a.as_raw();
    assert!(fill(&a, &mut y, 17, Some(&given))?.is_some(), "after the handle was given away");

    a.synchronize()?;
    for section in [first, next, asked, last, given] {
        assert!(section.has_begun()? && section.is_done()?);
    }
    assert_all(&a, &x, 16)?;
    assert_all(&a, &y, 17)?;
    assert_all(&a, &of_b, 15)
}

fn section_that_grew_ends_behind_the_last_operation(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let gate = Gate::on(&kernels, &b)?;
    let held = b.record()?;
    let section = section(&a, &mut x, 1)?;
    let between = a.record()?;
    let grown = fill_behind(&a, &mut x, 2, Some(&section), |stream| {
        // SAFETY: event and stream are alive, of one device, and the event has been recorded.
        unsafe { device.raw().stream_wait_event(stream, held.as_raw()) }
    })?;
    assert!(grown.is_none());
    between.synchronize()?;
    assert!(section.has_begun()? && !section.is_done()?);
    gate.open();
    until(|| section.is_done())?;
    assert_all(&a, &x, 2)
}

/// The stream must wait for another one, and that wait comes before the section. So the section cannot grow, and a new
/// one begins.
fn section_behind_another_streams_work_begins_there(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    a.synchronize()?;
    let gate = Gate::on(&kernels, &b)?;
    b.fill(&mut x, 1)?;
    let first = section(&a, &mut y, 2)?;
    let second = fill(&a, &mut x, 3, Some(&first))?.expect("the stream has to wait");
    until(|| first.is_done())?;
    assert!(!second.has_begun()? && !second.is_done()?);
    gate.open();
    until(|| second.is_done())?;
    assert_all(&a, &x, 3)
}

fn failed_and_panicking_calls_leave_a_section_usable(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let first = section(&a, &mut x, 1)?;
    let failed = fill_behind(&a, &mut x, 2, Some(&first), |_| Err(Error::external("refused")));
    assert_eq!(failed.err().map(|error| error.kind()), Some(ErrorKind::External));
    let panicked =
        catch_unwind(AssertUnwindSafe(|| fill_behind(&a, &mut x, 3, Some(&first), |_| panic!("on purpose"))));
    assert!(panicked.is_err());
    assert!(fill_behind(&a, &mut x, 4, None, |_| Err(Error::external("refused"))).is_err());
    assert!(fill(&a, &mut x, 5, Some(&first))?.is_some(), "the section that failed stands behind it");
    a.synchronize()?;
    assert!(first.has_begun()? && first.is_done()?);
    assert_all(&a, &x, 5)
}

/// A host closure may drop a section, but must not ask it.
fn closures_ask_no_section(device: &Device) -> Result<()> {
    let (_, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let section = section(&a, &mut x, 1)?;
    let (answers, answered) = channel();
    b.host_fn(move || {
        let asked = [section.has_begun(), section.is_done()];
        drop(section);
        answers.send(asked).expect("the test waits for them");
    })?;
    for answer in answered.recv().expect("the closure runs") {
        refused(answer, ErrorKind::InHostClosure, &[]);
    }
    b.synchronize()?;
    assert_all(&a, &x, 1)
}

fn recordings_have_no_sections(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    let before = section(&a, &mut x, 1)?;
    a.synchronize()?;
    let graph = a.capture(|s| {
        refused(fill(s, &mut x, 2, None), ErrorKind::Captured, &["a graph"]);
        refused(fill(s, &mut x, 2, Some(&before)), ErrorKind::Captured, &["a graph"]);
        assert!(before.has_begun()? && before.is_done()?, "the capture holds no work up");
        s.fill(&mut y, 3)
    })?;
    graph.launch(&a)?;
    assert_all(&a, &x, 1)?;
    assert_all(&a, &y, 3)
}

fn replayed_steps_have_sections(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    let mut sections = Vec::new();
    let mut step = device.replay();
    for round in 0..4 {
        step.run(&a, |s| {
            s.fill(&mut y, round)?;
            let first = section(s, &mut x, round)?;
            s.copy(&x, &mut y)?;
            let second = section(s, &mut x, round + 1)?;
            sections.extend([first, second]);
            Ok(())
        })?;
    }
    a.synchronize()?;
    for section in &sections {
        assert!(section.has_begun()? && section.is_done()?);
    }
    assert_all(&a, &y, 3)?;
    assert_all(&a, &x, 4)
}

/// Other libraries may put work before or after a call on such a stream, so its sections cannot grow.
fn streams_that_others_use_have_sections(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    a.as_raw();
    let gate = Gate::on(&kernels, &a)?;
    let first = section(&a, &mut x, 1)?;
    let second = fill(&a, &mut x, 2, Some(&first))?.expect("it cannot grow");
    assert!(!first.has_begun()? && !second.is_done()?);
    gate.open();
    until(|| second.is_done())?;
    assert!(first.is_done()? && second.has_begun()?);
    assert_all(&a, &x, 2)
}

fn section_outlives_its_stream(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let gate = Gate::on(&kernels, &a)?;
    let section = section(&a, &mut x, 1)?;
    drop((x, a));
    assert!(!section.is_done()?);
    gate.open();
    until(|| section.is_done())
}

/// When you drop the last handle of the device, that waits for the work.
fn section_outlives_its_device(device: &Device) -> Result<()> {
    for grown in [false, true] {
        let closed = open_again(device, DeviceOptions::default())?;
        let a = closed.stream()?;
        let mut x = a.zeros::<u32>(N)?;
        let section = section(&a, &mut x, 1)?;
        if grown {
            fill(&a, &mut x, 2, Some(&section))?;
        }
        drop((x, a, closed));
        assert!(section.has_begun()? && section.is_done()?);
    }
    Ok(())
}

fn threads_have_sections_of_one_stream(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    on_threads(4, |thread| {
        let mut x = a.zeros::<u32>(N)?;
        let (mut grown, mut rounds) = (section(&a, &mut x, 0)?, 0);
        for round in 1..=200 {
            if let Some(new) = fill(&a, &mut x, round, Some(&grown))? {
                grown = new;
            }
            if round % 32 == thread {
                grown.is_done()?;
            }
            rounds = round;
        }
        until(|| grown.is_done())?;
        assert_all(&a, &x, rounds)
    })
}
