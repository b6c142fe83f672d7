//! The one error type: what went wrong, where, and what to do about it.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::fault::Fault;

/// What every fallible call of the project returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure an [`Error`] is. This is the part to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The vendor's driver library is not installed.
    DriverMissing,
    /// The driver library is installed, or the environment names one, but we cannot use it: it cannot be opened, is too old,
    /// is not a driver, does not start, or does not give us the device, for example because another process holds it.
    DriverUnusable,
    /// The driver works, but it has no such device.
    NoDevice,
    /// The device or the host does not have enough memory left.
    OutOfMemory,
    /// The grid, block, shared memory or launch attributes exceed what the device and the kernel allow.
    InvalidLaunch,
    /// The module has no kernel of that name.
    KernelNotFound,
    /// The module has no variable of that name.
    GlobalNotFound,
    /// The module has no image that this device can run.
    NoImageForDevice,
    /// The image is damaged, or the compiler refused the source.
    InvalidModule,
    /// Arguments do not match the kernel's parameters, or lengths that must agree do not.
    ArgumentMismatch,
    /// The arguments break a condition in the kernel's `requires:` line.
    ContractViolated,
    /// A range reaches beyond what it indexes.
    OutOfBounds,
    /// You asked for contents that nothing has written yet.
    Uninitialized,
    /// Two operations conflict and nothing orders them. You can get this under strict tracking, or from a graph if you set
    /// nodes.
    Hazard,
    /// You combined objects of different devices.
    DeviceMismatch,
    /// You hold a guard on this host memory, so the device must not touch it.
    HostBorrowed,
    /// The device still uses the memory, and this call does not wait. Try again later, or make the call that blocks.
    WouldBlock,
    /// You cannot make the call while the stream is being captured, or the capture failed.
    Captured,
    /// The stream stands for a node of an explicit graph or for the body of a condition, and the call cannot become a node.
    NotANode,
    /// This backend, driver or device cannot do it.
    Unsupported,
    /// A kernel or the hardware failed. You cannot use the device's context any more.
    DeviceLost,
    /// A host closure panicked.
    HostPanic,
    /// You cannot make the call inside a host closure, because that runs on a thread of the driver, or inside the closure of
    /// an external operation, because we hold its stream's lock.
    InHostClosure,
    /// An argument makes no sense by itself, for example a malformed device name or a zero pitch.
    InvalidArgument,
    /// Another library failed. Its error is the source of this one ([`Error::external`]).
    External,
    /// Any other failure that the driver reported.
    Driver,
}

/// Once we have reported a device's fault, we put these words in front of every later error.
const EARLIER: &str = "the device failed earlier: ";

