//! Which kernel multiplies, and in which blocks.

use gpustream::hal::BackendName;
use gpustream::half::{bf16, f16};
use gpustream::{AsView as _, Buffer, Device, Launch, Plain, Result, Stream, View, ViewMut};

use super::{Multiply, group};
use crate::call::{Form as Kind, optional, unusable};

pub(super) mod halves {
    gpustream::include_kernels!("gemm");
}
mod shares {
    gpustream::include_kernels!("gemm_shares");
}
pub(super) mod strided {
    gpustream::include_kernels!("gemm_strided");
}
use halves::{HasGemm, HasGemmByTensors};
use shares::HasGemmShares;
use strided::{HasGemmStrided, HasGemmTurn};

/// Where equal matrices are, as the kernels' `Lines` say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    pub(super) lines: u32,
    pub(super) width: u32,
    pub(super) leading: usize,
    pub(super) stride: usize,
}
macro_rules! lines {
    ($($kernels:ident),*) => {$(
        impl From<Storage> for $kernels::Lines {
            fn from(Storage { lines, width, leading, stride }: Storage) -> Self {
                Self { lines, width, leading, stride }
            }
        }
    )*};
}
lines!(halves, shares, strided);

/// A product that has been checked.
pub struct Call<'a, T: Multiply> {
    pub(super) stream: &'a Stream,
    /// Rows, columns and products.
    pub(super) size: [usize; 3],
    pub(super) a: (View<'a, T>, Storage),
    pub(super) b: (View<'a, T>, Storage),
    pub(super) c: (ViewMut<'a, T::Output>, Storage),
    pub(super) by_columns: [bool; 2],
    pub(super) alpha: T::Sum,
    pub(super) beta: T::Sum,
    pub(super) bias: Option<View<'a, T::Output>>,
    pub(super) activation: u32,
    pub(super) allows_tf32: bool,
}

/// The kernels of a type.
pub trait Launched: Sized {
    fn launch(call: Call<'_, Self>) -> Result<()>
    where
        Self: Multiply;

    /// Launches several products, in as few launches as possible.
    fn launch_group(stream: &Stream, calls: Vec<Call<'_, Self>>) -> Result<()>
    where
        Self: Multiply;
}

macro_rules! launched {
    ($($types:ty => $on_gpus:ident, $grouped:expr;)*) => {$(
        impl Launched for $types {
            fn launch(call: Call<'_, Self>) -> Result<()> {
                match Kind::of(call.stream.device()) {
                    Kind::Shares => on_shares(call),
                    Kind::Blocks => $on_gpus(call),
                }
            }

            fn launch_group(stream: &Stream, calls: Vec<Call<'_, Self>>) -> Result<()> {
                match Kind::of(stream.device()) {
                    Kind::Shares => calls.into_iter().try_for_each(on_shares),
                    Kind::Blocks => $grouped(stream, calls),
                }
            }
        }
    )*};
}
launched! {
    f16 => of_halves, |s, calls| group::of_halves(s, calls, "gs::half");
    bf16 => of_halves, |s, calls| group::of_halves(s, calls, "gs::bfloat16");
    f32 => of_floats, group::of_floats;
    i8 => of_bytes, |_, calls: Vec<_>| calls.into_iter().try_for_each(of_bytes);
    f64 => of_doubles, |_, calls: Vec<_>| calls.into_iter().try_for_each(of_doubles);
}

/// How a block works, as the kernels' `Form` says.
#[derive(Clone, Copy)]
pub(super) struct Form {
    rows: usize,
    columns: usize,
    threads: Threads,
    pub(super) shared: u32,
}

#[derive(Clone, Copy)]
pub(super) enum Threads {
    Warps(u32),
    Exactly(u32),
}

pub(super) const SMALL: Form = Form { rows: 64, columns: 64, threads: Threads::Warps(4), shared: 26 << 10 };
const SMALL_ON_CPU: Form = Form { rows: 32, columns: 32, threads: Threads::Warps(1), ..SMALL };
pub(super) const LARGE: Form =
    Form { rows: 128, columns: 256, threads: Threads::Warps(8), shared: 144 << 10 };
/// Eight warps multiply, and a group of four copies. The tiles begin on a boundary of 1 KiB.
const TENSORS: Form = Form { threads: Threads::Warps(12), shared: 193 << 10, ..LARGE };
/// What a block needs for the descriptions of a and b.
const MAPS: usize = 256;
pub(super) const SMALL_OF_FLOATS: Form = Form { threads: Threads::Exactly(128), ..SMALL };
pub(super) const LARGE_OF_FLOATS: Form =
    Form { rows: 128, columns: 128, threads: Threads::Exactly(256), shared: 99 << 10 };
/// AMD's GPUs have half as much depth in a tile.
const LARGE_OF_FLOATS_ON_HIP: Form = Form { shared: 50 << 10, ..LARGE_OF_FLOATS };
const LARGE_OF_DOUBLES: Form = Form { columns: 128, shared: 96 << 10, ..LARGE };

impl Form {
    pub(super) fn tiles(&self, [rows, columns, batch]: [usize; 3]) -> usize {
        (rows.div_ceil(self.rows) * columns.div_ceil(self.columns)).saturating_mul(batch)
    }

    /// Returns true if the device has room for such blocks, and work for all its multiprocessors.
    pub(super) fn suits<T: Multiply>(&self, call: &Call<'_, T>) -> bool {
        let info = call.stream.device().info();
        self.tiles(call.size) >= info.multiprocessors as usize
            && self.shared <= info.limits.shared_memory_per_block_optin
    }

    /// Returns a launch. Blocks that get more than one tile take one after another.
    fn launch<T: Multiply>(&self, call: &Call<'_, T>, most: usize) -> (u32, Launch) {
        let blocks = self.tiles(call.size).min(most) as u32;
        (blocks, self.of_blocks(call.stream, blocks))
    }

    pub(super) fn of_blocks(&self, stream: &Stream, blocks: u32) -> Launch {
        let threads = match self.threads {
            Threads::Warps(warps) => warps * stream.device().info().warp_size,
            Threads::Exactly(threads) => threads,
        };
        Launch::exact([blocks, 1, 1], [threads, 1, 1]).shared(self.shared)
    }
}

pub(super) const MOST_BLOCKS: usize = 1 << 20;

fn is_on<T: Multiply>(call: &Call<'_, T>, backend: BackendName) -> bool {
    call.stream.device().info().backend == backend
}

/// Returns the form for matrices that have too few tiles for a larger one.
pub(super) fn small<T: Multiply>(call: &Call<'_, T>) -> Form {
    if is_on(call, BackendName::CPU) { SMALL_ON_CPU } else { SMALL }
}

/// Returns true if each line and each matrix is a whole number of 16-byte pieces.
fn in_pieces<T: Plain>((matrix, place): &(View<'_, T>, Storage)) -> bool {
    let is_whole = |elements: usize| (elements * size_of::<T>()).is_multiple_of(16);
    matrix.as_raw().0.is_multiple_of(16)
        && is_whole(place.width as usize)
        && is_whole(place.leading)
        && is_whole(place.stride)
}

/// Returns true if a tensor map can describe these matrices: their addresses and distances are multiples of 16 bytes, and distances
/// are below 2⁴⁰ bytes.
fn suits_tensors<T: Plain>((matrix, place): &(View<'_, T>, Storage)) -> bool {
    let suits = |elements: usize| {
        elements.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes.is_multiple_of(16) && bytes < 1 << 40)
    };
    matrix.as_raw().0.is_multiple_of(16)
        && suits(place.leading)
        && suits(place.stride)
        && place.lines > 0
        && place.width > 0
}

/// Calls a kernel: all take the same arguments first.
macro_rules! multiply {
    ($kernels:expr, $kernel:ident [$($generics:tt)*], $call:ident, $launch:expr $(, $more:expr)* $(,)?) => {
        $kernels.$kernel $($generics)* (
            $call.stream,
            $launch,
            &$call.a.0,
            &$call.b.0,
            &mut $call.c.0,
            optional($call.bias.as_ref()),
            $call.a.1.into(),
            $call.b.1.into(),
            $call.c.1.into(),
            $call.size[2] as u32,
            $call.alpha,
            $call.beta,
            $call.activation,
            $($more),*
        )
    };
}

/// What the loops on the CPU compute at once. Smaller parts keep all workers busy, and larger ones copy less.
fn on_shares<T: Multiply + HasGemmShares<T::Output, T::Sum>>(mut call: Call<'_, T>) -> Result<()> {
    let workers = call.stream.device().info().multiprocessors as usize;
    let mut form = Form { rows: 192, columns: 512, threads: Threads::Exactly(1), shared: 0 };
    while form.tiles(call.size) < 2 * workers && form.columns > 64 {
        if form.rows > 24 && form.rows * 2 > form.columns {
            form.rows /= 2;
        } else {
            form.columns /= 2;
        }
    }
    // Each worker has contiguous tiles.
    let (blocks, launch) = form.launch(&call, workers);
    let of_worker = 256 * (form.rows + form.columns) + form.rows * form.columns;
    let mut room: Buffer<T::Sum> = call.stream.alloc(of_worker * blocks as usize)?;
    let kernels = call.stream.device().extension(shares::Kernels::load)?;
    multiply!(
        kernels,
        gemm_shares [],
        call,
        &launch,
        call.by_columns[0].into(),
        call.by_columns[1].into(),
        &mut room,
        form.rows as u32,
        form.columns as u32,
    )
}

/// A factor, and how its depth runs.
struct Factor<'a, T: Plain> {
    memory: View<'a, T>,
    place: Storage,
    /// True if the depth runs across the lines.
    is_across: bool,
}

/// A factor's copy, if one is needed.
type Copied<T> = Option<(Buffer<T>, Storage)>;

impl<T: Plain> Factor<'_, T> {
    /// Copies the factor unless it consists of whole 16-byte pieces in lines along the depth, or across it.
    fn in_lines(&self, across: bool, stream: &Stream, batch: usize) -> Result<Copied<T>>
    where
        T: HasGemmTurn,
    {
        let of = self.place;
        if !self.needs_copy(across) || of.lines == 0 || of.width == 0 {
            return Ok(None);
        }
        let is_turned = self.is_across != across;
        let (lines, width) = if is_turned { (of.width, of.lines) } else { (of.lines, of.width) };
        let leading = (width as usize).next_multiple_of(16 / size_of::<T>());
        let (stride, batch) = if of.stride == 0 { (0, 1) } else { (leading * lines as usize, batch) };
        let place = Storage { lines, width: leading as u32, leading, stride };
        let Some(elements) = (leading * lines as usize).checked_mul(batch) else {
            return Err(unusable(
                "multiply_matrices",
                "a copy of a factor would have more than 2⁶⁴ elements",
            ));
        };
        let mut to = stream.alloc(elements)?;
        let tiles = (lines.div_ceil(32) as usize * leading.div_ceil(32)).saturating_mul(batch);
        let launch = Launch::exact([tiles.min(MOST_BLOCKS) as u32, 1, 1], [256, 1, 1]);
        let kernels = stream.device().extension(strided::Kernels::load)?;
        let (of, of_to) = (of.into(), place.into());
        kernels.gemm_turn(
            stream,
            &launch,
            &self.memory,
            &mut to,
            of,
            of_to,
            batch as u32,
            is_turned.into(),
        )?;
        Ok(Some((to, place)))
    }

    fn needs_copy(&self, across: bool) -> bool {
        self.is_across != across || !in_pieces(&(self.memory, self.place))
    }
}

impl<'a, T: Multiply> Call<'a, T> {
    fn factors(&self) -> [Factor<'a, T>; 2] {
        let factor = |(memory, place): &(View<'a, T>, Storage), is_across| {
            let memory = *memory;
            Factor { memory, place: *place, is_across }
        };
        [factor(&self.a, self.by_columns[0]), factor(&self.b, !self.by_columns[1])]
    }

    /// Returns true if copying the factors takes little time compared with the product. A large form may need such copies.
    fn is_worth_copies(&self, across: bool) -> bool {
        const ENOUGH: usize = 512;
        let [rows, columns, _] = self.size;
        let [a, b] = self.factors();
        (columns >= ENOUGH || !a.needs_copy(across)) && (rows >= ENOUGH || !b.needs_copy(across))
    }
}

/// Launches a kernel of `gemm_strided.cu`. If `across` is given, both factors have lines of whole pieces in that direction.
fn on_strided<T, F>(call: Call<'_, T>, form: Form, across: Option<bool>, launch: F) -> Result<()>
where
    T: Multiply + HasGemmTurn,
    F: FnOnce(&strided::Kernels, &Launch, Call<'_, T>, u32) -> Result<()>,
{
    let (_, blocks) = form.launch(&call, MOST_BLOCKS);
    let kernels = call.stream.device().extension(strided::Kernels::load)?;
    let Some(across) = across else {
        return launch(&kernels, &blocks, call, form.shared);
    };
    let [a, b] = call.factors();
    let a = a.in_lines(across, call.stream, call.size[2])?;
    let b = b.in_lines(across, call.stream, call.size[2])?;
    let call = Call {
        a: a.as_ref().map_or(call.a, |(memory, place)| (memory.view(), *place)),
        b: b.as_ref().map_or(call.b, |(memory, place)| (memory.view(), *place)),
        by_columns: [across, !across],
        ..call
    };
    launch(&kernels, &blocks, call, form.shared)
}

macro_rules! strided {
    ($kernel:ident $($generics:tt)*) => {
        |kernels, launch, mut call, shared| {
            let [a, b] = call.by_columns.map(u32::from);
            multiply!(kernels, $kernel [$($generics)*], call, launch, shared, a, b)
        }
    };
}

/// Launches the small or the large form of `gemm_strided`. `across` says how the large form wants lines.
fn in_form<T>(call: Call<'_, T>, form: Form, is_large: bool, across: Option<bool>) -> Result<()>
where
    T: Multiply + HasGemmTurn + HasGemmStrided<T::Output, T::Sum, 0> + HasGemmStrided<T::Output, T::Sum, 1>,
{
    if is_large {
        on_strided(call, form, across, strided!(gemm_strided::<T, T::Output, T::Sum, 1>))
    } else {
        on_strided(call, form, across, strided!(gemm_strided::<T, T::Output, T::Sum, 0>))
    }
}

fn of_doubles(call: Call<'_, f64>) -> Result<()> {
    let is_large =
        is_on(&call, BackendName::CUDA) && LARGE_OF_DOUBLES.suits(&call) && call.is_worth_copies(false);
    let form = if is_large { LARGE_OF_DOUBLES } else { small(&call) };
    in_form(call, form, is_large, is_large.then_some(false))
}

pub(super) fn of_floats(call: Call<'_, f32>) -> Result<()> {
    let worth = |across| call.is_worth_copies(across);
    if call.allows_tf32 && has_tf32(call.stream.device()) && LARGE.suits(&call) && worth(false) {
        return on_strided(call, LARGE, Some(false), strided!(gemm_tf32));
    }
    let large = if is_on(&call, BackendName::CUDA) { LARGE_OF_FLOATS } else { LARGE_OF_FLOATS_ON_HIP };
    let is_large = !is_on(&call, BackendName::CPU) && large.suits(&call) && worth(true);
    let form = if is_large { large } else { SMALL_OF_FLOATS };
    in_form(call, form, is_large, is_large.then_some(true))
}

/// Returns true if the device is an NVIDIA GPU with matrix cores for floats.
fn has_tf32(device: &Device) -> bool {
    let info = device.info();
    let generation =
        || info.arch.strip_prefix("sm_")?.trim_end_matches(char::is_alphabetic).parse::<u32>().ok();
    info.backend == BackendName::CUDA && generation().is_some_and(|generation| generation >= 80)
}

fn of_bytes(call: Call<'_, i8>) -> Result<()> {
    let is_large = is_on(&call, BackendName::CUDA) && LARGE.suits(&call);
    let form = if is_large { LARGE } else { small(&call) };
    in_form(call, form, is_large, Some(false))
}

/// The kernels of 16-bit floats on a device.
pub(super) struct Halves {
    pub(super) kernels: halves::Kernels,
    /// True if they were compiled for Hopper. Otherwise `gemm_by_tensors` does nothing, and declares no shared memory.
    has_tensors: bool,
}

impl Halves {
    pub(super) fn load(device: &Device) -> Result<Self> {
        let kernels = halves::Kernels::load(device)?;
        let by_tensors = kernels.module().kernel("gemm_by_tensors<gs::half, 0, 0>")?;
        Ok(Self { has_tensors: by_tensors.info().static_shared > 0, kernels })
    }
}

pub(super) fn of_halves<T>(mut call: Call<'_, T>) -> Result<()>
where
    T: Multiply<Output = T, Sum = f32>
        + HasGemm<0, 0, 0>
        + HasGemm<0, 0, 1>
        + HasGemm<0, 1, 0>
        + HasGemm<0, 1, 1>
        + HasGemm<1, 0, 0>
        + HasGemm<1, 0, 1>
        + HasGemm<1, 1, 0>
        + HasGemm<1, 1, 1>
        + HasGemmByTensors<0, 0>
        + HasGemmByTensors<0, 1>
        + HasGemmByTensors<1, 0>
        + HasGemmByTensors<1, 1>,
{
    let info = call.stream.device().info();
    let loaded = call.stream.device().extension(Halves::load)?;
    let is_large = info.backend == BackendName::CUDA
        && !loaded.has_tensors
        && LARGE.suits(&call)
        && in_pieces(&call.a)
        && in_pieces(&call.b);
    // With fewer tiles, most multiprocessors would be idle. On an H200 the small tiles are faster at 1024, and slower at 2048.
    let is_by_tensors = loaded.has_tensors
        && TENSORS.tiles(call.size).saturating_mul(3) >= info.multiprocessors as usize
        && TENSORS.shared <= info.limits.shared_memory_per_block_optin
        && suits_tensors(&call.a)
        && suits_tensors(&call.b);
    let form = match is_large {
        _ if is_by_tensors => TENSORS,
        true => LARGE,
        false => small(&call),
    };
    // Blocks on Hopper copy their next tile meanwhile, so there are no more than can run.
    let most = if is_by_tensors { info.multiprocessors as usize } else { MOST_BLOCKS };
    let (blocks, launch) = form.launch(&call, most);
    macro_rules! launch {
        ($kernel:ident, [$($choice:literal),*] $(, $more:expr)*) => {
            multiply!(loaded.kernels, $kernel [::<T, $($choice),*>], call, &launch, form.shared $(, $more)*)
        };
    }
    if is_by_tensors {
        let mut maps = call.stream.alloc(MAPS * blocks as usize)?;
        return match call.by_columns {
            [false, false] => launch!(gemm_by_tensors, [0, 0], &mut maps, blocks),
            [false, true] => launch!(gemm_by_tensors, [0, 1], &mut maps, blocks),
            [true, false] => launch!(gemm_by_tensors, [1, 0], &mut maps, blocks),
            [true, true] => launch!(gemm_by_tensors, [1, 1], &mut maps, blocks),
        };
    }
    match (is_large, call.by_columns) {
        (false, [false, false]) => launch!(gemm, [0, 0, 0]),
        (false, [false, true]) => launch!(gemm, [0, 0, 1]),
        (false, [true, false]) => launch!(gemm, [0, 1, 0]),
        (false, [true, true]) => launch!(gemm, [0, 1, 1]),
        (true, [false, false]) => launch!(gemm, [1, 0, 0]),
        (true, [false, true]) => launch!(gemm, [1, 0, 1]),
        (true, [true, false]) => launch!(gemm, [1, 1, 0]),
        (true, [true, true]) => launch!(gemm, [1, 1, 1]),
    }
}
