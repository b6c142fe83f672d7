//! Uploads that wait for room in a stream without blocking.

use std::future::{Future, poll_fn};
use std::task::Poll;

use gpustream_core::copy;
use gpustream_core::operation::call_site;
use gpustream_hal::{CallSite, Result};

use super::check_lengths;
use crate::buffer::Buffer;
use crate::notify::Synchronize;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, ViewMut};

/// After this many bytes an upload lets the executor's other tasks run: copying them takes about half a millisecond.
const TURN: usize = 8 << 20;

impl Stream {
    /// Like [`upload`](Self::upload), but for an executor's thread: if the stream has no [room](Self::room_async), or has more
    /// uploads under way than [`DeviceOptions::staging_ring`](crate::DeviceOptions::staging_ring) allows, the future waits. Each
    /// poll copies as much as there is room for, up to a few megabytes. Like every allocation, it may block if no memory is left.
    ///
    /// Nothing happens before the first poll. When the future resolves, all elements are in pinned memory, the device's copies
    /// are submitted, and you may change `values`. If you drop the future before, what it has submitted still runs, and nothing
    /// else.
    ///
    /// ```
    /// # async fn work() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload_async(&[1, 2, 3]).await?;
    /// assert_eq!(stream.download_async(&x).await?, [1, 2, 3]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The future resolves with the errors of [`upload`](Self::upload).
    #[track_caller]
    pub fn upload_async<'a, T: Plain>(
        &'a self,
        values: &'a [T],
    ) -> impl Future<Output = Result<Buffer<T>>> + use<'a, T> {
        let call_site = call_site("upload_async");
        async move {
            let mut buffer = {
                let entry = self.enter(call_site)?;
                entry.check_running(copy::CAPTURED)?;
                self.alloc_for(&entry, values.len())?
            };
            self.upload_in_turns(call_site, values, buffer.view_mut()).await?;
            Ok(buffer)
        }
    }

    /// Like [`upload_async`](Self::upload_async), into memory that you already have. If you drop the future before it resolves,
    /// a part of the elements may have been written.
    ///
    /// ```
    /// # async fn work() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.zeros::<u32>(4)?;
    /// stream.upload_into_async(&[1, 2], &mut x.slice_mut(..2)?).await?;
    /// assert_eq!(stream.download_async(&x).await?, [1, 2, 0, 0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The future resolves with the errors of [`upload_into`](Self::upload_into).
    #[track_caller]
    pub fn upload_into_async<'a, T: Plain>(
        &'a self,
        values: &'a [T],
        dst: &'a mut (impl AsViewMut<T> + ?Sized),
    ) -> impl Future<Output = Result<()>> {
        let (call_site, dst) = (call_site("upload_into_async"), dst.view_mut());
        async move {
            {
                let entry = self.enter(call_site)?;
                entry.named(check_lengths(values.len(), dst.len()))?;
                self.check_memory(&entry, &dst.view())?;
            }
            self.upload_in_turns(call_site, values, dst).await
        }
    }

    async fn upload_in_turns<T: Plain>(
        &self,
        call_site: CallSite,
        values: &[T],
        dst: ViewMut<'_, T>,
    ) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut at = 0;
        while at < bytes.len() {
            self.room(call_site).await?;
            let copied = {
                let (entry, dst) = (self.enter(call_site)?, dst.view());
                copy::upload_some(&self.device.0, &entry, &bytes[at..], dst.block, dst.bytes().start + at)?
            };
            match copied {
                Ok(copied) => {
                    at += copied;
                    if at % TURN < copied && at < bytes.len() {
                        next_turn().await;
                    }
                }
                Err(oldest) => Synchronize::at(call_site, &self.core, self.core.mark_for(oldest)).await?,
            }
        }
        Ok(())
    }

    /// Returns a future that resolves when you can submit a few hundred more operations to this stream without blocking.
    ///
    /// Drivers queue about 1,024 operations per stream. A call that finds the queue full blocks until the device has worked some
    /// of it off, which is as long as the work in front takes. So await this before each request, or each few hundred calls, if
    /// your thread must not block. It resolves as soon as at most 512 operations are pending.
    ///
    /// While there is room, this costs next to nothing: no driver call, apart from one event every 128 operations if many are
    /// pending. A stream that is being recorded always has room.
    ///
    /// ```
    /// # async fn work() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.zeros::<u32>(1 << 20)?;
    /// for value in 0..10_000 {
    ///     stream.room_async().await?;
    ///     stream.fill(&mut x, value)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`](crate::ErrorKind::DeviceLost) if the device failed.
    #[track_caller]
    pub fn room_async(&self) -> Synchronize {
        self.room(call_site("room_async"))
    }

    fn room(&self, call_site: CallSite) -> Synchronize {
        Synchronize::at(call_site, &self.core, self.core.mark_for_room())
    }
}

/// Lets the executor's other tasks run.
async fn next_turn() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
