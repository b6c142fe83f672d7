//! Worlds: how many ranks there are, and which of them this process is.

use std::sync::Arc;
use std::time::Duration;

use gpustream::{Device, Error, ErrorKind, Result};

use crate::call::in_call;
use crate::call_rules::CallRules;
use crate::communicator::Communicator;
use crate::engine::{Endpoint, Engine};
use crate::environment::{self, LaunchedProcess, Launcher};
use crate::exchange::{Exchange, Rendezvous};
use crate::failure::invalid;
use crate::{local, mpi, nccl};

/// The ranks that work together, and this process's among them. Communicators are made from it.
///
/// ```
/// use gpustream::Device;
/// use gpustream_collectives::World;
///
/// let devices: Vec<Device> =
///     Device::all().into_iter().flatten().filter(|device| device.info().backend == gpustream::BackendName::CPU).collect();
/// let world = World::local(&devices)?;
/// let communicators = world.communicators()?;
/// assert_eq!(communicators.len(), world.size());
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct World {
    ranks: Ranks,
    /// The place where processes meet; `None` for the one that the environment names.
    exchange: Option<Arc<dyn Exchange>>,
}

#[derive(Clone, Debug)]
enum Ranks {
    /// One rank in each of several processes.
    Told(LaunchedProcess),
    /// The one rank of the one process.
    Alone,
    /// All ranks in this process.
    Devices(Vec<Device>),
}

impl World {
    /// Returns the world in which a launcher started this process: the first of the sets of variables in [`Launcher`] that
    /// is complete. There is no default: a program that was not started by a launcher asks for
    /// [`alone`](Self::alone) or [`local`](Self::local) itself.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where no set is complete, with the names of the variables that are missing, and where
    /// a variable makes no sense.
    #[track_caller]
    pub fn from_env() -> Result<Self> {
        in_call("from_env", Self::of_variables(environment::of_process))
    }

