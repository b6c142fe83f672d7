//! The exchange within one process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpustream::Result;

use super::store::Store;
use super::{Exchange, ExchangeError, check_key, check_value};
use crate::deadline::Deadline;

/// An exchange for ranks that are threads of one process. Clones are the same exchange.
///
/// ```
/// use std::time::Duration;
/// use gpustream_collectives::{Exchange, LocalExchange};
///
/// let exchange = LocalExchange::new();
/// exchange.clone().put("where rank 0 is", b"here")?;
/// assert_eq!(exchange.get("where rank 0 is", Duration::ZERO)?, b"here");
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct LocalExchange(Arc<Store>);

impl LocalExchange {
    /// Returns an empty exchange.
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for LocalExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalExchange").field("keys", &self.0.len()).finish()
    }
}

impl Exchange for LocalExchange {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        put(&self.0, key, bytes)
    }

    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        get(&self.0, key, limit)
    }
}

/// Puts bytes into a store in this process.
pub(super) fn put(store: &Store, key: &str, bytes: &[u8]) -> Result<()> {
    check_key(key)?;
    check_value(key, bytes)?;
    store.put(key, bytes).of(key)
}

/// Waits for bytes in a store in this process.
pub(super) fn get(store: &Store, key: &str, limit: Duration) -> Result<Vec<u8>> {
    check_key(key)?;
    match store.wait(key, Deadline::after(limit)) {
        Some(bytes) => Ok(bytes.to_vec()),
        None => Err(ExchangeError::Late { key: key.to_owned(), limit }.into()),
    }
}
