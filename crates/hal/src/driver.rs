//! Calling a vendor's library: the table of its functions, and the way from a call's status to an error.

use std::ffi::{CStr, c_char};

use crate::{Error, ErrorKind, Fault, Result};

/// A function's return code, read as an integer: newer libraries return codes that the bindings' enumeration lacks, and
/// a Rust enumeration may not hold those. HIP took over CUDA's numbers.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The call succeeded.
    pub const SUCCESS: Self = Self(0);
    /// An argument is invalid; of a launch, its shape.
    pub const INVALID_VALUE: Self = Self(1);
    /// There is no device.
    pub const NO_DEVICE: Self = Self(100);
    /// The device's number is out of range.
    pub const INVALID_DEVICE: Self = Self(101);
    /// The work that was asked about is not done.
    pub const NOT_READY: Self = Self(600);
    /// The devices were introduced to each other before.
    pub const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    /// The driver or the device lacks the ability.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// An earlier call broke the capture.
    pub const CAPTURE_INVALIDATED: Self = Self(901);
    /// An executable graph cannot take over another graph.
    pub const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
    /// A device cannot be split in that way.
    pub const INVALID_RESOURCE_CONFIGURATION: Self = Self(915);
}

/// A function as the library's users know it.
#[derive(Debug)]
pub struct DriverFunction {
    /// Its symbol.
    pub name: &'static str,
    /// The vendor's version that brought it.
    pub since: &'static str,
}

/// The meaning of a library's return codes.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub trait Codes {
    /// The backend's name, in errors.
    const BACKEND: &'static str;
    /// The name in front of a version in [`DriverFunction::since`].
    const INTERFACE: &'static str;
    /// The product whose newer versions bring newer functions.
    const PRODUCT: &'static str;

    /// Returns the kind of failure that `status` stands for.
    fn kind(status: Status) -> ErrorKind;

    /// Returns the fault of the device that the calls are for; `None` if they are for no device.
    fn fault(&self) -> Option<&Fault> {
        None
    }

    /// Returns the library's own words for `status`.
    fn describe(&self, status: Status) -> String;

    /// Returns what the library has noted about the failure that it just answered with from `function`, where the library
    /// keeps such notes.
    fn reason(&self, function: &str, status: Status) -> Option<String> {
        None
    }

    /// Returns what to do about a failure; empty where nothing general can be said.
    fn advice(status: Status, kind: ErrorKind) -> &'static str {
        ""
    }
}

/// The outcome of one call.
///
/// Only return codes are looked at, never `hipGetLastError`: a success resets it up to ROCm 6, and nothing
/// does from 7 on.
#[must_use]
pub struct Answer<'a, A> {
    /// The table that was called.
    pub api: &'a A,
    /// The function that was called.
    pub function: &'static DriverFunction,
    /// The function's return code; `None` if the library lacks the function.
    pub status: Option<Status>,
}

