//! The exchange between processes that MPI started.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpustream::{Error, ErrorKind, Result};

use super::local::{get, put};
use super::store::Store;
use super::{Exchange, check_key};
use crate::mpi::Messenger;

/// An exchange for processes that `mpirun` started together. It uses MPI itself, so you need no address,
/// folder or secret. It needs the feature `mpi`, and you must start the program with the MPI that it was
/// built with.
///
/// A put sends the bytes to all other ranks, which keep them. If two ranks put the same key, each rank keeps
/// one of the two values. MPI holds on to an exchange's resources until the process ends. A process that ends
/// waits up to five seconds for others to take what it has put.
///
/// ```no_run
/// use std::{sync::Arc, time::Duration};
/// use gpustream_collectives::{MpiExchange, World};
///
/// // Under `mpirun`: the ranks find each other by MPI, and NCCL does the work.
/// let exchange = MpiExchange::join(Duration::from_secs(60))?;
/// let world = World::from_env()?.with_exchange(Arc::new(exchange));
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// `GPUSTREAM_EXCHANGE=mpi` does the same without a change to your program.
pub struct MpiExchange {
    messenger: Messenger,
    store: Arc<Store>,
}

impl MpiExchange {
    /// Returns an empty exchange. Blocks until all processes have called this, at most for `limit`. All
    /// processes must make their exchanges and communicators with MPI in the same order.
    ///
    /// # Errors
    /// [`Unsupported`](gpustream::ErrorKind::Unsupported) in a build without the feature `mpi`, or if your program started MPI without `MPI_THREAD_MULTIPLE`. [`External`](gpustream::ErrorKind::External) if some process does not come within the limit, or if MPI fails.
    pub fn join(limit: Duration) -> Result<Self> {
        let store = Arc::new(Store::default());
        let stored = store.clone();
        let messenger = Messenger::join(limit, move |message| {
            if let Some((key, bytes)) = parse(message) {
                // If a key is put twice, we keep the first value.
                let _ = put(&stored, key, bytes);
            }
        })?;
        Ok(Self { messenger, store })
    }

    /// Like [`join`](Self::join), for rank `rank`. Returns an error if MPI gave this process another number,
    /// because then the launcher and MPI do not know of each other.
    pub(super) fn join_as(rank: usize, limit: Duration) -> Result<Self> {
        let exchange = Self::join(limit)?;
        let own = exchange.messenger.rank();
        if own == rank {
            return Ok(exchange);
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the launcher made this process rank {rank}, but MPI made it number {own}; start the processes with the `mpirun` of the MPI \
                 that the program was built with, or let them meet without MPI"
            ),
        ))
    }
}

impl Exchange for MpiExchange {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        put(&self.store, key, bytes)?;
        self.messenger.send(message(key, bytes))
    }

    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        check_key(key)?;
        let _listening = self.messenger.listen()?;
        get(&self.store, key, limit)
    }
}

impl fmt::Debug for MpiExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpiExchange").field("keys", &self.store.len()).finish_non_exhaustive()
    }
}

/// Returns a message: the key's length as one byte, the key, and the bytes.
fn message(key: &str, bytes: &[u8]) -> Vec<u8> {
    // A key has at most 200 bytes.
    [&[key.len() as u8], key.as_bytes(), bytes].concat()
}

fn parse(message: &[u8]) -> Option<(&str, &[u8])> {
    let (&len, rest) = message.split_first()?;
    let (key, bytes) = rest.split_at_checked(len.into())?;
    Some((std::str::from_utf8(key).ok()?, bytes))
}
