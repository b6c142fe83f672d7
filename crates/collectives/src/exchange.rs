//! How ranks in several processes pass each other bytes before they have a communicator.

mod error;
mod file;
mod local;
mod mpi;
mod rendezvous;
mod store;
mod tcp;
mod torchrun;

pub use error::ExchangeError;
pub use file::FileExchange;
pub use local::LocalExchange;
pub use mpi::MpiExchange;
pub use rendezvous::Rendezvous;
pub use tcp::{Secret, TcpExchange};
pub use torchrun::TorchrunPlace;

use std::fmt;
use std::time::Duration;

use gpustream::Result;

use crate::failure::invalid;

/// A place for all ranks to leave bytes for each other before they have a communicator: the id that NCCL's
/// ranks use to connect, the address of a rank, or checksums of their calls.
///
/// A key is a name of 1 to 200 bytes, and its value may have up to 1 MiB. Once put, a value stays until the
/// exchange ends, so an exchange in memory only accepts 256 MiB in total.
///
/// | exchange | ranks | needs |
/// |---|---|---|
/// | [`LocalExchange`] | threads of one process | nothing |
/// | [`FileExchange`] | processes of one user | a folder that all of them see |
/// | [`TcpExchange`] | processes that can reach rank 0 | rank 0's address and a shared secret; nothing under torchrun on one host |
/// | [`MpiExchange`] | processes that `mpirun` started | the feature `mpi` |
///
/// [`Rendezvous`] chooses one of them from the environment.
///
/// ```
/// use std::time::Duration;
/// use gpustream_collectives::{Exchange, LocalExchange};
///
/// let exchange = LocalExchange::new();
/// let of_rank_1 = exchange.clone();
/// let rank_1 = std::thread::spawn(move || of_rank_1.get("id", Duration::from_secs(10)));
/// exchange.put("id", &[7; 128])?;
/// assert_eq!(rank_1.join().expect("rank 1 panicked")?, [7; 128]);
/// # Ok::<(), gpustream::Error>(())
/// ```
pub trait Exchange: fmt::Debug + Send + Sync {
    /// Stores bytes under `key` for all ranks. Each key can be put only once.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the key or the bytes are too long. [`External`](gpustream::ErrorKind::External), with an [`ExchangeError`], if the key was put before or we cannot reach the exchange.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()>;

    /// Returns the bytes under `key`. Blocks until a rank has put them, at most for `limit`.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the key is too long. [`External`](gpustream::ErrorKind::External), with an [`ExchangeError`], if no rank puts the key within the limit or we cannot reach the exchange.
    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>>;
}

/// How long a key may be, in bytes.
const MAX_KEY: usize = 200;
/// How long a value may be, in bytes.
const MAX_VALUE: usize = 1 << 20;

fn check_key(key: &str) -> Result<()> {
    match key.len() {
        1..=MAX_KEY => Ok(()),
        0 => invalid("the key for an exchange is empty; give a name"),
        long => invalid(format!(
            "the key for an exchange has {long} bytes, but at most {MAX_KEY} are allowed; give a shorter name"
        )),
    }
}

fn check_value(key: &str, bytes: &[u8]) -> Result<()> {
    if bytes.len() <= MAX_VALUE {
        return Ok(());
    }
    invalid(format!(
        "the value for the key `{key}` has {} bytes, but an exchange accepts at most {MAX_VALUE} (1 MiB); an exchange is for what \
         ranks need before they have a communicator, so send data through the communicator",
        bytes.len()
    ))
}
