//! All-reduce, broadcast, send and their kin between the devices of [`gpustream`], in one process or in many.
//!
//! A [`World`] says how many ranks there are, and a [`Communicator`] is one of them. Every rank works on a device of its own,
//! and all of them make the same calls:
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
//! A thread may have several ranks, and then makes their calls in one [`group`](fn@group).
//!
//! # Ranks of one process
//!
//! The devices of one process need nothing installed: copies between devices bring the ranks' parts together, and the kernels
//! of `gpustream-kernels` combine them. The ranks meet on the host. The last one that comes enqueues the work of all, each
//! rank's on the stream that it gave, and the library's tracker puts it in order with everything else. Three consequences:
//!
//! * A thread's default stream ([`DefaultStream::PerThread`](gpustream::hal::DefaultStream)) takes work from its own thread
//!   alone, so it suits no rank.
//! * A stream that has no room blocks the rank that comes last, and with it the others, until the stream has room again.
//! * A graph cannot contain the calls, and they are refused on streams that are recorded. Runs of a
//!   [`Replay`](gpustream::Replay) can contain them.
//!
//! Memory for the parts of the other ranks comes from the device's pool: up to 4 MiB for each rank. The kernels are the
//! feature `kernels`, which is on by default; a build without them needs no compiler for kernels.
//!
//! # Ranks of several processes
//!
//! [`World::from_env`] reads what torchrun, `mpirun` and `srun` tell their processes, an [`Exchange`] lets them meet, and NCCL
//! does the work, or RCCL on AMD GPUs ([`Engine::Nccl`]). Each rank has a GPU of its own:
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
//! [`Rendezvous`] reads from the environment where the ranks meet, over TCP or in a folder. Under torchrun on one host nothing has to
//! be set; otherwise
//!
//! ```console
//! $ export GPUSTREAM_EXCHANGE=tcp://node0:29600           # an address of rank 0's; or file:/FOLDER, new for each run
//! $ export GPUSTREAM_EXCHANGE_SECRET=$(openssl rand -hex 32)  # the same for all ranks
//! ```
//!
//! These ranks differ from those of one process:
//!
//! * A call waits for no other rank on the host, except where NCCL has yet to connect the two, and then up to the
//!   [time limit](CommunicatorOptions::time_limit).
//! * A rank that does not come is noticed on the device: once its work has lasted beyond the
//!   [time limit](CommunicatorOptions::time_limit), the communicator is aborted, and waits for the streams of its calls, and for
//!   those that come after, report [`CommunicatorFailure::Stalled`]. The other ranks of the process hear of it at once, and those of other
//!   processes find out in the same way. Mind that an abort lets their work go: it may end without an error, and with wrong
//!   data. If a process reports a broken communicator, do not use what others have computed since.
//! * Calls that do not go together are found out where they are [checked](CommunicatorOptions::checked). Else NCCL combines
//!   the elements it is given, or waits for ever, which the time limit ends.
//! * Calls can be recorded into a graph ([`Stream::capture`](gpustream::Stream::capture)), those of a group for one rank and in one
//!   stream. Each launch makes them anew, in the order that all ranks keep to, and has the time limit as one call does. The graph
//!   keeps the communicator, which is closed once both are dropped.
//! * Integers of 16 bits are moved and not combined, and the smallest and the largest of elements with a NaN among them is any.
//! * The streams of one group wait for each other.
//! * In one process, calls of CUDA's that allocate, page-lock or load a kernel may wait until all its GPUs are idle. A thread
//!   that makes one while another rank's work waits for this thread's call waits for ever, and the time limit cannot end that. Let
//!   each rank allocate, copy and make a call of each kind first, set `CUDA_MODULE_LOADING=EAGER`, or give each GPU a process.
//!   Splits and [comparisons](CommunicatorOptions::checked) of ranks that are all in one process wait on the host.
//!
//! # Ranks by MPI
//!
//! With the feature `mpi`, MPI does the work of several processes on CPU devices, and on GPUs where
//! [asked for](CommunicatorOptions::engine) ([`Engine::Mpi`]). `mpirun` starts the processes, which meet by MPI itself.
//! Calls, time limits and lost ranks are as with NCCL, and these differ:
//!
//! * Memory goes through page-locked memory of the host: 4 MiB for each stream that makes calls, up to four, and for each
//!   call of a [`group`](fn@group). A stream holds up its later work until the exchange is done.
//! * All types are combined, and NaN gives way to numbers. The order of the ranks in a sum is MPI's, and `f16` and `bf16` are
//!   rounded after each of them.
//! * A message whose length differs from what is received is an error of the receiver's.
//! * Making a communicator begins MPI, for which all processes have to come without a time limit. MPI ends with the process,
//!   which then waits for the other ranks.
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
