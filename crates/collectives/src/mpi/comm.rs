//! MPI's functions as this engine calls them. Only its [thread](super::process) does.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use ::mpi::ffi;
use gpustream::{Error, Result};

use super::combine;
use crate::call::{Collective, Signature};
use crate::element::ElementType;
use crate::op::Op;

/// The memory of one rank in an exchange: addresses of page-locked memory, or null if nothing is given.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) gives: *mut u8,
    pub(super) gets: *mut u8,
}

// SAFETY: this is staging memory, and its owner leaves it to MPI's thread during an exchange.
unsafe impl Send for Memory {}

/// MPI's handle to a communicator that returns errors.
#[derive(Clone, Copy)]
pub(super) struct Comm(ffi::MPI_Comm);

/// An MPI request that is not done.
pub(super) struct Request(ffi::MPI_Request);

/// The functions that combine elements, registered with MPI.
#[derive(Default)]
pub(super) struct Ops(Vec<((ElementType, Op), ffi::MPI_Op)>);

impl Comm {
    /// The communicator of all ranks.
    pub(super) fn world() -> Self {
        // SAFETY: a constant.
        Self(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    /// Makes MPI return errors. By default it would end the process.
    pub(super) fn return_errors(self) -> Result<()> {
        // SAFETY: the handle is alive.
        check(unsafe { ffi::MPI_Comm_set_errhandler(self.0, ffi::RSMPI_ERRORS_RETURN) })
    }

    pub(super) fn place(self) -> Result<(usize, usize)> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the handle is alive, and the pointers are to locals.
        unsafe {
            check(ffi::MPI_Comm_rank(self.0, &raw mut rank))?;
            check(ffi::MPI_Comm_size(self.0, &raw mut size))?;
        }
        let number = |value: c_int| usize::try_from(value).map_err(Error::external);
        Ok((number(rank)?, number(size)?))
    }

    /// Blocks until all ranks have called this. Returns the communicator of the ranks with this color.
    pub(super) fn split(self, color: i32, key: i32) -> Result<Self> {
        // SAFETY: the handle is alive.
        Self::made(|part| unsafe { ffi::MPI_Comm_split(self.0, color, key, part) })
    }

    /// Blocks until all ranks have called this. Returns another communicator of the same ranks.
    pub(super) fn duplicate(self) -> Result<Self> {
        // SAFETY: the handle is alive.
        Self::made(|copy| unsafe { ffi::MPI_Comm_dup(self.0, copy) })
    }

    /// Returns the communicator that an MPI call makes. The call fills the place that it is given, unless it
    /// fails.
    fn made(make: impl FnOnce(*mut ffi::MPI_Comm) -> c_int) -> Result<Self> {
        let mut made = MaybeUninit::uninit();
        check(make(made.as_mut_ptr()))?;
        // SAFETY: the call has filled the place.
        let made = Self(unsafe { made.assume_init() });
        made.return_errors().map(|()| made)
    }

    /// Frees the communicator. It must have no pending request.
    pub(super) fn free(mut self) {
        // SAFETY: the handle is alive, and is not used again.
        let _ = unsafe { ffi::MPI_Comm_free(&raw mut self.0) };
    }

    /// Starts a barrier.
    pub(super) fn barrier(self) -> Result<Request> {
        // SAFETY: the handle is alive.
        request(|request| unsafe { ffi::MPI_Ibarrier(self.0, request) })
    }

    /// Starts to gather the bytes of all ranks; each gives `one` bytes.
    ///
    /// # Safety
    /// Until the request is done, the memory must stay alive. Nothing may write what is given or use what is
    /// received.
    pub(super) unsafe fn all_gather(self, memory: Memory, one: usize) -> Result<Request> {
        // SAFETY: nothing is combined; the rest is this function's contract.
        unsafe { self.start(&Signature::of_bytes(Collective::AllGather, one), memory, None, one) }
    }

    /// Starts to send bytes to a rank.
    ///
    /// # Safety
    /// Until the request is done, the bytes must stay alive and unchanged.
    pub(super) unsafe fn send(self, bytes: &[u8], to: usize) -> Result<Request> {
        let memory = Memory { gives: bytes.as_ptr().cast_mut(), gets: ptr::null_mut() };
        let call = Signature::of_bytes(Collective::Send { to }, 0);
        // SAFETY: handed on.
        unsafe { self.start(&call, memory, None, bytes.len()) }
    }

    /// Starts to receive the next message, if there is one, into the returned bytes.
    ///
    /// # Safety
    /// Until the request is done, the bytes must stay alive and must not be used.
    pub(super) unsafe fn receive(self) -> Result<Option<(Request, Vec<u8>)>> {
        let (mut is_there, mut len) = (0, 0);
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: the handle is alive, and the pointers are to locals.
        check(unsafe {
            ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, TAG, self.0, &raw mut is_there, status.as_mut_ptr())
        })?;
        if is_there == 0 {
            return Ok(None);
        }
        // SAFETY: a message is there, so MPI has filled the status.
        let from = unsafe {
            check(ffi::MPI_Get_count(status.as_ptr(), datatype(ElementType::U8), &raw mut len))?;
            status.assume_init().MPI_SOURCE
        };
        let mut bytes = vec![0; usize::try_from(len).map_err(Error::external)?];
        let from = usize::try_from(from).map_err(Error::external)?;
        let memory = Memory { gives: ptr::null_mut(), gets: bytes.as_mut_ptr() };
        let call = Signature::of_bytes(Collective::Recv { from }, 0);
        // SAFETY: the message fits the bytes, which are on the heap; the rest is this function's contract.
        let request = unsafe { self.start(&call, memory, None, bytes.len()) }?;
        Ok(Some((request, bytes)))
    }

