//! Figures about compiled kernels, for people to read. You can use them to see what limits a kernel, for
//! example its registers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::Backend;
use crate::signature::{Instance, Kernel};
use crate::unit::Unit;

/// One kernel as compiled for one target. A field is `None` if the backend does not report it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelReport {
    /// The kernel's file.
    pub file: PathBuf,
    /// The kernel's name.
    pub kernel: String,
    /// The launcher's name. All instances of a template have one launcher.
    pub(crate) name: String,
    /// The backend: `cpu`, `cuda`, `hip`.
    pub backend: &'static str,
    /// The target: `x86-64-v3`, `sm_90`, `gfx942`.
    pub target: String,
    /// Registers per thread. On AMD, vector registers.
    pub registers: Option<u32>,
    /// Scalar registers per wave (AMD).
    pub scalar_registers: Option<u32>,
    /// Spills: bytes stored and loaded (CUDA), or registers (HIP).
    pub spills: Option<u32>,
    /// Bytes of memory that each thread has for spills and for arrays which do not fit into registers: CUDA's stack frame, AMD's
    /// scratch.
    pub scratch: Option<u32>,
    /// Static shared memory per block, in bytes.
    pub shared: Option<u32>,
    /// How many threads run in lockstep.
    pub wave_size: Option<u32>,
    /// The largest block that the kernel accepts, in threads.
    pub max_threads: Option<u32>,
    /// How many threads fit on a multiprocessor, and what limits them.
    pub occupancy: Option<Occupancy>,
    /// How the threads of a block run (CPU).
    pub threads: Option<Threads>,
    /// Size of the code in bytes. `None` on the CPU, because there we only know the image's size.
    pub code_size: Option<u64>,
    /// The image's size in bytes. All kernels of a file share one image per target.
    pub image_size: u64,
    /// How long the image took to compile. `None` if an earlier build's image was still up to date.
    pub compile_time: Option<Duration>,
}

impl KernelReport {
    /// Returns what we know without looking into the image.
    pub(crate) fn new(
        unit: &Unit,
        (kernel, instance): (&Kernel, &Instance),
        backend: Backend,
        target: &str,
        image: &Path,
    ) -> Self {
        Self {
            file: unit.source.path.clone(),
            kernel: if kernel.template.is_empty() { kernel.name.clone() } else { kernel.key(instance) },
            name: kernel.name.clone(),
            backend: backend.name(),
            target: target.to_owned(),
            registers: None,
            scalar_registers: None,
            spills: None,
            scratch: None,
            shared: None,
            wave_size: None,
            max_threads: instance.max_threads,
            occupancy: None,
            threads: None,
            code_size: None,
            image_size: image.metadata().map_or(0, |m| m.len()),
            compile_time: None,
        }
    }
}

/// How the threads of a block run on a CPU, from fast to slow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threads {
    /// They never wait for each other, so they run one after another, or several at once in vector registers.
    Alone,
    /// They run as loops, one loop for each stretch of code between two barriers.
    Loops,
    /// Each thread has a stack of its own and switches to the next one at every barrier.
    Fibers {
        /// The line that keeps the kernel from running as loops.
        line: usize,
        /// What is in the way there.
        reason: String,
    },
}

/// How much of a multiprocessor a kernel can fill, given its registers and shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Resident waves (warps), in percent of what the hardware can keep.
    pub percent: u32,
    /// What limits it: `registers`, `shared`, or `none` if it reaches the hardware's own limit.
    pub limited_by: &'static str,
}

impl Occupancy {
    /// Returns the smaller of what registers and shared memory allow.
    fn of(max: u32, by_registers: u32, by_shared: u32) -> Self {
        let waves = max.min(by_registers).min(by_shared);
        let limited_by = if waves == max {
            "none"
        } else if by_registers <= by_shared {
            "registers"
        } else {
            "shared"
        };
        Self { percent: waves * 100 / max.max(1), limited_by }
    }

    /// Computes the occupancy on an NVIDIA target for blocks of `block` threads.
    pub(crate) fn nvidia(target: &str, registers: u32, shared: u32, block: u32) -> Option<Self> {
        let sm: u32 = target.strip_prefix("sm_")?.trim_end_matches(char::is_alphabetic).parse().ok()?;
        // Warps and bytes of shared memory per multiprocessor, from the table of compute capabilities in the
        // programming guide.
        let (warps, memory) = match sm {
            75 => (32, 64 << 10),
            80 => (64, 164 << 10),
            87 => (48, 164 << 10),
            90 | 100 | 103 => (64, 228 << 10),
            110 => (48, 228 << 10),
            86 | 89 | 120 | 121 => (48, 100 << 10),
            _ => return None,
        };
        // 65536 registers, dealt to each of four sub-partitions in units of 256 per warp.
        let per_warp = (registers.max(1) * 32).next_multiple_of(256);
        let by_registers = 16384 / per_warp * 4;
        let block_warps = block.div_ceil(32).max(1);
        // From sm_80 on, the driver takes 1 KiB of shared memory per block for itself.
        let reserved = if sm >= 80 { 1024 } else { 0 };
        let blocks = if shared == 0 { u32::MAX } else { memory / (shared + reserved).next_multiple_of(128) };
        Some(Self::of(warps, by_registers, blocks.saturating_mul(block_warps)))
    }

    /// Computes the occupancy on an AMD target.
    pub(crate) fn amd(target: &str, kernel: &crate::tables::amdgpu::Kernel, block: u32) -> Option<Self> {
        let target = crate::toolchain::base_target(target);
        let wave = kernel.wavefront.max(1);
        // Waves and vector registers per SIMD, the registers' allocation unit, and how many SIMDs share 64
        // KiB of LDS. From LLVM's AMDGPU backend.
        let (waves, registers, unit, simds) = match target {
            "gfx90a" | "gfx940" | "gfx941" | "gfx942" | "gfx950" => (8, 512, 8, 4),
            t if t.starts_with("gfx9") => (10, 256, 4, 4),
            t if t.starts_with("gfx101") => (20, 1024, if wave == 32 { 8 } else { 4 }, 2),
            t if t.starts_with("gfx103") => (16, 1024, if wave == 32 { 16 } else { 8 }, 2),
            t if matches!(t, "gfx1100" | "gfx1101" | "gfx1151") || t.starts_with("gfx120") => {
                (16, 1536, if wave == 32 { 24 } else { 12 }, 2)
            }
            t if t.starts_with("gfx11") => (16, 1024, if wave == 32 { 16 } else { 8 }, 2),
            _ => return None,
        };
        // RDNA counts registers per wave32, so a wave64 takes two.
        let registers = if wave == 64 && registers >= 1024 { registers / 2 } else { registers };
        // If vector and accumulation registers share one file, the count in the notes includes both.
        let by_registers = registers / kernel.vgprs.max(1).next_multiple_of(unit);
        let lds: u32 = if target == "gfx950" { 160 << 10 } else { 64 << 10 };
        let blocks = if kernel.shared == 0 { u32::MAX } else { lds / kernel.shared.next_multiple_of(512) };
        let block_waves = block.div_ceil(wave).max(1);
        let by_shared = blocks.saturating_mul(block_waves) / simds;
        Some(Self::of(waves, by_registers, by_shared))
    }
}
