//! Whichever rank comes last enqueues the work of all. A trace must still show each rank's work at that rank's line.

use std::collections::BTreeSet;

use gpustream::Trace;
use gpustream::timeline::{Span, SpanKind, Timeline};
use gpustream_collectives::{Communicator, Op, group};

use crate::order::full;
use crate::{each, ranks, streams, tests};

tests!(work_of_a_group_is_noted_at_each_ranks_line, work_of_threads_is_noted_at_their_line);

/// Returns the lines at which work was noted, each with its stream's name.
#[track_caller]
fn lines(timeline: &Timeline) -> BTreeSet<(&str, u32)> {
    let noted = timeline.operations.iter().map(|operation| {
        let stream = timeline.streams.iter().find(|stream| stream.id == operation.point.stream).unwrap();
        assert!(operation.place.file.ends_with("local/lines.rs"), "{operation:?}");
        (&*stream.name, operation.place.line)
    });
    let lines: BTreeSet<_> = noted.collect();
    // The trace also has the waits of other tests' threads.
    let is_ours = |span: &&Span| match span.kind {
        SpanKind::Wait(point) => {
            timeline.streams.iter().any(|one| point.is_some_and(|it| it.stream == one.id))
        }
        SpanKind::Allocation { .. } => true,
        _ => false,
    };
    for span in timeline.spans.iter().filter(is_ours) {
        assert!(span.place.file.ends_with("local/lines.rs"), "{span:?}");
    }
    lines
}

fn work_of_a_group_is_noted_at_each_ranks_line() {
    let ranks = ranks();
    let streams = streams(&ranks);
    streams[0].set_name("first");
    streams[1..].iter().for_each(|stream| stream.set_name("others"));
    let mut memory = full(&streams, 1000, 1.0f32);
    let devices: Vec<_> = ranks.iter().map(Communicator::device).collect();
    let trace = Trace::of(&devices).unwrap();
    let line = line!() + 3;
    group(|group| {
        let [own, others @ ..] = &mut memory[..] else { unreachable!("there are several ranks") };
        group.on(&ranks[0]).all_reduce_in_place(&streams[0], own, Op::Sum)?;
        for ((rank, stream), memory) in ranks[1..].iter().zip(&streams[1..]).zip(others) {
            group.on(rank).all_reduce_in_place(stream, memory, Op::Sum)?;
        }
        Ok(())
    })
    .unwrap();
    let timeline = trace.stop().unwrap();
    assert_eq!(lines(&timeline), BTreeSet::from([("first", line), ("others", line + 2)]));
}

fn work_of_threads_is_noted_at_their_line() {
    let ranks = ranks();
    let devices: Vec<_> = ranks.iter().map(|rank| rank.device().clone()).collect();
    let trace = Trace::of(&devices.iter().collect::<Vec<_>>()).unwrap();
    let begin = line!() + 1;
    let ends = each(ranks, |rank| {
        let (stream, next) = (rank.device().stream().unwrap(), (rank.rank() + 1) % rank.size());
        let (x, mut y) = (stream.full(5000, 1.0f32).unwrap(), stream.zeros::<f32>(5000).unwrap());
        rank.all_reduce(&stream, &x, &mut y, Op::Max).unwrap();
        rank.barrier(&stream).unwrap();
        rank.broadcast(&stream, &mut y, 1).unwrap();
        rank.group(|calls| {
            calls.send(&stream, &x, next)?;
            calls.recv(&stream, &mut y, (next + rank.size() - 2) % rank.size())
        })
        .unwrap();
        rank.split(0, 0).unwrap().all_reduce_in_place(&stream, &mut y, Op::Sum).unwrap();
        stream.synchronize().unwrap();
        line!()
    });
    let timeline = trace.stop().unwrap();
    let lines = lines(&timeline);
    assert!(lines.iter().all(|(_, line)| (begin..ends[0]).contains(line)), "{lines:?}");
}