    /// Starts an exchange of `count` elements per part.
    ///
    /// # Safety
    /// Until the request is done, the memory must stay alive, be as large as the operation needs for that
    /// many elements, and nothing may write what is given or use what is received. `op` must combine elements
    /// of that type.
    pub(super) unsafe fn start(
        self,
        call: &Signature,
        Memory { gives, gets }: Memory,
        op: Option<ffi::MPI_Op>,
        count: usize,
    ) -> Result<Request> {
        let kind = datatype(call.element);
        let count = c_int::try_from(count).map_err(Error::external)?;
        let (gives, gets, comm) = (gives.cast_const().cast::<c_void>(), gets.cast::<c_void>(), self.0);
        // SAFETY: a constant.
        let op = op.unwrap_or(unsafe { ffi::RSMPI_SUM });
        let operation = call.operation;
        let other = operation.other().map_or(0, |(rank, _)| rank);
        let other = c_int::try_from(other).map_err(Error::external)?;
        // SAFETY: by this function's contract.
        request(|request| unsafe {
            match operation {
                Collective::AllReduce(_) => ffi::MPI_Iallreduce(gives, gets, count, kind, op, comm, request),
                Collective::ReduceScatter(_) => {
                    ffi::MPI_Ireduce_scatter_block(gives, gets, count, kind, op, comm, request)
                }
                Collective::Reduce { .. } => {
                    ffi::MPI_Ireduce(gives, gets, count, kind, op, other, comm, request)
                }
                Collective::AllGather => {
                    ffi::MPI_Iallgather(gives, count, kind, gets, count, kind, comm, request)
                }
                Collective::Gather { .. } => {
                    ffi::MPI_Igather(gives, count, kind, gets, count, kind, other, comm, request)
                }
                Collective::Scatter { .. } => {
                    ffi::MPI_Iscatter(gives, count, kind, gets, count, kind, other, comm, request)
                }
                Collective::AllToAll => {
                    ffi::MPI_Ialltoall(gives, count, kind, gets, count, kind, comm, request)
                }
                Collective::Broadcast { .. } => {
                    let memory = if gives.is_null() { gets } else { gives.cast_mut() };
                    ffi::MPI_Ibcast(memory, count, kind, other, comm, request)
                }
                Collective::Send { .. } => ffi::MPI_Isend(gives, count, kind, other, TAG, comm, request),
                Collective::Recv { .. } => ffi::MPI_Irecv(gets, count, kind, other, TAG, comm, request),
                Collective::Barrier | Collective::Split | Collective::Compare => {
                    ffi::MPI_Ibarrier(comm, request)
                }
            }
        })
    }
}

