//! `examples/image_service/src/blur.rs` with cudarc. Nothing here blocks a thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg};
use cudarc::nvrtc::compile_ptx;
use image_service::image::Image;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::sleep;

use super::for_nvrtc;

/// A few streams that requests take in turns.
const STREAMS: usize = 4;

/// The requests whose work may be in a stream at the same time. The driver's queue has about a thousand places, and a call that
/// finds none left blocks its thread.
const ROOM: usize = 100;

/// The permits of [`Blur::memory`] stand for this many bytes each.
const UNIT: usize = 1 << 10;

/// A device with everything that a request needs, made before the first one.
pub(crate) struct Blur {
    context: Arc<CudaContext>,
    streams: Vec<(Arc<CudaStream>, Semaphore)>,
    turn: AtomicUsize,
    rows: CudaFunction,
    columns: CudaFunction,
    /// Pinned memory to use again, because allocating it takes long and stops the device.
    pinned: Mutex<Vec<PinnedHostSlice<u32>>>,
    /// The memory that requests may use at the same time.
    memory: Semaphore,
    limit: usize,
}

impl Blur {
    /// Opens the streams, loads the kernels, and blurs one image, so that the first request finds everything warm.
    pub(crate) async fn warm(context: Arc<CudaContext>, memory: usize) -> Result<Arc<Self>> {
        let module = context
            .load_module(compile_ptx(for_nvrtc(include_str!("../../../image_service/kernels/blur.cu")))?)?;
        let streams =
            (0..STREAMS).map(|_| Ok((context.new_stream()?, Semaphore::new(ROOM)))).collect::<Result<_>>()?;
        let blur = Arc::new(Self {
            context,
            streams,
            turn: AtomicUsize::new(0),
            rows: module.load_function("blur_rows")?,
            columns: module.load_function("blur_columns")?,
            pinned: Mutex::default(),
            memory: Semaphore::new((memory / UNIT).min(Semaphore::MAX_PERMITS)),
            limit: memory,
        });
        for _ in 0..STREAMS {
            blur.run(Image { width: 64, height: 64, pixels: vec![0; 64 * 64] }, 1).await?;
        }
        Ok(blur)
    }

    /// Waits until there is memory for an image with as many pixels: the permit stands for it.
    pub(crate) async fn reserve(&self, pixels: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.memory.acquire_many(bytes_for(pixels).div_ceil(UNIT).min(self.limit / UNIT) as u32).await
    }

    /// Blurs an image.
    pub(crate) async fn run(self: &Arc<Self>, image: Image, radius: u32) -> Result<Image> {
        // If the client goes away, this future is dropped. The task goes on, and keeps the pinned memory until the device is
        // done with it.
        tokio::spawn(self.clone().on_device(image, radius)).await?
    }

    async fn on_device(self: Arc<Self>, mut image: Image, radius: u32) -> Result<Image> {
        let (stream, room) = &self.streams[self.turn.fetch_add(1, Ordering::Relaxed) % STREAMS];
        let _room = room.acquire().await?;
        let (width, height, len) = (image.width, image.height, image.pixels.len());
        let mut pinned = self.take_pinned(len)?;
        pinned.as_mut_slice()?[..len].copy_from_slice(&image.pixels);
        // SAFETY: the copy fills the first one, and a kernel the second one, before anything reads them.
        let (mut pixels, mut rows) = unsafe { (stream.alloc(len)?, stream.alloc::<u32>(len)?) };
        stream.memcpy_htod(&pinned.as_slice()?[..len], &mut pixels)?;
        let grid_dim = (width.div_ceil(256) as u32, height.clamp(1, 65535) as u32, 1);
        let shape = LaunchConfig { grid_dim, block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        // A launch cannot change threads, as a task does that waits. So it ends before this one waits.
        {
            let mut launch = stream.launch_builder(&self.rows);
            launch.arg(&pixels).arg(&mut rows).arg(&width).arg(&height).arg(&radius);
            // SAFETY: these are the kernel's parameters, and both slices have `width * height` pixels.
            unsafe { launch.launch(shape) }?;
            launch = stream.launch_builder(&self.columns);
            launch.arg(&rows).arg(&mut pixels).arg(&width).arg(&height).arg(&radius);
            // SAFETY: as above.
            unsafe { launch.launch(shape) }?;
        }
        // cudarc takes a part of pinned memory for an ordinary slice and does not record its use. So we wait before we read it.
        stream.memcpy_dtoh(&pixels, &mut pinned.as_mut_slice()?[..len])?;
        done(stream).await?;
        image.pixels.copy_from_slice(&pinned.as_slice()?[..len]);
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).push(pinned);
        Ok(image)
    }

    /// Takes pinned memory with room for `len` pixels, or makes some.
    fn take_pinned(&self, len: usize) -> Result<PinnedHostSlice<u32>> {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fits) = pinned.iter().position(|memory| memory.len() >= len) {
            return Ok(pinned.swap_remove(fits));
        }
        // What is too small for this image makes room.
        drop(pinned.pop());
        // SAFETY: the memory is written before it is read.
        Ok(unsafe { self.context.alloc_pinned_with_flags(len.next_power_of_two(), 0) }?)
    }

    /// Waits until the device has done everything.
    pub(crate) async fn drain(&self) -> Result<()> {
        for (stream, _) in &self.streams {
            done(stream).await?;
        }
        Ok(())
    }
}

/// Waits until a stream has done what is in it by now. Futures are not part of cudarc, so we look again and again.
async fn done(stream: &CudaStream) -> Result<()> {
    let event = stream.record_event(None)?;
    while !event.try_is_complete()? {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// What a request holds for an image: the pixels on the host once, in pinned memory at most twice, and on the device twice.
fn bytes_for(pixels: usize) -> usize {
    5 * size_of::<u32>() * pixels
}
