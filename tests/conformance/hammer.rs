//! Two threads use eight streams at once, with random sizes, and hand memory from one stream to another. The results
//! must be the same as in plain Rust.

use std::time::{Duration, Instant};

use conformance::{Random, next, open_again, sync, tests, until};
use gpustream::{AsView, Buffer, CopyBatch, Device, DeviceOptions, Pinned, Result, Stream};

tests! {
    Alone: random_work_of_two_threads_matches_plain_rust;
}

enum Memory {
    Device(Buffer<u32>),
    Pinned(Pinned<u32>),
}

/// Memory, and the values that it must contain.
struct Tracked {
    memory: Memory,
    want: Vec<u32>,
}

fn random_len(random: &mut Random) -> usize {
    // Most lengths are small, but some exceed a piece of the staging ring.
    match random.below(16) {
        0 => 0,
        1 => 1 << 20 | random.below(1000),
        2..=5 => random.below(100_000),
        _ => random.below(5000) + 1,
    }
}

fn range(random: &mut Random, len: usize) -> std::ops::Range<usize> {
    if random.below(3) > 0 {
        return 0..len;
    }
    let start = random.below(len + 1);
    start..start + random.below(len - start + 1)
}

/// What one thread has. Its memory is its own, but all threads share the streams.
struct Worker<'a> {
    device: &'a Device,
    kernels: &'a sync::Kernels,
    streams: &'a [Stream],
    random: Random,
    memory: Vec<Tracked>,
}

impl Worker<'_> {
    fn step(&mut self) -> Result<()> {
        let random = &mut self.random;
        let s = &self.streams[random.below(self.streams.len())];
        let action = random.below(24);
        if action < 3 || self.memory.len() < 3 {
            let len = random_len(random);
            let value = random.number() as u32;
            let (memory, want) = match action % 3 {
                0 => (Memory::Device(s.full(len, value)?), vec![value; len]),
                1 => {
                    let values: Vec<u32> = (0..len).map(|_| random.number() as u32).collect();
                    (Memory::Device(s.upload(&values)?), values)
                }
                _ => (Memory::Pinned(self.device.pinned_from(&vec![value; len])?), vec![value; len]),
            };
            self.memory.push(Tracked { memory, want });
            return Ok(());
        }
        let index = random.below(self.memory.len());
        if action == 3 && self.memory.len() > 12 || action == 4 {
            // We drop memory that may still be in use.
            self.memory.swap_remove(index);
            return Ok(());
        }
        if action == 5 {
            return self.check(index);
        }
        if action == 6 {
            let other = &self.streams[random.below(self.streams.len())];
            return other.wait(&s.record()?);
        }
        if action < 15 {
            // We take one of the two out of the list, because we cannot borrow both from it at once.
            let source = self.memory.swap_remove(index);
            let to = random.below(self.memory.len());
            let target = &mut self.memory[to];
            let len = source.want.len().min(target.want.len());
            let range = range(random, len);
            let result = combine(s, self.kernels, &source, target, range, action);
            self.memory.push(source);
            return result;
        }
        let Tracked { memory, want } = &mut self.memory[index];
        let range = range(random, want.len());
        let value = random.number() as u32;
        let n = range.len();
        if let Memory::Pinned(pinned) = memory
            && action >= 21
        {
            pinned.slice_mut(range.clone())?.write()?.fill(value);
            want[range].fill(value);
            return Ok(());
        }
        let mut view = match memory {
            Memory::Device(buffer) => buffer.slice_mut(range.clone())?,
            Memory::Pinned(pinned) => pinned.slice_mut(range.clone())?,
        };
        if action < 21 {
            self.kernels.step(s, &mut view, value, n)?;
            want[range].iter_mut().for_each(|x| *x = next(*x, value));
        } else {
            s.fill(&mut view, value)?;
            want[range].fill(value);
        }
        Ok(())
    }

    fn check(&mut self, index: usize) -> Result<()> {
        let s = &self.streams[self.random.below(self.streams.len())];
        let Tracked { memory, want } = &self.memory[index];
        let got = match memory {
            Memory::Device(buffer) => s.download(buffer)?,
            Memory::Pinned(pinned) => pinned.read()?.to_vec(),
        };
        assert_eq!(got.len(), want.len());
        let wrong = got.iter().zip(want).position(|(got, want)| got != want);
        assert!(wrong.is_none(), "element {wrong:?} of {} is wrong", want.len());
        Ok(())
    }
}

/// Copies or runs a kernel from one memory to another.
fn combine(
    s: &Stream,
    kernels: &sync::Kernels,
    source: &Tracked,
    target: &mut Tracked,
    range: std::ops::Range<usize>,
    action: usize,
) -> Result<()> {
    let from = match &source.memory {
        Memory::Device(buffer) => buffer.view(),
        Memory::Pinned(pinned) => pinned.view(),
    };
    let from = from.slice(range.clone())?;
    let mut to = match &mut target.memory {
        Memory::Device(buffer) => buffer.slice_mut(range.clone())?,
        Memory::Pinned(pinned) => pinned.slice_mut(range.clone())?,
    };
    if action < 8 {
        s.copy(&from, &mut to)?;
        target.want[range.clone()].copy_from_slice(&source.want[range]);
    } else if action < 10 {
        let mut batch = CopyBatch::new();
        let size = range.len() / 20 + 1;
        from.chunks(size)?.zip(to.chunks_mut(size)?).try_for_each(|(from, to)| batch.add(from, to))?;
        s.copy_batch(batch)?;
        target.want[range.clone()].copy_from_slice(&source.want[range]);
    } else {
        kernels.mix(s, &from, &mut to, range.len())?;
        let pairs = target.want[range.clone()].iter_mut().zip(&source.want[range]);
        pairs.for_each(|(y, x)| *y = next(*y, *x));
    }
    Ok(())
}

/// The test takes `GPUSTREAM_HAMMER_SECONDS`, or 1.5 seconds if you do not set it.
fn random_work_of_two_threads_matches_plain_rust(device: &Device) -> Result<()> {
    let seconds = std::env::var("GPUSTREAM_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + seconds.map_or(Duration::from_millis(1500), Duration::from_secs);
    let free = device.memory()?.free;
    let steps = {
        let device = &open_again(device, DeviceOptions::default())?;
        let kernels = &sync::Kernels::load(device)?;
        let streams = &(0..8).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
        let work = |seed: u64| {
            move || -> Result<u64> {
                let mut worker =
                    Worker { device, kernels, streams, random: Random(seed), memory: Vec::new() };
                let mut steps = 0;
                // A slow machine must still make 150 steps.
                while Instant::now() < end || steps < 150 {
                    worker.step()?;
                    steps += 1;
                }
                (0..worker.memory.len()).try_for_each(|index| worker.check(index))?;
                Ok(steps)
            }
        };
        let counts = std::thread::scope(|scope| {
            let threads = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03].map(|seed| scope.spawn(work(seed)));
            threads.map(|thread| thread.join().unwrap())
        });
        let [first, second] = counts;
        let steps = first? + second?;
        until(|| {
            device.synchronize()?;
            device.trim();
            Ok(device.memory_stats().reserved == 0)
        })?;
        assert_eq!(device.memory_stats().used, 0);
        steps
    };
    assert!(steps >= 300, "only {steps} steps");
    let after = device.memory()?.free;
    // On the CPU this is the whole machine's free memory, and other programs use it too.
    if device.info().backend != gpustream::BackendName::CPU {
        assert!(after + (4 << 20) >= free, "{} bytes are gone", free - after);
    }
    Ok(())
}
