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

/// The ranks that work together, and which of them this process has. You make communicators from it.
///
/// ```
/// use gpustream::Device;
/// use gpustream_collectives::World;
///
/// let world = World::local(&Device::all_of("cpu")?)?;
/// let communicators = world.communicators()?;
/// assert_eq!(communicators.len(), world.size());
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct World {
    ranks: Ranks,
    /// Where processes meet. `None` means the place that the environment names.
    exchange: Option<Arc<dyn Exchange>>,
}

#[derive(Clone, Debug)]
enum Ranks {
    /// One rank in each of several processes, as a launcher told us.
    Launched(LaunchedProcess),
    /// A single rank in a single process.
    Alone,
    Devices(Vec<Device>),
}

impl World {
    /// Returns the world that a launcher started this process in, from the first complete set of variables in
    /// [`Launcher`]. There is no default, because a wrong guess would silently compute with too few ranks. If
    /// no launcher started your program, call [`alone`](Self::alone) or [`local`](Self::local).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if no set is complete (the error names the missing variables), or if a variable makes no sense.
    #[track_caller]
    pub fn from_env() -> Result<Self> {
        in_call("from_env", Self::of_variables(environment::of_process))
    }

    /// Like [`from_env`](Self::from_env), but reads the variables through `lookup`.
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
    /// Those of [`from_env`](Self::from_env).
    #[track_caller]
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        in_call("from_variables", Self::of_variables(lookup))
    }

    fn of_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Ok(Self::of(Ranks::Launched(environment::read(&lookup)?)))
    }

    /// Returns a world of one rank, this process.
    pub fn alone() -> Self {
        Self::of(Ranks::Alone)
    }

    /// Returns a world with a rank for each of `devices`, in this order. A device may occur several times.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no device. [`ErrorKind::Unsupported`] if the devices belong to different backends.
    #[track_caller]
    pub fn local(devices: &[Device]) -> Result<Self> {
        in_call("local", Self::of_devices(devices))
    }

    fn of_devices(devices: &[Device]) -> Result<Self> {
        let Some(first) = devices.first() else {
            return invalid("`World::local` got no devices; give one device for each rank");
        };
        let backend = first.info().backend;
        if let Some(other) = devices.iter().find(|device| device.info().backend != backend) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a world cannot have both {backend}:{} and {}:{}, because all its devices must belong to one backend; make a world for each, \
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

    /// Sets the place that the ranks of several processes meet at. The default is what
    /// [`Rendezvous::from_env`] returns.
    #[must_use]
    pub fn with_exchange(mut self, exchange: Arc<dyn Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Returns what a launcher told us, if there is one.
    fn launched(&self) -> Option<&LaunchedProcess> {
        match &self.ranks {
            Ranks::Launched(process) => Some(process),
            Ranks::Alone | Ranks::Devices(_) => None,
        }
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        match &self.ranks {
            Ranks::Launched(process) => process.size,
            Ranks::Alone => 1,
            Ranks::Devices(devices) => devices.len(),
        }
    }

    /// Returns this process's rank. If it has several, returns the lowest.
    pub fn rank(&self) -> usize {
        self.launched().map_or(0, |process| process.rank)
    }

    /// Returns this process's number among those on the same host. By convention it is also the number of its
    /// GPU. If the process has several ranks, returns the lowest. `None` if the launcher does not tell us.
    pub fn local_rank(&self) -> Option<usize> {
        self.launched().map_or(Some(0), |process| process.local_rank)
    }

    /// Returns the launcher whose variables we read.
    pub fn launcher(&self) -> Option<Launcher> {
        self.launched().map(|process| process.launcher)
    }

    /// Returns rank 0's host and port, if `MASTER_ADDR` and `MASTER_PORT` are set. We do not start anything
    /// that listens there.
    pub fn master(&self) -> Option<(&str, u16)> {
        let (address, port) = self.launched()?.master.as_ref()?;
        Some((address, *port))
    }

    /// Makes the communicator for the only rank of this process. The rank works on `device`. If there are
    /// several processes, they meet at the [exchange](Self::with_exchange) or through MPI, and this call
    /// blocks until all have come. An exchange serves one communicator; get more by calling
    /// [`split`](Communicator::split).
    ///
    /// # Errors
    /// * [`ErrorKind::Unsupported`] if the engine does not support the device, if its library is not
    ///   installed, or, with NCCL, if several ranks share a GPU.
    /// * [`ErrorKind::InvalidArgument`] if this is a world of local devices (use
    ///   [`communicators`](Self::communicators)), or if you have not said how the ranks can find each other.
    /// * [`ErrorKind::External`], with a [`CommunicatorFailure`](crate::CommunicatorFailure) as its source,
    ///   if some rank does not come within the time limit.
    /// * The errors of the exchange and of loading kernels.
    #[track_caller]
    pub fn communicator(&self, device: &Device) -> Result<Communicator> {
        in_call("communicator", self.one(device, CommunicatorOptions::default()))
    }

    /// Like [`communicator`](Self::communicator), with options.
    ///
    /// # Errors
    /// Those of [`communicator`](Self::communicator).
    #[track_caller]
    pub fn communicator_with(&self, device: &Device, options: CommunicatorOptions) -> Result<Communicator> {
        in_call("communicator_with", self.one(device, options))
    }

    fn one(&self, device: &Device, options: CommunicatorOptions) -> Result<Communicator> {
        if let Ranks::Devices(devices) = &self.ranks {
            return invalid(format!(
                "this world has {} local devices; `communicators` makes a communicator for each",
                devices.len()
            ));
        }
        let (rank, size) = (self.rank(), self.size());
        if size == 1 && options.engine != Some(Engine::Mpi) {
            let made = communicators(std::slice::from_ref(device), options)?.pop();
            return made.ok_or_else(|| Error::unsupported("a world without ranks"));
        }
        // All ranks must make the same choice, so it cannot depend on what is installed.
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
                        "this process is rank {rank} of {size}, but the engine `Local` only works within one process; use `World::local` \
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

    /// Makes the communicators of a world of [local](Self::local) devices, one for each rank, in the order of
    /// the ranks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the ranks of this world are processes. Otherwise those of [`communicator`](Self::communicator).
    #[track_caller]
    pub fn communicators(&self) -> Result<Vec<Communicator>> {
        in_call("communicators", self.all(CommunicatorOptions::default()))
    }

    /// Like [`communicators`](Self::communicators), with options.
    ///
    /// # Errors
    /// Those of [`communicators`](Self::communicators).
    #[track_caller]
    pub fn communicators_with(&self, options: CommunicatorOptions) -> Result<Vec<Communicator>> {
        in_call("communicators_with", self.all(options))
    }

    fn all(&self, options: CommunicatorOptions) -> Result<Vec<Communicator>> {
        let Ranks::Devices(devices) = &self.ranks else {
            return invalid(
                "the ranks of this world are processes; make this process's communicator with `communicator` and its device",
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
                "with MPI each process has one rank; start a process for each device with `mpirun`, and make the world with \
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
    /// Sets how long a rank waits for the others before the communicator fails. With [`Engine::Local`] this
    /// is the wait for the other ranks' calls. With [`Engine::Nccl`] and [`Engine::Mpi`] it is the time for
    /// the work to end, counted from when the stream reaches it. With [`Engine::Nccl`], up to sixteen calls
    /// of at most 4 MiB each share one limit if they directly follow each other in a stream. The limit also
    /// applies while a communicator is made. The default is `GPUSTREAM_COLLECTIVES_TIMEOUT` in seconds, or
    /// else ten minutes.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the engine. The default is [`Engine::Local`] for devices of one process, and [`Engine::Nccl`] for
    /// several processes, except that CPU devices use [`Engine::Mpi`] if the feature `mpi` is on.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Sets whether the ranks compare their calls before NCCL or MPI gets them. NCCL and MPI would combine
    /// calls that differ anyway, or wait for them forever. If you turn this on, every rank instead gets a
    /// [`CommunicatorFailure::Different`](crate::CommunicatorFailure::Different) that names the ranks. The
    /// price is that each call blocks the host until the other ranks have come to it. Groups are compared
    /// call by call, but sends and receives are not compared. The default is on if
    /// `GPUSTREAM_COLLECTIVES_CHECKED` is 1. [`Engine::Local`] always compares calls, including sends and
    /// receives.
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
