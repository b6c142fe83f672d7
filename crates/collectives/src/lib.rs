//! All-reduce, broadcast, send and the other collective operations for the devices of [`gpustream`], in one
//! process or in many.
//!
//! A [`World`] says how many ranks there are, and a [`Communicator`] is one of them. Every rank works on its
//! own device, and all ranks make the same calls:
//!
//! ```
//! use gpustream::{Device, Result};
//! use gpustream_collectives::{Communicator, Op, World};
//!
//! fn work(communicator: &Communicator) -> Result<()> {
//!     let stream = communicator.device().stream()?;
//!     let mut gradient = stream.full(1001, communicator.rank() as f32)?;
//!     communicator.all_reduce_in_place(&stream, &mut gradient, Op::Average)?;
//!     assert_eq!(stream.download(&gradient)?, [1.0; 1001]);
//!     Ok(())
//! }
//!
//! let device = Device::open("cpu")?;                  // any devices of one backend, such as cuda:0 and cuda:1
//! let ranks = World::local(&[device.clone(), device.clone(), device])?.communicators()?;
//! std::thread::scope(|threads| {
//!     let ranks: Vec<_> = ranks.into_iter().map(|rank| threads.spawn(move || work(&rank))).collect();
//!     ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank panicked"))
//! })?;
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! If one thread has several ranks, it must make their calls in one [`group`](fn@group), because otherwise
//! the first call would wait for the others forever.
//!
//! # Ranks of one process
//!
//! If all devices are in one process, you need to install nothing: copies between devices bring the ranks'
//! data together, and the kernels of `gpustream-kernels` combine it. The ranks meet on the host. The last one
//! to come enqueues the work of all, each rank's on the stream that it gave, and gpustream orders it with
//! everything else. This has three consequences:
//!
//! * A thread's default stream ([`DefaultStream::PerThread`](gpustream::hal::DefaultStream)) only accepts
//!   work from its own thread, so you cannot use it here.
//! * If a stream is full, the last rank to come blocks until the stream has room again, and so do all the
//!   others.
//! * You cannot record the calls into a graph; they are refused on streams that are recorded. Steps of a
//!   [`Replay`](gpustream::Replay) may contain them, but each call ends one of the step's at most 64 graphs
//!   ([`ReplayStats::beyond_limit`](gpustream::ReplayStats::beyond_limit)).
//!
//! The memory for the other ranks' data comes from the device's pool, up to 4 MiB per rank. The kernels need
//! the feature `kernels`, which is on by default. If you turn it off, you need no compiler for kernels.
//!
//! # Ranks of several processes
//!
//! [`World::from_env`] reads what torchrun, `mpirun` or `srun` told the process, an [`Exchange`] lets the processes find each other, and NCCL does the work, or RCCL on AMD GPUs ([`Engine::Nccl`]). Each rank has its own GPU:
//!
//! ```no_run
//! use gpustream::Device;
//! use gpustream_collectives::{Op, World};
//!
//! let world = World::from_env()?;
//! let device = Device::open(&format!("cuda:{}", world.local_rank().unwrap_or(0)))?;
//! let rank = world.communicator(&device)?;            // blocks until all ranks have come
//! let stream = device.stream()?;
//! let mut gradient = stream.full(1001, 1.0f32)?;
//! rank.all_reduce_in_place(&stream, &mut gradient, Op::Sum)?;
//! stream.synchronize()?;                              // here a lost rank is an error
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! [`Rendezvous`] reads the ranks' meeting place from the environment: an address for TCP, or a folder. Under
//! torchrun on one host you need to set nothing. Otherwise:
//!
//! ```console
//! $ export GPUSTREAM_EXCHANGE=tcp://node0:29600           # an address of rank 0's; or file:/FOLDER, new for each run
//! $ export GPUSTREAM_EXCHANGE_SECRET=$(openssl rand -hex 32)  # the same for all ranks
//! ```
//!
//! These ranks differ from the ranks of one process:
//!
//! * A call does not wait for other ranks on the host. There is one exception: if NCCL must first connect the
//!   ranks for a call, the call may wait up to the [time limit](CommunicatorOptions::time_limit).
//! * A missing rank is noticed on the device. Once a call's work has taken longer than the time limit, the
//!   communicator is aborted, and waiting for the streams of its calls reports
//!   [`CommunicatorFailure::Stalled`]. Later calls report it too. The other ranks of the process hear of it
//!   at once, and those of other processes find out the same way. Be careful: an abort releases the other
//!   ranks' work, which may then end without an error but with wrong data. If one process reports a broken
//!   communicator, do not use what the others have computed since.
//! * Calls that do not match are only detected if they are [checked](CommunicatorOptions::checked). Otherwise
//!   NCCL combines whatever it gets, or waits forever until the time limit ends that.
//! * You can record calls into a graph ([`Stream::capture`](gpustream::Stream::capture)); a group in a graph
//!   may only have calls of one rank, in one stream. Each launch makes the calls again, so launches count in
//!   the order of calls that all ranks must keep, and each has the time limit of a call. The graph keeps the
//!   communicator alive; it is closed once you drop both.
//! * 16-bit integers can be moved but not combined. If one of the elements is NaN, the minimum or maximum may
//!   be any of them.
//! * The streams in one group wait for each other.
//! * In one process, CUDA calls that allocate, page-lock or load a kernel may wait until all GPUs that the
//!   process uses are idle. Suppose your thread makes such a call while another rank's kernel is waiting for
//!   your thread's next collective. Then both wait forever, and even the time limit cannot help. To avoid
//!   this, let each rank first allocate, copy and make one call of each kind, or set
//!   `CUDA_MODULE_LOADING=EAGER`, or use a process for each GPU. Splits and
//!   [comparisons](CommunicatorOptions::checked) among ranks of one process are safe, because they wait on
//!   the host.
//!
//! # Ranks by MPI
//!
//! With the feature `mpi`, MPI does the work of several processes on CPU devices, and on GPUs if you [ask for
//! it](CommunicatorOptions::engine) ([`Engine::Mpi`]). `mpirun` starts the processes, and they find each
//! other through MPI. Calls, time limits and lost ranks work as with NCCL. These things differ:
//!
//! * Data goes through page-locked host memory: 4 MiB for each stream that makes calls, up to four streams,
//!   and for each call in a [`group`](fn@group). A stream's later work waits until the exchange is done.
//! * All types can be combined, and numbers win over NaN. MPI chooses the order of the ranks in a sum, and
//!   rounds `f16` and `bf16` after each step.
//! * If a message does not have the length that the receiver expects, the receiver gets an error.
//! * Making the first communicator starts MPI. That waits for all processes, without a time limit. MPI ends
//!   with the process, which then waits for the other ranks.
//!
#![warn(clippy::missing_errors_doc)]

mod call;
mod call_group;
mod call_rules;
mod check;
mod communicator;
mod compare;
mod deadline;
mod element;
mod engine;
mod environment;
mod exchange;
mod failure;
mod group;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "no_mpi.rs"]
mod mpi;
mod nccl;
mod op;
mod operations;
mod world;

pub use call_group::CallGroup;
pub use communicator::Communicator;
pub use element::Element;
pub use engine::Engine;
pub use environment::Launcher;
pub use exchange::{
    Exchange, ExchangeError, FileExchange, LocalExchange, MpiExchange, Rendezvous, Secret, TcpExchange,
    TorchrunPlace,
};
pub use failure::CommunicatorFailure;
pub use group::{Group, group};
pub use op::Op;
pub use world::{CommunicatorOptions, World};
