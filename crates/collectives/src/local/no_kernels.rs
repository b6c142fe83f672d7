//! Stands in for the kernels in a build without them. If you make ranks in one process, you get an error that says so.

use gpustream::{Device, Error, ErrorKind, Result, Stream, View, ViewMut};

pub(super) enum Kernels {}

impl Kernels {
    pub(super) fn load(device: &Device) -> Result<Self> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the ranks of one process need kernels on {}:{}, but gpustream-collectives was built without them; turn \
                 on its feature `kernels`",
                device.info().backend,
                device.info().ordinal
            ),
        ))
    }

    pub(super) fn combine<T>(
        &self,
        _: &Stream,
        _: &View<'_, T>,
        _: usize,
        _: u64,
        _: i32,
        _: &mut ViewMut<'_, T>,
        _: usize,
    ) -> Result<()> {
        match *self {}
    }
}