/// Your call that an error belongs to: its name and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// A short name: `launch`, `copy`, a kernel's name.
    pub label: &'static str,
    /// The line of your program.
    pub location: &'static Location<'static>,
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` at {}:{}", self.label, self.location.file(), self.location.line())
    }
}

/// Why a call failed. It is one pointer wide, so that `Result<()>` stays small on hot paths.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    backend: Option<&'static str>,
    call: Option<&'static str>,
    code: Option<i64>,
    call_site: Option<CallSite>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Returns an error of `kind`; `message` says what happened and what to do.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner {
            kind,
            message,
            backend: None,
            call: None,
            code: None,
            call_site: None,
            source: None,
        }))
    }

    /// Makes an error of kind [`ErrorKind::External`] from another library's error, because your closures have to return
    /// ours. The original error becomes the [source](std::error::Error::source). If it already is one of our errors, you get
    /// it back as it is.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use gpustream_hal::{Error, ErrorKind};
    /// let error = Error::external("12x".parse::<u32>().unwrap_err());
    /// assert_eq!(error.kind(), ErrorKind::External);
    /// assert!(error.source().unwrap().is::<std::num::ParseIntError>());
    /// ```
    #[cold]
    pub fn external(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(ours) => *ours,
            Err(theirs) => {
                let mut error = Self::new(ErrorKind::External, theirs.to_string());
                error.0.source = Some(theirs.into());
                error
            }
        }
    }

    /// Returns an error of kind [`ErrorKind::Unsupported`]; `what` names the missing ability.
    #[cold]
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, format!("{what} is not supported here"))
    }

    /// Adds the driver function that failed, and the number that it returned.
    #[must_use]
    pub fn with_call(mut self, call: &'static str, code: i64) -> Self {
        self.0.call = Some(call);
        self.0.code = Some(code);
        self
    }

    /// Adds the backend's name, unless one is already there.
    #[must_use]
    pub fn with_backend(mut self, backend: impl Into<&'static str>) -> Self {
        self.0.backend.get_or_insert(backend.into());
        self
    }

    /// Adds your call, unless a call is already there.
    #[must_use]
    #[cold]
    pub fn with_call_site(mut self, call_site: CallSite) -> Self {
        self.0.call_site.get_or_insert(call_site);
        self
    }

    /// Names your call instead of the one that is already there, which we made on your behalf.
    #[must_use]
    #[cold]
    pub fn at_call_site(mut self, call_site: CallSite) -> Self {
        self.0.call_site = Some(call_site);
        self
    }

    /// Puts `context` in front of the message, but after the words that say that the device failed earlier.
    #[must_use]
    pub fn with_context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = match self.0.message.strip_prefix(EARLIER) {
            Some(message) => format!("{EARLIER}{context}: {message}"),
            None => format!("{context}: {}", self.0.message),
        };
        self
    }

    /// If the device's fault was reported before, says that the device failed earlier. Otherwise a
    /// [`DeviceLost`](ErrorKind::DeviceLost) counts as the first report of the fault, unless you make it
    /// [`unheard`](crate::unheard).
    #[must_use]
    #[cold]
    pub fn with_fault(mut self, fault: &Fault) -> Self {
        let is_loss = self.0.kind == ErrorKind::DeviceLost;
        let was_reported = if is_loss { fault.report(&self.0.message) } else { fault.is_reported() };
        if was_reported {
            self.0.message.insert_str(0, EARLIER);
        }
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns what happened and what to do, partly in the driver's words. [`Display`](fmt::Display) also adds the driver's
    /// call and your own.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the backend that the error came from: `cpu`, `cuda`, `hip`.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// Returns the driver function that failed.
    pub fn call(&self) -> Option<&'static str> {
        self.0.call
    }

    /// Returns the number that the driver returned.
    pub fn code(&self) -> Option<i64> {
        self.0.code
    }

    /// Returns the call that the error belongs to, if we know it.
    pub fn call_site(&self) -> Option<CallSite> {
        self.0.call_site
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.0.backend {
            write!(f, "{backend}: ")?;
        }
        f.write_str(self.message())?;
        if let (Some(call), Some(code)) = (self.0.call, self.0.code) {
            write!(f, " ({call} returned {code})")?;
        }
        if let Some(operation) = self.0.call_site {
            write!(f, ", in {operation}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unheard;

    #[test]
    fn another_librarys_error_is_the_source_and_ours_stays_ours() {
        let theirs = Error::external(std::io::Error::other("their words")).with_context("in a capture");
        assert_eq!(
            (theirs.kind(), theirs.to_string().as_str()),
            (ErrorKind::External, "in a capture: their words")
        );
        let source = std::error::Error::source(&theirs).unwrap();
        assert!(source.is::<std::io::Error>(), "{source}");
        let ours = Error::external(Error::new(ErrorKind::Hazard, "ours"));
        assert_eq!(ours.kind(), ErrorKind::Hazard);
        assert!(std::error::Error::source(&ours).is_none());
    }

    #[test]
    fn display_names_backend_call_and_operation() {
        let location = Location::caller();
        let error = Error::new(ErrorKind::OutOfMemory, "no room for 8 bytes")
            .with_backend("cuda")
            .with_call("cuMemAlloc", 2)
            .with_call_site(CallSite { label: "alloc", location });
        let text = error.to_string();
        assert!(
            text.starts_with("cuda: no room for 8 bytes (cuMemAlloc returned 2), in `alloc` at "),
            "{text}"
        );
        assert!(text.contains(&format!(":{}", location.line())), "{text}");
    }

    #[test]
    fn first_operation_and_backend_win() {
        let here = CallSite { label: "first", location: Location::caller() };
        let later = CallSite { label: "second", ..here };
        let error = Error::unsupported("x").with_call_site(here).with_call_site(later);
        assert_eq!(error.call_site(), Some(here));
        assert_eq!(error.clone().at_call_site(later).call_site(), Some(later));
        assert_eq!(error.with_backend("a").with_backend("b").backend(), Some("a"));
    }

    #[test]
    fn result_is_one_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    fn loss() -> Error {
        Error::new(ErrorKind::DeviceLost, "illegal address")
    }

    #[test]
    fn second_report_says_that_the_device_failed_earlier() {
        let fault = Fault::default();
        assert_eq!(Error::unsupported("x").with_fault(&fault).message(), "x is not supported here");
        let first = loss().with_fault(&fault);
        assert_eq!(first.clone().message(), "illegal address");
        assert_eq!(loss().with_fault(&fault).message(), "the device failed earlier: illegal address");
        let other = Error::unsupported("x").with_fault(&fault.clone()).with_context("opening");
        assert_eq!(other.message(), "the device failed earlier: opening: x is not supported here");
        assert_eq!(loss().with_fault(&Fault::default()).message(), "illegal address", "of another device");
    }

    /// The two errors must have the same text, whatever happens to the first one.
    #[test]
    fn looking_at_an_error_or_dropping_it_changes_no_other() {
        let with_first: [fn(Error); 4] = [
            drop,
            |first| assert_eq!(first.kind(), ErrorKind::DeviceLost),
            |first| drop(first.to_string()),
            |first| drop(first.clone()),
        ];
        for with_first in with_first {
            let fault = Fault::default();
            let first = loss().with_fault(&fault);
            assert_eq!(first.message(), "illegal address");
            with_first(first);
            assert_eq!(loss().with_fault(&fault).message(), "the device failed earlier: illegal address");
        }
    }

    #[test]
    fn an_error_that_is_made_for_nobody_is_no_report() {
        let fault = Fault::default();
        unheard(|| drop(loss().with_fault(&fault)));
        let caught = std::panic::catch_unwind(|| unheard(|| panic!("on purpose")));
        assert!(caught.is_err());
        assert_eq!(loss().with_fault(&fault).message(), "illegal address");
        assert_eq!(
            unheard(|| loss().with_fault(&fault)).message(),
            "the device failed earlier: illegal address"
        );
    }
}
