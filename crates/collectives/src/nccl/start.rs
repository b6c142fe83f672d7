//! Making communicators of NCCL's: the ranks find each other by an id, which one of them makes.

use std::ffi::c_int;
use std::time::Duration;

use gpustream::{Device, Error, ErrorKind, Result};

use super::api::{Api, ncclComm_t, ncclConfig_t, ncclUniqueId};
use super::comm::{Handle, grouped, settle, started};
use crate::exchange::Exchange;

/// The key under which rank 0 puts the id.
const ID: &str = "nccl/id";

/// Makes the communicators of ranks that are all in this process, one on each device.
pub(super) fn in_process(api: &'static Api, devices: &[Device], limit: Duration) -> Result<Vec<Handle>> {
    check_places(devices)?;
    let ranks: Vec<_> = devices.iter().enumerate().collect();
    connect(api, new_id(api)?, devices.len(), &ranks, limit)
}

/// Makes the communicator of one rank among processes.
pub(super) fn among_processes(
    api: &'static Api,
    (rank, size): (usize, usize),
    device: &Device,
    exchange: &dyn Exchange,
    limit: Duration,
) -> Result<Handle> {
    let id = if rank == 0 {
        let id = new_id(api)?;
        exchange.put(ID, &id.internal.map(|byte| byte as u8))?;
        id
    } else {
        let bytes = exchange.get(ID, limit)?;
        let Ok(bytes) = <[u8; 128]>::try_from(bytes.as_slice()) else {
            return Err(Error::external(format!(
                "rank 0 gave an id of {} bytes; NCCL's have 128",
                bytes.len()
            )));
        };
        ncclUniqueId { internal: bytes.map(|byte| byte as _) }
    };
    let mut handles = connect(api, id, size, &[(rank, device)], limit)?;
    handles.pop().ok_or_else(|| Error::unsupported("a communicator of no ranks"))
}

/// Makes the communicator of the ranks of one color (`ncclCommSplit`), with this rank's number among them and theirs.
pub(super) fn split(
    api: &'static Api,
    whole: Handle,
    color: c_int,
    key: c_int,
    limit: Duration,
) -> Result<(Handle, (usize, usize))> {
    let mut made = Made::new();
    let mut config = ncclConfig_t::non_blocking();
    // SAFETY: the handle is alive; `made` outlives what goes on in the background; the settings are read during the call.
    let begun = started(unsafe { api.ncclCommSplit(whole.0, color, key, made.out(), &raw mut config) });
    let ready = begun.and_then(|()| settle(api, &[whole], limit)).and_then(|()| {
        let part = made.handle();
        settle(api, &[part], limit)?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the handle is alive, and the pointers are to locals.
        unsafe {
            api.ncclCommUserRank(part.0, &raw mut rank).ok()?;
            api.ncclCommCount(part.0, &raw mut size).ok()?;
        }
        Ok((count(rank), count(size)))
    });
    match ready {
        Ok(place) => Ok((made.done(), place)),
        Err(error) => {
            made.abort(api);
            Err(error)
        }
    }
}

/// Connects the ranks of this process with all others. Blocks until all have come, for the time limit at most.
fn connect(
    api: &'static Api,
    id: ncclUniqueId,
    size: usize,
    ranks: &[(usize, &Device)],
    limit: Duration,
) -> Result<Vec<Handle>> {
    let mut made: Vec<Made> = ranks.iter().map(|_| Made::new()).collect();
    let connected = begin(api, id, size, ranks, &mut made).and_then(|()| {
        let handles: Vec<_> = made.iter().map(Made::handle).collect();
        settle(api, &handles, limit)
    });
    match connected {
        Ok(()) => Ok(made.into_iter().map(Made::done).collect()),
        Err(error) => {
            for made in made {
                made.abort(api);
            }
            Err(error.with_context(format_args!("making the communicator of {size} ranks")))
        }
    }
}

fn begin(
    api: &'static Api,
    id: ncclUniqueId,
    size: usize,
    ranks: &[(usize, &Device)],
    made: &mut [Made],
) -> Result<()> {
    let begin_one = |(&(rank, device), made): (&(usize, &Device), &mut Made)| {
        let mut config = ncclConfig_t::non_blocking();
        let call = |_| {
            // SAFETY: `made` outlives what goes on in the background; the settings are read during the call.
            started(unsafe {
                api.ncclCommInitRankConfig(made.out(), number(size)?, id, number(rank)?, &raw mut config)
            })
        };
        // SAFETY: the call enqueues nothing. It takes the device whose context is current, which is this one.
        unsafe { device.stream()?.external("ncclCommInitRankConfig", &[], call) }
    };
    grouped(api, || ranks.iter().zip(made).try_for_each(begin_one))
}

/// The place for a handle that NCCL makes, and may write from a thread of its own until it has settled.
struct Made(Box<ncclComm_t>);

impl Made {
    fn new() -> Self {
        Self(Box::new(std::ptr::null_mut()))
    }

    fn out(&mut self) -> *mut ncclComm_t {
        &raw mut *self.0
    }

    fn handle(&self) -> Handle {
        Handle(*self.0)
    }

    fn done(self) -> Handle {
        self.handle()
    }

    /// Ends what was made. The place stays for good: NCCL may still write there.
    fn abort(self, api: &'static Api) {
        let handle = self.handle();
        if !handle.0.is_null() {
            // SAFETY: the handle is alive, and nobody has it from here on.
            let _ = unsafe { api.ncclCommAbort(handle.0) };
        }
        std::mem::forget(self);
    }
}

fn new_id(api: &'static Api) -> Result<ncclUniqueId> {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the pointer is to a local.
    unsafe { api.ncclGetUniqueId(&raw mut id) }.ok()?;
    Ok(id)
}

/// Checks that no device is given to two ranks. Between processes NCCL finds this out.
fn check_places(devices: &[Device]) -> Result<()> {
    let place = |device: &Device| device.info().ordinal;
    for (rank, device) in devices.iter().enumerate() {
        if let Some(other) = devices[..rank].iter().position(|other| place(other) == place(device)) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "ranks {other} and {rank} are both on {}:{}, and NCCL wants a GPU for each rank; give each rank a device of \
                     its own, or use the engine `Local`, which takes several ranks on one device",
                    device.info().backend,
                    place(device)
                ),
            ));
        }
    }
    Ok(())
}

fn number(value: usize) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| Error::unsupported(format_args!("a rank or size of {value}")))
}

fn count(value: c_int) -> usize {
    usize::try_from(value).unwrap_or(0)
}
