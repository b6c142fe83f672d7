//! Compiles source text that your program only has at run time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use gpustream_core::background::Background;
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_hal::{CallSite, Error, ErrorKind, Result, Source};

use super::{Module, load};
use crate::device::Device;

impl Device {
    /// Compiles C++ that you only have at run time, with NVRTC or HIPRTC: you generate it, or it depends on numbers that you
    /// learn late. If your build knows the source, `gpustream-build` is better: it checks every launch against a contract.
    ///
    /// ```no_run
    /// use gpustream::{Device, Launch, View, ViewMut};
    ///
    /// let device = Device::open("gpu")?;
    /// let stream = device.stream()?;
    /// let program = device
    ///     .compile(
    ///         "#include \"tile.cuh\"
    ///         template <class T, int N> __global__ void scale(const T* x, T* y, T by) {
    ///             for (int i = 0; i < N; i++) y[TILE * threadIdx.x + i] = by * x[TILE * threadIdx.x + i];
    ///         }",
    ///     )
    ///     .name("scale.cu")
    ///     .header("tile.cuh", "#pragma once\n#define TILE (BLOCK / 64)\n")
    ///     .define("BLOCK", 256)
    ///     .instance("scale<float, 4>")
    ///     .build()?;
    /// let scale = program.typed_kernel::<(View<f32>, ViewMut<f32>, f32)>("scale<float, 4>")?;
    ///
    /// let x = stream.upload(&[1.0f32; 256])?;
    /// let mut y = stream.zeros(256)?;
    /// // SAFETY: 64 threads with 4 elements each stay inside the 256 elements of both buffers.
    /// unsafe { scale.launch(&stream, &Launch::new(1, 64), (&x, &mut y, 2.0)) }?;
    /// assert_eq!(stream.download(&y)?, [2.0; 256]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// The text is compiled as C++17 for this device. NVRTC also finds the headers of the CUDA toolkit if one is installed. We
    /// keep the images on disk (`GPUSTREAM_CACHE_DIR`), so the next run of your program only loads them.
    ///
    /// Compiling runs nothing on the device, so it is safe. Launching is not, because no contract says what the text touches.
    pub fn compile(&self, text: &str) -> Compile {
        Compile {
            device: self.clone(),
            text: text.to_owned(),
            name: "source.cu".to_owned(),
            headers: Vec::new(),
            defines: Vec::new(),
            instances: Vec::new(),
        }
    }
}

/// Source text, and how to compile it for a device at run time. Made by [`Device::compile`].
///
/// We check everything that you add in [`build`](Self::build). Names and values go to the compilers as single arguments, which
/// no shell reads, so a value cannot become another option.
///
/// A `Compile` is `Send` and `Sync`. Dropping it does nothing.
#[must_use = "call `build` or `build_async`"]
#[derive(Clone, Debug)]
pub struct Compile {
    device: Device,
    name: String,
    text: String,
    headers: Vec<(String, String)>,
    defines: Vec<(String, String)>,
    instances: Vec<String>,
}

impl Compile {
    /// Sets the text's name in the compiler's messages and in our errors, instead of `source.cu`. There need not be such a file,
    /// but the rules for the names of headers hold.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a header, which the text and other headers include by this name: `"tile.cuh"` for `#include "tile.cuh"`. A name may
    /// have folders, but not `..`, because HIPRTC writes each header as a file of that name below a folder of its own.
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Defines a macro, for example a constant. Your text gets the value as `Display` writes it, and that is not always the C++
    /// literal: `1.0_f32` is written `1`, so pass `"1.0f"`.
    pub fn define(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.defines.push((name.into(), value.to_string()));
        self
    }