impl<A: Codes> Answer<'_, A> {
    /// Returns success, or the error.
    ///
    /// # Errors
    /// The failure that the status stands for; [`ErrorKind::Unsupported`] if the library lacks the function.
    #[inline]
    pub fn ok(self) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.error()) }
    }

    /// Returns success, or an error of this kind.
    ///
    /// # Errors
    /// Any failure, as one of `kind`; [`ErrorKind::Unsupported`] if the library lacks the function.
    #[inline]
    pub fn ok_or(self, kind: ErrorKind) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.error_of_kind(kind)) }
    }

    /// Returns the outcome of the driver's initialisation.
    ///
    /// # Errors
    /// [`ErrorKind::NoDevice`] if every device is hidden, or there is none; any other failure is
    /// [`ErrorKind::DriverUnusable`].
    pub fn initialised(self) -> Result<()> {
        match self.status {
            Some(Status::NO_DEVICE | Status::INVALID_DEVICE) => self.ok_or(ErrorKind::NoDevice),
            _ => self.ok_or(ErrorKind::DriverUnusable),
        }
    }

    /// Returns success, or the error of `not_found` where the library has nothing of the name that was asked for.
    ///
    /// # Errors
    /// That of `not_found`; otherwise as for [`ok`](Self::ok).
    pub fn found(self, not_found: impl FnOnce() -> Error) -> Result<()> {
        let call = self.function.name;
        self.ok().map_err(|failure| match failure.kind() {
            ErrorKind::KernelNotFound => not_found().with_call(call, failure.code().unwrap_or(0)),
            _ => failure,
        })
    }

    /// Whether the work that was asked about is done: "not ready" is an answer, not a failure.
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

    /// Returns success, or the error of a launch.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLaunch`] for an invalid value; otherwise as for [`ok`](Self::ok).
    #[inline]
    pub fn launched(self) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.launch_error()) }
    }

    /// Returns the error of a launch that failed: drivers call a shape that they cannot launch an invalid value.
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
        // The suffix is how CUDA versions its symbols; its documentation and users know the plain name.
        let name = symbol.strip_suffix("_v2").unwrap_or(symbol);
        let Some(status) = self.status else {
            let (interface, product) = (A::INTERFACE, A::PRODUCT);
            let message = format!(
                "this library has no {name}, which {interface} {since} brought: install a newer {product}"
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

/// Returns the functions that a library lacks, for a message; a library of another kind lacks too many to name all.
#[must_use]
pub fn list_missing(functions: &[&str]) -> String {
    const NAMED: usize = 4;
    match functions.len().saturating_sub(NAMED) {
        0 => functions.join(", "),
        more => format!("{} and {more} more functions", functions[..NAMED].join(", ")),
    }
}

/// Returns a copy of a string that a library owns; `None` for null.
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

/// Defines the table of a library's functions: a struct with a pointer and a method for each, of the same name.
///
/// A method answers an [`Answer`]; the pointer is `None` if the library lacks the function. A
/// group says first whether the library may lack its functions, which it may unless they are `required`, then which of
/// the vendor's versions brought them. `texts` take a code and answer a string that the library owns.
///
/// The macro named behind `proved by` gets the whole list, to compare it with the vendor's bindings as the crate
/// compiles.
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
            /// The fault of the device that the calls are for; `None` if they are for no device.
            pub(crate) fault: Option<$crate::Fault>,
            $( $text: Option<unsafe extern "C" fn($result) -> *const std::ffi::c_char>, )*
            $($( pub(crate) $name: Option<unsafe extern "C" fn($($ty),*) -> $result>, )*)*
        }

        #[allow(non_snake_case)]
        impl $table {
            /// Looks every function up; also gives the required ones that are missing.
            ///
            /// # Safety
            /// `library` is the vendor's and is never closed.
            pub(crate) unsafe fn load(library: &$crate::library::Library) -> (Self, Vec<&'static str>) {
                // SAFETY: the types are the functions' prototypes, as far as the vendor's bindings have them; a C enum
                // is read and passed as the integer that it is.
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

            /// Returns the table for calls on the device of this fault.
            pub(crate) fn for_device(&self, fault: $crate::Fault) -> Self {
                Self { fault: Some(fault), ..self.clone() }
            }

            $(
                /// The library's text for a code, as far as it has one.
                pub(crate) fn $text(&self, code: $result) -> Option<String> {
                    // SAFETY: the function takes any number and returns a static string, or null.
                    self.$text.and_then(|function| unsafe { $crate::driver::text(function(code)) })
                }
            )*

            $($(
                /// The vendor's function of this name.
                ///
                /// # Safety
                /// The arguments are as the vendor's manual asks.
                #[inline]
                pub(crate) unsafe fn $name(&self $(, $arg: $ty)*) -> $crate::driver::Answer<'_, Self> {
                    // SAFETY: the pointer came from the library under this name with this prototype; the
                    // arguments are right by this function's contract.
                    let status = self.$name.map(|function| unsafe { function($($arg),*) });
                    $crate::driver::Answer { api: self, function: &functions::$name, status }
                }
            )*)*
        }

        /// The functions as the library's users know them.
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
