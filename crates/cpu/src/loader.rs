//! Opens a shared object from memory. The system's loader only takes files, so we must give it one: a file in
//! memory, whose path is `/proc/self/fd/N`, or a file in the temporary folder.
//!
//! The loader opens a library once. If you ask for a path or an inode that it knows, you get the library that
//! it has, and would run that library's kernels. A descriptor's number does not tell two images apart, because
//! the system gives it away again as soon as it is free, and a library may outlive its descriptor:
//!
//! ```text
//! open A     /proc/self/fd/7 is new
//! close A    the loader keeps A under this path, but 7 is free
//! open B     /proc/self/fd/7 is known: the loader returns A
//! ```
//!
//! glibc keeps the first library that defines a unique symbol, because later libraries use it too. g++ makes
//! such symbols for the static variables of templates, and libstdc++ has some. glibc also keeps a library that
//! was linked with `-z nodelete`, or that has destructors to run when a thread ends.
//!
//! So each file gets a path of its own, and before we open it, we ask the loader if it knows the path or the
//! inode. If it does, we write another file. That happens, for example, if another copy of this crate in the
//! process has used the path. After the answer no library can take the path or the inode, because both belong
//! to a file of this call alone. So several threads may load at once, and an image that you load twice becomes
//! two libraries with separate variables. Only unique symbols are shared.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, ptr};

use gpustream_hal::{Error, ErrorKind, Result, file_limit, memory_file};
use libloading::os::unix::Library;

use crate::elf::Image;
use crate::error::error;

/// A library that the loader has opened, and what should stay while it is open.
pub(crate) struct Loaded {
    pub(crate) library: Library,
    /// The file in memory. Backtraces open the path that the loader tells them, and should not find another
    /// file there. Dropped after the library.
    _file: Option<OwnedFd>,
}

/// Opens a library. Its image must have been read.
///
/// # Errors
/// [`ErrorKind::InvalidModule`], with the loader's message and what to do.
///
/// # Safety
/// The image's start-up code must be allowed to run.
pub(crate) unsafe fn open(bytes: &[u8], image: &Image) -> Result<Loaded> {
    let unwritten = |why: io::Error| {
        error(
            ErrorKind::InvalidModule,
            format!("cannot write the module image to a file for the loader: {why}"),
        )
    };
    let mut file = ImageFile::write(bytes).map_err(unwritten)?;
    while is_known(file.path()) {
        file = ImageFile::write(bytes).map_err(unwritten)?;
    }
    // SAFETY: passed on to the caller.
    let library = unsafe { Library::open(Some(file.path()), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let library = library.map_err(|why| refused(&why, &file, image))?;
    let file = match file {
        ImageFile::Memory(file, _) => Some(file),
        ImageFile::Temporary(_) => None,
    };
    Ok(Loaded { library, _file: file })
}

/// True if the loader would not open this file, but return a library that it has.
fn is_known(path: &Path) -> bool {
    // SAFETY: the loader opens nothing. If it has the library, we give back the reference to it at once.
    unsafe { Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_NOLOAD) }.is_ok()
}

/// Returns a path of a descriptor, which each number spells differently: the system skips `/` and `./`, but
/// the loader compares every character. So does an `OsStr`, unlike a `Path`.
fn descriptor_path(descriptor: RawFd, number: u64) -> PathBuf {
    let bits = 0..u64::BITS - number.leading_zeros();
    let skipped: String = bits.map(|bit| if number >> bit & 1 == 0 { "/" } else { "./" }).collect();
    format!("/proc/self/fd/{skipped}{descriptor}").into()
}

/// A file for the loader.
enum ImageFile {
    Memory(OwnedFd, PathBuf),
    Temporary(Temporary),
}

/// A file in the temporary folder. We remove it as soon as the loader has it, because the loader keeps what
/// it has mapped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // If this fails, a file stays in the temporary folder, and nothing worse.
        let _ = fs::remove_file(&self.0);
    }
}

impl ImageFile {
    /// Writes a file in memory, or in the temporary folder if that is not possible.
    fn write(image: &[u8]) -> io::Result<Self> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        file_limit::check(image.len() as u64)?;
        if let Ok(fd) = memory_file::create(c"gpustream-module") {
            let mut file = fs::File::from(fd);
            file.write_all(image)?;
            let fd = OwnedFd::from(file);
            let path = descriptor_path(fd.as_raw_fd(), WRITTEN.fetch_add(1, Ordering::Relaxed));
            // Without `/proc`, the file in memory has no path.
            if path.exists() {
                return Ok(Self::Memory(fd, path));
            }
        }
        Self::write_temporary(&std::env::temp_dir(), image)
    }

    /// Writes a file with a name that no other process uses. The process id would not do, because each
    /// container has a process 1, and a killed process may leave its files.
    fn write_temporary(folder: &Path, image: &[u8]) -> io::Result<Self> {
        loop {
            let path = folder.join(format!("gpustream-{:016x}.so", RandomState::new().hash_one(())));
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    let written = Temporary(path);
                    file.write_all(image)?;
                    return Ok(Self::Temporary(written));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let text =
                        format!("{}: {error}; set TMPDIR to a folder that can be written", folder.display());
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Memory(_, path) | Self::Temporary(Temporary(path)) => path,
        }
    }
}

