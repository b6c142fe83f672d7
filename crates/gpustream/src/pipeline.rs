//! Data sets larger than the device, in pieces: upload, launches and download of neighbouring pieces overlap.

use std::fmt;

use bytemuck::Pod;
use gpustream_hal::{Error, ErrorKind, Result};

use crate::buffer::Buffer;
use crate::copy::byte_len;
use crate::device::Device;
use crate::pinned::Pinned;
use crate::staging;
use crate::stream::Stream;
use crate::view::{View, ViewMut};

/// Bytes of a piece where nothing is said: long enough that the bus is busy nearly all the time.
const PIECE: usize = 32 << 20;

/// Runs upload, launches and download over pieces of a data set, made by [`Device::pipeline`].
///
/// Pieces take turns on two streams, which is as many as keep a copy in each direction busy: one stream's upload runs
/// beside the other's download, and kernels beside both.
///
/// ```text
/// stream 0   up 0 | work 0 | down 0 | up 2 | work 2 | down 2
/// stream 1          up 1   | work 1 | down 1 | up 3   ...
/// ```
///
/// ```
/// # use gpustream::{Device, Launch};
/// # let device = Device::open("cpu")?;
/// let input: Vec<u32> = (0..1_000_000).collect();
/// let mut output = vec![0u32; input.len()];
/// device.pipeline().chunks(100_000).depth(3).map(&input, &mut output, |stream, piece| {
///     stream.copy(&piece.input, &mut piece.output)        // or launch kernels
/// })?;
/// assert_eq!(input, output);
/// # Ok::<(), gpustream::Error>(())
/// ```
#[must_use = "a pipeline does nothing until it is run"]
pub struct Pipeline<'p> {
    device: Device,
    chunk: usize,
    results: Option<usize>,
    depth: usize,
    progress: Option<Box<dyn FnMut(usize) + 'p>>,
}

/// What a pipeline's work is given: one piece of the data, on the device.
pub struct Piece<'a, T, U> {
    /// The piece's number, from 0.
    pub index: usize,
    /// What was uploaded.
    pub input: View<'a, T>,
    /// What will be downloaded; all of it has to be written.
    pub output: ViewMut<'a, U>,
}

/// Memory of a piece under way.
struct Slot<T, U> {
    host_input: Pinned<T>,
    input: Buffer<T>,
    output: Buffer<U>,
    host_output: Pinned<U>,
    /// Lengths of what is under way.
    pending: Option<(usize, usize)>,
}

impl Device {
    /// A pipeline over pieces of a data set that may be larger than the device's memory.
    pub fn pipeline(&self) -> Pipeline<'static> {
        Pipeline { device: self.clone(), chunk: 0, results: None, depth: 3, progress: None }
    }
}

