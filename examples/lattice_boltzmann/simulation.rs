//! The simulation: a tunnel whose rows are split over devices, and the calls of one step.

use anyhow::Result;
use gpustream::{AsViewMut, Buffer, Device, Stream, StreamOptions, ViewMut};

use super::tunnel::{POPULATIONS, Wind};
use super::{Kernels, Tunnel};

/// A tunnel with the air in it. Its rows form a ring, because the last one is next to the first. So every part has two
/// neighbours, and if there is only one part, it is its own neighbour.
pub struct Simulation {
    tunnel: Tunnel,
    width: usize,
    height: usize,
    parts: Vec<Part>,
}

/// One device's rows.
struct Part {
    kernels: Kernels,
    stream: Stream,
    /// The halo travels on this stream.
    halo: Stream,
    /// The tunnel's number for the first of these rows.
    first: usize,
    rows: usize,
    /// The rows, with one row of each neighbour before and after them: the halo.
    now: Buffer<f32>,
    next: Buffer<f32>,
    picture: Buffer<u8>,
}

impl Simulation {
    /// Prepares air that moves with the wind, in a tunnel that is four times as long as high. There must be two rows for each
    /// device.
    pub fn new(devices: &[Device], height: usize) -> Result<Self> {
        let Wind { tunnel, width, .. } = Wind::new(height);
        let part = |(number, device): (usize, &Device)| {
            let first = number * height / devices.len();
            let rows = (number + 1) * height / devices.len() - first;
            // Moving a halo takes only a few threads, and they should not have to wait until a large kernel leaves room for
            // them.
            let urgent = StreamOptions::default().priority(device.info().limits.stream_priorities.greatest);
            let (stream, halo) = (device.stream()?, device.stream_with(urgent)?);
            stream.set_name("air");
            halo.set_name("halo");
            let row = POPULATIONS * width;
            let mut now = stream.alloc((rows + 2) * row)?;
            let kernels = Kernels::load(device)?;
            kernels.begin(&stream, &mut now.slice_mut(row..(rows + 1) * row)?, tunnel, width, first, rows)?;
            let (next, picture) = (stream.alloc(now.len())?, stream.alloc(rows * width)?);
            Ok(Part { kernels, stream, halo, first, rows, now, next, picture })
        };
        let parts = devices.iter().enumerate().map(part).collect::<Result<_>>()?;
        Ok(Self { tunnel, width, height, parts })
    }

    /// Submits steps and does not wait for them.
    pub fn steps(&mut self, steps: usize) -> gpustream::Result<()> {
        for _ in 0..steps {
            self.exchange()?;
            self.parts.iter_mut().try_for_each(|part| part.step(self.tunnel, self.width))?;
        }
        Ok(())
    }

    /// Copies into each part's halo what moves there from the neighbours. Because of these copies a stream waits for kernels of
    /// another device, and that device must not overwrite a row before it is copied. The library adds these waits.
    fn exchange(&mut self) -> gpustream::Result<()> {
        // A row's second third moves to the next row, and its last third to the row before.
        let third = POPULATIONS * self.width / 3;
        let (mut halos, mut rows) = (Vec::new(), Vec::new());
        for part in &mut self.parts {
            let (before, rest) = part.now.split_at_mut(3 * third)?;
            let (own, after) = rest.split_at_mut(part.rows * 3 * third)?;
            rows.push(own.into_view());
            halos.push((&part.halo, before, after));
        }
        let count = rows.len();
        for (number, (stream, before, after)) in halos.into_iter().enumerate() {
            let (previous, next) = (rows[(number + count - 1) % count], rows[(number + 1) % count]);
            let end = previous.len();
            stream.copy(
                &previous.slice(end - 2 * third..end - third)?,
                &mut before.slice_mut(third..2 * third)?,
            )?;
            stream.copy(&next.slice(2 * third..3 * third)?, &mut after.slice_mut(2 * third..)?)?;
        }
        Ok(())
    }

    /// Runs `frames` times `steps` steps. After each `steps` of them, passes a picture to `sink`, which runs on this thread while
    /// the devices go on.
    pub fn film(
        &mut self,
        frames: usize,
        steps: usize,
        sink: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let device = self.parts[0].stream.device().clone();
        device.pipeline().chunks(self.width * self.height).generate(
            frames,
            |stream, frame| {
                self.steps(steps)?;
                self.draw(stream, frame)
            },
            sink,
        )
    }

    /// Lets each device draw its part, and copies the parts into a frame on the first device.
    fn draw(&mut self, stream: &Stream, frame: &mut ViewMut<'_, u8>) -> gpustream::Result<()> {
        let (tunnel, width) = (self.tunnel, self.width);
        for Part { kernels, stream: own, first, rows, now, picture, .. } in &mut self.parts {
            let row = POPULATIONS * width;
            let cells = now.slice(row..(*rows + 1) * row)?;
            kernels.draw(own, &cells, picture, tunnel, width, *first, *rows)?;
            let place = *first * width..(*first + *rows) * width;
            stream.copy(picture, &mut frame.view_mut().slice_mut(place)?)?;
        }
        Ok(())
    }

    /// Waits until all devices are done.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.parts.iter().try_for_each(|part| part.stream.synchronize())?)
    }

    /// Downloads all populations, row by row. The cylinder's are 0.
    pub fn populations(&self) -> Result<Vec<f32>> {
        let row = POPULATIONS * self.width;
        let mut all = crate::values(self.height * row, |_| 0.0)?;
        for Part { stream, first, rows, now, .. } in &self.parts {
            let own = now.slice(row..(rows + 1) * row)?;
            stream.download_into(&own, &mut all[first * row..(first + rows) * row])?;
        }
        Ok(all)
    }
}

impl Part {
    /// Submits one step: first the rows inside, then the two that must wait for the halo.
    fn step(&mut self, tunnel: Tunnel, width: usize) -> gpustream::Result<()> {
        let Self { kernels, stream, first, rows, now, next, .. } = self;
        let row = POPULATIONS * width;
        for range in [1..*rows - 1, 0..1, *rows - 1..*rows] {
            // A range of rows also needs one more row on each side.
            let from = now.slice(range.start * row..(range.end + 2) * row)?;
            let mut to = next.slice_mut((range.start + 1) * row..(range.end + 1) * row)?;
            kernels.step(stream, &from, &mut to, tunnel, width, *first + range.start, range.len())?;
        }
        std::mem::swap(now, next);
        Ok(())
    }
}
