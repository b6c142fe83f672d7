//! Devices: how you find one, open it, and make streams on it.

use std::fmt;
use std::sync::Arc;

use gpustream_core::deferred_drop::ForeignOwner;
use gpustream_core::device_core::DeviceCore;
use gpustream_core::device_options::DeviceOptions;
use gpustream_core::environment::Environment;
use gpustream_core::lint;
use gpustream_core::memory::MemoryKind;
use gpustream_core::metrics::Metrics;
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

/// An opened device. Clones are handles of the same device, and everything that you make from a device keeps it open.
///
/// Dropping the last handle blocks until the device has finished its work; streams and buffers count as handles. If a graph of
/// another handle or device uses memory of this one, that memory lives as long as the graph.
///
/// If work on a device fails, the device is lost, and from then on every call returns [`ErrorKind::DeviceLost`]. Kernels and
/// copies on its other streams may still be running. So the process keeps the memory, modules and closures of a lost device
/// until the backend knows that nothing runs any more, which only the CPU backend can know. If unfinished work was going to
/// write some memory, you can never get a guard on it again.
///
/// If your process ends while work is pending, that work is not finished. After a `fork` the child cannot use its parent's
/// devices. On the CPU each such call is an error, and the child may open a device of its own. CUDA and HIP do not support
/// devices in a forked child at all, so start processes with [`std::process::Command`].
///
/// ```
/// let device = gpustream::Device::open("cpu")?;
/// println!("{device}");
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Device` is `Send` and `Sync`. You may use any handle on any thread.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceCore>, pub(crate) ExtensionLink);

/// Connects the listeners before we look for the first device, so that they hear everything.
fn listen() {
    #[cfg(feature = "tracing")]
    crate::events::listen();
}

impl Device {
    /// Opens the device that the environment variable `GPUSTREAM_DEVICE` names. Otherwise opens the first device of the first
    /// backend that has one: CUDA, then HIP, then the CPU. Blocks until the device is open.
    ///
    /// We only skip a backend whose driver library was not found, or whose driver works and has no device. If a GPU is present
    /// but broken, you get an error that says what each backend reported. Otherwise your program could silently run on the CPU
    /// or on the other vendor's GPU. If you want that, name a device, in the variable or with [`open`](Self::open).
    ///
    /// # Errors
    /// If the variable is set, the error of opening that device. Otherwise the error of the first backend that may have a
    /// device and fails, such as [`ErrorKind::DriverUnusable`]. [`ErrorKind::NoDevice`] if we skipped all backends; it lists
    /// the reason for each.
    #[track_caller]
    pub fn best() -> Result<Self> {
        Self::open_best(Among::All, DeviceOptions::default(), call_site("best"))
    }

    /// Like [`best`](Self::best), with options.
    ///
    /// # Errors
    /// As for [`best`](Self::best).
    #[track_caller]
    pub fn best_with(options: DeviceOptions) -> Result<Self> {
        Self::open_best(Among::All, options, call_site("best_with"))
    }

    /// Like [`best`](Self::best), but never opens the CPU.
    ///
    /// ```
    /// # use gpustream::{Device, ErrorKind};
    /// match Device::best_gpu() {
    ///     Ok(gpu) => assert_ne!(gpu.info().backend, gpustream_hal::BackendName::CPU),
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

    /// Like [`best_gpu`](Self::best_gpu), with options.
    ///
    /// # Errors
    /// As for [`best_gpu`](Self::best_gpu).
    #[track_caller]
    pub fn best_gpu_with(options: DeviceOptions) -> Result<Self> {
        Self::open_best(Among::Gpus, options, call_site("best_gpu_with"))
    }

    fn open_best(among: Among, options: DeviceOptions, call_site: CallSite) -> Result<Self> {
        named(call_site, || {
            reentrancy::check_outside()?;
            listen();
            Self::open_choice(&choice::best(among)?, options)
        })
    }

    /// Opens a device by name. Blocks until the device is open.
    ///
    /// | name | device |
    /// |---|---|
    /// | `cpu`, `cuda:0`, `hip:1` | by its number in that backend, which depends on what the environment hides (`CUDA_VISIBLE_DEVICES`) |
    /// | `cuda:GPU-…`, `cuda:MIG-…`, `hip:GPU-…` | by its UUID, as `nvidia-smi -L` and `rocminfo` print it |
    /// | `cuda:0000:3b:00.0` | by its PCI address, unless several devices share it |
    /// | `gpu` | the first GPU, as [`best_gpu`](Self::best_gpu) chooses it if the variable is not set |
    ///
    /// You find an opened device's names in [`DeviceInfo::uuid`] and [`DeviceInfo::pci`]. If you open a device twice, you get
    /// two handles that share the driver's context but no objects.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the name is malformed or fits several devices; [`ErrorKind::Unsupported`] if the
    /// backend is not compiled in; [`ErrorKind::DriverMissing`], with the libraries that we tried;
    /// [`ErrorKind::DriverUnusable`], with what you can do; [`ErrorKind::NoDevice`], with the devices that there are.
    #[track_caller]
    pub fn open(name: &str) -> Result<Self> {
        Self::open_named(name, DeviceOptions::default(), call_site("open"))
    }

    /// Like [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    #[track_caller]
    pub fn open_with(name: &str, options: DeviceOptions) -> Result<Self> {
        Self::open_named(name, options, call_site("open_with"))
    }

    fn open_named(name: &str, options: DeviceOptions, call_site: CallSite) -> Result<Self> {
        named(call_site, || {
            reentrancy::check_outside()?;
            listen();
            Self::open_choice(&choice::named(name)?, options)
        })
    }

    fn open_choice(choice: &Choice, options: DeviceOptions) -> Result<Self> {
        let opened = Self::open_because(choice.backend, choice.ordinal, options, &choice.why);
        opened.map_err(|error| choice.explain(error))
    }

    /// Opens a device of any backend, which may be a third party's. Blocks until the device is open.
    ///
    /// # Errors
    /// [`ErrorKind::DriverMissing`], with the libraries that we tried; [`ErrorKind::DriverUnusable`]; [`ErrorKind::NoDevice`];
    /// [`ErrorKind::InvalidArgument`] if an environment variable has a value that is not allowed.
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
        let raw = process::opening(backend.name().as_str(), environment.exit_seconds, open)
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

    /// Opens every device of every backend that is installed. Blocks until they are open.
    ///
    /// For each device you get the device or the error of opening it. We leave out a backend only if its driver library was not
    /// found, or if its driver works and has no device. If a backend cannot list its devices for another reason, you get one
    /// error for it. An error's [`backend`](Error::backend) says which backend it is about.
    ///
    /// ```
    /// # use gpustream::Device;
    /// for device in Device::all() {
    ///     match device {
    ///         Ok(device) => println!("{device}"),
    ///         Err(error) => println!("broken: {error}"),
    ///     }
    /// }
    /// let none_is_broken = Device::all().into_iter().collect::<gpustream::Result<Vec<Device>>>();
    /// # drop(none_is_broken);
    /// ```
    #[track_caller]
    pub fn all() -> Vec<Result<Self>> {
        let call = call_site("all");
        if let Err(error) = named(call, reentrancy::check_outside) {
            return vec![Err(error)];
        }
        listen();
        let mut devices = Vec::new();
        for backend in backends() {
            match Self::each_of(backend, call) {
                Ok(of_backend) => devices.extend(of_backend),
                Err(error) if choice::is_absent(&error) => {}
                Err(error) => devices.push(Err(error)),
            }
        }
        devices
    }

    /// Opens every device of one backend: `cpu`, `cuda` or `hip`. The name `gpu` means the backend of the GPU that
    /// [`open`](Self::open) would choose by that name. Blocks until the devices are open.
    ///
    /// You asked for this backend, so it is an error if it is not installed, or if one of its devices cannot be opened. If you
    /// want the devices that work, filter [`all`](Self::all).
    ///
    /// ```
    /// # use gpustream::Device;
    /// for device in Device::all_of("cpu")? {
    ///     println!("{device}");
    /// }
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`open`](Self::open), for the first device that fails; its message has the device's number.
    /// [`ErrorKind::InvalidArgument`] if you name one device instead of a backend, as in `cuda:0`.
    #[track_caller]
    pub fn all_of(name: &str) -> Result<Vec<Self>> {
        let call = call_site("all_of");
        named(call, || {
            reentrancy::check_outside()?;
            listen();
            Self::each_of(choice::backend(name)?, call)?.collect()
        })
    }

    /// Opens the devices of one backend, in the name of your call.
    fn each_of(backend: &dyn Backend, call: CallSite) -> Result<impl Iterator<Item = Result<Self>>> {
        trace::expect(backend);
        let of_backend = move |error: Error| error.with_backend(backend.name()).with_call_site(call);
        let count = backend.device_count().map_err(of_backend)?;
        Ok((0..count).map(move |ordinal| {
            let why = "the program asks for all devices";
            Self::open_because(backend, ordinal, DeviceOptions::default(), why)
                .map_err(|error| of_backend(error).with_context(format_args!("device {ordinal}")))
        }))
    }

    /// Keeps `what`, and then your `values`, until everything submitted so far is done.
    pub(crate) fn park(&self, what: Box<dyn Send>, values: Option<Box<dyn Send>>) {
        let device = self.0.clone();
        // Parking has to ask the streams how far they are.
        reentrancy::outside(move || device.park(what, values));
    }

    /// Returns the name under which [`open`](Self::open) finds the device: `cuda:0`.
    pub(crate) fn place(&self) -> impl fmt::Display + use<> {
        format!("{}:{}", self.0.info.backend, self.0.info.ordinal)
    }

    /// Returns the device's name, limits and abilities.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Returns who orders operations: the library or you, as you chose with [`DeviceOptions::tracking`]. `None` if you
    /// [turned tracking off](DeviceOptions::without_tracking). If you write a library that moves memory between streams, ask
    /// this: you must make the streams wait for each other yourself unless it is [`Tracking::Auto`].
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
    /// [`ErrorKind::DeviceLost`], or the driver's error if it cannot make another stream.
    #[track_caller]
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// Makes a stream with options. A priority that the device lacks becomes the nearest one that it has.
    ///
    /// You can restrict a stream to a part of the device, so that other streams find room immediately while its long kernels
    /// run:
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
    /// CUDA has such streams from 12.5 on (green contexts). They have any priority, but not together with
    /// [`blocking_with_default`](StreamOptions::blocking_with_default). Each part takes some device memory until the process
    /// ends (4 MiB on an H100), and streams on the same part share it. HIP has them from 5.7 on (masks of compute units), with
    /// ordinary priority only. There such a stream and the legacy default stream always wait for each other. The CPU runs the
    /// stream's kernels, copies and fills on that many of its threads.
    ///
    /// # Errors
    /// As for [`stream`](Self::stream); [`ErrorKind::InvalidArgument`] if the part is empty or larger than the device;
    /// [`ErrorKind::Unsupported`] if you cannot combine the options, or if the driver has no such streams.
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
        let queues = self.0.info.limits.hardware_queues as usize;
        if lint::is_on() && queues > 0 && self.0.own_streams().len() >= queues {
            lint::serialises(
                "more streams than the device has queues (HIP: GPU_MAX_HW_QUEUES, 4 if it is not set): streams share queues, so a \
                 stream that is blocked can hold up others",
            );
        }
        if let Some(part) = options.multiprocessors {
            self.check_part(part)?;
        }
        let StreamPriorities { least, greatest } = self.0.info.limits.stream_priorities;
        let options = options.priority(options.priority.clamp(greatest.min(least), least.max(greatest)));
        let raw = self.0.raw.stream_create(options)?;
        let (device, wait) = (self.0.raw.clone(), self.0.wait);
        // HIP's streams on a part of the device wait for the default stream, as blocking streams do.
        let waits = options.blocking_with_default || options.multiprocessors.is_some();
        let origin = if waits { Origin::Blocking } else { Origin::Ours };
        // SAFETY: the device has just made the stream, which is not shared yet; the number is new.
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
                "a stream on {part} multiprocessors was asked of {}:{}, which has {all}; ask for 1 to {all}, or leave the option out",
                info.backend,
                info.ordinal,
                all = info.multiprocessors
            ),
        ))
    }

    /// Returns a stream that the driver owns: the legacy default stream, or that of this host thread.
    ///
    /// A thread's stream only works on that thread, because the driver's handle means another stream elsewhere. On any other
    /// thread, submitting to it or waiting for it is an [`ErrorKind::InvalidArgument`]. Other threads may still have to wait
    /// for its work, so each submission to it records an event. All values of a default stream are the same stream, even
    /// through several handles of the device, and it can have one capture at a time.
    ///
    /// The legacy stream and the streams that you make with [`blocking_with_default`](StreamOptions::blocking_with_default)
    /// wait for each other.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend has no such stream.
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

    /// Wraps a stream that another library made and keeps, for example cudarc's or `PyTorch`'s, or the stream of a cuBLAS or
    /// hipBLAS handle. Your work and the other library's then run in one order. Dropping the value does not destroy the stream.
    /// Handle 0 is the legacy default stream, and the handle of the per-thread default streams means the calling thread's.
    ///
    /// We cannot track how the other library uses memory. All values of one stream are the same stream, even through several
    /// handles of the device, and it can have one capture at a time.
    ///
    /// # Safety
    /// `raw` must be a stream in this device's primary context. It must outlive the value (forever, if you leak the value) and
    /// all work submitted through it. It may only be captured through such values. You must not drop the value inside a host
    /// closure.
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

    /// Wraps a stream that the library did not make.
    fn adopt(&self, raw: RawStream, origin: Origin) -> Stream {
        self.0.drop_parked();
        let (device, wait) = (self.0.raw.clone(), self.0.wait);
        // SAFETY: the driver made the stream, or the caller of an unsafe function promises that it is one; the number is new.
        let core = unsafe { StreamCore::new(raw, device, wait, origin) };
        let core = streams().adopt(Arc::new(core));
        if !Arc::ptr_eq(&core.device, &self.0.raw) {
            // The stream was first wrapped through another handle of the device, but from now on it will use memory of this
            // one.
            self.0.visit();
        }
        Stream { core, device: self.clone() }
    }

    /// Loads kernels that you have as images. We take the image that fits this device best, and block until it is loaded. If your
    /// images come from generated bindings, use their `load` instead, which is safe. If you have a source text, call
    /// [`compile`](Self::compile). A capture does not record the loading, so you may also load inside one.
    ///
    /// # Errors
    /// [`ErrorKind::NoImageForDevice`], with the targets of the images and of the device; [`ErrorKind::InvalidModule`] if an
    /// image is damaged.
    ///
    /// # Safety
    /// The images must be complete and come from a compiler that you trust. Loading an image runs code in it (on the CPU its
    /// initialisers, in this process), and loaders trust what they read. Damage that we find is an error, but we cannot find
    /// all damage. If kernels write variables, [`ModuleSource::globals`] must list at least one of them, or you must order the
    /// launches yourself, because we do not search the images for others.
    #[track_caller]
    pub unsafe fn load_module(&self, source: &ModuleSource<'_>) -> Result<Module> {
        // SAFETY: passed on to the caller.
        unsafe { module::load(self, source, None, &[], Vec::new(), None) }
    }

    /// Makes a [`Module`] from a module that another library loaded (`CUmodule`, `hipModule_t`), so that you can launch its
    /// kernels like your own. `name` stands for it in errors.
    ///
    /// `owner` keeps the module loaded. We drop it on a thread of the library once the module's kernels can no longer run. If
    /// the module is never unloaded, pass `()`.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a host closure.
    ///
    /// # Safety
    /// `raw` must be a module in this device's context that stays loaded until `owner` is dropped. If its kernels write
    /// variables, you must order their launches, because we do not know these variables.
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

    /// Blocks until all work of the device is done (`cuCtxSynchronize`), including work that other libraries in this process
    /// submitted to its context.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if any of it failed; [`ErrorKind::HostPanic`] if a host closure panicked;
    /// [`ErrorKind::Captured`] while a thread captures a stream of the device, because the driver would break the capture.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        lint::serialises("waiting for the whole device; wait for a stream or an event instead");
        named(call_site("synchronize"), || self.0.synchronize())
    }

    /// Returns how much device memory is free at this moment, and how much there is (`cuMemGetInfo`). Memory that we keep for
    /// the next allocations does not count as free; see [`trim`](Self::trim).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    #[track_caller]
    pub fn memory(&self) -> Result<MemoryInfo> {
        named(call_site("memory"), || {
            reentrancy::check_outside()?;
            self.0.raw.memory()
        })
    }

    /// Returns how much device memory this library holds and uses.
    pub fn memory_stats(&self) -> MemoryStats {
        self.0.pools.stats(MemoryKind::Device)
    }

    /// Returns how much page-locked host memory this library holds and uses for this device, without write-combined memory.
    pub fn pinned_stats(&self) -> MemoryStats {
        self.0.pools.stats(MemoryKind::Pinned)
    }

    /// Returns what the device is doing at this moment: pending operations, memory, and whether it failed. For the metrics of a
    /// service. Does not block.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let stream = device.stream()?;
    /// let x = stream.zeros::<f32>(1 << 20)?;
    /// let metrics = device.metrics();
    /// println!("{} pending, {} MiB in use", metrics.pending, metrics.device_memory.used >> 20);
    /// assert!(metrics.submitted >= 1 && metrics.fault.is_none());
    /// # drop(x);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.0.metrics()
    }

    /// Returns which lines of your program hold device memory, the largest first.
    pub fn memory_snapshot(&self) -> MemorySnapshot {
        self.0.pools.snapshot(MemoryKind::Device)
    }

    /// Gives unused slabs back to the driver, pinned ones too, and returns how many bytes they had. May block until the device
    /// is idle, because `cuMemFree` does. Does nothing inside a host closure.
    #[track_caller]
    pub fn trim(&self) -> u64 {
        if reentrancy::is_inside() {
            return 0;
        }
        if self.0.info.quirks.free_synchronizes {
            lint::serialises("returning memory to the driver waits for all work of the device");
        }
        self.0.take_back_kept();
        self.0.pools.trim_all()
    }

    /// Returns true if both are handles of the same opened device.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks that the stream was made with this handle. `what` names the other object that was.
    #[inline]
    pub(crate) fn check_made(&self, stream: &Stream, what: &str) -> Result<()> {
        if self.is_same(stream.device()) { Ok(()) } else { Err(self.another_handle(stream, what)) }
    }

    #[cold]
    fn another_handle(&self, stream: &Stream, what: &str) -> Error {
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "the {what} was made with one handle of {}, and the stream with another one, of {}; make the stream with the handle \
                 that made the {what}, so that both belong to one opened device",
                self.place(),
                stream.device().place()
            ),
        )
    }

    /// Returns the driver's context (`CUcontext`) as an address, for other libraries. On CUDA it is the device's primary
    /// context, which all libraries of a process share. On HIP, which uses ordinals instead, and on the CPU, the number means
    /// nothing outside.
    pub fn raw_context(&self) -> usize {
        self.0.raw.context()
    }

    /// Returns the backend's device, if you need a driver call that this crate does not offer.
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
