//! The exchange of the processes that MPI started.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpustream::{Error, ErrorKind, Result};

use super::local::{get, put};
use super::store::Store;
use super::{Exchange, check_key};
use crate::mpi::Messenger;

/// The exchange of the processes that `mpirun` started together, by MPI itself: without an address, a folder or a secret. It
/// needs the feature `mpi`, and the program must be started by the MPI that it was built with.
///
/// A put sends the bytes to all other ranks, which keep them. A key that two ranks put has either one's bytes. MPI keeps what
/// an exchange takes until the process ends, and a process that ends waits five seconds at most for others to take what it put.
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
/// `GPUSTREAM_EXCHANGE=mpi` does the same from outside.
pub struct MpiExchange {
    post: Messenger,
    store: Arc<Store>,
}

impl MpiExchange {
    /// Returns an exchange in which nothing was put yet. Blocks until all processes have called this, `limit` at most; they
    /// make their exchanges and communicators by MPI in one order.
    ///
    /// # Errors
    /// [`Unsupported`](gpustream::ErrorKind::Unsupported) in a build without the feature `mpi`, and where the program began
    /// MPI without `MPI_THREAD_MULTIPLE`; [`External`](gpustream::ErrorKind::External) where processes do not come within the
    /// limit, and for failures of MPI.
    pub fn join(limit: Duration) -> Result<Self> {
        let store = Arc::new(Store::default());
        let stored = store.clone();
        let post = Messenger::join(limit, move |message| {
            if let Some((key, bytes)) = parse(message) {
                // A key that was put twice keeps its first bytes.
                let _ = put(&stored, key, bytes);
            }
        })?;
        Ok(Self { post, store })
    }

    /// Returns the exchange of rank `rank`, as [`join`](Self::join) does, or an error where MPI numbers this process otherwise:
    /// then the launcher and MPI know nothing of each other.
    pub(super) fn join_as(rank: usize, limit: Duration) -> Result<Self> {
        let exchange = Self::join(limit)?;
        let own = exchange.post.rank();
        if own == rank {
            return Ok(exchange);
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "rank {rank} is number {own} of the processes that MPI started; start them with the `mpirun` of the MPI that the \
                 program was built with, or meet elsewhere than by MPI"
            ),
        ))
    }
}

impl Exchange for MpiExchange {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        put(&self.store, key, bytes)?;
        self.post.send(message(key, bytes))
    }

    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        check_key(key)?;
        let _listening = self.post.listen()?;
        get(&self.store, key, limit)
    }
}

impl fmt::Debug for MpiExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpiExchange").field("keys", &self.store.len()).finish_non_exhaustive()
    }
}

/// Returns the key's length as a byte, the key, and the bytes.
fn message(key: &str, bytes: &[u8]) -> Vec<u8> {
    // A key is no longer than 200 bytes.
    [&[key.len() as u8], key.as_bytes(), bytes].concat()
}

fn parse(message: &[u8]) -> Option<(&str, &[u8])> {
    let (&len, rest) = message.split_first()?;
    let (key, bytes) = rest.split_at_checked(len.into())?;
    Some((std::str::from_utf8(key).ok()?, bytes))
}
