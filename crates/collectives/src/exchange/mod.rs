//! Bytes that ranks in several processes hand each other before they have a communicator.

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

/// A place where all ranks put bytes for each other, before they have a communicator: the id by which NCCL's ranks find each
/// other, where each rank is, or digests of their calls.
///
/// A key is a name of 1 to 200 bytes, and the bytes under it are 1 MiB at most. A value that was put stays until the
/// exchange ends; an exchange in memory takes 256 MiB in all.
///
/// | exchange | ranks | needs |
/// |---|---|---|
/// | [`LocalExchange`] | threads of one process | nothing |
/// | [`FileExchange`] | processes of one user | a folder that all of them see |
/// | [`TcpExchange`] | processes that reach rank 0 | an address of rank 0's, and a shared secret; under torchrun on one host nothing |
/// | [`MpiExchange`] | processes that `mpirun` started | the feature `mpi` |
///
/// [`Rendezvous`] reads from the environment which of them it is.
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
    /// Stores bytes under `key` for all ranks. A key is put once.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) for a key or bytes that are too long;
    /// [`External`](gpustream::ErrorKind::External) with an [`ExchangeError`] for a key that was put before, and where the
    /// exchange is out of reach.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()>;

    /// Returns the bytes under `key`, as soon as a rank has put them. Blocks until then, `limit` at most.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) for a key that is too long;
    /// [`External`](gpustream::ErrorKind::External) with an [`ExchangeError`] where no rank has put the key within the limit,
    /// and where the exchange is out of reach.
    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>>;
}

/// The most bytes that a key has.
const MAX_KEY: usize = 200;
/// The most bytes under a key.
const MAX_VALUE: usize = 1 << 20;

fn check_key(key: &str) -> Result<()> {
    match key.len() {
        1..=MAX_KEY => Ok(()),
        0 => invalid("an exchange was given an empty key; give a name"),
        long => invalid(format!(
            "a key of {long} bytes for an exchange, which takes {MAX_KEY} at most; give a shorter name"
        )),
    }
}

fn check_value(key: &str, bytes: &[u8]) -> Result<()> {
    if bytes.len() <= MAX_VALUE {
        return Ok(());
    }
    invalid(format!(
        "{} bytes under the key `{key}` of an exchange, which takes {MAX_VALUE} at most (1 MiB); an exchange is for what \
         ranks need before they have a communicator, so send data by the communicator",
        bytes.len()
    ))
}
