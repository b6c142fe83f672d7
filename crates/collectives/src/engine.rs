//! Engines: what moves and combines the ranks' elements.

use gpustream::Result;

use crate::call::{Batch, Batches};
use crate::{local, mpi, nccl};

/// What moves and combines the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Our own copies and kernels, between devices of one process. You need to install nothing, and a device
    /// may have several ranks.
    Local,
    /// NVIDIA's NCCL or AMD's RCCL, for GPUs in any number of processes. Each rank needs its own GPU.
    Nccl,
    /// MPI, for CPU devices and for hosts without NCCL. Each process that `mpirun` or a similar launcher
    /// started has one rank. Data goes through page-locked host memory. Needs the feature `mpi`.
    Mpi,
}

/// One rank's connection to the others, by some engine.
#[derive(Debug)]
pub(crate) enum Endpoint {
    Local(local::Endpoint),
    Nccl(nccl::Endpoint),
    Mpi(mpi::Endpoint),
}

impl Endpoint {
    /// Returns the rank and the number of ranks.
    pub(crate) fn place(&self) -> (usize, usize) {
        match self {
            Self::Local(endpoint) => endpoint.place(),
            Self::Nccl(endpoint) => endpoint.place(),
            Self::Mpi(endpoint) => endpoint.place(),
        }
    }

    /// Returns true if calls can be recorded into a graph, which needs an engine whose calls do not involve
    /// the host.
    pub(crate) fn records_calls(&self) -> bool {
        matches!(self, Self::Nccl(_))
    }

    /// Blocks until all ranks have called this. Returns the endpoint among the ranks with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        match self {
            Self::Local(endpoint) => endpoint.split(color, key).map(Self::Local),
            Self::Nccl(endpoint) => endpoint.split(color, key).map(Self::Nccl),
            Self::Mpi(endpoint) => endpoint.split(color, key).map(Self::Mpi),
        }
    }

    /// Stops the ranks from working together.
    pub(crate) fn abort(&self) {
        match self {
            Self::Local(endpoint) => endpoint.abort(),
            Self::Nccl(endpoint) => endpoint.abort(),
            Self::Mpi(endpoint) => endpoint.abort(),
        }
    }
}

/// Makes the calls of some ranks. None of them waits for another rank before all are made.
pub(crate) fn run<'a>(sets: impl IntoIterator<Item = (&'a Endpoint, Batch<'a>)>) -> Result<()> {
    let sets = sets.into_iter();
    // Usually all ranks have the same engine.
    let (most, _) = sets.size_hint();
    let (mut local, mut nccl, mut mpi) = (Vec::new(), Batches::new(), Batches::new());
    for (endpoint, calls) in sets {
        match endpoint {
            Endpoint::Local(endpoint) => local.push((endpoint, calls)),
            Endpoint::Nccl(endpoint) => {
                if nccl.is_empty() {
                    nccl.reserve_exact(most);
                }
                nccl.push((endpoint, calls));
            }
            Endpoint::Mpi(endpoint) => mpi.push((endpoint, calls)),
        }
    }
    // We post all of them before we wait for any.
    let posted: Vec<_> = local.into_iter().map(|(endpoint, calls)| endpoint.post(calls.into_vec())).collect();
    let enqueued = [
        if nccl.is_empty() { Ok(()) } else { nccl::Endpoint::run(nccl) },
        if mpi.is_empty() { Ok(()) } else { mpi::Endpoint::run(mpi) },
    ];
    let outcomes: Vec<_> = posted.into_iter().map(|posted| posted.and_then(local::Posted::wait)).collect();
    outcomes.into_iter().chain(enqueued).collect()
}
