//! What a scene finds: opened fake devices, and objects that were made before anything fails.

use gpustream::{
    Buffer, Device, DeviceOptions, Graph, Kernel, Node, Pinned, Pipeline, PoolPolicy, Result, Stream,
};
use recorder::Recorder;

use crate::fakes::{Fake, ONE, increment, load_kernel, run_kernel};

/// Elements in each buffer of the stage.
pub(crate) const N: usize = 300;

pub(crate) struct Stage {
    pub(crate) fake: &'static Fake,
    pub(crate) device: Device,
    pub(crate) options: DeviceOptions,
    pub(crate) a: Stream,
    pub(crate) b: Stream,
    pub(crate) x: Buffer<u32>,
    pub(crate) y: Buffer<u32>,
    pub(crate) host: Pinned<u32>,
    /// The kernel of [`load_kernel`], which adds 1 to words.
    pub(crate) kernel: Kernel,
    /// A captured graph that adds 1 to each element of `x`.
    pub(crate) captured: Graph,
    /// A built graph that adds 1 to each element of `x`, and its node.
    pub(crate) built: (Graph, Node),
    pub(crate) other: Other,
    pub(crate) pipeline: Pipeline<'static>,
}

/// A second device that the first one can access.
pub(crate) struct Other {
    pub(crate) stream: Stream,
    pub(crate) x: Buffer<u32>,
    pub(crate) device: Device,
}

impl Stage {
    pub(crate) fn open(recorder: &Recorder, fake: &'static Fake, pool: PoolPolicy) -> Result<Self> {
        let options = DeviceOptions::default().pool(pool).staging_threads(2);
        let device = Device::open_with(fake.name, options)?;
        let kernel = load_kernel(fake, &device)?;
        run_kernel(recorder);
        let (a, b) = (device.stream()?, device.stream()?);
        let (mut x, y) = (a.zeros(N)?, b.zeros(N)?);
        let host = device.pinned(N)?;
        let captured = a.capture(|s| increment(&kernel, s, ONE, &mut x))?;
        let mut builder = device.graph_builder()?;
        let node = builder.node(&[], |s| increment(&kernel, s, ONE, &mut x))?;
        let built = (builder.build()?, node);
        let other = Device::open_with(&format!("{}:1", fake.name), options)?;
        let stream = other.stream()?;
        let pipeline = device.pipeline().chunks(N / 2);
        let other = Other { x: stream.zeros(N)?, stream, device: other };
        Ok(Self { fake, device, options, a, b, x, y, host, kernel, captured, built, other, pipeline })
    }
}
