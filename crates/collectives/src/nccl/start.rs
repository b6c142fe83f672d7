//! Makes communicators. The ranks find each other through an NCCL id, which one of them makes.

use std::ffi::c_int;
use std::time::Duration;

use gpustream::{Device, Error, ErrorKind, Result};

use super::api::{Api, ncclComm_t, ncclConfig_t, ncclUniqueId};
use super::comm::{Handle, Handles, abort, grouped, settle, started};
use crate::exchange::Exchange;

/// The key for the id, which rank 0 puts.
const ID: &str = "nccl/id";

/// Makes the communicators of ranks that are all in this process, one on each device.
pub(super) fn in_process(api: &'static Api, devices: &[Device], limit: Duration) -> Result<Vec<Handles>> {
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
) -> Result<Handles> {
    let id = if rank == 0 {
        let id = new_id(api)?;
        exchange.put(ID, &id.internal.map(|byte| byte as u8))?;
        id
    } else {
        let bytes = exchange.get(ID, limit)?;
        let Ok(bytes) = <[u8; 128]>::try_from(bytes.as_slice()) else {
            return Err(Error::external(format!(
                "rank 0 gave an id of {} bytes, but NCCL's ids have 128; start all ranks from the same program, and \
                 give each run an exchange of its own",
                bytes.len()
            )));
        };
        ncclUniqueId { internal: bytes.map(|byte| byte as _) }
    };
    connect_one(api, id, (rank, size), device, limit)
}

/// Makes the communicator of one rank that knows the id. Blocks until all ranks have come, at most for the
/// time limit.
pub(super) fn connect_one(
    api: &'static Api,
    id: ncclUniqueId,
    (rank, size): (usize, usize),
    device: &Device,
    limit: Duration,
) -> Result<Handles> {
    let mut handles = connect(api, id, size, &[(rank, device)], limit)?;
    handles.pop().ok_or_else(|| Error::unsupported("a communicator of no ranks"))
}

/// Connects the ranks of this process with all others. Blocks until all have come, at most for the time
/// limit.
fn connect(
    api: &'static Api,
    id: ncclUniqueId,
    size: usize,
    ranks: &[(usize, &Device)],
    limit: Duration,
) -> Result<Vec<Handles>> {
    let mut families: Vec<HandleSlot> = ranks.iter().map(|_| HandleSlot::new()).collect();
    let mut calls: Vec<HandleSlot> = ranks.iter().map(|_| HandleSlot::new()).collect();
    let connected = meet(api, id, size, ranks, &mut families, limit)
        .and_then(|handles| add_calls(api, &handles, ranks, &mut calls, limit));
    if let Err(error) = connected {
        for made in calls.into_iter().chain(families) {
            made.abort(api);
        }
        return Err(error.with_context(format_args!("making the communicator of {size} ranks")));
    }
    let both = families.into_iter().zip(calls);
    Ok(both.map(|(family, calls)| Handles { family: family.handle(), calls: calls.handle() }).collect())
}

/// Connects the ranks with non-blocking communicators.
fn meet(
    api: &'static Api,
    id: ncclUniqueId,
    size: usize,
    ranks: &[(usize, &Device)],
    made: &mut [HandleSlot],
    limit: Duration,
) -> Result<Vec<Handle>> {
    let begin_one = |(&(rank, device), made): (&(usize, &Device), &mut HandleSlot)| {
        let mut config = ncclConfig_t::new(false, true);
        let call = |_, ()| {
            // SAFETY: `made` outlives the background work, and the settings are only read during the call.
            started(unsafe {
                api.ncclCommInitRankConfig(made.out(), number(size)?, id, number(rank)?, &raw mut config)
            })
        };
        // SAFETY: the call enqueues nothing. It uses the device whose context is current, which is this one.
        unsafe { device.stream()?.external("ncclCommInitRankConfig", (), call) }
    };
    grouped(api, || ranks.iter().zip(&mut *made).try_for_each(begin_one))?;
    let handles: Vec<_> = made.iter().map(HandleSlot::handle).collect();
    settle(api, &handles, limit)?;
    Ok(handles)
}

/// Adds each rank's blocking communicator to its family.
fn add_calls(
    api: &'static Api,
    families: &[Handle],
    ranks: &[(usize, &Device)],
    made: &mut [HandleSlot],
    limit: Duration,
) -> Result<()> {
    let begin_one = |((family, &(rank, _)), made): ((&Handle, &(usize, &Device)), &mut HandleSlot)| {
        let mut config = ncclConfig_t::new(true, false);
        // SAFETY: the handle is alive, `made` outlives the background work, and the settings are only read
        // during the call.
        started(unsafe { api.ncclCommSplit(family.0, 0, number(rank)?, made.out(), &raw mut config) })
    };
    grouped(api, || families.iter().zip(ranks).zip(made).try_for_each(begin_one))?;
    settle(api, families, limit)
}

/// Where NCCL stores a handle. It may write there from its own thread until it has settled.
struct HandleSlot(Box<ncclComm_t>);

impl HandleSlot {
    fn new() -> Self {
        Self(Box::new(std::ptr::null_mut()))
    }

    fn out(&mut self) -> *mut ncclComm_t {
        &raw mut *self.0
    }

    fn handle(&self) -> Handle {
        Handle(*self.0)
    }

    /// Ends what was made. We must leak the slot, because NCCL may still write to it.
    fn abort(self, api: &'static Api) {
        let handle = self.handle();
        if !handle.0.is_null() {
            abort(api, handle);
        }
        std::mem::forget(self);
    }
}

pub(super) fn new_id(api: &'static Api) -> Result<ncclUniqueId> {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the pointer is to a local.
    unsafe { api.ncclGetUniqueId(&raw mut id) }.ok()?;
    Ok(id)
}

/// Checks that no two ranks share a device. We need not check that between processes, because NCCL does.
fn check_places(devices: &[Device]) -> Result<()> {
    let place = |device: &Device| device.info().ordinal;
    for (rank, device) in devices.iter().enumerate() {
        if let Some(other) = devices[..rank].iter().position(|other| place(other) == place(device)) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "ranks {other} and {rank} are both on {}:{}, but NCCL needs a GPU for each rank; give each rank a device of \
                     its own, or use the engine `Local`, which allows several ranks on one device",
                    device.info().backend,
                    place(device)
                ),
            ));
        }
    }
    Ok(())
}

fn number(value: usize) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| {
        Error::unsupported(format_args!("a communicator of NCCL with a rank or size of {value}"))
    })
}
