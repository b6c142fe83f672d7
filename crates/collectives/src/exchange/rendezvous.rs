//! The variables that say where ranks meet. They are read through a function, never from the process itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpustream::Result;

use super::{Exchange, FileExchange, MpiExchange, Secret, TcpExchange, TorchrunPlace};
use crate::environment;
use crate::failure::invalid;

/// The variable that says where ranks meet.
const EXCHANGE: &str = "GPUSTREAM_EXCHANGE";
/// The variable with the secret that ranks share.
const SECRET: &str = "GPUSTREAM_EXCHANGE_SECRET";

/// The place where the ranks of several processes meet, as the environment says it.
///
/// | variable | value |
/// |---|---|
/// | `GPUSTREAM_EXCHANGE` | `tcp://HOST:PORT`, an address of rank 0's, `file:/FOLDER`, which rank 0 creates, or `mpi` |
/// | `MASTER_ADDR`, `MASTER_PORT` | rank 0's address, where `GPUSTREAM_EXCHANGE` is not set |
/// | `GPUSTREAM_EXCHANGE_SECRET` | the [`Secret`] of all ranks, for TCP |
///
/// torchrun's agent usually listens at `MASTER_PORT` itself, and says so by `TORCHELASTIC_USE_AGENT_STORE=True`. Then rank 0
/// listens at the first free one of the 16 ports behind that, and the others look for it there. If all ranks are on one host
/// (`LOCAL_WORLD_SIZE` is `WORLD_SIZE`), they need no secret in the environment: processes of one user share one by a file in
/// the user's own folder among the temporary files, and rank 0 listens at the loopback interface alone.
///
/// ```
/// use std::time::Duration;
/// use gpustream_collectives::Rendezvous;
///
/// # let scratch = tempfile::tempdir().unwrap();
/// # let folder = scratch.path().join("run-1").display().to_string();
/// let place = Rendezvous::from_variables(|name| match name {
///     "GPUSTREAM_EXCHANGE" => Some(format!("file:{folder}")),
///     _ => None,
/// })?;
/// let rank_0 = place.join(0, Duration::from_secs(10))?;
/// let rank_1 = place.join(1, Duration::from_secs(10))?;
/// rank_1.put("where rank 1 is", b"here")?;
/// assert_eq!(rank_0.get("where rank 1 is", Duration::from_secs(10))?, b"here");
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Rendezvous {
    /// A [`TcpExchange`].
    Tcp {
        /// The address at which rank 0 listens, as `HOST:PORT`.
        address: String,
        /// The secret that all ranks share.
        secret: Secret,
    },
    /// A [`TcpExchange`] beside torchrun's agent.
    Torchrun(TorchrunPlace),
    /// A [`FileExchange`].
    Folder(PathBuf),
    /// An [`MpiExchange`].
    Mpi,
}

impl Rendezvous {
    /// Returns the place that the process's variables say.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) where no variable says a place, one makes no sense, or a place
    /// that other hosts reach comes without a secret.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(environment::of_process)
    }

    /// Returns the place that variables say, as [`from_env`](Self::from_env) does for those of the process.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // An empty variable counts as missing.
        let lookup = &|name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let secret = || lookup(SECRET).map(|secret| Secret::new(secret.trim())).transpose();
        let address = match lookup(EXCHANGE).as_deref().map(str::trim) {
            None => {
                let (host, port) = master(lookup)?;
                if let Some(place) = TorchrunPlace::read(lookup, (&host, port), secret()?)? {
                    return Ok(Self::Torchrun(place));
                }
                format!("{host}:{port}")
            }
            Some("mpi") => return Ok(Self::Mpi),
            Some(place) => match place.strip_prefix("tcp://") {
                Some(address) => tcp(address)?,
                None => return folder(place).map(Self::Folder),
            },
        };
        match secret()? {
            Some(secret) => Ok(Self::Tcp { address, secret }),
            None => invalid(format!(
                "the ranks meet at {address}, where any program could come, and no secret is set; make one with `openssl \
                 rand -hex 32` and give it to all ranks as {SECRET}"
            )),
        }
    }

    /// Returns the exchange of rank `rank` at this place. Rank 0 listens or creates the folder; other ranks block until rank 0
    /// has done so, `limit` at most.
    ///
    /// # Errors
    /// As for [`TcpExchange::listen`] and [`TcpExchange::connect`], [`FileExchange::create`] and [`FileExchange::open`],
    /// [`MpiExchange::join`]; [`Unsupported`](gpustream::ErrorKind::Unsupported) where MPI numbers this process otherwise.
    pub fn join(&self, rank: usize, limit: Duration) -> Result<Arc<dyn Exchange>> {
        Ok(match (self, rank) {
            (Self::Tcp { address, secret }, 0) => Arc::new(TcpExchange::listen(address, secret)?),
            (Self::Tcp { address, secret }, _) => Arc::new(TcpExchange::connect(address, secret, limit)?),
            (Self::Torchrun(place), _) => Arc::new(place.join(rank, limit)?),
            (Self::Folder(folder), 0) => Arc::new(FileExchange::create(folder)?),
            (Self::Folder(folder), _) => Arc::new(FileExchange::open(folder, limit)?),
            (Self::Mpi, _) => Arc::new(MpiExchange::join_as(rank, limit)?),
        })
    }
}

/// Returns the address that is behind `tcp://`.
fn tcp(address: &str) -> Result<String> {
    match address.trim_end_matches('/').rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(format!("{host}:{port}"))
        }
        _ => invalid(format!(
            "{EXCHANGE}=tcp://{address} is no address; give tcp://HOST:PORT, a port from 1 to 65535"
        )),
    }
}

fn folder(place: &str) -> Result<PathBuf> {
    let folder = place.strip_prefix("file://").or_else(|| place.strip_prefix("file:"));
    match folder.map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => Ok(folder),
        Some(_) => invalid(format!("{EXCHANGE}={place} names no folder from the root on; give file:/FOLDER")),
        None => invalid(format!("{EXCHANGE}={place} is no place; give tcp://HOST:PORT, file:/FOLDER or mpi")),
    }
}

/// Returns the host and the port that launchers give for rank 0.
fn master(lookup: &dyn Fn(&str) -> Option<String>) -> Result<(String, u16)> {
    let Some((host, port)) = environment::master(lookup)? else {
        return invalid(format!(
            "nothing says where the ranks meet: set {EXCHANGE} to tcp://HOST:PORT, an address of rank 0's, or to \
             file:/FOLDER, which all hosts share, or to mpi under mpirun; or set MASTER_ADDR and MASTER_PORT"
        ));
    };
    // A bare IPv6 address has colons of its own.
    Ok((if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host }, port))
}
