//! roctx, the library that tells rocprof about a program's ranges.

use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use gpustream_hal::library::{Search, symbol};
use gpustream_hal::trace::c_label;
use gpustream_hal::{Error, ErrorKind, Result};

use crate::error::error;
use crate::library::roctx_names;

/// The functions of roctx. We must never close the library while we have them.
struct Roctx {
    /// `roctxRangePushA`
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    /// `roctxRangePop`
    pop: unsafe extern "C" fn() -> c_int,
}

static ROCTX: OnceLock<Result<Roctx>> = OnceLock::new();

/// Opens the library.
///
/// # Errors
/// `Unsupported`, with each name tried.
pub(crate) fn open() -> Result<()> {
    ROCTX.get_or_init(Roctx::open).as_ref().map(|_| ()).map_err(Error::clone)
}

fn opened() -> Option<&'static Roctx> {
    ROCTX.get()?.as_ref().ok()
}

/// Begins a range on this thread (`roctxRangePushA`). You may call it at any time: without the library it does nothing.
pub(crate) fn push(label: &str) {
    if let Some(roctx) = opened() {
        let label = c_label(label);
        // SAFETY: the label is a C string, which the library copies.
        unsafe { (roctx.push)(label.as_ptr()) };
    }
}

/// Ends this thread's newest range (`roctxRangePop`).
pub(crate) fn pop() {
    if let Some(roctx) = opened() {
        // SAFETY: the function takes nothing.
        unsafe { (roctx.pop)() };
    }
}

impl Roctx {
    fn open() -> Result<Self> {
        // SAFETY: the names are roctx's.
        let search = unsafe { Search::open("GPUSTREAM_ROCTX_LIBRARY", roctx_names()) };
        let tried = search.tried.join("; ");
        let Some(library) = search.library.map(ManuallyDrop::new) else {
            let message = format!(
                "ranges for rocprof need roctx, which was not found; install it (packages rocprofiler-sdk-roctx or \
                 roctracer of ROCm), or set GPUSTREAM_ROCTX_LIBRARY; tried: {tried}"
            );
            return Err(error(ErrorKind::Unsupported, message));
        };
        // SAFETY: the prototypes come from roctx's header, and we never close the library.
        let functions = unsafe { (symbol(&library, "roctxRangePushA"), symbol(&library, "roctxRangePop")) };
        let (Some(push), Some(pop)) = functions else {
            let message = format!("{tried} is not roctx, because it lacks roctxRangePushA or roctxRangePop");
            return Err(error(ErrorKind::Unsupported, message));
        };
        Ok(Self { push, pop })
    }
}
