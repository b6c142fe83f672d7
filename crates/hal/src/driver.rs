//! How we call a vendor's library: the table of its functions, and how a call's status becomes an error.

use std::ffi::{CStr, c_char};

use crate::{Error, ErrorKind, Fault, Result};

/// A function's return code, as an integer. It is not an enumeration, because a newer library may return a code that the
/// bindings do not have, and in Rust that would be undefined behaviour. HIP took over CUDA's numbers.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The call succeeded.
    pub const SUCCESS: Self = Self(0);
    /// An argument is invalid. If a launch returns this, its shape is.
    pub const INVALID_VALUE: Self = Self(1);
    /// There is no device.
    pub const NO_DEVICE: Self = Self(100);
    /// The device number is out of range.
    pub const INVALID_DEVICE: Self = Self(101);
    /// The work that you asked about is not done.
    pub const NOT_READY: Self = Self(600);
    /// Access between these devices is on already.
    pub const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    /// The driver or the device cannot do it.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// An earlier call broke the capture.
    pub const CAPTURE_INVALIDATED: Self = Self(901);
    /// The executable graph cannot be updated to the other graph.
    pub const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
    /// A device cannot be split in that way.
    pub const INVALID_RESOURCE_CONFIGURATION: Self = Self(915);
}

/// A function, under the name that the library's users know.
#[derive(Debug)]
pub struct DriverFunction {
    /// Its symbol.
    pub name: &'static str,
    /// The vendor's first version that has it.
    pub since: &'static str,
}

/// What a library's return codes mean.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub trait Codes {
    /// The backend's name, for errors.
    const BACKEND: &'static str;
    /// The name in front of a version in [`DriverFunction::since`].
    const INTERFACE: &'static str;
    /// The product that you must update to get newer functions.
    const PRODUCT: &'static str;

    /// Returns the kind of failure that `status` stands for.
    fn kind(status: Status) -> ErrorKind;

    /// Returns the fault of the device that the calls are for, or `None` if they are not for a device.
    fn fault(&self) -> Option<&Fault> {
        None
    }

    /// Returns how the library itself describes `status`.
    fn describe(&self, status: Status) -> String;

    /// Returns what the library's log says about this failure of `function`, if the library keeps a log.
    fn reason(&self, function: &str, status: Status) -> Option<String> {
        None
    }

    /// Returns what to do about a failure. Empty if there is no general advice.
    fn advice(status: Status, kind: ErrorKind) -> &'static str {
        ""
    }
}

/// The outcome of one call.
///
/// We only look at return codes and never at `hipGetLastError`, because that differs between versions: up to ROCm 6 a
/// successful call resets it, and from 7 on nothing does.
#[must_use]
pub struct Answer<'a, A> {
    /// The table that has the function.
    pub api: &'a A,
    /// The function that was called.
    pub function: &'static DriverFunction,
    /// The function's return code, or `None` if the library does not have the function.
    pub status: Option<Status>,
}

impl<A: Codes> Answer<'_, A> {
    /// Returns `Ok` for success, or the error.
    ///
    /// # Errors
    /// The failure that the status stands for; [`ErrorKind::Unsupported`] if the library does not have the function.
    #[inline]
    pub fn ok(self) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.error()) }
    }

    /// Returns `Ok` for success, or an error of this kind.
    ///
    /// # Errors
    /// Any failure, with the kind `kind`; [`ErrorKind::Unsupported`] if the library does not have the function.
    #[inline]
    pub fn ok_or(self, kind: ErrorKind) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.error_of_kind(kind)) }
    }

    /// Returns the result of initialising the driver.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if there is no device, or the environment hides all of them; for any other failure
    /// [`ErrorKind::DriverUnusable`].
    pub fn initialised(self) -> Result<()> {
        match self.status {
            Some(Status::NO_DEVICE | Status::INVALID_DEVICE) => self.ok_or(ErrorKind::NoDevice),
            _ => self.ok_or(ErrorKind::DriverUnusable),
        }
    }

    /// Returns `Ok` for success. If the library has nothing with the name that you asked for, returns the error of
    /// `not_found`.
    ///
    /// # Errors
    /// The error of `not_found`; otherwise as for [`ok`](Self::ok).
    pub fn found(self, not_found: impl FnOnce() -> Error) -> Result<()> {
        let call = self.function.name;
        self.ok().map_err(|failure| match failure.kind() {
            ErrorKind::KernelNotFound => not_found().with_call(call, failure.code().unwrap_or(0)),
            _ => failure,
        })
    }

    /// Returns true if the work that you asked about is done. "Not ready" is not an error here, but false.
    ///
    /// # Errors
    /// As for [`ok`](Self::ok).
    #[inline]
    pub fn ready(self) -> Result<bool> {
        match self.status {
            Some(Status::SUCCESS) => Ok(true),
            Some(Status::NOT_READY) => Ok(false),
            _ => Err(self.error()),
        }
    }

    /// Returns `Ok` for success, or the error of a launch.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLaunch`] if the driver says that a value is invalid; otherwise as for [`ok`](Self::ok).
    #[inline]
    pub fn launched(self) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.launch_error()) }
    }

    /// Returns the error of a launch that failed. If a driver cannot launch a shape, it only says that a value is invalid,
    /// so we turn that into the right kind.
    #[cold]
    pub fn launch_error(self) -> Error {
        if self.status == Some(Status::INVALID_VALUE) {
            return self.error_of_kind(ErrorKind::InvalidLaunch);
        }
        self.error()
    }

    #[cold]
    #[inline(never)]
    fn error(self) -> Error {
        let kind = self.status.map_or(ErrorKind::Unsupported, A::kind);
        self.error_of_kind(kind)
    }

    #[cold]
    #[inline(never)]
    fn error_of_kind(self, kind: ErrorKind) -> Error {
        let DriverFunction { name: symbol, since } = *self.function;
        // CUDA versions its symbols with this suffix. The documentation has the plain name, and you know that one.
        let name = symbol.strip_suffix("_v2").unwrap_or(symbol);
        let Some(status) = self.status else {
            let (interface, product) = (A::INTERFACE, A::PRODUCT);
            let message = format!(
                "this library has no function {name}, which came with {interface} {since}; install a newer {product}"
            );
            return Error::new(ErrorKind::Unsupported, message).with_backend(A::BACKEND);
        };
        let mut message = self.api.describe(status);
        if let Some(reason) = self.api.reason(symbol, status) {
            message.push_str("; the driver's log: ");
            message.push_str(&reason);
        }
        let advice = A::advice(status, kind);
        if !advice.is_empty() {
            message.push_str("; ");
            message.push_str(advice);
        }
        let error = Error::new(kind, message).with_backend(A::BACKEND).with_call(name, i64::from(status.0));
        match self.api.fault() {
            Some(fault) => error.with_fault(fault),
            None => error,
        }
    }
}

