//! The work on the device. Nothing here blocks a thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpustream::{Device, Result, Stream};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use crate::image::Image;

mod kernels {
    gpustream::include_kernels!("blur");
}

/// A few streams that requests take in turns. So copies of one request overlap the kernels of another. More streams gain
/// nothing: a GPU has a handful of hardware queues.
const STREAMS: usize = 4;

/// The permits of [`Blur::memory`] stand for this many bytes each.
const UNIT: usize = 1 << 10;

/// A device with everything that a request needs, made before the first one.
pub struct Blur {
    device: Device,
    streams: Vec<Stream>,
    turn: AtomicUsize,
    kernels: kernels::Kernels,
    /// The memory that requests may use at the same time. Those that find none left wait here, and not in the allocator.
    memory: Semaphore,
    limit: usize,
}

impl Blur {
    /// Opens the streams, loads the kernels, and blurs one image, so that the first request finds everything warm.
    pub async fn warm(device: Device, memory: usize) -> Result<Self> {
        let streams = (0..STREAMS).map(|_| device.stream()).collect::<Result<_>>()?;
        let units = (memory / UNIT).min(Semaphore::MAX_PERMITS);
        let (kernels, turn) = (kernels::Kernels::load(&device)?, AtomicUsize::new(0));
        let blur = Self { device, streams, turn, kernels, memory: Semaphore::new(units), limit: memory };
        for _ in 0..STREAMS {
            blur.run(Image { width: 64, height: 64, pixels: vec![0; 64 * 64] }, 1).await?;
        }
        Ok(blur)
    }

    /// Waits until there is memory for an image with as many pixels: the permit stands for it. Call this before you decode the
    /// image.
    pub async fn reserve(&self, pixels: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.memory.acquire_many(bytes_for(pixels).div_ceil(UNIT).min(self.limit / UNIT) as u32).await
    }

    /// Returns how many pixels an image can have.
    pub fn most_pixels(&self) -> usize {
        self.limit / bytes_for(1)
    }

    /// Blurs an image.
    #[tracing::instrument(skip(self, image), fields(width = image.width, height = image.height))]
    pub async fn run(&self, mut image: Image, radius: u32) -> Result<Image> {
        let stream = &self.streams[self.turn.fetch_add(1, Ordering::Relaxed) % STREAMS];
        stream.room_async().await?;
        let (width, height) = (image.width, image.height);
        let mut pixels = stream.upload_async(&image.pixels).await?;
        let mut rows = stream.alloc::<u32>(pixels.len())?;
        self.kernels.blur_rows(stream, &pixels, &mut rows, width, height, radius)?;
        self.kernels.blur_columns(stream, &rows, &mut pixels, width, height, radius)?;
        // If the client goes away, the future is dropped here. What is submitted still runs, and its memory goes back after.
        image.pixels = stream.download_async(&pixels).await?;
        Ok(image)
    }

    /// Waits until the device has done everything.
    pub async fn drain(&self) -> Result<()> {
        for stream in &self.streams {
            stream.synchronize_async().await?;
        }
        Ok(())
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// What a request holds for an image: the pixels on the host twice, in pinned memory twice, and on the device twice.
fn bytes_for(pixels: usize) -> usize {
    6 * size_of::<u32>() * pixels
}
