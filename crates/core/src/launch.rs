//! A launch as you ask for it, and its shape on a device.

use bytemuck::NoUninit;
use gpustream_hal::{DeviceInfo, Error, ErrorKind, FunctionInfo, LaunchConfig, Result};

/// How many threads a block has if we choose.
pub const BLOCK: u32 = 256;

/// The shape and attributes of a launch, as you asked for it. It has no padding, so that we can compare two of them as
/// bytes.
#[derive(Clone, Copy, Debug, NoUninit)]
#[repr(C)]
pub struct LaunchRequest {
    /// The grid in blocks, or how many elements it is for.
    pub extent: [usize; 3],
    /// How many threads a block has, if you choose that.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared: u32,
    pub cluster: [u32; 3],
    pub grid: Grid,
    pub cooperative: bool,
    pub early_dependent: bool,
}

impl PartialEq for LaunchRequest {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        bytemuck::bytes_of(self) == bytemuck::bytes_of(other)
    }
}

impl Eq for LaunchRequest {}

/// How a grid follows from a launch's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, NoUninit)]
#[repr(u16)]
pub enum Grid {
    /// The extent is the grid itself.
    Exact,
    /// At least one thread per element.
    Covering,
    /// A few elements per thread.
    Strided,
    /// A grid that fills the device a few times; threads loop over the elements.
    Filling,
}

impl LaunchRequest {
    pub const fn new(grid: Grid, extent: [usize; 3], block: [u32; 3]) -> Self {
        let (shared, cluster) = (0, [1, 1, 1]);
        Self { extent, block, shared, cluster, grid, cooperative: false, early_dependent: false }
    }

    /// Returns true if the launch is over zero elements.
    pub const fn is_empty(&self) -> bool {
        let [x, y, z] = self.extent;
        !matches!(self.grid, Grid::Exact) && (x == 0 || y == 0 || z == 0)
    }

    /// Returns true if we choose the grid, so that any other grid will do as well.
    pub const fn is_devices_choice(&self) -> bool {
        matches!(self.grid, Grid::Strided | Grid::Filling)
    }

    /// Returns the shape of a usual launch: one in a row, without attributes and within `limits`. Returns `None` for any
    /// other launch.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub fn usual(&self, limits: &RowLimits) -> Option<LaunchConfig> {
        let &Self { extent: [extent, 1, 1], block: [threads, 1, 1], cluster: [1, 1, 1], .. } = self else {
            return None;
        };
        let blocks = match self.grid {
            Grid::Covering => blocks(extent as u64, u64::from(threads.max(1))),
            Grid::Exact => extent as u64,
            Grid::Strided | Grid::Filling => return None,
        };
        let fits = (1..=u64::from(limits.blocks)).contains(&blocks)
            && (1..=limits.threads).contains(&threads)
            && self.shared <= limits.shared;
        if !fits || self.cooperative || self.early_dependent {
            return None;
        }
        let mut config = LaunchConfig::new([blocks as u32, 1, 1], [threads, 1, 1]);
        config.dynamic_shared = self.shared;
        Some(config)
    }

    /// Returns the launch's shape on a device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLaunch`] if the launch exceeds a limit of the device. The error names the limit.
    pub fn resolve(&self, info: &DeviceInfo) -> Result<LaunchConfig> {
        let [elements, ..] = self.extent.map(|extent| extent as u64);
        let (mut grid, block) = match self.grid {
            Grid::Covering => {
                let blocks =
                    |axis: usize| blocks(self.extent[axis] as u64, u64::from(self.block[axis].max(1)));
                ([blocks(0), blocks(1), blocks(2)], self.block)
            }
            Grid::Exact => (self.extent.map(|blocks| blocks as u64), self.block),
            Grid::Strided => in_a_row(strided(info, elements)),
            Grid::Filling => in_a_row(filling(info, elements)),
        };
        if self.cluster != [1, 1, 1] && self.grid != Grid::Exact {
            for (blocks, cluster) in grid.iter_mut().zip(self.cluster) {
                // If this overflows, the number exceeds every limit, and the error below says so.
                *blocks = blocks.checked_next_multiple_of(u64::from(cluster.max(1))).unwrap_or(u64::MAX);
            }
        }
        let fits = |axis: usize| {
            (1..=u64::from(info.limits.max_grid[axis])).contains(&grid[axis])
                && (1..=info.limits.max_block[axis]).contains(&block[axis])
        };
        if !(0..3).all(fits) {
            return Err(beyond_device(grid, block, info));
        }
        let mut config = LaunchConfig::new(grid.map(|blocks| blocks as u32), block);
        config.dynamic_shared = self.shared;
        config.cooperative = self.cooperative;
        config.cluster = self.cluster;
        config.early_dependent = self.early_dependent && info.features.early_dependent_launch;
        Ok(config)
    }
}

