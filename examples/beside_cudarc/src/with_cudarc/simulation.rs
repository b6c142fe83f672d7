//! `examples/lattice_boltzmann/simulation.rs` with cudarc.
//!
//! cudarc orders streams by two events for each slice. Here that would undo the overlap: a halo that comes in writes to the
//! slice that the kernel reads, so one would wait for the other although they touch different rows. So the rows are allocated
//! with tracking turned off, and `join` orders them by hand.

use std::mem;
use std::sync::Arc;

use anyhow::Result;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::compile_ptx;
use examples::lattice_boltzmann::tunnel::{POPULATIONS, Wind};

use super::for_nvrtc;

/// How many frames the devices may be ahead.
const FRAMES: usize = 3;

/// The numbers of the struct `Tunnel` of the kernels, in its order.
type Tunnel = [f32; 6];

pub(crate) struct Simulation {
    tunnel: Tunnel,
    width: usize,
    height: usize,
    parts: Vec<Part>,
}

/// One device's rows.
struct Part {
    step: CudaFunction,
    draw: CudaFunction,
    stream: Arc<CudaStream>,
    /// The halo travels on this stream.
    halo: Arc<CudaStream>,
    first: usize,
    rows: usize,
    now: CudaSlice<f32>,
    next: CudaSlice<f32>,
    picture: CudaSlice<u8>,
}

impl Simulation {
    /// Prepares air that moves with the wind. `devices` are ordinals.
    pub(crate) fn new(devices: &[usize], height: usize) -> Result<Self> {
        let Wind { tunnel: t, width, .. } = Wind::new(height);
        let tunnel = [t.x, t.y, t.radius, t.wind, t.fan, t.relaxation];
        let ptx = compile_ptx(for_nvrtc(include_str!("../../../lattice_boltzmann/lattice_boltzmann.cu")))?;
        let part = |(number, ordinal): (usize, &usize)| {
            let first = number * height / devices.len();
            let rows = (number + 1) * height / devices.len() - first;
            let context = CudaContext::new(*ordinal)?;
            let (_, greatest) = result::stream::get_priority_range()?;
            let (stream, halo) = (context.new_stream()?, context.new_stream_with_priority(greatest)?);
            let row = POPULATIONS * width;
            // SAFETY: `join` orders the uses of these two slices on several streams, and `stream`, which frees them, waits for
            // the last ones.
            unsafe { context.disable_event_tracking() };
            let mut now = stream.alloc_zeros((rows + 2) * row)?;
            let next = stream.alloc_zeros((rows + 2) * row)?;
            // SAFETY: what is allocated from here on is tracked.
            unsafe { context.enable_event_tracking() };
            let module = context.load_module(ptx.clone())?;
            let begin = module.load_function("begin")?;
            let mut own = now.slice_mut(row..(rows + 1) * row);
            let mut launch = stream.launch_builder(&begin);
            launch.arg(&mut own).arg(&tunnel).arg(&width).arg(&first).arg(&rows);
            // SAFETY: these are the kernel's parameters, and `own` has `rows` rows.
            unsafe { launch.launch(covering(width, rows)) }?;
            Ok(Part {
                step: module.load_function("step")?,
                draw: module.load_function("draw")?,
                picture: stream.alloc_zeros(rows * width)?,
                stream,
                halo,
                first,
                rows,
                now,
                next,
            })
        };
        let parts = devices.iter().enumerate().map(part).collect::<Result<_>>()?;
        Ok(Self { tunnel, width, height, parts })
    }

    /// Submits steps and does not wait for them.
    pub(crate) fn steps(&mut self, steps: usize) -> Result<()> {
        let count = self.parts.len();
        for _ in 0..steps {
            self.exchange()?;
            self.parts.iter_mut().try_for_each(|part| part.step(&self.tunnel, self.width))?;
            for (number, part) in self.parts.iter().enumerate() {
                // The next step overwrites the rows that the neighbours copy.
                part.stream.join(&self.parts[(number + count - 1) % count].halo)?;
                part.stream.join(&self.parts[(number + 1) % count].halo)?;
            }
        }
        Ok(())
    }

