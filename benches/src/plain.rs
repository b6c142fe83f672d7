//! The steps, submitted by gpustream operation by operation.

use std::rc::Rc;

use anyhow::Result;
use gpustream::Device;

use crate::case::Case;
use crate::kernels::Kernels;
use crate::measure::{Contender, Sampler};
use crate::steps;

/// The column's title.
pub(crate) const NAME: &str = "plain";

/// gpustream without replays.
pub(crate) struct Plain {
    device: Device,
    kernels: Rc<Kernels>,
}

impl Plain {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self { device: device.clone(), kernels: Rc::new(Kernels::load(device)?) })
    }
}

impl Contender for Plain {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        let Case::Step(step) = case else { return Ok(None) };
        let stream = self.device.stream()?;
        Ok(Some(steps::sampler(step, self.kernels.clone(), stream, |stream, work| work(stream))?))
    }
}