    /// Asks for an instance of a template, or for a kernel that is not `extern "C"`: `scale<float, 4>`, `solver::step`. You then
    /// find it by exactly this text. An `extern "C"` kernel has its C name and need not be asked for.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instances.push(name.into());
        self
    }

    /// Compiles the text, or finds its image in the cache, and loads it. Blocks until that is done, which may take seconds. You
    /// may call this inside a capture, because nothing of it is recorded.
    ///
    /// If kernels may write a variable, launches of the module never overlap: see the guide on
    /// [variables](crate::guide::writing_kernels#variables).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModule`] with the compiler's log, which has file and line, if it refuses the text;
    /// [`ErrorKind::InvalidArgument`] if a name or a value cannot be passed to a compiler, or comes twice;
    /// [`ErrorKind::Unsupported`] on the CPU, whose kernels are compiled when your program is built, and if NVRTC or HIPRTC is
    /// not installed.
    #[track_caller]
    pub fn build(&self) -> Result<Module> {
        let call_site = call_site("build");
        named(call_site, || self.build_at(call_site))
    }

    /// Does what [`build`](Self::build) does on a thread of its own, which this call starts, and returns a future.
    ///
    /// ```no_run
    /// # async fn work(device: &gpustream::Device) -> gpustream::Result<()> {
    /// let (first, second) = (device.compile("…").build_async(), device.compile("…").build_async());
    /// let modules = (first.await?, second.await?);        // compiled at the same time
    /// # drop(modules); Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn build_async(&self) -> Build {
        let (call_site, source) = (call_site("build_async"), self.clone());
        let started =
            reentrancy::check_outside().and_then(|_| Background::start(move || source.build_at(call_site)));
        Build { started, call_site }
    }

    fn build_at(&self, call_site: CallSite) -> Result<Module> {
        self.check()?;
        let headers: Vec<_> = self.headers.iter().map(|(name, text)| (&**name, &**text)).collect();
        let options: Vec<_> = self.defines.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        // Both compilers take the address of a variable too, and for that they need the `&`.
        let addresses: Vec<_> = self.instances.iter().map(|name| format!("&{name}")).collect();
        let kernels: Vec<_> =
            self.instances.iter().zip(&addresses).map(|(name, address)| (&**name, &**address)).collect();
        let source = Source {
            name: &self.name,
            text: &self.text,
            headers: &headers,
            options: &options,
            kernels: &kernels,
        };
        load::compile(&self.device, &source, call_site.location)
    }

    /// Checks everything that a compiler could mistake for something else.
    fn check(&self) -> Result<()> {
        let invalid = |what: String, why: &str| {
            Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("`{}` cannot be compiled: {what} {why}", self.name),
            ))
        };
        let no_file = "is no file name for a compiler; give names without `..`, quotes, `<`, `>`, `\\` and control \
                       characters, and not from the root";
        if !is_file_name(&self.name) {
            return invalid("the name".to_owned(), no_file);
        }
        if self.text.contains('\0') {
            return invalid("the text".to_owned(), "has a zero byte; remove it");
        }
        for (index, (name, text)) in self.headers.iter().enumerate() {
            if !is_file_name(name) {
                return invalid(format!("the header {name:?}"), no_file);
            }
            if text.contains('\0') {
                return invalid(format!("the header `{name}`"), "has a zero byte; remove it");
            }
            if self.headers[..index].iter().any(|(other, _)| other == name) {
                return invalid(format!("the header `{name}`"), "was added twice; add it once");
            }
        }
        for (index, (name, value)) in self.defines.iter().enumerate() {
            if !is_identifier(name) {
                return invalid(
                    format!("the macro {name:?}"),
                    "has no name that C++ allows; use letters, digits and `_`",
                );
            }
            // A compiler ends the value at a line break. If the line ends in `\` or inside a comment, it takes the next
            // line too.
            if value.contains(char::is_control) || value.ends_with('\\') || value.contains("/*") {
                let why = "is not one line of C++; remove control characters, `/*`, and a `\\` at the end";
                return invalid(format!("the value {value:?} of `{name}`"), why);
            }
            if self.defines[..index].iter().any(|(other, _)| other == name) {
                return invalid(format!("the macro `{name}`"), "was defined twice; define it once");
            }
        }
        for (index, name) in self.instances.iter().enumerate() {
            if name.trim().is_empty() || name.contains(char::is_control) {
                return invalid(
                    format!("the instance {name:?}"),
                    "is no expression; write it as in C++: `scale<float, 4>`",
                );
            }
            if self.instances[..index].contains(name) {
                return invalid(format!("the instance `{name}`"), "was asked for twice; ask for it once");
            }
        }
        Ok(())
    }
}

/// Returns true if you can write the name in `#include "…"`, and if a file of that name below a folder is really inside that
/// folder.
fn is_file_name(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || ['"', '\'', '<', '>', '\\'].contains(&c);
    !name.contains(is_odd) && name.split('/').all(|part| !["", ".", ".."].contains(&part))
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_letter) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// A future that resolves with the module that [`Compile::build_async`] compiles.
///
/// A `Build` is `Send` and `Sync`. If you drop it, only the waiting stops: the compiler goes on, and the cache keeps the image.
#[must_use = "the compiler is at work; only `.await` hands over the module"]
pub struct Build {
    started: Result<Background<Module>>,
    call_site: CallSite,
}

impl Future for Build {
    type Output = Result<Module>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &self.started {
            Ok(work) => work.poll(cx.waker()),
            Err(error) => Some(Err(error.clone())),
        };
        // A driver may wait for host closures before it loads a module. If such a closure waited for this future, neither
        // would end.
        let outcome = outcome.or_else(|| reentrancy::check_outside().err().map(Err));
        outcome.map_or(Poll::Pending, |outcome| {
            Poll::Ready(outcome.map_err(|error| error.with_call_site(self.call_site)))
        })
    }
}

impl fmt::Debug for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Build")
    }
}