    /// Copies into each part's halo what moves there from the neighbours.
    fn exchange(&mut self) -> Result<()> {
        let (third, count) = (POPULATIONS * self.width / 3, self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            // The neighbours must have written these rows, and this part must no longer read the halo of the step before.
            for neighbour in [number + count - 1, number, number + 1] {
                part.halo.join(&self.parts[neighbour % count].stream)?;
            }
        }
        let (mut split, mut halos, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for part in &mut self.parts {
            split.push((&part.halo, part.rows, part.now.split_at_mut(3 * third)));
        }
        for (stream, count, (before, rest)) in &mut split {
            let (own, after) = rest.split_at_mut(*count * 3 * third);
            rows.push(own);
            halos.push((stream, before, after));
        }
        for (number, (stream, before, mut after)) in halos.into_iter().enumerate() {
            let (previous, next) = (&rows[(number + count - 1) % count], &rows[(number + 1) % count]);
            let end = previous.len();
            stream.memcpy_dtod(
                &previous.slice(end - 2 * third..end - third),
                &mut before.slice_mut(third..2 * third),
            )?;
            stream.memcpy_dtod(&next.slice(2 * third..3 * third), &mut after.slice_mut(2 * third..))?;
        }
        Ok(())
    }

    /// Runs `frames` times `steps` steps. After each `steps` of them, passes a picture to `sink`, which runs on this thread while
    /// the devices go on.
    pub(crate) fn film(
        &mut self,
        frames: usize,
        steps: usize,
        mut sink: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let context = self.parts[0].stream.context().clone();
        let (stream, copies) = (context.new_stream()?, context.new_stream()?);
        let len = self.width * self.height;
        let slot = || {
            // SAFETY: the host's memory is read only after a copy has filled it.
            let host = unsafe { context.alloc_pinned_with_flags::<u8>(len, 0) }?;
            anyhow::Ok((stream.alloc_zeros::<u8>(len)?, host))
        };
        let mut slots = (0..FRAMES).map(|_| slot()).collect::<Result<Vec<_>>>()?;
        for number in 0..frames + FRAMES {
            let (frame, host) = &mut slots[number % FRAMES];
            if number >= FRAMES {
                sink(number - FRAMES, host.as_slice()?)?;
            }
            if number < frames {
                self.steps(steps)?;
                self.draw(&stream, frame)?;
                copies.memcpy_dtoh(frame, host)?;
            }
        }
        Ok(())
    }

    /// Lets each device draw its part, and copies the parts into a frame on the first device.
    fn draw(&mut self, stream: &Arc<CudaStream>, frame: &mut CudaSlice<u8>) -> Result<()> {
        let (tunnel, width) = (self.tunnel, self.width);
        for Part { draw, stream: own, first, rows, now, picture, .. } in &mut self.parts {
            let row = POPULATIONS * width;
            let cells = now.slice(row..(*rows + 1) * row);
            let mut launch = own.launch_builder(draw);
            launch.arg(&cells).arg(&mut *picture).arg(&tunnel).arg(&width).arg(&*first).arg(&*rows);
            // SAFETY: these are the kernel's parameters, and both slices have `rows` rows.
            unsafe { launch.launch(covering(width, *rows)) }?;
            stream.memcpy_dtod(picture, &mut frame.slice_mut(*first * width..(*first + *rows) * width))?;
            // A copy between devices leaves no event in the slice that it reads, so the next picture would not wait for it.
            own.join(stream)?;
        }
        Ok(())
    }

    /// Waits until all devices are done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        Ok(self.parts.iter().try_for_each(|part| part.stream.synchronize())?)
    }

    /// Downloads all populations, row by row. The cylinder's are 0.
    pub(crate) fn populations(&self) -> Result<Vec<f32>> {
        let row = POPULATIONS * self.width;
        let mut all = examples::values(self.height * row, |_| 0.0)?;
        for Part { stream, first, rows, now, .. } in &self.parts {
            let own = now.slice(row..(rows + 1) * row);
            stream.memcpy_dtoh(&own, &mut all[first * row..(first + rows) * row])?;
        }
        Ok(all)
    }
}

impl Part {
    /// Submits one step: first the rows inside, then the two that must wait for the halo.
    fn step(&mut self, tunnel: &Tunnel, width: usize) -> Result<()> {
        let Self { step, stream, halo, first, rows, now, next, .. } = self;
        let row = POPULATIONS * width;
        for range in [1..*rows - 1, 0..1, *rows - 1..*rows] {
            if range.start == 0 {
                stream.join(halo)?;
            }
            let from = now.slice(range.start * row..(range.end + 2) * row);
            let mut to = next.slice_mut((range.start + 1) * row..(range.end + 1) * row);
            let (first, rows) = (*first + range.start, range.len());
            let mut launch = stream.launch_builder(step);
            launch.arg(&from).arg(&mut to).arg(tunnel).arg(&width).arg(&first).arg(&rows);
            // SAFETY: these are the kernel's parameters, `to` has `rows` rows, and `from` one more before and after them.
            unsafe { launch.launch(covering(width, rows)) }?;
        }
        mem::swap(now, next);
        Ok(())
    }
}

fn covering(width: usize, rows: usize) -> LaunchConfig {
    let grid_dim = (width.div_ceil(256) as u32, rows.clamp(1, 65535) as u32, 1);
    LaunchConfig { grid_dim, block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}
