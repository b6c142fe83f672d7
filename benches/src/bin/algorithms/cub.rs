//! CUB's algorithms, from the library that nvcc made of `cub.cu`.

use std::env;
use std::ffi::c_int;
use std::fs;
use std::process;

use anyhow::{Context as _, Result, ensure};
use gpustream::{BackendName, Buffer, Device, Stream};
use libloading::Library;

/// The library's bytes, or none if it was not built.
const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcub.so"));

/// The most arguments that a function of `cub.cu` has, without the temporary memory and the stream.
const MOST: usize = 6;

/// The library, loaded.
pub(crate) struct Cub(Library);

/// A call: the function's name, and its arguments, which are addresses and numbers.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) arguments: Vec<usize>,
}

/// Makes a [`Call`].
macro_rules! call {
    ($name:literal, $($argument:expr),*) => {
        $crate::cub::Call { name: $name, arguments: vec![$($argument),*] }
    };
}
pub(crate) use call;

impl Cub {
    /// Loads the library, if there is one and the device can use it.
    pub(crate) fn load(device: &Device) -> Result<Option<Self>> {
        if IMAGE.is_empty() || device.info().backend != BackendName::CUDA {
            return Ok(None);
        }
        let path = env::temp_dir().join(format!("gpustream-cub-{}.so", process::id()));
        fs::write(&path, IMAGE).with_context(|| format!("cannot write {}", path.display()))?;
        // SAFETY: our own library, whose initialisers only register its kernels.
        let library = unsafe { Library::new(&path) }.context("cannot load CUB's algorithms");
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        Ok(Some(Self(library?)))
    }

    /// Finds the function and allocates its temporary memory.
    pub(crate) fn prepare(&self, stream: &Stream, call: Call) -> Result<Prepared> {
        ensure!(call.arguments.len() <= MOST, "`{}` has too many arguments", call.name);
        let mut prepared = Prepared { function: self.function(&call)?, call, temporary: stream.alloc(0)? };
        let mut bytes = 0;
        prepared.function.call(0, &mut bytes, &prepared.call, 0)?;
        prepared.temporary = stream.alloc(bytes)?;
        Ok(prepared)
    }

    fn function(&self, call: &Call) -> Result<Function> {
        let name = call.name.as_bytes();
        // SAFETY: the functions of `cub.cu` have these arguments: each one is an integer or an address of this size.
        unsafe {
            Ok(match call.arguments.len() {
                3 => Function::Three(*self.0.get(name)?),
                4 => Function::Four(*self.0.get(name)?),
                5 => Function::Five(*self.0.get(name)?),
                _ => Function::Six(*self.0.get(name)?),
            })
        }
    }
}

/// A function of `cub.cu`, by the number of its arguments.
#[derive(Clone, Copy)]
enum Function {
    Three(unsafe extern "C" fn(usize, *mut usize, usize, usize, usize, usize) -> c_int),
    Four(unsafe extern "C" fn(usize, *mut usize, usize, usize, usize, usize, usize) -> c_int),
    Five(unsafe extern "C" fn(usize, *mut usize, usize, usize, usize, usize, usize, usize) -> c_int),
    Six(unsafe extern "C" fn(usize, *mut usize, usize, usize, usize, usize, usize, usize, usize) -> c_int),
}

impl Function {
    fn call(self, temporary: usize, bytes: &mut usize, call: &Call, stream: usize) -> Result<()> {
        let a = |at: usize| call.arguments[at];
        // SAFETY: the arguments are alive buffers of the lengths that the function reads and writes, and `bytes` is what it asked
        // for.
        let code = unsafe {
            match self {
                Self::Three(f) => f(temporary, bytes, a(0), a(1), a(2), stream),
                Self::Four(f) => f(temporary, bytes, a(0), a(1), a(2), a(3), stream),
                Self::Five(f) => f(temporary, bytes, a(0), a(1), a(2), a(3), a(4), stream),
                Self::Six(f) => f(temporary, bytes, a(0), a(1), a(2), a(3), a(4), a(5), stream),
            }
        };
        ensure!(code == 0, "`{}` failed with CUDA's error {code}", call.name);
        Ok(())
    }
}

/// A function with its arguments and its temporary memory.
pub(crate) struct Prepared {
    function: Function,
    call: Call,
    temporary: Buffer<u8>,
}

impl Prepared {
    pub(crate) fn run(&mut self, stream: &Stream) -> Result<()> {
        let Self { function, call, temporary } = self;
        let mut bytes = temporary.len();
        // SAFETY: everything that the calls of this program touch is used on this one stream alone.
        unsafe {
            stream.external("cub", &mut *temporary, |raw, temporary| {
                function.call(temporary.addr(), &mut bytes, call, raw.0)
            })
        }
    }
}