/// The limits for a kernel's launches in a row on its device. A launch within them needs no other check.
#[derive(Clone, Copy, Debug)]
pub struct RowLimits {
    /// Zero if even a launch without dynamic shared memory needs another check.
    blocks: u32,
    /// How many threads a block may have.
    threads: u32,
    /// How many bytes of dynamic shared memory a block may have without our asking the driver.
    shared: u32,
}

impl RowLimits {
    pub fn new(device: &DeviceInfo, kernel: FunctionInfo) -> Self {
        let shared = device.limits.shared_memory_per_block.checked_sub(kernel.static_shared);
        Self {
            blocks: shared.map_or(0, |_| device.limits.max_grid[0]),
            threads: device.limits.max_block[0].min(most_threads(device, kernel)),
            shared: shared.unwrap_or(0),
        }
    }
}

/// Returns how many threads a block of the kernel may have on the device.
pub fn most_threads(device: &DeviceInfo, kernel: FunctionInfo) -> u32 {
    match kernel.max_threads_per_block {
        0 => device.limits.max_threads_per_block,
        own => own.min(device.limits.max_threads_per_block),
    }
}

/// Returns the quotient, rounded up. We use shifts if we can, because block sizes are nearly always powers of two and a
/// division costs more than all the rest.
#[inline]
const fn blocks(elements: u64, threads: u64) -> u64 {
    if threads.is_power_of_two() {
        let (shift, rest) = (threads.trailing_zeros(), elements & (threads - 1));
        (elements >> shift) + (rest != 0) as u64
    } else {
        elements.div_ceil(threads)
    }
}

/// Returns the shape with that many blocks and threads along x.
#[inline]
const fn in_a_row((blocks, threads): (u64, u32)) -> ([u64; 3], [u32; 3]) {
    ([blocks, 1, 1], [threads, 1, 1])
}

/// How many elements each thread of a strided launch handles. With eight, an H200 streams 4355 GB/s through saxpy in one
/// pass. If the grid fills the device once and goes over the arrays again and again, it reaches 4074.
const ELEMENTS_PER_THREAD: u64 = 8;

/// How many blocks a strided launch may have. With [`BLOCK`] threads each, the grid stays below HIP's limit of 2^32
/// threads.
const MOST_BLOCKS: u64 = 1 << 23;

/// Returns a grid with a few elements per thread. If there is enough work, it has enough blocks to fill the device.
fn strided(info: &DeviceInfo, elements: u64) -> (u64, u32) {
    let (fill, block) = filling(info, elements);
    if info.quirks.serial_threads {
        return (fill, block);
    }
    let pass = elements.div_ceil(u64::from(BLOCK) * ELEMENTS_PER_THREAD).min(MOST_BLOCKS);
    (pass.max(fill), block)
}

/// How often [`Grid::Filling`] fills the device, if there is enough work. Because of registers, often fewer blocks can be
/// resident than the number of threads allows. Then a grid that should fit once ends in a wave that is half empty. An H200
/// sums 4320 GB/s if the grid fills it once, and 4560 if it does so eight times.
const FILLS: u64 = 8;

