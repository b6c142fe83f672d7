//! Engines, which move and combine the ranks' elements.

use gpustream::Result;

use crate::call::{Batch, Batches};
use crate::{local, mpi, nccl};

/// A way to move and combine the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The library's own copies and kernels, between devices of one process. Nothing needs to be installed, and a device may
    /// have several ranks.
    Local,
    /// NVIDIA's NCCL, or AMD's RCCL, for GPUs of any number of processes, one rank on each.
    Nccl,
    /// MPI, for CPU devices and for hosts without NCCL, one rank in each process that `mpirun` or its like started. Memory goes
    /// through page-locked memory of the host. Needs the feature `mpi`.
    Mpi,
}

/// One rank's place among the others.
#[derive(Debug)]
pub(crate) enum Endpoint {
    Local(local::Endpoint),
    Nccl(nccl::Endpoint),
    Mpi(mpi::Endpoint),
}

impl Endpoint {
    /// Returns the rank, and the number of ranks.
    pub(crate) fn place(&self) -> (usize, usize) {
        match self {
            Self::Local(endpoint) => endpoint.place(),
            Self::Nccl(endpoint) => endpoint.place(),
            Self::Mpi(endpoint) => endpoint.place(),
        }
    }

    /// Returns whether calls can be recorded into a graph: those in which the host takes no part.
    pub(crate) fn records_calls(&self) -> bool {
        matches!(self, Self::Nccl(_))
    }

    /// Blocks until all ranks have called this, and returns the place among those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        match self {
            Self::Local(endpoint) => endpoint.split(color, key).map(Self::Local),
            Self::Nccl(endpoint) => endpoint.split(color, key).map(Self::Nccl),
            Self::Mpi(endpoint) => endpoint.split(color, key).map(Self::Mpi),
        }
    }

    /// Ends the work of the ranks together.
    pub(crate) fn abort(&self) {
        match self {
            Self::Local(endpoint) => endpoint.abort(),
            Self::Nccl(endpoint) => endpoint.abort(),
            Self::Mpi(endpoint) => endpoint.abort(),
        }
    }
}

/// Makes the calls of some ranks, so that none of them waits for another before all are made.
pub(crate) fn run<'a>(sets: impl IntoIterator<Item = (&'a Endpoint, Batch<'a>)>) -> Result<()> {
    let sets = sets.into_iter();
    // Mostly all ranks have one engine.
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
    // All are posted before any is waited for.
    let posted: Vec<_> = local.into_iter().map(|(endpoint, calls)| endpoint.post(calls.into_vec())).collect();
    let enqueued = [
        if nccl.is_empty() { Ok(()) } else { nccl::Endpoint::run(nccl) },
        if mpi.is_empty() { Ok(()) } else { mpi::Endpoint::run(mpi) },
    ];
    let outcomes: Vec<_> = posted.into_iter().map(|posted| posted.and_then(local::Posted::wait)).collect();
    outcomes.into_iter().chain(enqueued).collect()
}