    /// Returns the world that variables describe, as [`from_env`](Self::from_env) does for those of the process.
    ///
    /// ```
    /// use gpustream_collectives::{Launcher, World};
    /// let world = World::from_variables(|name| match name {
    ///     "SLURM_PROCID" => Some("5".into()),
    ///     "SLURM_NTASKS" => Some("8".into()),
    ///     "SLURM_LOCALID" => Some("1".into()),
    ///     _ => None,
    /// })?;
    /// assert_eq!((world.rank(), world.size(), world.local_rank()), (5, 8, Some(1)));
    /// assert_eq!(world.launcher(), Some(Launcher::Slurm));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    #[track_caller]
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        in_call("from_variables", Self::of_variables(lookup))
    }

    fn of_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Ok(Self::of(Ranks::Told(environment::read(&lookup)?)))
    }

    /// Returns the world of one rank, this process.
    pub fn alone() -> Self {
        Self::of(Ranks::Alone)
    }

    /// Returns the world in which each of this process's `devices` is a rank, in their order. A device may be given several
    /// times.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] without a device, [`ErrorKind::Unsupported`] for devices of different backends.
    #[track_caller]
    pub fn local(devices: &[Device]) -> Result<Self> {
        in_call("local", Self::of_devices(devices))
    }

    fn of_devices(devices: &[Device]) -> Result<Self> {
        let Some(first) = devices.first() else {
            return invalid("a world of no devices; give one device for each rank");
        };
        let backend = first.info().backend;
        if let Some(other) = devices.iter().find(|device| device.info().backend != backend) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a world of {backend}:{} and {}:{}: the devices of a world are of one backend; make a world for each, \
                     and copy between them through the host",
                    first.info().ordinal,
                    other.info().backend,
                    other.info().ordinal
                ),
            ));
        }
        Ok(Self::of(Ranks::Devices(devices.to_vec())))
    }

    fn of(ranks: Ranks) -> Self {
        Self { ranks, exchange: None }
    }

    /// Sets the place where the ranks of several processes meet. Without it [`Rendezvous::from_env`] says where.
    #[must_use]
    pub fn with_exchange(mut self, exchange: Arc<dyn Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Returns what a launcher told, where one did.
    fn told(&self) -> Option<&LaunchedProcess> {
        match &self.ranks {
            Ranks::Told(told) => Some(told),
            Ranks::Alone | Ranks::Devices(_) => None,
        }
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        match &self.ranks {
            Ranks::Told(told) => told.size,
            Ranks::Alone => 1,
            Ranks::Devices(devices) => devices.len(),
        }
    }

    /// Returns this process's rank: the lowest one where it has several.
    pub fn rank(&self) -> usize {
        self.told().map_or(0, |told| told.rank)
    }

    /// Returns this process's number among those on the same host, which is by custom the number of its GPU; the lowest one
    /// where it has several. `None` where the launcher does not tell.
    pub fn local_rank(&self) -> Option<usize> {
        self.told().map_or(Some(0), |told| told.local_rank)
    }

    /// Returns the launcher whose variables were read.
    pub fn launcher(&self) -> Option<Launcher> {
        self.told().map(|told| told.launcher)
    }

    /// Returns the host and port of rank 0, where `MASTER_ADDR` and `MASTER_PORT` tell them. Nothing listens there by itself.
    pub fn master(&self) -> Option<(&str, u16)> {
        let (address, port) = self.told()?.master.as_ref()?;
        Some((address, *port))
    }

    /// Makes the communicator of this process's one rank, which works on `device`. Among several processes the ranks meet at
    /// the [exchange](Self::with_exchange), or by MPI itself, and this blocks until all have come. An exchange serves one
    /// communicator; others come from it by [`split`](Communicator::split).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the engine does not suit the device, or its library is not installed, and by NCCL for
    /// several ranks on one GPU; [`ErrorKind::InvalidArgument`] for a world of local devices, whose ranks
    /// [`communicators`](Self::communicators) makes, and where nothing says where the ranks meet; the errors of the exchange
    /// and of loading kernels; [`ErrorKind::External`], with a [`CommunicatorFailure`](crate::CommunicatorFailure) as source, where not all ranks come
    /// within the time limit.
    #[track_caller]
    pub fn communicator(&self, device: &Device) -> Result<Communicator> {
        in_call("communicator", self.one(device, CommunicatorOptions::default()))
    }

    /// Makes the communicator that [`communicator`](Self::communicator) makes, with options.
    ///
    /// # Errors
    /// As for [`communicator`](Self::communicator).
    #[track_caller]
    pub fn communicator_with(&self, device: &Device, options: CommunicatorOptions) -> Result<Communicator> {
        in_call("communicator_with", self.one(device, options))
    }

    fn one(&self, device: &Device, options: CommunicatorOptions) -> Result<Communicator> {
        if let Ranks::Devices(devices) = &self.ranks {
            return invalid(format!(
                "one communicator for a world of {} local devices; `communicators` makes one for each",
                devices.len()
            ));
        }
        let (rank, size) = (self.rank(), self.size());
        if size == 1 && options.engine != Some(Engine::Mpi) {
            let made = communicators(std::slice::from_ref(device), options)?.pop();
            return made.ok_or_else(|| Error::unsupported("a world of no ranks"));
        }
        // All ranks choose alike, whatever is installed where.
        let usual = if device.info().backend == gpustream::BackendName::CPU && cfg!(feature = "mpi") {
            Engine::Mpi
        } else {
            Engine::Nccl
        };
        let endpoint = match options.engine.unwrap_or(usual) {
            Engine::Local => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "this process is rank {rank} of {size}, and the engine `Local` serves one process; use `World::local` \
                         for several devices of one process"
                    ),
                ));
            }
            Engine::Nccl => {
                nccl::Vendor::of(device.info().backend).map_err(|error| {
                    error.with_context(format_args!("this process is rank {rank} of {size}"))
                })?;
                let terms = options.terms()?;
                let exchange = match &self.exchange {
                    Some(exchange) => exchange.clone(),
                    None => Rendezvous::from_env()?.join(rank, terms.limit)?,
                };
                Endpoint::Nccl(nccl::Endpoint::of_process((rank, size), device, &*exchange, terms)?)
            }
            Engine::Mpi => Endpoint::Mpi(mpi::Endpoint::of_process((rank, size), device, options.terms()?)?),
        };
        Ok(Communicator::new(endpoint, device.clone()))
    }

    /// Makes the communicators of a world of [local](Self::local) devices, one for each rank, in the order of the ranks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a world whose ranks are processes; otherwise as for
    /// [`communicator`](Self::communicator).
    #[track_caller]
    pub fn communicators(&self) -> Result<Vec<Communicator>> {
        in_call("communicators", self.all(CommunicatorOptions::default()))
    }

    /// Makes the communicators that [`communicators`](Self::communicators) makes, with options.
    ///
    /// # Errors
    /// As for [`communicators`](Self::communicators).
    #[track_caller]
    pub fn communicators_with(&self, options: CommunicatorOptions) -> Result<Vec<Communicator>> {
        in_call("communicators_with", self.all(options))
    }

    fn all(&self, options: CommunicatorOptions) -> Result<Vec<Communicator>> {
        let Ranks::Devices(devices) = &self.ranks else {
            return invalid(
                "the ranks of this world are processes: give this one's device to `communicator`",
            );
        };
        communicators(devices, options)
    }
}

