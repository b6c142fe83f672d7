//! Devices: finding them, opening them, and making streams of one.

use std::fmt;
use std::sync::Arc;

use gpustream_core::deferred_drop::ForeignOwner;
use gpustream_core::device_core::DeviceCore;
use gpustream_core::device_options::DeviceOptions;
use gpustream_core::environment::Environment;
use gpustream_core::lint;
use gpustream_core::memory::MemoryKind;
pub(crate) use gpustream_core::operation::{call_site, named};
use gpustream_core::pool::{MemorySnapshot, MemoryStats};
use gpustream_core::process;
use gpustream_core::reentrancy;
use gpustream_core::stream::{Origin, StreamCore};
use gpustream_core::track::Tracking;
use gpustream_hal::notice::{self, Level, Notice};
use gpustream_hal::{
    self as hal, Backend, CallSite, DefaultStream, DeviceInfo, Error, ErrorKind, MemoryInfo, RawStream,
    Result, StreamOptions, StreamPriorities,
};

use crate::choice::{self, Among, Choice, backends};
use crate::extension::ExtensionLink;
use crate::module::{self, Module, ModuleSource};
use crate::stream::{Stream, streams};
use crate::trace;

/// An opened device. Clones are handles of the same device; everything made from a device keeps it open.
///
/// Dropping the last handle, streams and buffers included, waits for the device's work. Memory that a graph of another
/// handle or device refers to lives as long as that graph.
///
/// A device whose work failed is lost: every call is [`ErrorKind::DeviceLost`] from then on. Kernels and copies of its
/// other streams may still be running. The process therefore keeps memory, modules and closures of a lost device until
/// the backend knows that nothing runs any more; only the CPU backend can know. Guards on memory that the unfinished
/// work was to write are refused for good.
///
/// A process that ends while work is pending does not finish the work. After a `fork` the child cannot use its parent's
/// devices: on the CPU each call is an error, and the child may open a device of its own; CUDA and HIP do not support
/// devices in a forked child. Start processes with [`std::process::Command`].
///
/// ```
/// let device = gpustream::Device::open("cpu")?;
/// println!("{device}");
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Device` is `Send` and `Sync`. Any thread may use any handle.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceCore>, pub(crate) ExtensionLink);

/// Has listeners hear what the library does, from before the first device is looked for.
fn listen() {
    #[cfg(feature = "tracing")]
    crate::events::listen();
}

impl Device {
    /// Opens the device that the environment variable `GPUSTREAM_DEVICE` names, or else the first device of the first
    /// backend that has one: CUDA, HIP, the CPU.
    ///
    /// A backend is passed over only if its driver library was not found, or its driver works and counts no device. A GPU
    /// that is there and broken is an error, so that a program never runs on the CPU because of it, or on the other vendor's
    /// GPU. The error says what each backend said. Name a device, with the variable or [`open`](Self::open), to use it all
    /// the same.
    ///
    /// # Errors
    /// The error of opening the named device. Without the variable, the error of the first backend that may have a device
    /// and fails, such as [`ErrorKind::DriverUnusable`]; [`ErrorKind::NoDevice`] if all backends were passed over, with
    /// every backend's own reason.
    #[track_caller]
    pub fn best() -> Result<Self> {
        Self::open_best(Among::All, DeviceOptions::default(), call_site("best"))
    }

    /// Opens a device as [`best`](Self::best) does, with options.
    ///
    /// # Errors
    /// As for [`best`](Self::best).
    #[track_caller]
    pub fn best_with(options: DeviceOptions) -> Result<Self> {
        Self::open_best(Among::All, options, call_site("best_with"))
    }

    /// Opens a GPU as [`best`](Self::best) does, and never the CPU.
    ///
    /// ```
    /// # use gpustream::{Device, ErrorKind};
    /// match Device::best_gpu() {
    ///     Ok(gpu) => assert_ne!(gpu.info().backend, "cpu"),
    ///     Err(error) => println!("no GPU: {error}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`best`](Self::best); [`ErrorKind::InvalidArgument`] if `GPUSTREAM_DEVICE` names the CPU.
    #[track_caller]
    pub fn best_gpu() -> Result<Self> {
        Self::open_best(Among::Gpus, DeviceOptions::default(), call_site("best_gpu"))
    }

    /// Opens a device as [`best_gpu`](Self::best_gpu) does, with options.
    ///
    /// # Errors
    /// As for [`best_gpu`](Self::best_gpu).
    #[track_caller]
    pub fn best_gpu_with(options: DeviceOptions) -> Result<Self> {
        Self::open_best(Among::Gpus, options, call_site("best_gpu_with"))
    }

    fn open_best(among: Among, options: DeviceOptions, operation: CallSite) -> Result<Self> {
        named(operation, || {
            reentrancy::check_outside()?;
            listen();
            Self::open_choice(&choice::best(among)?, options)
        })
    }

    /// Opens a device by name:
    ///
    /// | name | device |
    /// |---|---|
    /// | `cpu`, `cuda:0`, `hip:1` | of a backend, by its number there, which depends on what the environment hides (`CUDA_VISIBLE_DEVICES`) |
    /// | `cuda:GPU-…`, `cuda:MIG-…`, `hip:GPU-…` | by its UUID, as `nvidia-smi -L` and `rocminfo` show it |
    /// | `cuda:0000:3b:00.0` | by its place on the PCI bus, unless several devices share it |
    /// | `gpu` | the first GPU, chosen as by [`best_gpu`](Self::best_gpu) without the environment |
    ///
    /// [`DeviceInfo::uuid`] and [`DeviceInfo::pci`] are these names of an opened device. Opening a device twice makes two
    /// handles that share the driver's context and no objects.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a malformed name, or one of several devices; [`ErrorKind::Unsupported`] for a
    /// backend that is not compiled in; [`ErrorKind::DriverMissing`] with the libraries that were tried;
    /// [`ErrorKind::DriverUnusable`] with what to do; [`ErrorKind::NoDevice`] with the devices that there are.
    #[track_caller]
    pub fn open(name: &str) -> Result<Self> {
        Self::open_named(name, DeviceOptions::default(), call_site("open"))
    }

    /// Opens a device as [`open`](Self::open) does, with options.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    #[track_caller]
    pub fn open_with(name: &str, options: DeviceOptions) -> Result<Self> {
        Self::open_named(name, options, call_site("open_with"))
    }

    fn open_named(name: &str, options: DeviceOptions, operation: CallSite) -> Result<Self> {
        named(operation, || {
            reentrancy::check_outside()?;
            listen();
            Self::open_choice(&choice::named(name)?, options)
        })
    }

    fn open_choice(choice: &Choice, options: DeviceOptions) -> Result<Self> {
        let opened = Self::open_because(choice.backend, choice.ordinal, options, &choice.why);
        opened.map_err(|error| choice.explain(error))
    }

    /// Opens a device of any backend, a third party's included.
    ///
    /// # Errors
    /// [`ErrorKind::DriverMissing`] with the libraries that were tried, [`ErrorKind::DriverUnusable`],
    /// [`ErrorKind::NoDevice`], [`ErrorKind::InvalidArgument`] for an environment variable whose value is not allowed.
    #[track_caller]
    pub fn open_on(backend: &dyn Backend, ordinal: usize, options: DeviceOptions) -> Result<Self> {
        named(call_site("open_on"), || {
            reentrancy::check_outside()?;
            listen();
            Self::open_because(backend, ordinal, options, "the program gives the backend and the number")
        })
    }

    fn open_because(
        backend: &dyn Backend,
        ordinal: usize,
        options: DeviceOptions,
        why: &str,
    ) -> Result<Self> {
        process::check_not_forked()?;
        let environment = Environment::read()?;
        trace::expect(backend);
        let open = || backend.open(ordinal);
        let raw = process::opening(backend.name(), environment.exit_seconds, open)
            .map_err(|error| error.with_backend(backend.name()))?;
        trace::of_process(&raw)?;
        // SAFETY: the backend has just opened the device, and this crate's handles check what the core relies on.
        let core = Arc::new(unsafe { DeviceCore::new(raw, options, environment) });
        let extensions = ExtensionLink::new(&core);
        let device = Self(core, extensions);
        notice::now(Level::Info, || {
            let info = device.info().clone();
            Notice::Opened {
                device: format!("{}:{}", info.backend, info.ordinal),
                name: info.name,
                arch: info.arch,
                driver: info.driver,
                uuid: info.uuid,
                pci: info.pci.map(|pci| pci.to_string()),
                library: backend.library().map(|library| (library.path, library.found_by)),
                why: why.to_owned(),
            }
        });
        Ok(device)
    }

    /// Opens every device of every backend. The list has each device, or the error of opening it, and one error for
    /// each backend that cannot list its devices. Such an error's [`backend`](Error::backend) is set.
    ///
    /// ```
    /// # use gpustream::Device;
    /// for device in Device::all() {
    ///     match device {
    ///         Ok(device) => println!("{device}"),
    ///         Err(error) => println!("{error}"),
    ///     }
    /// }
    /// let opened: Vec<Device> = Device::all().into_iter().flatten().collect();
    /// # drop(opened);
    /// ```
    pub fn all() -> Vec<Result<Self>> {
        if let Err(error) = reentrancy::check_outside() {
            return vec![Err(error)];
        }
        listen();
        let mut devices = Vec::new();
        for backend in backends() {
            trace::expect(backend);
            match backend.device_count() {
                Ok(count) => devices.extend((0..count).map(|ordinal| {
                    Self::open_on(backend, ordinal, DeviceOptions::default()).map_err(|error| {
                        error.with_backend(backend.name()).with_context(format_args!("device {ordinal}"))
                    })
                })),
                Err(error) => devices.push(Err(error.with_backend(backend.name()))),
            }
        }
        devices
    }

    /// Keeps `what`, and then the program's `values`, until everything submitted so far is done.
    pub(crate) fn park(&self, what: Box<dyn Send>, values: Option<Box<dyn Send>>) {
        let device = self.0.clone();
        // Asks the streams how far they are.
        reentrancy::outside(move || device.park(what, values));
    }

    /// Returns the name by which [`open`](Self::open) finds the device: `cuda:0`.
    pub(crate) fn place(&self) -> impl fmt::Display + use<> {
        format!("{}:{}", self.0.info.backend, self.0.info.ordinal)
    }

    /// Returns the device's name, limits and abilities.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Returns the side that orders operations, as the [options](DeviceOptions::tracking) chose it; `None` where they
    /// [turned tracking off](DeviceOptions::without_tracking). Libraries on top of this one that move memory between streams
    /// make these wait for each other themselves, unless it is [`Tracking::Auto`].
    ///
    /// ```
    /// use gpustream::{Device, Tracking};
    /// assert_eq!(Device::open("cpu")?.tracking(), Some(Tracking::Auto));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    pub fn tracking(&self) -> Option<Tracking> {
        self.0.rules.tracking
    }

    /// Makes a non-blocking stream of ordinary priority (`cuStreamCreateWithPriority`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`], or the driver's error where it makes no more streams.
    #[track_caller]
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// Makes a stream with options. The priority is clamped to the device's range.
    ///
    /// A stream may be kept to a part of the device, so that others find room at once beside its long kernels:
    ///
    /// ```
    /// use gpustream::{Device, ErrorKind, StreamOptions};
    /// # let device = Device::open("cpu")?;
    /// let half = device.info().multiprocessors.div_ceil(2);
    /// let background = match device.stream_with(StreamOptions::default().multiprocessors(half)) {
    ///     Err(error) if error.kind() == ErrorKind::Unsupported => device.stream()?,
    ///     made => made?,
    /// };
    /// assert!(background.multiprocessors() >= half);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// CUDA has such streams from 12.5 on (green contexts), with any priority, and not together with
    /// [`blocking_with_default`](StreamOptions::blocking_with_default). Each part that is ever used takes some memory of the
    /// device until the process ends (4 MiB on an H100); streams on the same part share it. HIP has them from 5.7 on (masks of compute units),
    /// with ordinary priority alone; on HIP such a stream and the legacy default stream always wait for each other. The
    /// CPU keeps kernels, copies and fills to so many of its threads.
    ///
    /// # Errors
    /// As for [`stream`](Self::stream); [`ErrorKind::InvalidArgument`] for a part that is empty or larger than the
    /// device, [`ErrorKind::Unsupported`] for options that do not go together, or a driver without such streams.
    #[track_caller]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        let call = call_site("stream");
        self.make_stream(options).map_err(|error| error.with_call_site(call))
    }

    #[track_caller]
    fn make_stream(&self, options: StreamOptions) -> Result<Stream> {
        reentrancy::check_outside()?;
        process::check_not_forked()?;
        if options.blocking_with_default {
            lint::serialises("a blocking stream and the legacy default stream wait for each other");
        }
        let queues = self.0.info.hardware_queues as usize;
        if lint::is_on() && queues > 0 && self.0.own_streams().len() >= queues {
            lint::serialises(
                "more streams than the device has queues (HIP: GPU_MAX_HW_QUEUES, 4 where it is not set): a stream that is \
                 blocked holds up those it shares a queue with",
            );
        }
        if let Some(part) = options.multiprocessors {
            self.check_part(part)?;
        }
        let StreamPriorities { least, greatest } = self.0.info.stream_priorities;
        let options = options.priority(options.priority.clamp(greatest.min(least), least.max(greatest)));
        let raw = self.0.raw.stream_create(options)?;
        let (device, wait) = (self.0.raw.clone(), self.0.wait);
        // HIP's streams on a part of the device wait as blocking ones do.
        let waits = options.blocking_with_default || options.multiprocessors.is_some();
        let origin = if waits { Origin::Blocking } else { Origin::Ours };
        // SAFETY: the device has just made the stream, which belongs to nobody else; the number is new.
        let core = Arc::new(unsafe { StreamCore::new(raw, device, wait, origin) });
        self.0.drop_parked();
        streams().insert(core.clone());
        Ok(Stream { core, device: self.clone() })
    }

    fn check_part(&self, part: u32) -> Result<()> {
        let info = self.info();
        if (1..=info.multiprocessors).contains(&part) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "a stream on {part} multiprocessors of {}:{}, which has {all}; ask for 1 to {all}, or leave the option out",
                info.backend,
                info.ordinal,
                all = info.multiprocessors
            ),
        ))
    }

    /// Returns a stream that the driver made: the legacy default stream, or this host thread's.
    ///
    /// A thread's stream can be used on that thread alone: on any other, submitting to the stream and waiting for it is
    /// an [`ErrorKind::InvalidArgument`]. Each submission to a thread's stream records an event. Several values of a
    /// default stream, also of several handles of the device, are one stream, with one capture at a time.
    ///
    /// Work on the legacy stream and on streams made with
    /// [`blocking_with_default`](StreamOptions::blocking_with_default) wait for each other.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend has none.
    #[track_caller]
    pub fn default_stream(&self, which: DefaultStream) -> Result<Stream> {
        let call = call_site("default_stream");
        named(call, reentrancy::check_outside)?;
        if which == DefaultStream::Legacy {
            lint::serialises("the legacy default stream waits for every blocking stream, and they for it");
        }
        let raw = named(call, || self.0.raw.stream_default(which))?;
        Ok(match which {
            DefaultStream::Legacy => self.adopt(raw, Origin::Foreign),
            DefaultStream::PerThread => self.adopt(raw, Origin::this_thread()),
        })
    }

    /// Returns a value of a stream that another library made and keeps: cudarc's, `PyTorch`'s, one that cuBLAS or
    /// hipBLAS was given. Work of either side runs in one order. Dropping the value does not destroy the stream. Handle
    /// 0 is the legacy default stream, and the handle of the threads' default streams means the calling thread's.
    ///
    /// The other side's use of memory is not tracked. Several values of one stream, also of several handles of the
    /// device, are one stream, with one capture at a time.
    ///
    /// # Safety
    /// `raw` is a stream of this device's primary context, outlives the value (a leaked value lives on) and all work
    /// submitted through it, and is captured through such values alone. The value is not dropped inside a host closure.
    pub unsafe fn stream_from_raw(&self, raw: RawStream) -> Stream {
        let is = |which| self.0.raw.stream_default(which).is_ok_and(|default| default == raw);
        if is(DefaultStream::PerThread) {
            return self.adopt(raw, Origin::this_thread());
        }
        match self.0.raw.stream_default(DefaultStream::Legacy) {
            Ok(legacy) if raw == RawStream(0) => self.adopt(legacy, Origin::Foreign),
            _ => self.adopt(raw, Origin::Foreign),
        }
    }

    /// Makes a value of a stream that the library did not make.
    fn adopt(&self, raw: RawStream, origin: Origin) -> Stream {
        self.0.drop_parked();
        let (device, wait) = (self.0.raw.clone(), self.0.wait);
        // SAFETY: the driver made the stream, or the caller of an unsafe function vouches for it; the number is new.
        let core = unsafe { StreamCore::new(raw, device, wait, origin) };
        let core = streams().adopt(Arc::new(core));
        if !Arc::ptr_eq(&core.device, &self.0.raw) {
            // First taken from another handle of the device, but it will use memory of this one.
            self.0.visit();
        }
        Stream { core, device: self.clone() }
    }

    /// Loads kernels: the best of the images for this device, or the source compiled at run time. The `load` of
    /// generated bindings is the safe way, for images that were built with them.
    ///
    /// # Errors
    /// [`ErrorKind::NoImageForDevice`] with the targets of the images and of the device;
    /// [`ErrorKind::InvalidModule`] for damaged bytes or source that does not compile.
    ///
    /// # Safety
    /// The images are whole and come from a compiler that the program trusts: loading one runs code in it (on the CPU
    /// its initialisers, in this process), and loaders trust what they read. An image that is found damaged is an
    /// error, but not all damage can be found. If kernels write variables, the list of [`ModuleSource::globals`] has one of
    /// these at least, or the program orders the launches itself: the library does not look for others in the images.
    #[track_caller]
    pub unsafe fn load_module(&self, source: &ModuleSource<'_>) -> Result<Module> {
        // SAFETY: passed on to the caller.
        unsafe { module::load(self, source, &[], Vec::new(), None) }
    }

    /// Makes a [`Module`] of one that another library loaded (`CUmodule`, `hipModule_t`), whose kernels are then
    /// launched as this library's own: `name` stands for it in errors.
    ///
    /// `owner` keeps the module loaded, and is dropped on a thread of the library's once no kernel of the module can run
    /// any more. Give `()` for a module that is never unloaded.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure.
    ///
    /// # Safety
    /// `raw` is a module of this device's context, and stays loaded until `owner` is dropped. If its kernels write variables,
    /// the program orders their launches: the library knows none of these.
    #[track_caller]
    pub unsafe fn module_from_raw(
        &self,
        raw: hal::RawModule,
        name: &str,
        owner: impl Send + 'static,
    ) -> Result<Module> {
        named(call_site("module_from_raw"), || {
            reentrancy::check_outside()?;
            // SAFETY: passed on to the caller.
            Ok(unsafe { Module::foreign(self, raw, name, ForeignOwner::new(owner)) })
        })
    }

    /// Blocks until all work of the device is done, this process's other users of its context included
    /// (`cuCtxSynchronize`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where any of it failed, [`ErrorKind::HostPanic`] where a host closure panicked,
    /// [`ErrorKind::Captured`] while any thread captures a stream of the device: drivers break the capture.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        lint::serialises("waiting for the whole device; wait for a stream or an event instead");
        named(call_site("synchronize"), || self.0.synchronize())
    }

    /// Returns free and total device memory at this moment (`cuMemGetInfo`). Memory that this library keeps for the
    /// next allocations is not free; see [`trim`](Self::trim).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where the device failed.
    #[track_caller]
    pub fn memory(&self) -> Result<MemoryInfo> {
        named(call_site("memory"), || {
            reentrancy::check_outside()?;
            self.0.raw.memory()
        })
    }

    /// Returns figures of the device memory that this library holds.
    pub fn memory_stats(&self) -> MemoryStats {
        self.0.pools.stats(MemoryKind::Device)
    }

    /// Returns figures of the page-locked host memory that this library holds for this device, write-combined memory
    /// not included.
    pub fn pinned_stats(&self) -> MemoryStats {
        self.0.pools.stats(MemoryKind::Pinned)
    }

    /// Returns the holders of device memory: lines of the program, most bytes first.
    pub fn memory_snapshot(&self) -> MemorySnapshot {
        self.0.pools.snapshot(MemoryKind::Device)
    }

    /// Gives slabs of which nothing is used any more back to the driver, pinned ones too, and returns how many bytes
    /// they had. May synchronize the device, as `cuMemFree` does. Does nothing inside a host closure.
    #[track_caller]
    pub fn trim(&self) -> u64 {
        if reentrancy::is_inside() {
            return 0;
        }
        if self.0.info.free_synchronizes {
            lint::serialises("returning memory to the driver waits for all work of the device");
        }
        self.0.take_back_kept();
        self.0.pools.trim_all()
    }

    /// Returns whether both are handles of one opened device.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks that this handle made the stream; `what` names what else was made with the handle.
    #[inline]
    pub(crate) fn check_made(&self, stream: &Stream, what: &str) -> Result<()> {
        if self.is_same(stream.device()) { Ok(()) } else { Err(self.another_handle(stream, what)) }
    }

    #[cold]
    fn another_handle(&self, stream: &Stream, what: &str) -> Error {
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "the {what} was made with a handle of {}, and the stream with another one, of {}; give the {what} a stream of \
                 its own handle: `Device::stream` of the one that made the {what}",
                self.place(),
                stream.device().place()
            ),
        )
    }

    /// Returns the address of the driver's context (`CUcontext`), for other libraries: on CUDA the device's primary context,
    /// which all libraries of a process share. On HIP, which goes by ordinals, and on the CPU the number means nothing to
    /// others.
    pub fn raw_context(&self) -> usize {
        self.0.raw.context()
    }

    /// Returns the backend's own device, for calls that this crate does not offer.
    pub fn raw(&self) -> &Arc<dyn hal::Device> {
        &self.0.raw
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}:{})", self.0.info.backend, self.0.info.ordinal)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.info.fmt(f)
    }
}
