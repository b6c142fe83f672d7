//! Operations, arguments, memory and shapes of replayed steps change at random from run to run. The results must be the
//! same as in plain Rust.

use conformance::{kernels_and_streams, next, sync, tests};
use gpustream::hal::FillPattern;
use gpustream::{Arg, Buffer, Device, Result, Stream};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};

tests! {
    Plain: random_steps_match_plain_rust;
}

/// An operation of a random step. It names its buffers by index.
#[derive(Clone, Copy, Debug)]
enum RandomOperation {
    Step {
        x: usize,
        value: u32,
        len: usize,
    },
    Mix {
        from: usize,
        to: usize,
        at: usize,
        len: usize,
    },
    Fill {
        x: usize,
        value: u32,
    },
    Copy {
        from: usize,
        to: usize,
    },
    Upload {
        x: usize,
        value: u32,
    },
    Temporary {
        x: usize,
        value: u32,
    },
    Renew {
        x: usize,
        value: u32,
    },
    Swap {
        x: usize,
        y: usize,
    },
    Wait,
    Elsewhere {
        x: usize,
    },
    /// Another library's call. With a key, a step records it.
    External {
        x: usize,
        value: u32,
        keyed: bool,
    },
}

/// How a step changes from one run to the next.
#[derive(Clone, Copy, Debug)]
enum Change {
    Shorten,
    Lengthen(RandomOperation),
    /// Another operation takes this place. The place may exceed the length, and is then taken modulo the length.
    Replace(usize, RandomOperation),
}

#[derive(Clone, Debug)]
struct Program {
    in_order: bool,
    first: Vec<RandomOperation>,
    /// The changes before each run.
    runs: Vec<Vec<Change>>,
}

const BUFFERS: usize = 4;
const SMALL: usize = 200;

fn operations() -> impl Strategy<Value = RandomOperation> {
    let two = || (0..BUFFERS, 1..BUFFERS).prop_map(|(x, by)| (x, (x + by) % BUFFERS));
    let one = || (0..BUFFERS, 0..50u32);
    prop_oneof![
        10 => (one(), 1..=SMALL).prop_map(|((x, value), len)| RandomOperation::Step { x, value, len }),
        8 => (two(), 0..SMALL / 2)
            .prop_map(|((from, to), at)| RandomOperation::Mix { from, to, at, len: SMALL / 2 }),
        2 => one().prop_map(|(x, value)| RandomOperation::Fill { x, value }),
        3 => two().prop_map(|(from, to)| RandomOperation::Copy { from, to }),
        1 => one().prop_map(|(x, value)| RandomOperation::Upload { x, value }),
        2 => one().prop_map(|(x, value)| RandomOperation::Temporary { x, value }),
        1 => one().prop_map(|(x, value)| RandomOperation::Renew { x, value }),
        2 => two().prop_map(|(x, y)| RandomOperation::Swap { x, y }),
        1 => Just(RandomOperation::Wait),
        3 => (one(), any::<bool>())
            .prop_map(|((x, value), keyed)| RandomOperation::External { x, value: value % 4, keyed }),
        1 => one().prop_map(|(x, _)| RandomOperation::Elsewhere { x }),
    ]
}

fn programs() -> impl Strategy<Value = Program> {
    let change = prop_oneof![
        1 => Just(Change::Shorten),
        1 => operations().prop_map(Change::Lengthen),
        2 => (any::<usize>(), operations()).prop_map(|(at, operation)| Change::Replace(at, operation)),
    ];
    (prop::bool::weighted(0.25), vec(operations(), 2..10), vec(vec(change, 0..3), 40))
        .prop_map(|(in_order, first, runs)| Program { in_order, first, runs })
}

fn random_steps_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, streams) = kernels_and_streams(device)?;
    let default = ProptestConfig::default();
    // GPUs are slower, and run the same core.
    let share = if device.info().backend == gpustream::BackendName::CPU { 3 } else { 20 };
    let cases = (default.cases / share).max(1);
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..default });
    let checked = runner.run(&programs(), |program| check(device, &kernels, &streams, &program));
    checked.unwrap_or_else(|failure| panic!("{failure}"));
    Ok(())
}

