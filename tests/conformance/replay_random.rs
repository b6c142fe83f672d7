//! Replayed steps whose operations, arguments, memory and shapes change at random from run to run, against plain Rust.

use conformance::{Random, kernels_and_streams, next, tests};
use gpustream::hal::FillPattern;
use gpustream::{Arg, Buffer, Device, Result};

tests! {
    Plain: random_steps_match_plain_rust;
}

/// An operation of a random step, on buffers by index.
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
    /// Another library's call.
    External {
        x: usize,
        value: u32,
    },
}

fn random_operation(random: &mut Random, buffers: usize) -> RandomOperation {
    let (x, y) = (random.below(buffers), random.below(buffers - 1));
    let y = if y >= x { y + 1 } else { y };
    let (value, len, at) = (random.below(50) as u32, 1 + random.below(SMALL), random.below(SMALL / 2));
    match random.below(32) {
        0..10 => RandomOperation::Step { x, value, len },
        10..18 => RandomOperation::Mix { from: x, to: y, at, len: SMALL / 2 },
        18..20 => RandomOperation::Fill { x, value: value + 1 },
        20..23 => RandomOperation::Copy { from: x, to: y },
        23 => RandomOperation::Upload { x, value },
        24..26 => RandomOperation::Temporary { x, value },
        26 => RandomOperation::Renew { x, value },
        27..29 => RandomOperation::Swap { x, y },
        29 => RandomOperation::Wait,
        30 => RandomOperation::External { x, value },
        _ => RandomOperation::Elsewhere { x },
    }
}

const SMALL: usize = 200;

fn random_steps_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    for seed in 1..=12u64 {
        let mut random = Random(seed * 0x9e37_79b9);
        let count = 2 + random.below(4);
        let mut buffers: Vec<Buffer<u32>> = (0..count).map(|_| s.full(SMALL, 1)).collect::<Result<_>>()?;
        let mut want = vec![vec![1u32; SMALL]; count];
        let mut step = device.replay().in_order(seed % 4 == 0);
        let length = 2 + random.below(8);
        let mut operations: Vec<RandomOperation> =
            (0..length).map(|_| random_operation(&mut random, count)).collect();
        for run in 0..40 {
            for _ in 0..random.below(3) {
                match random.below(4) {
                    0 if operations.len() > 2 => drop(operations.pop()),
                    1 if operations.len() < 20 => operations.push(random_operation(&mut random, count)),
                    _ => {
                        let at = random.below(operations.len());
                        operations[at] = random_operation(&mut random, count);
                    }
                }
            }
            step.run(&s, |s| {
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
                        RandomOperation::External { x, value } => {
                            let (to, memory) = (buffers[x].as_raw(), &[Arg::write(&mut buffers[x])]);
                            let pattern = FillPattern::U32(value);
                            // SAFETY: the fill goes to the stream that is given, and writes this buffer alone.
                            unsafe {
                                s.external("theirs", memory, |raw| device.raw().fill(to, pattern, SMALL, raw))
                            }?;
                        }
                        RandomOperation::Elsewhere { x } => {
                            kernels.step(&other, &mut buffers[x], 3, SMALL)?;
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
                    | RandomOperation::External { x, value }
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
                    let got = s.download(buffer)?;
                    assert!(got == *want, "seed {seed}, run {run}, buffer {index}: {operations:?}");
                }
            }
        }
    }
    Ok(())
}
