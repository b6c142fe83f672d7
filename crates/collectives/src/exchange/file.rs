//! The exchange in a folder.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpustream::hal::file_limit;
use gpustream::{Error, Result};
use hmac_sha256::Hash;

use super::{Exchange, ExchangeError, MAX_VALUE, check_key, check_value};
use crate::deadline::{Deadline, Pauses};
use crate::failure::invalid;

/// The first and the longest pause before a rank looks for a file again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long the file name of a key may be, in bytes. File systems allow 255.
const MAX_NAME: usize = 200;

/// An exchange for processes of one user that share a folder. Each key is a file.
///
/// Rank 0 [creates](Self::create) the folder, accessible only to its user, and the other ranks
/// [open](Self::open) it. The file system must support hard links. We use them so that a key can be put only
/// once, and no rank can see half a value. A network file system may show a file to other hosts only after
/// their caches expire (some seconds to a minute for NFS), so a [`TcpExchange`](super::TcpExchange) is faster
/// there.
///
/// We never remove the folder, because no rank knows when all others have read it. Remove it yourself after
/// all ranks have ended. If rank 0 finds the folder of an earlier run, it returns an error.
///
/// ```
/// use std::time::Duration;
/// use gpustream_collectives::{Exchange, FileExchange};
///
/// # let scratch = tempfile::tempdir().unwrap();
/// let folder = scratch.path().join("run-1");
/// let rank_0 = FileExchange::create(&folder)?;
/// let rank_1 = FileExchange::open(&folder, Duration::from_secs(10))?;
/// rank_0.put("id", &[7; 128])?;
/// assert_eq!(rank_1.get("id", Duration::from_secs(10))?, [7; 128]);
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Debug)]
pub struct FileExchange {
    folder: PathBuf,
}

impl FileExchange {
    /// Creates the folder, as rank 0 must. Its parent folder must exist.
    ///
    /// # Errors
    /// [`External`](gpustream::ErrorKind::External), with [`ExchangeError::FolderExists`] if the folder already exists, or with a [`std::io::Error`] if it cannot be created.
    pub fn create(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => Ok(Self { folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(ExchangeError::FolderExists { folder }.into())
            }
            Err(error) => Err(failed(error, "cannot create the folder of the exchange", &folder)),
        }
    }

    /// Opens the folder, as all ranks except 0 must. Blocks until rank 0 has created the folder, at most for
    /// `limit`.
    ///
    /// # Errors
    /// [`External`](gpustream::ErrorKind::External), with [`ExchangeError::FolderMissing`] if the folder does not appear within the limit, with [`ExchangeError::FolderNotPrivate`] if other users may have put files there, or with a [`std::io::Error`] if we cannot look at the folder.
    pub fn open(folder: impl Into<PathBuf>, limit: Duration) -> Result<Self> {
        Self::open_closed(folder.into(), limit, 0o022)
    }

    /// Opens an existing folder that other users cannot even read.
    pub(super) fn open_secret(folder: &Path) -> Result<Self> {
        Self::open_closed(folder.to_owned(), Duration::ZERO, 0o077)
    }

    /// Opens the folder if the user owns it and other users have none of the permissions in `others`.
    fn open_closed(folder: PathBuf, limit: Duration, others: u32) -> Result<Self> {
        let found = wait_for(limit, || fs::symlink_metadata(&folder))
            .map_err(|error| failed(error, "cannot open the folder of the exchange", &folder))?;
        let Some(found) = found else { return Err(ExchangeError::FolderMissing { folder, limit }.into()) };
        let own = found.uid() == rustix::process::geteuid().as_raw();
        if found.is_dir() && own && found.mode() & others == 0 {
            return Ok(Self { folder });
        }
        Err(ExchangeError::FolderNotPrivate { folder }.into())
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(file_name(key))
    }
}

impl Exchange for FileExchange {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(key, bytes)?;
        let (file, temporary) = (self.file(key), self.folder.join(temporary_name()?));
        let put = write_new(&temporary, bytes).and_then(|()| link_new(&temporary, &file));
        // If the temporary file stays behind, it does no harm.
        let _ = fs::remove_file(&temporary);
        match put {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(ExchangeError::PutTwice { key: key.to_owned() }.into())
            }
            Err(error) => Err(failed(error, &format!("cannot put the key `{key}` as the file"), &file)),
        }
    }

    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        check_key(key)?;
        let file = self.file(key);
        let bytes = wait_for(limit, || read(&file))
            .map_err(|error| failed(error, &format!("cannot get the key `{key}` from the file"), &file))?;
        match bytes {
            Some(bytes) if bytes.len() <= MAX_VALUE => Ok(bytes),
            Some(_) => invalid(format!(
                "the file {} of the exchange has more than {MAX_VALUE} bytes, so it is not from one of the ranks; give each run a folder \
                 of its own",
                file.display()
            )),
            None => Err(ExchangeError::Late { key: key.to_owned(), limit }.into()),
        }
    }
}

/// Looks repeatedly until there is something to find. Returns `None` if the limit passes first.
fn wait_for<T>(limit: Duration, look: impl Fn() -> io::Result<T>) -> io::Result<Option<T>> {
    let (deadline, mut pauses) = (Deadline::after(limit), Pauses::new(FIRST_PAUSE, LONGEST_PAUSE));
    loop {
        match look() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if deadline.has_passed() {
                    return Ok(None);
                }
                pauses.pause(deadline);
            }
            found => return found.map(Some),
        }
    }
}

/// Returns the name of the file for a key: letters, digits, `-` and `_` stay as they are, and every other
/// byte becomes `%` and two digits. If the name would be too long, its end is replaced by `%%` and the key's
/// checksum.
fn file_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            name.push(byte.into());
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    if name.len() > MAX_NAME {
        name.truncate(MAX_NAME - 66);
        name.push_str("%%");
        for byte in Hash::hash(key.as_bytes()) {
            let _ = write!(name, "{byte:02x}");
        }
    }
    name
}

/// Returns a name that no key's file has and that no other call returns.
fn temporary_name() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(Error::external)?;
    Ok(format!("%temporary-{:032x}", u128::from_ne_bytes(random)))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    file_limit::check(bytes.len() as u64)?;
    File::create_new(path)?.write_all(bytes)
}

/// Gives a file a second name, which must not exist yet.
fn link_new(file: &Path, name: &Path) -> io::Result<()> {
    match fs::hard_link(file, name) {
        // Over NFS the reply to a successful link may be lost. The retry then finds the link that the first
        // attempt made.
        Err(error) if fs::metadata(file).is_ok_and(|file| file.nlink() == 2) => {
            drop(error);
            Ok(())
        }
        linked => linked,
    }
}

/// Reads a file, but at most one byte more than a value can have.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_VALUE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cold]
fn failed(error: io::Error, tried: &str, path: &Path) -> Error {
    Error::external(error).with_context(format!("{tried} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_and_differ_as_their_keys_do() {
        assert_eq!(file_name("nccl/id-1_x"), "nccl%2Fid-1_x");
        assert_eq!(file_name(".."), "%2E%2E");
        assert_eq!(file_name("%2F"), "%252F");
        let long = "/".repeat(199);
        let names = [file_name(&format!("{long}a")), file_name(&format!("{long}b"))];
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() == MAX_NAME), "{names:?}");
        assert!(temporary_name().unwrap().contains("%te"), "a key's name has digits behind the sign");
    }
}