fn check(
    device: &Device,
    kernels: &sync::Kernels,
    [s, other]: &[Stream; 2],
    program: &Program,
) -> TestCaseResult {
    let mut buffers: Vec<Buffer<u32>> = (0..BUFFERS).map(|_| s.full(SMALL, 1)).collect::<Result<_>>()?;
    let mut want = vec![vec![1u32; SMALL]; BUFFERS];
    let mut step = device.replay().in_order(program.in_order);
    let mut operations = program.first.clone();
    for (run, changes) in program.runs.iter().enumerate() {
        for &change in changes {
            match change {
                Change::Shorten if operations.len() > 2 => drop(operations.pop()),
                Change::Lengthen(operation) if operations.len() < 20 => operations.push(operation),
                Change::Replace(at, operation) => {
                    let at = at % operations.len();
                    operations[at] = operation;
                }
                Change::Shorten | Change::Lengthen(_) => {}
            }
        }
        step.run(s, |s| {
            for &operation in &operations {
                match operation {
                    RandomOperation::Step { x, value, len } => {
                        kernels.step(s, &mut buffers[x].slice_mut(..len)?, value, len)?;
                    }
                    RandomOperation::Mix { from, to, at, len } => {
                        let [from, to] = buffers.get_disjoint_mut([from, to]).unwrap();
                        let from = from.slice(at..at + len)?;
                        kernels.mix(s, &from, &mut to.slice_mut(..len)?, len)?;
                    }
                    RandomOperation::Fill { x, value } => s.fill(&mut buffers[x], value)?,
                    RandomOperation::Copy { from, to } => {
                        let [from, to] = buffers.get_disjoint_mut([from, to]).unwrap();
                        s.copy(from, to)?;
                    }
                    RandomOperation::Upload { x, value } => {
                        s.upload_into(&[value; SMALL], &mut buffers[x])?;
                    }
                    RandomOperation::Temporary { x, value } => {
                        let mut temporary = s.duplicate(&buffers[x])?;
                        kernels.step(s, &mut temporary, value, SMALL)?;
                        s.copy(&temporary, &mut buffers[x])?;
                    }
                    RandomOperation::Renew { x, value } => {
                        buffers[x] = s.full(SMALL, value)?;
                    }
                    RandomOperation::Swap { x, y } => buffers.swap(x, y),
                    RandomOperation::Wait => s.synchronize()?,
                    RandomOperation::External { x, value, keyed } => {
                        let memory = &[Arg::write(&mut buffers[x])];
                        // SAFETY: memory and stream are alive.
                        let fill = |raw, [to]: [_; 1]| unsafe {
                            device.raw().fill(to, FillPattern::U32(value), SMALL, raw)
                        };
                        // SAFETY: the fill goes to the stream that is given, writes this buffer alone, and depends on
                        // nothing but the key.
                        unsafe {
                            if keyed {
                                s.external_keyed("theirs", memory, value.into(), fill)?;
                            } else {
                                s.external("theirs", memory, fill)?;
                            }
                        }
                    }
                    RandomOperation::Elsewhere { x } => {
                        kernels.step(other, &mut buffers[x], 3, SMALL)?;
                    }
                }
            }
            Ok(())
        })?;
        for &operation in &operations {
            match operation {
                RandomOperation::Step { x, value, len } => {
                    want[x][..len].iter_mut().for_each(|it| *it = next(*it, value));
                }
                RandomOperation::Mix { from, to, at, len } => {
                    for index in 0..len {
                        want[to][index] = next(want[to][index], want[from][at + index]);
                    }
                }
                RandomOperation::Fill { x, value }
                | RandomOperation::Upload { x, value }
                | RandomOperation::External { x, value, .. }
                | RandomOperation::Renew { x, value } => {
                    want[x].fill(value);
                }
                RandomOperation::Copy { from, to } => {
                    let [from, to] = want.get_disjoint_mut([from, to]).unwrap();
                    to.clone_from(from);
                }
                RandomOperation::Temporary { x, value } => {
                    want[x].iter_mut().for_each(|it| *it = next(*it, value));
                }
                RandomOperation::Swap { x, y } => want.swap(x, y),
                RandomOperation::Wait => {}
                RandomOperation::Elsewhere { x } => want[x].iter_mut().for_each(|it| *it = next(*it, 3)),
            }
        }
        if run % 5 == 4 {
            for (index, (buffer, want)) in buffers.iter().zip(&want).enumerate() {
                prop_assert_eq!(
                    &s.download(buffer)?,
                    want,
                    "run {}, buffer {}: {:?}",
                    run,
                    index,
                    &operations
                );
            }
        }
    }
    Ok(())
}
