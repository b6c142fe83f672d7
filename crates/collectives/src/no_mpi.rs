//! Stands in for MPI in a build without it.

use std::convert::Infallible;
use std::time::Duration;

use gpustream::{Device, Error, ErrorKind, Result};

use crate::call::Batches;
use crate::call_rules::CallRules;

/// An endpoint that can never exist.
#[derive(Debug)]
pub(crate) struct Endpoint(Infallible);

impl Endpoint {
    pub(crate) fn of_process(_: (usize, usize), _: &Device, _: CallRules) -> Result<Self> {
        Err(without())
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        match self.0 {}
    }

    pub(crate) fn split(&self, _: i32, _: i32) -> Result<Self> {
        match self.0 {}
    }

    pub(crate) fn abort(&self) {
        match self.0 {}
    }

    #[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "as with MPI")]
    pub(crate) fn run(sets: Batches<'_, Self>) -> Result<()> {
        match sets.first() {
            Some((endpoint, _)) => match endpoint.0 {},
            None => Ok(()),
        }
    }
}

/// A messenger that can never exist.
#[derive(Debug)]
pub(crate) struct Messenger(Infallible);

impl Messenger {
    pub(crate) fn join(_: Duration, _: impl Fn(&[u8]) + Send + 'static) -> Result<Self> {
        Err(without())
    }

    pub(crate) fn rank(&self) -> usize {
        match self.0 {}
    }

    #[allow(clippy::needless_pass_by_value, reason = "as with MPI")]
    pub(crate) fn send(&self, _: Vec<u8>) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn listen(&self) -> Result<Infallible> {
        match self.0 {}
    }
}

fn without() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "gpustream-collectives was built without MPI; turn on its feature `mpi`, which needs an MPI with its headers \
         (for example libopenmpi-dev) and libclang",
    )
}
