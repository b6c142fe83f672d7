//! The ranks of an example: the devices of this process, or the processes that a launcher started.

use std::error::Error;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::{io, iter};

use anyhow::{Context, Result, bail, ensure};
use gpustream::hal::Backend;
use gpustream::{Device, DeviceOptions, backends, best_backend};
use gpustream_collectives::{Communicator, CommunicatorFailure, World};

use crate::DeviceArg;

/// The variables by which launchers tell a process its rank: torchrun, Open MPI, PMI (MPICH, Hydra), SLURM.
const RANK_VARIABLES: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// The options of an example with several ranks.
#[derive(clap::Args, Clone, Debug)]
pub struct RanksArg {
    #[command(flatten)]
    device: DeviceArg,
    /// Ranks in this process, which share the devices of one backend, the one of `--device` [default: one for each device;
    /// where mpirun, torchrun or srun started this process, it is one rank of theirs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
}

impl RanksArg {
    /// Calls `work` for each rank of this process: once in a launcher's world, otherwise on a thread for each rank.
    ///
    /// # Errors
    /// The error of `work`: of several ranks' errors one that is not only about another rank. The errors of opening devices
    /// and of meeting the other ranks.
    pub fn run(&self, work: impl Fn(&Communicator) -> Result<()> + Sync) -> Result<()> {
        let launched = RANK_VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some());
        if let (Some(variable), None) = (launched, self.ranks) {
            let world = World::from_env().with_context(|| {
                format!(
                    "{variable} says that a launcher started this process; `--ranks N` uses this process's devices alone"
                )
            })?;
            return work(&world.communicator(&self.device_in(&world)?)?);
        }
        let communicators = World::local(&self.devices()?)?.communicators()?;
        let outcomes: Vec<Result<()>> = thread::scope(|threads| {
            // Each thread owns its rank, so that the others hear at once when it ends.
            let work = &work;
            let spawn = |rank| thread::Builder::new().spawn_scoped(threads, move || work(&rank));
            let spawned: Vec<_> = communicators.into_iter().map(spawn).collect();
            let join = |thread: io::Result<ScopedJoinHandle<'_, Result<()>>>| {
                let thread = thread.context("there is no thread for this rank: give fewer --ranks")?;
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            spawned.into_iter().map(join).collect()
        });
        let mut errors: Vec<_> = outcomes
            .into_iter()
            .enumerate()
            .filter_map(|(rank, outcome)| Some(outcome.err()?.context(format!("rank {rank}"))))
            .collect();
        // A rank that fails is an error on the others, too.
        errors.sort_by_key(|error| error.chain().any(<dyn Error>::is::<CommunicatorFailure>));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Opens the devices of this process's ranks.
    fn devices(&self) -> Result<Vec<Device>> {
        let first = self.device.open()?; // for its error, which lists the devices
        let backend = first.info().backend;
        let count = backend_named(backend.as_str())?.device_count()?;
        let devices = (0..count).map(|ordinal| Device::open(&format!("{backend}:{ordinal}")));
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        let ranks = self.ranks.map_or(devices.len(), usize::from);
        Ok(iter::repeat_n(devices, ranks).flatten().take(ranks).collect())
    }

    /// Opens the device of this process among those on its host.
    fn device_in(&self, world: &World) -> Result<Device> {
        let backend = match self.device.given() {
            Some(name) => backend_named(name.split(':').next().unwrap_or_default())?,
            None => best_backend()?,
        };
        let ordinal = match (backend.device_count()?, world.local_rank()) {
            // The CPU, or the one GPU that the launcher shows this process.
            (1, _) => 0,
            (count, Some(local)) => {
                ensure!(
                    local < count,
                    "this process is number {local} on its host, which has {count} devices of {}: start one process for \
                     each device",
                    backend.name()
                );
                local
            }
            (count, None) => bail!(
                "{:?} does not tell this process's number on its host, which has {count} devices of {}: let it show each \
                 process one device",
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
