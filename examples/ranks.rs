//! Decides who the ranks of an example are: threads of this process, or the processes that a launcher started.
//!
//! `poisson` and `data_parallel` use this. `docs/ranks.md` shows how you start them.

use std::error::Error;
use std::io;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, bail, ensure};
use gpustream::hal::Backend;
use gpustream::{Device, DeviceOptions, backends, best_backend};
use gpustream_collectives::{Communicator, CommunicatorFailure, World};

use crate::DeviceArg;

/// The variables in which launchers tell a process its rank: torchrun, Open MPI, PMI (MPICH, Hydra), SLURM.
const RANK_VARIABLES: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// The options of an example with several ranks.
#[derive(clap::Args, Clone, Debug)]
pub struct RanksArg {
    #[command(flatten)]
    device: DeviceArg,
    /// Ranks in this process, which share the devices of one backend (the backend of `--device`) [default: one for each
    /// device; but if mpirun, torchrun or srun started this process, it is one rank of theirs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
}

impl RanksArg {
    /// Calls `work` for each rank of this process: once if a launcher started the process, otherwise on a thread for each
    /// rank.
    ///
    /// # Errors
    /// Fails if a device cannot be opened, if the ranks cannot meet, or if `work` fails. If several ranks fail, returns an
    /// error that says the reason, and not one that only says that another rank has failed.
    pub fn run(&self, work: impl Fn(&Communicator) -> Result<()> + Sync) -> Result<()> {
        let launched = RANK_VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some());
        if let (Some(variable), None) = (launched, self.ranks) {
            let world = World::from_env().with_context(|| {
                format!(
                    "{variable} says that a launcher started this process; with `--ranks N` you use only this process's devices"
                )
            })?;
            return work(&world.communicator(&self.device_in(&world)?)?);
        }
        let devices = self.device.open_parts(|devices| self.ranks.map_or(devices, usize::from))?;
        let communicators = World::local(&devices)?.communicators()?;
        let outcomes: Vec<Result<()>> = thread::scope(|threads| {
            // Each thread owns its communicator and drops it when it ends, so the other ranks notice at once.
            let work = &work;
            let spawn = |rank| thread::Builder::new().spawn_scoped(threads, move || work(&rank));
            let spawned: Vec<_> = communicators.into_iter().map(spawn).collect();
            let join = |thread: io::Result<ScopedJoinHandle<'_, Result<()>>>| {
                let thread = thread.context("cannot start a thread for this rank: give fewer --ranks")?;
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            spawned.into_iter().map(join).collect()
        });
        let mut errors: Vec<_> = outcomes
            .into_iter()
            .enumerate()
            .filter_map(|(rank, outcome)| Some(outcome.err()?.context(format!("rank {rank}"))))
            .collect();
        // If one rank fails, the others get an error too. Put those last, because they do not say the reason.
        errors.sort_by_key(|error| error.chain().any(<dyn Error>::is::<CommunicatorFailure>));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Opens this process's own device. If its host has several devices, the launcher must have given the process a number
    /// there.
    fn device_in(&self, world: &World) -> Result<Device> {
        let backend = match self.device.given() {
            Some(name) => backend_named(name.split(':').next().unwrap_or_default())?,
            None => best_backend()?,
        };
        let ordinal = match (backend.device_count()?, world.local_rank()) {
            // The CPU, or the only GPU that the launcher lets this process see.
            (1, _) => 0,
            (count, Some(local)) => {
                ensure!(
                    local < count,
                    "this process is number {local} on its host, which has {count} devices of {}: start at most one \
                     process for each device",
                    backend.name()
                );
                local
            }
            (count, None) => bail!(
                "{:?} does not tell this process's number on its host, which has {count} devices of {}: make it show each \
                 process only one device",
                world.launcher(),
                backend.name()
            ),
        };
        Ok(Device::open_on(backend, ordinal, DeviceOptions::default())?)
    }
}

fn backend_named(name: &str) -> Result<&'static dyn Backend> {
    let found = backends().into_iter().find(|backend| backend.name().as_str() == name);
    found.with_context(|| format!("there is no backend named `{name}` in this program"))
}
