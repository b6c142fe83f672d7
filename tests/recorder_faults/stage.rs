//! What a scene plays on: opened fake devices, and objects that are there before anything fails.

use gpustream::{
    Arg, AsViewMut, Buffer, Device, DeviceOptions, Graph, Image, Kernel, Launch, MemoryPool, ModuleSource,
    Node, Pinned, Pipeline, Result, Stream,
};
use recorder::{Recorder, module};

/// Elements of the stage's memory.
pub(crate) const N: usize = 300;

/// A fake driver.
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) load: fn() -> Recorder,
    target: &'static str,
}

pub(crate) const FAKES: [Fake; 2] = [
    Fake { name: "cuda", load: fake_cuda::load, target: "sm_90" },
    Fake { name: "hip", load: || fake_hip::load(fake_hip::Profile::Rocm6), target: "gfx90a" },
];

pub(crate) struct Stage {
    pub(crate) fake: &'static Fake,
    pub(crate) device: Device,
    pub(crate) options: DeviceOptions,
    pub(crate) a: Stream,
    pub(crate) b: Stream,
    pub(crate) x: Buffer<u32>,
    pub(crate) y: Buffer<u32>,
    pub(crate) host: Pinned<u32>,
    /// Adds 1 to each of so many words at an address.
    pub(crate) kernel: Kernel,
    /// Adds 1 to each element of `x`.
    pub(crate) captured: Graph,
    /// The same, and its node.
    pub(crate) built: (Graph, Node),
    pub(crate) other: Other,
    pub(crate) pipeline: Pipeline<'static>,
}

/// A second device that the first can reach.
pub(crate) struct Other {
    pub(crate) stream: Stream,
    pub(crate) x: Buffer<u32>,
    pub(crate) device: Device,
}

/// The kernel's module.
pub(crate) fn load_kernel(fake: &Fake, device: &Device) -> Result<Kernel> {
    let bytes = module(&[("increment", &[8, 8])]);
    let images = [Image { backend: fake.name, targets: &[fake.target], bytes: &bytes }];
    device.load_module(&ModuleSource { name: "test", images: &images, source: None })?.kernel("increment")
}

/// Launches the kernel on all of `memory`.
pub(crate) fn increment(
    kernel: &Kernel,
    stream: &Stream,
    launch: Launch,
    memory: &mut impl AsViewMut<u32>,
) -> Result<()> {
    let count = memory.view_mut().len() as u64;
    // SAFETY: the kernel stays within the memory.
    unsafe { kernel.launch(stream, &launch, &[Arg::write(memory), Arg::value(&count)]) }
}

pub(crate) const ONE: Launch = Launch::new([1; 3], [1; 3]);

impl Stage {
    pub(crate) fn open(recorder: &Recorder, fake: &'static Fake, pool: MemoryPool) -> Result<Self> {
        recorder.on_kernel("increment", |run| {
            let (start, count) = (run.pointer::<u32>(0), run.integer(1) as usize);
            // SAFETY: launches pass memory and its length.
            unsafe { std::slice::from_raw_parts_mut(start, count) }.iter_mut().for_each(|word| *word += 1);
            true
        });
        let options = DeviceOptions::default().pool(pool).staging_threads(2);
        let device = Device::open_with(fake.name, options)?;
        let kernel = load_kernel(fake, &device)?;
        let (a, b) = (device.stream()?, device.stream()?);
        let (mut x, y) = (a.zeros(N)?, b.zeros(N)?);
        let host = device.pinned(N)?;
        let captured = a.capture(|s| increment(&kernel, s, ONE, &mut x))?;
        let mut builder = device.graph()?;
        let node = builder.node(&[], |s| increment(&kernel, s, ONE, &mut x))?;
        let built = (builder.build()?, node);
        let other = Device::open_with(&format!("{}:1", fake.name), options)?;
        let stream = other.stream()?;
        let pipeline = device.pipeline().chunks(N / 2);
        let other = Other { x: stream.zeros(N)?, stream, device: other };
        Ok(Self { fake, device, options, a, b, x, y, host, kernel, captured, built, other, pipeline })
    }
}
