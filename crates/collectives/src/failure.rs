//! Reasons why ranks can no longer work together.

use std::fmt;
use std::time::Duration;

use gpustream::{Error, ErrorKind, Result};

/// Why a communicator has become unusable. Every rank gets it, as the source of an error of kind
/// [`External`](ErrorKind::External).
///
/// ```
/// use std::error::Error as _;
/// use gpustream::Device;
/// use gpustream_collectives::{CommunicatorFailure, Op, World};
///
/// let device = Device::open("cpu")?;
/// let mut ranks = World::local(&[device.clone(), device.clone()])?.communicators()?;
/// drop(ranks.pop());
/// let stream = device.stream()?;
/// let mut x = stream.zeros::<f32>(10)?;
/// let error = ranks[0].all_reduce_in_place(&stream, &mut x, Op::Sum).unwrap_err();
/// let broken = error.source().and_then(|source| source.downcast_ref::<CommunicatorFailure>());
/// assert_eq!(broken, Some(&CommunicatorFailure::Left { rank: 1 }));
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommunicatorFailure {
    /// Some ranks did not make a call within the time limit, although the others did.
    Missing {
        /// The ranks that did not come, in ascending order.
        ranks: Vec<usize>,
        /// The call that they did not make.
        call: String,
        /// The communicator's time limit.
        limit: Duration,
    },
    /// The ranks made calls that do not match.
    Different {
        /// The ranks that differ from the majority, in ascending order.
        ranks: Vec<usize>,
        /// The calls, and which ranks made them.
        calls: String,
    },
    /// A rank dropped its communicator while others needed it.
    Left {
        /// The rank that is gone.
        rank: usize,
    },
    /// A rank dropped its communicator because its thread panicked.
    Panicked {
        /// The rank whose thread panicked.
        rank: usize,
    },
    /// A call's work did not end within the time limit after this rank's stream had reached it. A rank is
    /// lost, or did not make the call.
    Stalled {
        /// The call.
        call: String,
        /// The communicator's time limit.
        limit: Duration,
    },
    /// The engine's library gave up, for example because the connection to a rank broke.
    Failed {
        /// The call that failed.
        call: String,
        /// The library's own message.
        message: String,
    },
    /// A rank called [`Communicator::abort`](crate::Communicator::abort).
    Aborted {
        /// The rank that aborted.
        rank: usize,
    },
}

impl CommunicatorFailure {
    /// Returns `Different` unless all ranks' calls are equal. They come in the order of the ranks.
    pub(crate) fn different<C: PartialEq + fmt::Display>(calls: impl IntoIterator<Item = C>) -> Option<Self> {
        // For each kind of call the ranks that made it, ordered by the lowest rank.
        let mut kinds: Vec<(C, Vec<usize>)> = Vec::new();
        for (rank, call) in calls.into_iter().enumerate() {
            match kinds.iter_mut().find(|(kind, _)| *kind == call) {
                Some((_, ranks)) => ranks.push(rank),
                None => kinds.push((call, vec![rank])),
            }
        }
        if kinds.len() < 2 {
            return None;
        }
        let most = kinds.iter().map(|(_, ranks)| ranks.len()).max().unwrap_or(0);
        let usual = kinds.iter().position(|(_, ranks)| ranks.len() == most).unwrap_or(0);
        let others =
            kinds.iter().enumerate().filter(|(at, _)| *at != usual).flat_map(|(_, (_, ranks))| ranks);
        let mut ranks: Vec<usize> = others.copied().collect();
        ranks.sort_unstable();
        let calls: Vec<_> =
            kinds.iter().map(|(call, ranks)| format!("{} called {call}", named(ranks))).collect();
        Some(Self::Different { ranks, calls: calls.join(", ") })
    }
}

impl fmt::Display for CommunicatorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { ranks, call, limit } => write!(
                f,
                "{} did not come to {call} within {limit:?}; every rank must make the same calls in the same order, and calls \
                 that wait for each other belong in a `group` (GPUSTREAM_COLLECTIVES_TIMEOUT and \
                 `CommunicatorOptions::time_limit` set the limit)",
                named(ranks)
            ),
            Self::Different { ranks, calls } => write!(
                f,
                "the call of {} does not match the others: {calls}; every rank must make the same calls in the same order",
                named(ranks)
            ),
            Self::Left { rank } => {
                write!(f, "rank {rank} has dropped its communicator, but the call needs that rank")
            }
            Self::Panicked { rank } => write!(f, "the thread of rank {rank} panicked"),
            Self::Stalled { call, limit } => write!(
                f,
                "{call} did not end within {limit:?}: a rank is lost, or did not make the call; every rank must make the same \
                 calls in the same order (GPUSTREAM_COLLECTIVES_TIMEOUT and `CommunicatorOptions::time_limit` set the limit)"
            ),
            Self::Failed { call, message } => write!(f, "{call} failed: {message}"),
            Self::Aborted { rank } => write!(f, "rank {rank} aborted the communicator"),
        }
    }
}

impl std::error::Error for CommunicatorFailure {}

/// Returns text for some ranks: `rank 1`, `ranks 1, 3`.
pub(crate) fn named(ranks: &[usize]) -> String {
    let numbers: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

#[cold]
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, message))
}