/// Returns a grid with enough blocks to fill every multiprocessor, but no more than there is work for. If a block's threads
/// run one after the other, we use one thread per block and a few blocks per core, because that makes the longest runs.
fn filling(info: &DeviceInfo, elements: u64) -> (u64, u32) {
    if info.quirks.serial_threads {
        // A block should be worth its dispatch, but we want more blocks than workers to even out the load.
        let blocks = (elements / 16_384).clamp(1, u64::from(info.multiprocessors) * 4);
        return (blocks, 1);
    }
    let resident = u64::from(info.multiprocessors)
        * u64::from(info.limits.max_threads_per_multiprocessor / BLOCK).max(1);
    let once = elements.div_ceil(u64::from(BLOCK)).clamp(1, resident);
    let several = elements.div_ceil(u64::from(BLOCK) * ELEMENTS_PER_THREAD).min(FILLS * resident);
    (once.max(several), BLOCK)
}

/// Returns the error for the first size in the launch that the device does not allow.
#[cold]
fn beyond_device(grid: [u64; 3], block: [u32; 3], info: &DeviceInfo) -> Error {
    let sizes = (0..3).flat_map(|axis| {
        [
            (axis, "blocks in the grid", grid[axis], info.limits.max_grid[axis]),
            (axis, "threads in a block", u64::from(block[axis]), info.limits.max_block[axis]),
        ]
    });
    let beyond = sizes.into_iter().find(|&(_, _, asked, limit)| !(1..=u64::from(limit)).contains(&asked));
    let (axis, what, asked, limit) =
        beyond.unwrap_or((0, "blocks in the grid", grid[0], info.limits.max_grid[0]));
    Error::new(
        ErrorKind::InvalidLaunch,
        format!(
            "the launch asks for {asked} {what} along {}; {}:{} allows 1 to {limit}, so change the grid or the block",
            ["x", "y", "z"][axis],
            info.backend,
            info.ordinal
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through launches around each limit. Most of them are usual.
    #[test]
    fn usual_launch_has_the_shape_that_any_launch_has() {
        let mut device = DeviceInfo::new(gpustream_hal::BackendName::new("test"), 0);
        (device.limits.max_grid[0], device.limits.shared_memory_per_block) = (1000, 4096);
        let mut kernel = FunctionInfo::default();
        (kernel.max_threads_per_block, kernel.static_shared) = (96, 1024);
        let limits = RowLimits::new(&device, kernel);
        let mut usual = 0;
        for grid in [Grid::Exact, Grid::Covering, Grid::Strided, Grid::Filling] {
            for extent in
                [0, 1, 95, 96, 97, 999, 1000, 1001, 96_000, 96_001, 1 << 32, (1 << 32) + 1, usize::MAX]
            {
                for threads in [0, 1, 2, 64, 95, 96, 97, u32::MAX] {
                    for shared in [0, 3072, 3073, u32::MAX] {
                        let mut request = LaunchRequest::new(grid, [extent, 1, 1], [threads, 1, 1]);
                        request.shared = shared;
                        let resolved = request.resolve(&device).ok().filter(|config| {
                            let fits = config.block[0] <= 96 && shared <= 3072;
                            fits && matches!(grid, Grid::Exact | Grid::Covering)
                        });
                        assert_eq!(request.usual(&limits), resolved, "{request:?}");
                        usual += u32::from(resolved.is_some());
                    }
                }
            }
        }
        assert!(usual > 100, "{usual}");
        let row = LaunchRequest::new(Grid::Covering, [100, 1, 1], [64, 1, 1]);
        assert!(row.usual(&limits).is_some());
        kernel.static_shared = 4096;
        assert!(row.usual(&RowLimits::new(&device, kernel)).is_some());
        kernel.static_shared = 4097;
        assert!(row.usual(&RowLimits::new(&device, kernel)).is_none());
        for other in [
            LaunchRequest { extent: [100, 2, 1], ..row },
            LaunchRequest { extent: [100, 1, 0], ..row },
            LaunchRequest { block: [8, 8, 1], ..row },
            LaunchRequest { block: [8, 1, 8], ..row },
            LaunchRequest { cluster: [2, 1, 1], ..row },
            LaunchRequest { cluster: [1, 2, 1], ..row },
            LaunchRequest { cluster: [1, 1, 2], ..row },
            LaunchRequest { cooperative: true, ..row },
            LaunchRequest { early_dependent: true, ..row },
        ] {
            assert_ne!(other, row);
            assert_eq!(other.usual(&limits), None, "{other:?}");
        }
    }
}
