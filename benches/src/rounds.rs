//! A loop whose end only the device can know.

use std::rc::Rc;

use anyhow::Result;
use gpustream::{Buffer, Device, Flag, Launch, Stream};

use crate::kernels::Kernels;
use crate::measure::{Queue, Sampler, microseconds, part};

/// The rounds of one loop.
pub(crate) const ROUNDS: u32 = 1000;

const ONE: Launch = Launch::exact([1; 3], [1; 3]);

/// The loop's memory.
struct Rounds {
    kernels: Rc<Kernels>,
    left: Buffer<u32>,
    go_on: Flag,
}

impl Rounds {
    fn new(device: &Device, kernels: Rc<Kernels>, stream: &Stream) -> Result<Self> {
        Ok(Self { kernels, left: stream.zeros(1)?, go_on: device.flag()? })
    }

    fn begin(&mut self, s: &Stream) -> gpustream::Result<()> {
        self.kernels.begin_rounds(s, &ONE, &mut self.left, &mut self.go_on, ROUNDS)
    }

    fn round(&mut self, s: &Stream) -> gpustream::Result<()> {
        self.kernels.one_round(s, &ONE, &mut self.left, &mut self.go_on)
    }
}

/// Returns a sampler of the microseconds for a round, if the host asks after each.
pub(crate) fn asked(device: &Device, kernels: Rc<Kernels>, stream: Stream) -> Result<Sampler> {
    let mut rounds = Rounds::new(device, kernels, &stream)?;
    let whole = Box::new(move || {
        microseconds(|| {
            rounds.begin(&stream)?;
            loop {
                rounds.round(&stream)?;
                stream.finish()?;
                if rounds.go_on.get() == 0 {
                    return Ok(());
                }
            }
        })
    });
    Ok(part(ROUNDS as usize, whole))
}

/// Returns a sampler of the microseconds for a round in a graph that decides, if there are such graphs.
pub(crate) fn decided(device: &Device, kernels: Rc<Kernels>, stream: Stream) -> Result<Option<Sampler>> {
    if !device.info().features.conditional_nodes {
        return Ok(None);
    }
    let mut rounds = Rounds::new(device, kernels, &stream)?;
    let graph = stream.capture(|s| {
        rounds.begin(s)?;
        let go_on = rounds.go_on.clone();
        s.while_(&go_on, |s| rounds.round(s))
    })?;
    let whole = Box::new(move || {
        microseconds(|| {
            graph.launch(&stream)?;
            stream.finish()
        })
    });
    Ok(Some(part(ROUNDS as usize, whole)))
}
