//! Reasons why an exchange failed.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use gpustream::Error;

/// Why an exchange failed. It is the source of an error of kind [`External`](gpustream::ErrorKind::External).
///
/// ```
/// use std::error::Error as _;
/// use std::time::Duration;
/// use gpustream_collectives::{Exchange, ExchangeError, LocalExchange};
///
/// let error = LocalExchange::new().get("id", Duration::ZERO).unwrap_err();
/// let reason = error.source().and_then(|source| source.downcast_ref::<ExchangeError>());
/// assert_eq!(reason, Some(&ExchangeError::Late { key: "id".into(), limit: Duration::ZERO }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeError {
    /// No rank put this key within the time limit.
    Late {
        /// The key.
        key: String,
        /// The time limit of the call.
        limit: Duration,
    },
    /// The key already exists. This rank or another one has put it before.
    PutTwice {
        /// The key.
        key: String,
    },
    /// The ranks have put so much that no room is left.
    Full {
        /// The key that did not fit.
        key: String,
        /// How many bytes the exchange can hold.
        capacity: usize,
    },
    /// We did not reach rank 0 within the time limit.
    Unreachable {
        /// Rank 0's address, as you gave it.
        address: String,
        /// The time limit of the call.
        limit: Duration,
        /// How the last attempt ended.
        last: String,
    },
    /// Rank 0 may listen at several ports, but none of them is free.
    NoFreePort {
        /// The addresses that rank 0 tried, as a range.
        addresses: String,
    },
    /// This rank and rank 0 have different secrets.
    WrongSecret {
        /// Rank 0's address, as you gave it.
        address: String,
    },
    /// Rank 0 was there before, but is gone now.
    Gone {
        /// Rank 0's address, as you gave it.
        address: String,
        /// How the connection ended.
        last: String,
    },
    /// Rank 0 was to create the folder, but it already exists.
    FolderExists {
        /// The folder.
        folder: PathBuf,
    },
    /// Rank 0 did not create the folder within the time limit.
    FolderMissing {
        /// The folder.
        folder: PathBuf,
        /// The time limit of the call.
        limit: Duration,
    },
    /// The folder belongs to another user, or other users may write to it.
    FolderNotPrivate {
        /// The folder.
        folder: PathBuf,
    },
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late { key, limit } => write!(
                f,
                "no rank put the key `{key}` into the exchange within {limit:?}; check that all ranks have started and \
                 are still running"
            ),
            Self::PutTwice { key } => {
                write!(
                    f,
                    "the key `{key}` was already put into the exchange; each key may be put once, by one rank"
                )
            }
            Self::Full { key, capacity } => write!(
                f,
                "there is no room for the key `{key}`: the exchange holds at most {capacity} bytes, and nothing is ever removed; send data \
                 through a communicator"
            ),
            Self::Unreachable { address, limit, last } => write!(
                f,
                "rank 0 was not reached at {address} within {limit:?}: {last}; check that rank 0 is running, and listens at an \
                 address that this host can reach"
            ),
            Self::NoFreePort { addresses } => write!(
                f,
                "rank 0 found no free port at {addresses}; name a free port of its host with GPUSTREAM_EXCHANGE=tcp://HOST:PORT"
            ),
            Self::WrongSecret { address } => write!(
                f,
                "rank 0 at {address} refused this rank, because their secrets differ; give all ranks the same \
                 GPUSTREAM_EXCHANGE_SECRET"
            ),
            Self::Gone { address, last } => write!(
                f,
                "rank 0 at {address} is gone ({last}); rank 0 must keep its exchange until all ranks have what they need"
            ),
            Self::FolderExists { folder } => write!(
                f,
                "the folder {} of the exchange already exists, probably from an earlier run; give each run a folder of its own",
                folder.display()
            ),
            Self::FolderMissing { folder, limit } => write!(
                f,
                "rank 0 did not create the folder {} of the exchange within {limit:?}; check that rank 0 is running, and that the \
                 folder is on a file system that this host shares",
                folder.display()
            ),
            Self::FolderNotPrivate { folder } => write!(
                f,
                "the folder {} of the exchange belongs to another user, or other users may write to it; name a folder that does not \
                 exist yet, in a place where only this user can create files",
                folder.display()
            ),
        }
    }
}

impl std::error::Error for ExchangeError {}

impl ExchangeError {
    /// Returns the reason that an error carries.
    pub(super) fn of(error: &Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }

    /// Returns true if another process has already created what this one was to create.
    pub(super) fn was_there(&self) -> bool {
        matches!(self, Self::FolderExists { .. } | Self::PutTwice { .. })
    }
}

impl From<ExchangeError> for Error {
    fn from(error: ExchangeError) -> Self {
        Self::external(error)
    }
}
