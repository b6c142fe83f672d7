//! Compiles kernels at run time. NVRTC and HIPRTC have the same functions under different names, so both backends share
//! this.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use crate::driver::{Answer, Codes, Status};
use crate::{Compiled, Error, ErrorKind, Result, Source};

/// A compiler's handle for a program.
pub type RawProgram = *mut c_void;
/// An array of C strings. The compilers only read it.
type Strings = *mut *const c_char;

/// The functions of a run-time compiler, named by what they do.
pub struct Compiler<A> {
    /// Makes a program from a source with its name, and headers with their names.
    #[allow(clippy::type_complexity)]
    pub create: unsafe fn(
        &A,
        *mut RawProgram,
        *const c_char,
        *const c_char,
        c_int,
        Strings,
        Strings,
    ) -> Answer<'_, A>,
    /// Adds an expression for a kernel's address. You must call this before you compile the program.
    pub add_name: unsafe fn(&A, RawProgram, *const c_char) -> Answer<'_, A>,
    /// Returns the symbol for such an expression. The compiled program owns it.
    pub symbol: unsafe fn(&A, RawProgram, *const c_char, *mut *const c_char) -> Answer<'_, A>,
    /// Compiles a program with options.
    pub compile: unsafe fn(&A, RawProgram, c_int, Strings) -> Answer<'_, A>,
    /// Destroys a program.
    pub destroy: unsafe fn(&A, *mut RawProgram) -> Answer<'_, A>,
    /// Returns the messages of the last compilation.
    pub log: SizedOutput<A>,
    /// Returns true if a status of `compile` says that the compiler refused the source. Then the log says why.
    pub refused: fn(Status) -> bool,
}

/// Two functions: one writes the size of an output in bytes, the other the output.
pub struct SizedOutput<A>(
    /// Writes the size.
    pub unsafe fn(&A, RawProgram, *mut usize) -> Answer<'_, A>,
    /// Writes the output.
    pub unsafe fn(&A, RawProgram, *mut c_char) -> Answer<'_, A>,
);

impl<A: Codes> Compiler<A> {
    /// Compiles `source` with `options` into `output`. If the compiler refuses the source, the message begins with `title`.
    ///
    /// # Errors
    /// `InvalidModule` with the compiler's log; `InvalidArgument` if a string has a zero byte.
    ///
    /// # Safety
    /// The functions are from the library of `api`. The options must be harmless, because some make a compiler load and run
    /// a library.
    pub unsafe fn run(
        &self,
        api: &A,
        source: &Source<'_>,
        options: &[String],
        output: &SizedOutput<A>,
        title: &str,
    ) -> Result<Compiled> {
        let text = c_string::<A>("the source", source.text)?;
        let name = c_string::<A>("the source's name", source.name)?;
        let names = c_strings::<A>("a header's name", source.headers.iter().map(|header| header.0))?;
        let headers = c_strings::<A>("a header", source.headers.iter().map(|header| header.1))?;
        let options = c_strings::<A>("a compiler option", options.iter().map(String::as_str))?;
        let kernels = c_strings::<A>("a kernel's address", source.kernels.iter().map(|kernel| kernel.1))?;
        let [mut header_list, mut name_list, mut option_list] =
            [&headers, &names, &options].map(|strings| pointers(strings));

        let mut raw = ptr::null_mut();
        // SAFETY: every pointer is to a C string, or to an array of them of the given length, that outlives the call;
        // the compiler writes to none of them and copies what it needs.
        let answer = unsafe {
            (self.create)(
                api,
                &raw mut raw,
                text.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                header_list.as_mut_ptr(),
                name_list.as_mut_ptr(),
            )
        };
        answer.ok()?;
        let program = Program { compiler: self, api, raw };
        for kernel in &kernels {
            // SAFETY: the program is alive and not compiled yet; the C string outlives the call, and is copied.
            unsafe { (self.add_name)(api, raw, kernel.as_ptr()) }.ok()?;
        }
        // SAFETY: the program is alive; the options are C strings that outlive the call.
        let answer = unsafe { (self.compile)(api, raw, options.len() as c_int, option_list.as_mut_ptr()) };
        match answer.status {
            Some(Status::SUCCESS) => {
                let symbols = kernels.iter().map(|kernel| program.symbol(kernel)).collect::<Result<_>>()?;
                Ok(Compiled { image: program.output(output)?, symbols })
            }
            Some(status) if (self.refused)(status) => {
                let message = format!("{title}:\n{}", program.log());
                Err(Error::new(ErrorKind::InvalidModule, message)
                    .with_call(answer.function.name, status.0.into())
                    .with_backend(A::BACKEND))
            }
            _ => {
                let failure =
                    answer.ok().err().unwrap_or_else(|| Error::new(ErrorKind::InvalidModule, title));
                let log = program.log();
                Err(if log.is_empty() { failure } else { failure.with_context(log) })
            }
        }
    }
}

/// A program, destroyed when dropped.
struct Program<'a, A> {
    compiler: &'a Compiler<A>,
    api: &'a A,
    raw: RawProgram,
}

impl<A: Codes> Program<'_, A> {
    /// Returns the compiler's messages, or nothing if we cannot get them.
    fn log(&self) -> String {
        let log = self.output(&self.compiler.log).unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned()
    }

    /// Returns a kernel's symbol. Its address must have been added before the program was compiled.
    fn symbol(&self, kernel: &CStr) -> Result<String> {
        let mut symbol = ptr::null();
        // SAFETY: the program is alive and compiled; the C string outlives the call; the other pointer is to a local.
        unsafe { (self.compiler.symbol)(self.api, self.raw, kernel.as_ptr(), &raw mut symbol) }
            .ok()
            .map_err(|failure| {
                failure.with_context(format_args!("asking for the symbol of {}", kernel.to_string_lossy()))
            })?;
        if symbol.is_null() {
            let message = format!("the compiler returned no symbol for {}", kernel.to_string_lossy());
            return Err(Error::new(ErrorKind::InvalidModule, message).with_backend(A::BACKEND));
        }
        // SAFETY: the compiler answered with a C string of the program, which is alive.
        Ok(unsafe { CStr::from_ptr(symbol) }.to_string_lossy().into_owned())
    }

    fn output(&self, SizedOutput(size, get): &SizedOutput<A>) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive; the pointer is to a local.
        unsafe { size(self.api, self.raw, &raw mut bytes) }.ok()?;
        let mut output = vec![0_u8; bytes];
        // SAFETY: the program is alive; the buffer has the size that the compiler asked for.
        unsafe { get(self.api, self.raw, output.as_mut_ptr().cast()) }.ok()?;
        Ok(output)
    }
}

impl<A> Drop for Program<'_, A> {
    fn drop(&mut self) {
        // SAFETY: this compiler created the program, and we destroy it once. If that fails, there is nothing that we could
        // do.
        let _ = unsafe { (self.compiler.destroy)(self.api, &raw mut self.raw) };
    }
}

fn c_string<A: Codes>(what: &str, text: &str) -> Result<CString> {
    let zero = |_| Error::new(ErrorKind::InvalidArgument, format!("{what} contains a zero byte; remove it"));
    CString::new(text).map_err(zero).map_err(|error| error.with_backend(A::BACKEND))
}

fn c_strings<'a, A: Codes>(what: &str, texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>> {
    texts.map(|text| c_string::<A>(what, text)).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}