/// Returns the functions that a library does not have, for a message. It names only the first few, because a file that is
/// not the vendor's library has none of them.
#[must_use]
pub fn list_missing(functions: &[&str]) -> String {
    const NAMED: usize = 4;
    match functions.len().saturating_sub(NAMED) {
        0 => functions.join(", "),
        more => format!("{} and {more} more functions", functions[..NAMED].join(", ")),
    }
}

/// Returns a copy of a string that a library owns, or `None` for null.
///
/// # Safety
/// `text` is null or a C string that lives for the whole program.
pub unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and a C string by this function's contract.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Defines a table of functions from a library: a struct with a pointer and a method for each function, both with the
/// function's name.
///
/// A method returns an [`Answer`]. The pointer is `None` if the library does not have the function. Each group of functions
/// begins with `required` if a library must have them, and then says which version of the product brought them. The
/// functions in `texts` take a code and return a string that the library owns.
///
/// The macro that you name after `proved by` gets the whole list, so that it can compare the list with the vendor's
/// bindings when the crate is compiled.
#[macro_export]
macro_rules! functions {
    (
        $(#[$meta:meta])*
        $table:ident -> $result:ident, proved by $prove:ident;
        texts { $($text:ident),* }
        $($need:ident $since:literal { $( $name:ident($($arg:ident: $ty:ty),*); )* })*
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        #[derive(Clone)]
        pub(crate) struct $table {
            /// The fault of the device that the calls are for, or `None` if they are not for a device.
            pub(crate) fault: Option<$crate::Fault>,
            $( $text: Option<unsafe extern "C" fn($result) -> *const std::ffi::c_char>, )*
            $($( pub(crate) $name: Option<unsafe extern "C" fn($($ty),*) -> $result>, )*)*
        }

        #[allow(non_snake_case)]
        impl $table {
            /// Looks up every function. Also returns the names of the required ones that are missing.
            ///
            /// # Safety
            /// `library` is the vendor's library, and is never closed.
            pub(crate) unsafe fn load(library: &$crate::library::Library) -> (Self, Vec<&'static str>) {
                // SAFETY: the types are the functions' prototypes, as far as the vendor's bindings have them. We read and
                // pass a C enum as the integer that it is.
                let table = unsafe {
                    Self {
                        fault: None,
                        $( $text: $crate::library::symbol(library, stringify!($text)), )*
                        $($( $name: $crate::library::symbol(library, stringify!($name)), )*)*
                    }
                };
                let mut missing = Vec::new();
                $($(
                    if stringify!($need) == "required" && table.$name.is_none() {
                        missing.push(stringify!($name));
                    }
                )*)*
                (table, missing)
            }

            /// Returns the table for calls on the device with this fault.
            pub(crate) fn for_device(&self, fault: $crate::Fault) -> Self {
                Self { fault: Some(fault), ..self.clone() }
            }

            $(
                /// Returns the library's text for a code, if it has one.
                pub(crate) fn $text(&self, code: $result) -> Option<String> {
                    // SAFETY: the function takes any number and returns a static string, or null.
                    self.$text.and_then(|function| unsafe { $crate::driver::text(function(code)) })
                }
            )*

            $($(
                /// Calls the vendor's function of this name.
                ///
                /// # Safety
                /// The arguments are as the vendor's manual requires.
                #[inline]
                pub(crate) unsafe fn $name(&self $(, $arg: $ty)*) -> $crate::driver::Answer<'_, Self> {
                    // SAFETY: the library has this function under this name, with this prototype; the arguments are right
                    // by this function's contract.
                    let status = self.$name.map(|function| unsafe { function($($arg),*) });
                    $crate::driver::Answer { api: self, function: &functions::$name, status }
                }
            )*)*
        }

        /// The functions, under the names that the library's users know.
        #[allow(non_upper_case_globals)]
        pub(crate) mod functions {
            $($(
                pub(crate) static $name: $crate::driver::DriverFunction =
                    $crate::driver::DriverFunction { name: stringify!($name), since: $since };
            )*)*
        }

        $prove! { $result [$($text),*] $($($need $name($($arg: $ty),*);)*)* }
    };
}
