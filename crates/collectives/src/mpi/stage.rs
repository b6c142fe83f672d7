//! Staging memory: page-locked memory that pieces pass through between a device and MPI, because MPI may not
//! be able to read device memory.

use gpustream::hal::RawStream;
use gpustream::{Device, Event, Flag, Pinned, Result, Stream};

/// How many bytes a rank gives or gets at once, for all ranks together.
const AREA: usize = 1 << 20;
/// How many pieces of a call may be pending: one is exchanged while another is copied.
pub(super) const SLOTS: usize = 2;
/// How many lanes we make before streams share them.
const LANES: usize = 4;
/// A lane with this count gets no more calls, because streams can only wait for counts below 2^31.
const FULL: u32 = 1 << 30;

#[derive(Debug)]
pub(super) struct Staging {
    device: Device,
    /// The size of an area in bytes: `AREA`, or one element for each rank if that is more.
    pub(super) area: usize,
    pub(super) lanes: Vec<Lane>,
}

/// The staging memory for one call at a time.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) slots: [Slot; SLOTS],
    /// Counts finished pieces.
    pub(super) done: Flag,
    /// How many pieces were enqueued.
    pub(super) count: u32,
    /// The stream of the last call, and an event after it.
    last: Option<(RawStream, Event)>,
}

/// The staging memory for one piece.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) gives: Area,
    pub(super) gets: Area,
}

/// Page-locked memory and its address.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) memory: Pinned<u8>,
    pub(super) address: usize,
}

impl Staging {
    pub(super) fn new(device: &Device, size: usize) -> Self {
        Self { device: device.clone(), area: AREA.max(size_of::<u64>() * size), lanes: Vec::new() }
    }

    /// Returns the index of a lane for a call on this stream. It is not in `taken`. The stream waits for the
    /// lane's last call.
    pub(super) fn lane(&mut self, stream: &Stream, taken: &[usize]) -> Result<usize> {
        let raw = stream.as_raw();
        let free = |lane: &usize| !taken.contains(lane) && self.lanes[*lane].count < FULL;
        let mut free = (0..self.lanes.len()).filter(free);
        let own = free.clone().find(|&lane| self.lanes[lane].is_of(raw));
        let known = own.or_else(|| if self.lanes.len() < LANES { None } else { free.next() });
        let lane = known.unwrap_or(self.lanes.len());
        if known.is_none() {
            self.lanes.push(Lane::new(&self.device, self.area)?);
        }
        if let Some((_, last)) = &self.lanes[lane].last {
            stream.wait(last)?;
        }
        Ok(lane)
    }
}

impl Lane {
    fn new(device: &Device, area: usize) -> Result<Self> {
        let slots = [Slot::new(device, area)?, Slot::new(device, area)?];
        Ok(Self { slots, done: device.flag()?, count: 0, last: None })
    }

    fn is_of(&self, stream: RawStream) -> bool {
        self.last.as_ref().is_some_and(|(last, _)| *last == stream)
    }

    /// Records that a call on this stream was enqueued.
    pub(super) fn leave(&mut self, stream: &Stream) -> Result<()> {
        self.last = Some((stream.as_raw(), stream.record()?));
        Ok(())
    }
}

impl Slot {
    fn new(device: &Device, area: usize) -> Result<Self> {
        Ok(Self { gives: Area::new(device, area)?, gets: Area::new(device, area)? })
    }
}

impl Area {
    fn new(device: &Device, len: usize) -> Result<Self> {
        let mut memory = device.pinned::<u8>(len)?;
        let address = memory.write()?.as_mut_ptr().expose_provenance();
        Ok(Self { memory, address })
    }
}
