//! The variables for the place that ranks meet at. We read them through a function, so that tests need not
//! change the environment of the process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpustream::Result;

use super::{Exchange, FileExchange, MpiExchange, Secret, TcpExchange, TorchrunPlace};
use crate::environment;
use crate::failure::invalid;

/// The variable for the place that ranks meet at.
const EXCHANGE: &str = "GPUSTREAM_EXCHANGE";
/// The variable for the secret that ranks share.
const SECRET: &str = "GPUSTREAM_EXCHANGE_SECRET";

/// Where the ranks of several processes meet, according to the environment.
///
/// | variable | value |
/// |---|---|
/// | `GPUSTREAM_EXCHANGE` | `tcp://HOST:PORT`, rank 0's address; `file:/FOLDER`, which rank 0 creates; or `mpi` |
/// | `MASTER_ADDR`, `MASTER_PORT` | rank 0's address, if `GPUSTREAM_EXCHANGE` is not set |
/// | `GPUSTREAM_EXCHANGE_SECRET` | the [`Secret`] of all ranks, for TCP |
///
/// torchrun's agent usually listens at `MASTER_PORT` itself, and says so with
/// `TORCHELASTIC_USE_AGENT_STORE=True`. Rank 0 then listens at the first free one of the next 16 ports, and
/// the others look for it there. If all ranks are on one host (`LOCAL_WORLD_SIZE` equals `WORLD_SIZE`), you
/// need no secret in the environment: the user's processes share one through a file in a private temporary
/// folder, and rank 0 only listens at the loopback interface.
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
        /// The address that rank 0 listens at: `HOST:PORT`.
        address: String,
        /// The secret that all ranks share.
        secret: Secret,
    },
    /// A [`TcpExchange`] next to torchrun's agent.
    Torchrun(TorchrunPlace),
    /// A [`FileExchange`].
    Folder(PathBuf),
    /// An [`MpiExchange`].
    Mpi,
}

impl Rendezvous {
    /// Returns the place that the process's variables describe.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if no variable names a place, if one makes no sense, or if other hosts can reach the place and there is no secret.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(environment::of_process)
    }

    /// Like [`from_env`](Self::from_env), but reads the variables through `lookup`.
    ///
    /// # Errors
    /// Those of [`from_env`](Self::from_env).
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
                "the ranks meet at {address}, where any program could connect, but no secret is set; make one with `openssl \
                 rand -hex 32` and give it to all ranks as {SECRET}"
            )),
        }
    }

    /// Returns rank `rank`'s exchange at this place. Rank 0 listens or creates the folder. The other ranks
    /// block until it has done so, at most for `limit`.
    ///
    /// # Errors
    /// Those of [`TcpExchange::listen`] and [`TcpExchange::connect`], of [`FileExchange::create`] and
    /// [`FileExchange::open`], or of [`MpiExchange::join`].
    /// [`Unsupported`](gpustream::ErrorKind::Unsupported) if MPI gave this process another number.
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

/// Returns the address after `tcp://`.
fn tcp(address: &str) -> Result<String> {
    match address.trim_end_matches('/').rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(format!("{host}:{port}"))
        }
        _ => invalid(format!(
            "{EXCHANGE}=tcp://{address} is not an address; give tcp://HOST:PORT, with a port from 1 to 65535"
        )),
    }
}

fn folder(place: &str) -> Result<PathBuf> {
    let folder = place.strip_prefix("file://").or_else(|| place.strip_prefix("file:"));
    match folder.map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => Ok(folder),
        Some(_) => invalid(format!("{EXCHANGE}={place} is not an absolute path; give file:/FOLDER")),
        None => invalid(format!(
            "{EXCHANGE}={place} does not say where the ranks meet; give tcp://HOST:PORT, file:/FOLDER or mpi"
        )),
    }
}

/// Returns the host and port that launchers set for rank 0.
fn master(lookup: &dyn Fn(&str) -> Option<String>) -> Result<(String, u16)> {
    let Some((host, port)) = environment::master(lookup)? else {
        return invalid(format!(
            "nothing says where the ranks meet; set {EXCHANGE} to tcp://HOST:PORT, which is rank 0's address, or to \
             file:/FOLDER, which all hosts must share, or to mpi under mpirun; or set MASTER_ADDR and MASTER_PORT"
        ));
    };
    // A bare IPv6 address contains colons itself.
    Ok((if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host }, port))
}
