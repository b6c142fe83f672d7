//! What you would do without replays: gpustream submits each step operation by operation, and the host must ask after
//! each round whether to go on.

use std::rc::Rc;

use anyhow::Result;
use gpustream::Device;

use crate::case::Case;
use crate::kernels::Kernels;
use crate::measure::{Contender, Sampler};
use crate::{rounds, steps};

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
        let (stream, kernels) = (self.device.stream()?, self.kernels.clone());
        Ok(Some(match case {
            Case::Step(step) => steps::sampler(step, kernels, stream, |stream, work| work(stream))?,
            Case::Round => rounds::asked(&self.device, kernels, stream)?,
            _ => return Ok(None),
        }))
    }
}