/// The tag of all messages. MPI keeps a sender's messages in order, so we need only one.
const TAG: c_int = 0;

impl Request {
    /// Lets MPI make progress, and returns true if the request is done. A received message must have `count`
    /// elements.
    pub(super) fn is_done(&mut self, call: &Signature, count: usize) -> Result<bool> {
        let (mut done, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::zeroed());
        // SAFETY: the request is under way, and the pointers are to locals.
        check(unsafe { ffi::MPI_Test(&raw mut self.0, &raw mut done, status.as_mut_ptr()) })?;
        if done == 0 || !matches!(call.operation, Collective::Recv { .. }) {
            return Ok(done != 0);
        }
        let mut came = 0;
        // SAFETY: the request is done, so MPI has filled the status. Its zeros were valid before.
        check(unsafe { ffi::MPI_Get_count(status.as_ptr(), datatype(call.element), &raw mut came) })?;
        if usize::try_from(came).ok() == Some(count) {
            return Ok(true);
        }
        Err(Error::external(format!(
            "a message of {came} elements arrived, but {count} were expected; give `send` and `recv` memory of the \
             same length"
        )))
    }
}

impl Ops {
    /// Returns the function for what a call combines, if anything.
    pub(super) fn of(&mut self, call: &Signature) -> Result<Option<ffi::MPI_Op>> {
        let Some(op) = call.operation.op() else { return Ok(None) };
        let wanted = (call.element, op);
        if let Some((_, op)) = self.0.iter().find(|(known, _)| *known == wanted) {
            return Ok(Some(*op));
        }
        let mut made = MaybeUninit::uninit();
        // SAFETY: the function has MPI's signature and is used for the right elements, and all combinations
        // commute. The pointer is to a local, which the call fills unless it fails.
        let made = unsafe {
            check(ffi::MPI_Op_create(combine::function(call.element, op), 1, made.as_mut_ptr()))?;
            made.assume_init()
        };
        self.0.push((wanted, made));
        Ok(Some(made))
    }
}

/// Returns MPI's type for elements. Only their size matters, because MPI combines none with its own
/// functions.
fn datatype(element: ElementType) -> ffi::MPI_Datatype {
    // SAFETY: constants.
    unsafe {
        match element.size() {
            1 => ffi::RSMPI_UINT8_T,
            2 => ffi::RSMPI_UINT16_T,
            4 => ffi::RSMPI_UINT32_T,
            _ => ffi::RSMPI_UINT64_T,
        }
    }
}

fn request(start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<Request> {
    // SAFETY: a constant.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    check(start(&raw mut request)).map(|()| Request(request))
}

/// Returns MPI's error as text.
fn check(code: c_int) -> Result<()> {
    // The standard says that `MPI_SUCCESS` is 0.
    if code == 0 {
        return Ok(());
    }
    // In existing libraries `MPI_MAX_ERROR_STRING` is at most 512.
    let (mut text, mut len) = ([0u8; 1024], 0);
    // SAFETY: the text has room for the longest message.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut len) };
    let text = usize::try_from(len).ok().filter(|_| told == 0).and_then(|len| text.get(..len));
    let text =
        text.map_or_else(|| format!("MPI's error {code}"), |text| String::from_utf8_lossy(text).into());
    Err(Error::external(text))
}
