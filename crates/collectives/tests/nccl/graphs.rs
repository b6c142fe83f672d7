//! Calls in graphs: each launch makes them again, and we must watch it like a call, because a rank may be
//! lost at any launch.

use std::sync::Barrier;

use gpustream::{Buffer, ErrorKind, Graph, Result, Stream};
use gpustream_collectives::{Communicator, CommunicatorFailure, Op};

use crate::{broken, each, rank_count, ranks, ranks_within, short, tests};

tests!(
    launches_of_a_graph_make_its_calls,
    graphs_within_graphs_make_their_calls,
    graph_keeps_its_communicator,
    graph_has_the_calls_of_one_stream,
    lost_rank_ends_a_graphs_run,
    aborted_communicator_is_no_more_in_a_graph,
);

/// Calls `work` with each rank on its own thread. All of them wait at the barrier before the first launch,
/// because a driver may only be able to make an executable while no device of the process is busy.
fn on_threads<R: Send>(
    ranks: Vec<Communicator>,
    work: impl Fn(Communicator, &Barrier) -> R + Sync,
) -> Vec<R> {
    let recorded = Barrier::new(ranks.len());
    each(ranks, |rank| work(rank, &recorded))
}

/// Calls `work` with each rank, a stream, memory full of ones, and a graph of [`sum`], once all ranks have made their
/// graphs.
fn with_graphs<R: Send>(
    ranks: Vec<Communicator>,
    work: impl Fn(Communicator, Stream, Buffer<u32>, Graph) -> R + Sync,
) -> Vec<R> {
    on_threads(ranks, |rank, recorded| {
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.full(33, 1u32).unwrap();
        let graph = sum(&rank, &stream, &mut memory).unwrap();
        recorded.wait();
        work(rank, stream, memory, graph)
    })
}

/// Records the sum of memory over all ranks, with a barrier and an exchange.
fn sum(rank: &Communicator, stream: &Stream, memory: &mut Buffer<u32>) -> Result<Graph> {
    let (to, from) = ((rank.rank() + 1) % rank.size(), (rank.rank() + rank.size() - 1) % rank.size());
    let graph = stream.capture(|s| {
        let mut own = s.duplicate(&*memory)?;
        rank.all_reduce_in_place(s, &mut own, Op::Sum)?;
        rank.barrier(s)?;
        let mut next = s.alloc::<u32>(own.len())?;
        rank.group(|calls| {
            calls.send(s, &own, to)?;
            calls.recv(s, &mut next, from)
        })?;
        s.copy(&next, memory)
    })?;
    graph.prepare(stream)?;
    stream.synchronize()?;
    Ok(graph)
}

fn launches_of_a_graph_make_its_calls() {
    with_graphs(ranks(), |rank, stream, mut memory, graph| {
        for _ in 0..3 {
            graph.launch(&stream).unwrap();
            // You may make other calls between the launches.
            rank.all_reduce_in_place(&stream, &mut memory, Op::Max).unwrap();
            graph.launch(&stream).unwrap();
        }
        assert_eq!(stream.download(&memory).unwrap(), [(rank.size() as u32).pow(6); 33]);
    });
}

fn graphs_within_graphs_make_their_calls() {
    on_threads(ranks(), |rank, recorded| {
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.full(33, 1u32).unwrap();
        let child = sum(&rank, &stream, &mut memory).unwrap();
        let mut builder = rank.device().graph_builder().unwrap();
        let first = builder.child(&[], &child).unwrap();
        builder.child(&[first], &child).unwrap();
        let graph = builder.build().unwrap();
        graph.prepare(&stream).unwrap();
        stream.synchronize().unwrap();
        drop(child);
        recorded.wait();
        for _ in 0..2 {
            graph.launch(&stream).unwrap();
        }
        assert_eq!(stream.download(&memory).unwrap(), [(rank.size() as u32).pow(4); 33]);
    });
}

fn graph_keeps_its_communicator() {
    with_graphs(ranks(), |rank, stream, memory, graph| {
        let size = rank.size() as u32;
        drop(rank);
        for _ in 0..2 {
            graph.launch(&stream).unwrap();
        }
        // The run continues, and so does the communicator.
        drop(graph);
        assert_eq!(stream.download(&memory).unwrap(), [size.pow(2); 33]);
    });
}

fn graph_has_the_calls_of_one_stream() {
    on_threads(ranks(), |rank, recorded| {
        let (a, b) = (rank.device().stream().unwrap(), rank.device().stream().unwrap());
        let (mut x, mut y) = (a.full(5, 1u32).unwrap(), b.full(5, 1u32).unwrap());
        let error = a
            .capture(|a| {
                b.wait(&a.record()?)?;
                rank.group(|calls| {
                    calls.all_reduce_in_place(a, &mut x, Op::Sum)?;
                    calls.all_reduce_in_place(&b, &mut y, Op::Sum)
                })
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
        assert!(error.message().contains("in one stream"), "{error}");
        recorded.wait();
        // The communicator must still work.
        rank.all_reduce_in_place(&a, &mut x, Op::Sum).unwrap();
        assert_eq!(a.download(&x).unwrap(), [rank.size() as u32; 5]);
    });
}

/// The first rank makes no call. The second one aborts at the limit, and if we did not prevent that, the others' work could
/// then end as if it had succeeded.
fn lost_rank_ends_a_graphs_run() {
    let graphs = on_threads(ranks_within(short()), |rank, recorded| {
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.full(33, 1u32).unwrap();
        let graph = stream.capture(|s| rank.all_reduce_in_place(s, &mut memory, Op::Sum)).unwrap();
        graph.prepare(&stream).unwrap();
        stream.synchronize().unwrap();
        recorded.wait();
        (rank, stream, memory, graph)
    });
    for (rank, stream, memory, graph) in graphs.iter().skip(1) {
        let run = graph.launch(stream).and_then(|()| stream.synchronize());
        let again = graph.launch(stream);
        let mut other = stream.duplicate(memory).unwrap();
        let recorded = stream.capture(|s| rank.all_reduce_in_place(s, &mut other, Op::Sum)).map(drop);
        for outcome in [run, again, recorded] {
            let error = outcome.unwrap_err();
            let broken = broken(&error);
            assert!(
                matches!(broken, CommunicatorFailure::Stalled { .. } | CommunicatorFailure::Failed { .. }),
                "{error}"
            );
        }
        assert_eq!(stream.download(&stream.full(3, 2u8).unwrap()).unwrap(), [2; 3]);
    }
}

/// The abort must return although there is a graph, because you may abort at any time.
fn aborted_communicator_is_no_more_in_a_graph() {
    let done = Barrier::new(rank_count());
    with_graphs(ranks(), |rank, stream, memory, graph| {
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        // Otherwise the others would notice the abort.
        done.wait();
        rank.abort();
        assert!(matches!(broken(&graph.launch(&stream).unwrap_err()), CommunicatorFailure::Aborted { .. }));
        assert_eq!(stream.download(&memory).unwrap(), [rank.size() as u32; 33]);
    });
}