/// Makes the communicators of devices that are all in this process.
fn communicators(devices: &[Device], options: CommunicatorOptions) -> Result<Vec<Communicator>> {
    let endpoints: Vec<Endpoint> = match options.engine.unwrap_or(Engine::Local) {
        Engine::Local => {
            local::Endpoint::of_devices(devices, options.limit()?)?.into_iter().map(Endpoint::Local).collect()
        }
        Engine::Nccl => {
            nccl::Endpoint::of_devices(devices, options.terms()?)?.into_iter().map(Endpoint::Nccl).collect()
        }
        Engine::Mpi => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "MPI has one rank in each process; start a process for each device with `mpirun`, and make the world with \
                 `World::from_env`",
            ));
        }
    };
    Ok(endpoints
        .into_iter()
        .zip(devices)
        .map(|(endpoint, device)| Communicator::new(endpoint, device.clone()))
        .collect())
}

/// Options of communicators.
///
/// ```
/// use std::time::Duration;
/// use gpustream_collectives::CommunicatorOptions;
/// let options = CommunicatorOptions::default().time_limit(Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommunicatorOptions {
    time_limit: Option<Duration>,
    engine: Option<Engine>,
    checked: Option<bool>,
}

impl CommunicatorOptions {
    /// Sets how long a rank waits for the others before the communicator breaks: with [`Engine::Local`] for their calls, with
    /// [`Engine::Nccl`] and [`Engine::Mpi`] for the end of the work, from the time at which the stream comes to it. With
    /// [`Engine::Nccl`], calls of at most 4 MiB that follow each other directly in a stream have that time together, up to
    /// sixteen of them. While a communicator is made, the ranks wait as long for each other. Without this the limit is
    /// `GPUSTREAM_COLLECTIVES_TIMEOUT` in seconds, or else ten minutes.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the engine. Without this it is [`Engine::Local`] for the devices of one process, [`Engine::Nccl`] for several
    /// processes, or [`Engine::Mpi`] on CPU devices in a build with the feature `mpi`.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Sets whether the ranks compare their calls before NCCL or MPI gets them: calls that differ, which these would combine anyhow or
    /// wait for without end, are [`CommunicatorFailure::Different`](crate::CommunicatorFailure::Different) on every rank, and the ranks are named. Each
    /// call then blocks the host until the other ranks have come to it. Groups are compared call by call; sends and receives
    /// are not compared. Without this the calls are compared where `GPUSTREAM_COLLECTIVES_CHECKED` is 1. [`Engine::Local`]
    /// always compares them, sends and receives too.
    ///
    /// ```
    /// use gpustream_collectives::{CommunicatorOptions, Engine};
    /// let options = CommunicatorOptions::default().engine(Engine::Nccl).checked(true);
    /// ```
    #[must_use]
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = Some(checked);
        self
    }

    fn terms(self) -> Result<CallRules> {
        let checked = self.checked.map_or_else(|| environment::checked(&environment::of_process), Ok)?;
        Ok(CallRules { limit: self.limit()?, checked })
    }

    fn limit(self) -> Result<Duration> {
        self.time_limit.map_or_else(|| environment::time_limit(&environment::of_process), Ok)
    }
}
