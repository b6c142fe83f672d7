//! Data sets larger than the device, in pieces: upload, launches and download of neighbouring pieces overlap.

mod generate;
mod in_place;
mod lane;
mod map;
mod turns;

use std::fmt;

use gpustream_core::operation::{call_site, on_behalf};
use gpustream_hal::{CallSite, Result};

use crate::device::Device;
use crate::stream::Stream;
use lane::Lane;

pub use map::Piece;

/// The default size of a piece in bytes: long enough that the bus is busy nearly all the time.
const PIECE: usize = 32 << 20;

/// The number of streams that pieces take turns on. Two keep both directions of the bus busy: one stream's upload runs
/// beside the other's download.
const LANES: usize = 2;

/// Runs upload, launches and download over pieces of a data set, made by [`Device::pipeline`].
///
/// Pieces take turns on two streams, which keep both directions of the bus busy: one stream's upload runs beside the
/// other's download, and kernels run beside both.
///
/// ```text
/// stream 0   up 0 | work 0 | down 0 | up 2 | work 2 | down 2
/// stream 1          up 1   | work 1 | down 1 | up 3   ...
/// ```
///
/// | | pieces come from | and go to | |
/// |---|---|---|---|
/// | [`map`](Self::map) | a slice | a slice | blocks |
/// | [`run`](Self::run) | a closure | a closure | blocks |
/// | [`generate`](Self::generate) | the device itself | a closure | blocks |
/// | [`in_place`](Self::in_place) | pinned memory | where they came from | only enqueues |
///
/// Each can be called many times: a pipeline keeps its streams, and the device memory of [`in_place`](Self::in_place),
/// until it is dropped.
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
///
/// A `Pipeline` is neither `Send` nor `Sync`, since it holds the closure of [`progress`](Self::progress). Dropping it
/// returns at once: the device still does all that [`in_place`](Self::in_place) enqueued.
#[must_use = "a pipeline does nothing until it is run"]
pub struct Pipeline<'p> {
    device: Device,
    chunk: usize,
    results: Option<usize>,
    depth: usize,
    progress: Progress<'p>,
    lanes: Vec<Lane>,
}

/// The user's closure that is told how far the pipeline has come.
type Progress<'p> = Option<Box<dyn FnMut(usize) + 'p>>;

impl Device {
    /// Makes a pipeline over pieces of a data set that may be larger than the device's memory.
    pub fn pipeline(&self) -> Pipeline<'static> {
        Pipeline {
            device: self.clone(),
            chunk: 0,
            results: None,
            depth: 3,
            progress: None,
            lanes: Vec::new(),
        }
    }
}

impl<'p> Pipeline<'p> {
    /// Sets the number of elements of a piece. The default is 32 MiB.
    pub fn chunks(mut self, elements: usize) -> Self {
        self.chunk = elements;
        self
    }

    /// Sets the number of elements that each piece gives back. The default is one for each that goes in.
    pub fn results(mut self, elements: usize) -> Self {
        self.results = Some(elements);
        self
    }

    /// Sets how many pieces may be under way; the default is 3. Each needs its own memory, pinned and on the device.
    ///
    /// With 1, pieces do not overlap. More than 2 change nothing for [`in_place`](Self::in_place): no host waits
    /// between its pieces, so one for each stream is enough.
    pub fn depth(mut self, pieces: usize) -> Self {
        self.depth = pieces.max(1);
        self
    }

    /// Sets a closure that is called after each piece with the number of elements that are done so far. For
    /// [`in_place`](Self::in_place), which waits for no piece, the number is of elements of each array that are
    /// enqueued. Elements that take no memory can be more than a number holds; it stays at `usize::MAX` then.
    pub fn progress<'q>(self, progress: impl FnMut(usize) + 'q) -> Pipeline<'q> {
        let Self { device, chunk, results, depth, lanes, .. } = self;
        Pipeline { device, chunk, results, depth, progress: Some(Box::new(progress)), lanes }
    }

    /// Returns the streams that pieces take turns on, to wait for, or to order other work with.
    ///
    /// # Errors
    /// As for [`Device::stream`], where the streams are not made yet.
    #[track_caller]
    pub fn streams(&mut self) -> Result<impl ExactSizeIterator<Item = &Stream>> {
        Ok(self.open_lanes(call_site("streams"))?.0.iter().map(|lane| &lane.stream))
    }

    /// Returns the number of elements of `T` in a piece.
    fn chunk_of<T>(&self) -> usize {
        match self.chunk {
            0 => (PIECE / size_of::<T>().max(1)).max(1),
            given => given,
        }
    }

    /// Returns the lanes that pieces take turns on, made where they are missing, and the closure for progress.
    fn open_lanes(&mut self, operation: CallSite) -> Result<(&mut [Lane], &mut Progress<'p>)> {
        let count = self.depth.min(LANES);
        while self.lanes.len() < count {
            self.lanes.push(on_behalf(operation, || Lane::new(&self.device))?);
        }
        Ok((&mut self.lanes[..count], &mut self.progress))
    }

    /// Refuses lanes that are being captured, as [`open_lanes`](Self::open_lanes) returns them: the host waits for pieces.
    fn open_running_lanes(&mut self, operation: CallSite) -> Result<(&mut [Lane], &mut Progress<'p>)> {
        let (lanes, progress) = self.open_lanes(operation)?;
        let what = "wait for a pipeline's pieces; pieces `in_place` are not waited for";
        lanes.iter().try_for_each(|lane| lane.stream.enter(operation)?.check_running(what))?;
        Ok((lanes, progress))
    }
}

/// Tells `progress` the number of elements.
fn report(progress: &mut Progress<'_>, elements: usize) {
    if let Some(progress) = progress {
        progress(elements);
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