/// Returns the error for an image that the loader refused.
#[cold]
fn refused(why: &libloading::Error, file: &ImageFile, image: &Image) -> Error {
    let advice = match Cause::find(file, image) {
        Cause::Static => {
            "the program is linked statically, and such a program has no loader: link it dynamically \
                          (`-C target-feature=-crt-static`)"
        }
        Cause::Files => "close files, or raise the limit of open ones (`ulimit -n`)",
        Cause::Memory => "free memory, or raise the limit of address space (`ulimit -v`)",
        Cause::NoExec => {
            "the temporary folder is on a file system that is mounted `noexec`: set TMPDIR to a folder on another"
        }
        Cause::NotExecutable => "allow this process to map executable memory",
        Cause::StaticTls => {
            "the module needs thread-local memory that only the first libraries of a program get: build the \
                             kernels without `-ftls-model=initial-exec`, or set \
                             GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536"
        }
        Cause::Unknown => "build the module again, on or for this system",
    };
    let text = loader_text(why);
    error(ErrorKind::InvalidModule, format!("the system's loader refuses the module: {text}; {advice}"))
}

/// Returns the loader's message. The error's own text only names the call.
pub(crate) fn loader_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Why the loader refused an image. The loader's text is for people, and differs with language and version,
/// so we repeat what the loader does and see what fails.
enum Cause {
    Static,
    Files,
    Memory,
    NoExec,
    NotExecutable,
    StaticTls,
    Unknown,
}

impl Cause {
    fn find(file: &ImageFile, image: &Image) -> Self {
        // SAFETY: a query of what the kernel told this process at its start. If there is a loader, it has an
        // address.
        if unsafe { libc::getauxval(libc::AT_BASE) } == 0 {
            return Self::Static;
        }
        let opened = match fs::File::open(file.path()) {
            Ok(opened) => opened,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                return Self::Files;
            }
            Err(_) => return Self::Unknown,
        };
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        // SAFETY: a new mapping, which nothing uses.
        let map =
            unsafe { libc::mmap(ptr::null_mut(), image.span, protection, flags, opened.as_raw_fd(), 0) };
        if map == libc::MAP_FAILED {
            return match (io::Error::last_os_error().raw_os_error(), file) {
                (Some(libc::ENOMEM | libc::EAGAIN), _) => Self::Memory,
                (Some(libc::EPERM), ImageFile::Temporary(_)) => Self::NoExec,
                _ => Self::NotExecutable,
            };
        }
        // SAFETY: the mapping was just made.
        unsafe { libc::munmap(map, image.span) };
        if image.wants_static_tls { Self::StaticTls } else { Self::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn each_number_is_another_path_to_the_same_file() {
        let file = fs::File::from(memory_file::create(c"test").unwrap());
        let inode = file.metadata().unwrap().ino();
        let numbers = (0..1000).chain([u64::MAX - 1, u64::MAX]);
        let path = |number| descriptor_path(file.as_raw_fd(), number).into_os_string();
        let paths: HashSet<_> = numbers.map(path).collect();
        assert_eq!(paths.len(), 1002);
        for path in paths {
            assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "{path:?}");
        }
    }

    #[test]
    fn libraries_of_this_process_are_known_and_new_files_are_not() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.split_whitespace().find(|word| word.contains("/libc")).unwrap();
        assert!(is_known(Path::new(library)), "{library}");
        let copy = ImageFile::write(&fs::read(library).unwrap()).unwrap();
        assert!(!is_known(copy.path()), "its letters are the same, but it is another file");
    }

    #[test]
    fn temporary_files_have_names_of_their_own_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let all: Vec<_> =
            (0..20).map(|_| ImageFile::write_temporary(folder.path(), b"image").unwrap()).collect();
        assert_eq!(files(), 20);
        assert_eq!(fs::read(all[3].path()).unwrap(), b"image");
        drop(all);
        assert_eq!(files(), 0);
        let missing = folder.path().join("missing");
        let error = ImageFile::write_temporary(&missing, b"image").err().unwrap().to_string();
        assert!(error.contains("missing") && error.contains("TMPDIR"), "{error}");
    }
}
