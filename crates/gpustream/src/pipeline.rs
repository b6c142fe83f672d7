//! Data sets that are larger than the device, in pieces: upload, work and download of neighbouring pieces overlap.

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

/// How many bytes a piece has if you don't say. This is long enough to keep the bus busy nearly all the time.
const PIECE: usize = 32 << 20;

/// How many streams pieces take turns on. Two are enough to keep both directions of the bus busy, because one stream uploads
/// while the other downloads.
const LANES: usize = 2;

/// Runs upload, work and download over the pieces of a data set. Made by [`Device::pipeline`].
///
/// Pieces take turns on two streams. That keeps both directions of the bus busy, because one stream uploads while the other
/// downloads, and kernels can run at the same time.
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
/// Call each of them as often as you like. A pipeline keeps its streams, and the device memory of [`in_place`](Self::in_place),
/// until you drop it.
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
/// A `Pipeline` is neither `Send` nor `Sync`, because it holds the closure of [`progress`](Self::progress). Dropping it returns
/// at once, and the device still does everything that [`in_place`](Self::in_place) enqueued.
#[must_use = "a pipeline does nothing until it is run"]
pub struct Pipeline<'p> {
    device: Device,
    chunk: usize,
    results: Option<usize>,
    depth: usize,
    progress: Progress<'p>,
    lanes: Vec<Lane>,
}

/// Your closure, which we tell how far the pipeline has come.
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
    /// Sets how many elements a piece has. The default is 32 MiB of them.
    pub fn chunks(mut self, elements: usize) -> Self {
        self.chunk = elements;
        self
    }

    /// Sets how many elements each piece returns. The default is as many as it gets.
    pub fn results(mut self, elements: usize) -> Self {
        self.results = Some(elements);
        self
    }

    /// Sets how many pieces may be under way; the default is 3. Each needs its own pinned and device memory.
    ///
    /// If you set 1, pieces do not overlap. For [`in_place`](Self::in_place) more than 2 change nothing: the host does not wait
    /// between its pieces, so one per stream is enough.
    pub fn depth(mut self, pieces: usize) -> Self {
        self.depth = pieces.max(1);
        self
    }

    /// Sets a closure that is called after each piece with the number of elements that are done so far.
    /// [`in_place`](Self::in_place) does not wait for pieces, so there it is the number of elements of each array that are
    /// enqueued. If elements have no size there can be very many; the number then stays at `usize::MAX`.
    pub fn progress<'q>(self, progress: impl FnMut(usize) + 'q) -> Pipeline<'q> {
        let Self { device, chunk, results, depth, lanes, .. } = self;
        Pipeline { device, chunk, results, depth, progress: Some(Box::new(progress)), lanes }
    }

    /// Returns the streams that pieces take turns on, so that you can wait for them or order other work with them.
    ///
    /// # Errors
    /// As for [`Device::stream`], if the streams have not been made yet.
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

    /// Returns the lanes that pieces take turns on and the closure for progress. Makes lanes that are missing.
    fn open_lanes(&mut self, call_site: CallSite) -> Result<(&mut [Lane], &mut Progress<'p>)> {
        let count = self.depth.min(LANES);
        while self.lanes.len() < count {
            self.lanes.push(on_behalf(call_site, || Lane::new(&self.device))?);
        }
        Ok((&mut self.lanes[..count], &mut self.progress))
    }

    /// Like [`open_lanes`](Self::open_lanes), but refuses lanes that are being captured, because the host is going to wait for
    /// pieces.
    fn open_running_lanes(&mut self, call_site: CallSite) -> Result<(&mut [Lane], &mut Progress<'p>)> {
        let (lanes, progress) = self.open_lanes(call_site)?;
        let what = "wait for a pipeline's pieces; use `in_place`, which does not wait for them";
        lanes.iter().try_for_each(|lane| lane.stream.enter(call_site)?.check_running(what))?;
        Ok((lanes, progress))
    }
}

/// Tells `progress` how many elements are done.
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
