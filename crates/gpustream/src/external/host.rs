//! Another library's work that runs on the host: on one thread, or in parts on the CPU device's workers.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use gpustream_core::host_call::{PartClosure, PartsCall, RepeatedCall, run_part};
use gpustream_core::operation::call_site;
use gpustream_core::trace;
use gpustream_hal::{Error, ErrorKind, Result};

use super::Operands;
use crate::stream::{Stream, record_call};

impl Stream {
    /// Enqueues another library's work that runs on the host, in this stream's order. On the CPU device, where kernels and the
    /// host share memory, this is the counterpart of a vendor library's routine. Does not block.
    ///
    /// It is like [`host_fn`](Self::host_fn), but the closure may touch the memory that you name, and gets its addresses. On the
    /// CPU device that can be any memory. On other devices it must be memory that both sides reach.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut y = stream.upload(&[3.0f32, 1.0, 2.0])?;
    /// let len = y.len();
    /// // SAFETY: the closure only touches `y`, which we pass for writing.
    /// unsafe {
    ///     stream.external_host("sort", &mut y, move |y| {
    ///         std::slice::from_raw_parts_mut(y, len).sort_by(f32::total_cmp);
    ///     })
    /// }?;
    /// assert_eq!(stream.download(&y)?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`host_fn`](Self::host_fn); [`ErrorKind::DeviceMismatch`] if the stream's device cannot reach the memory.
    ///
    /// # Safety
    /// The closure may only touch memory of this library that `memory` names and that the host reaches, and only write what you
    /// pass for writing.
    #[track_caller]
    pub unsafe fn external_host<'a, M: Operands<'a>>(
        &self,
        label: &'static str,
        memory: M,
        closure: impl FnOnce(M::Addresses) + Send + 'static,
    ) -> Result<()> {
        let entry = self.enter(call_site(label))?;
        let (memory, addresses) = memory.split();
        let accesses = self.accesses(&entry, memory.as_ref())?;
        let addresses = SentAddresses(addresses);
        let closure = move || closure(addresses.get());
        // SAFETY: by this function's contract the closure only touches `accesses`.
        unsafe { self.call_host(&entry, &accesses, closure) }
    }

    /// Enqueues a closure that the CPU device's workers run in `parts` parts, in this stream's order. Algorithms that are written
    /// in Rust use all cores of the device this way. Does not block.
    ///
    /// We call `closure` once for each [`Part`], several at once if workers are free. Otherwise it is like
    /// [`external_host`](Self::external_host): the closure gets the addresses of `memory`, earlier work on
    /// `memory` is done before the first part, later work waits for the last one, and calls to this library are errors inside.
    /// The device has [`multiprocessors`](gpustream_hal::DeviceInfo) workers; a few times as many parts balance better. A part
    /// may wait for parts before it, but must not wait for later ones, because they may begin only when it has ended.
    ///
    /// If a part panics, we catch the panic, run the other parts, and report it at the next wait on this stream. The closure is
    /// dropped after its last part. After a device fault it is leaked.
    ///
    /// In a capture and in a [node](crate::GraphBuilder::node) the closure becomes a node, which the graph owns and runs in each
    /// launch. In a run of a [`Replay`](crate::Replay) it ends a segment, and each run gives its own closure.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut y = stream.full(1000, 2.0f32)?;
    /// let len = y.len();
    /// // SAFETY: the parts only touch `y`, which we pass for writing, and no two of them touch the same element.
    /// unsafe {
    ///     stream.external_parallel("square", &mut y, 8, move |part, y| {
    ///         let range = part.range(len);
    ///         let share = std::slice::from_raw_parts_mut(y.add(range.start), range.len());
    ///         share.iter_mut().for_each(|y| *y *= *y);
    ///     })
    /// }?;
    /// assert_eq!(stream.download(&y)?, [4.0; 1000]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on CUDA and HIP devices, whose kernels do not run on the host;
    /// [`ErrorKind::InvalidArgument`] for no parts; [`ErrorKind::DeviceMismatch`] for memory that the stream's device cannot
    /// reach; [`ErrorKind::Captured`] if another thread captures the stream; [`ErrorKind::NotANode`] in the body of a condition.
    ///
    /// # Safety
    /// The closure may only touch memory of this library that `memory` names, and only write what you pass for writing. If parts
    /// that may run at once touch the same bytes, none of them may write.
    #[track_caller]
    pub unsafe fn external_parallel<'a, M: Operands<'a>>(
        &self,
        label: &'static str,
        memory: M,
        parts: u32,
        closure: impl Fn(Part, M::Addresses) + Send + Sync + 'static,
    ) -> Result<()> {
        let entry = self.enter(call_site(label))?;
        let (memory, addresses) = memory.split();
        let accesses = self.accesses(&entry, memory.as_ref())?;
        let Some(parts) = NonZeroU32::new(parts) else { return entry.named(Err(no_parts())) };
        let addresses = SentAddresses(addresses);
        let closure: PartClosure =
            Arc::new(move |index| closure(Part { index, count: parts.get() }, addresses.get()));
        if entry.named(self.core.is_recorded_here())? {
            // SAFETY: the stream is recorded here, and the closure keeps to `accesses`, by this function's contract.
            return unsafe { record_call(&entry, &accesses, RepeatedCall::in_parts(closure, parts)) };
        }
        let call = PartsCall::new(closure, parts, &self.core.failures, self.core.past());
        // We drop this while nothing is locked, because the closure may own graphs or modules, which query this stream when
        // dropped.
        let mut refused = None;
        entry.submit_outside_captures(
            "use a stream that another thread captures meanwhile; submit from the thread that captures",
            trace::WorkKind::Host,
            accesses.iter().copied(),
            |device, stream| {
                let data = call.into_raw();
                // SAFETY: the stream is alive, and `data` stays valid until the last part of `run_part` frees it.
                unsafe { device.stream_host_parts(stream, run_part, data, parts.get()) }
                    // SAFETY: the backend refused the call, so it is not shared.
                    .inspect_err(|_| refused = Some(unsafe { PartsCall::from_raw(data) }))
            },
        )
    }
}

/// One part of a closure of [`Stream::external_parallel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of this part, from 0.
    pub index: u32,
    /// The number of all parts.
    pub count: u32,
}

impl Part {
    /// Returns this part's share of `len` elements. The shares of all parts follow each other, cover the elements, and differ in
    /// length by one at most.
    ///
    /// ```
    /// use gpustream::Part;
    /// let shares = [0, 1, 2].map(|index| Part { index, count: 3 }.range(10));
    /// assert_eq!(shares, [0..4, 4..7, 7..10]);
    /// ```
    pub fn range(self, len: usize) -> Range<usize> {
        let (index, count) = (self.index as usize, (self.count as usize).max(1));
        let (each, longer) = (len / count, len % count);
        let start = |index: usize| (each * index.min(count) + index.min(longer)).min(len);
        start(index)..start(index.saturating_add(1))
    }
}

/// Addresses on their way to the thread that runs a closure.
#[derive(Clone, Copy)]
struct SentAddresses<A>(A);

// SAFETY: an address is only a number until a closure follows it. You passed the closure to an `unsafe` function, and that
// function's contract says which memory the closure may touch, on the thread that runs it.
unsafe impl<A> Send for SentAddresses<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for SentAddresses<A> {}

impl<A: Copy> SentAddresses<A> {
    /// A method, so that a closure captures all of `self`, which is `Send`.
    fn get(self) -> A {
        self.0
    }
}

#[cold]
fn no_parts() -> Error {
    Error::new(ErrorKind::InvalidArgument, "a closure in 0 parts never runs; ask for at least one part")
}