impl Pipeline<'_> {
    /// Sets the elements of a piece. Without this a piece is 32 MiB.
    pub fn chunks(mut self, elements: usize) -> Self {
        self.chunk = elements;
        self
    }

    /// Sets the elements that each piece gives back, where it is not one for each that goes in.
    pub fn results(mut self, elements: usize) -> Self {
        self.results = Some(elements);
        self
    }

    /// Sets how many pieces may be under way, 3 without this. Each needs its own memory, pinned and on the device.
    pub fn depth(mut self, pieces: usize) -> Self {
        self.depth = pieces.max(1);
        self
    }

    /// Has `progress` called with the number of elements finished so far, after each piece.
    pub fn progress<'q>(self, progress: impl FnMut(usize) + 'q) -> Pipeline<'q> {
        let Self { device, chunk, results, depth, .. } = self;
        Pipeline { device, chunk, results, depth, progress: Some(Box::new(progress)) }
    }

    /// Runs every piece of `input` through `work` and puts what it gives into `output`, of the same length. Blocks
    /// until all is there.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] where the lengths differ; those of `work`.
    pub fn map<T: Pod, U: Pod>(
        self,
        input: &[T],
        output: &mut [U],
        work: impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
    ) -> Result<()> {
        if input.len() != output.len() || self.results.is_some() {
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!(
                    "a map of {} elements to {}: give slices of one length, and use `run` where pieces give back \
                     another number than goes in",
                    input.len(),
                    output.len()
                ),
            ));
        }
        let (mut left, mut taken) = (input, 0);
        let device = self.device.clone();
        let source = |piece: &mut [T]| {
            let (now, later) = left.split_at(piece.len().min(left.len()));
            left = later;
            staging::copy_on_host(&device, now, &mut piece[..now.len()])?;
            Ok::<_, Error>(now.len())
        };
        let sink = |_, values: &[U]| {
            staging::copy_on_host(&device, values, &mut output[taken..taken + values.len()])?;
            taken += values.len();
            Ok(())
        };
        self.run(source, work, sink).map(drop)
    }

    /// Runs pieces through `work` until `source` has no more. Blocks until all are done; returns the number of
    /// elements that went in.
    ///
    /// `source` fills the slice it is given, which is pinned memory, from its beginning and says how many elements
    /// it wrote: none at the end. `sink` gets each piece's number and what it gave back, in order. Both run on the
    /// calling thread, while the device works on other pieces; either may have threads of its own.
    ///
    /// # Errors
    /// The first of `source`, `work`, `sink` or the library; [`ErrorKind::Uninitialized`] where `work` left some of a
    /// piece's output unwritten.
    pub fn run<T: Pod, U: Pod, E: From<Error>>(
        mut self,
        mut source: impl FnMut(&mut [T]) -> Result<usize, E>,
        mut work: impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
        mut sink: impl FnMut(usize, &[U]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let chunk = match self.chunk {
            0 => (PIECE / size_of::<T>().max(1)).max(1),
            given => given,
        };
        let capacity = self.results.unwrap_or(chunk);
        // Said before anything is allocated.
        byte_len::<T>(chunk)?;
        byte_len::<U>(capacity)?;
        let streams = (0..self.depth.min(2)).map(|_| self.device.stream()).collect::<Result<Vec<_>>>()?;
        let mut slots: Vec<Slot<T, U>> = Vec::new();
        let (mut total, mut finished) = (0, 0);
        let mut index = 0;
        let mut finish = |slot: &mut Slot<T, U>, index: usize| {
            if let Some((taken, given)) = slot.pending.take() {
                sink(index, &slot.host_output.slice(..given)?.read()?)?;
                finished += taken;
                if let Some(progress) = &mut self.progress {
                    progress(finished);
                }
            }
            Ok::<(), E>(())
        };
        loop {
            let stream = &streams[index % streams.len()];
            // Memory is made as it is needed: short data needs one piece's.
            if slots.len() < self.depth {
                slots.push(Slot::new(&self.device, stream, chunk, capacity)?);
            }
            let turn = index % self.depth;
            let slot = &mut slots[turn];
            if index >= self.depth {
                finish(slot, index - self.depth)?;
            }
            let taken = source(&mut slot.host_input.write()?)?.min(chunk);
            if taken == 0 {
                break;
            }
            slot.submit(stream, index, taken, self.results.unwrap_or(taken), &mut work)?;
            total += taken;
            index += 1;
        }
        for index in index.saturating_sub(self.depth)..index {
            let turn = index % self.depth;
            finish(&mut slots[turn], index)?;
        }
        Ok(total)
    }
}

impl<T: Pod, U: Pod> Slot<T, U> {
    fn new(device: &Device, stream: &Stream, chunk: usize, capacity: usize) -> Result<Self> {
        Ok(Self {
            host_input: device.pinned(chunk)?,
            input: stream.alloc(chunk)?,
            output: stream.alloc(capacity)?,
            host_output: device.pinned(capacity)?,
            pending: None,
        })
    }

    fn submit(
        &mut self,
        stream: &Stream,
        index: usize,
        taken: usize,
        given: usize,
        work: &mut impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
    ) -> Result<()> {
        let mut input = self.input.slice_mut(..taken)?;
        stream.copy(&self.host_input.slice(..taken)?, &mut input)?;
        let output = self.output.slice_mut(..given)?;
        work(stream, &mut Piece { index, input: self.input.slice(..taken)?, output })?;
        stream.copy(&self.output.slice(..given)?, &mut self.host_output.slice_mut(..given)?)?;
        self.pending = Some((taken, given));
        Ok(())
    }
}

impl fmt::Debug for Pipeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pipeline(pieces of {} elements, {} under way, on {:?})",
            self.chunk, self.depth, self.device
        )
    }
}

impl<T, U> fmt::Debug for Piece<'_, T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({}, {:?} -> {:?})", self.index, self.input, self.output)
    }
}
