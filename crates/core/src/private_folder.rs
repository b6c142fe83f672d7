//! A folder for files that we load as code, so no one but this user and root may be able to write to it. We trust root,
//! because root can do all that this user can, and container images contain folders that root made.

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use gpustream_hal::file_limit;

/// The longest file that we read, in bytes.
const MOST: u64 = 1 << 30;

/// An open folder that only this user, or only root, can write to. We open files relative to the open folder and not by its
/// path. So we use the very folder that we checked, even if the path leads to another one by now.
pub(crate) struct PrivateFolder(File);

impl PrivateFolder {
    /// Opens the folder at `path`. If it is missing, creates it with mode 0700. If other users can write to it, or we
    /// cannot open it, opens a folder inside it that belongs to this user.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let own = || path.join(format!("gpustream-{}", effective_user()));
        Self::open_private(path).or_else(|error| Self::open_private(&own()).map_err(|_| error))
    }

    fn open_private(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // Without `O_NOFOLLOW` we would follow a link before we check who owns it.
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if is_trusted(&folder.metadata()?) {
            return Ok(Self(folder));
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "other users can write to the folder"))
    }

    /// Reads a file. It must be an ordinary file that belongs to this user or to root.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        // Opened without blocking, because the name may belong to a pipe.
        let mut file = self.open_at(name, libc::O_RDONLY | libc::O_NONBLOCK)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || !is_trusted(&metadata) || metadata.len() > MOST {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is not an ordinary file that belongs to this user or to root",
            ));
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes `bytes` to the file `temporary` and then renames it to `name`, which replaces an earlier file of that name.
    /// So readers never see half a file.
    pub(crate) fn write(&self, name: &str, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        file_limit::check(bytes.len() as u64)?;
        let mut file = self.open_at(temporary, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?;
        let written = file.write_all(bytes).and_then(|()| {
            let (from, to, folder) = (c_name(temporary)?, c_name(name)?, self.0.as_raw_fd());
            // SAFETY: both names end in zero, and the folder is open.
            done(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) }).map(drop)
        });
        if written.is_err() {
            // If this fails, there is nothing that we could do.
            let _ = self.remove(temporary);
        }
        written
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the name ends in zero, and the folder is open.
        done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
    }

    /// Lists the ordinary files.
    pub(crate) fn files(&self) -> io::Result<Vec<Listed>> {
        let mut files = Vec::new();
        // This lists the folder that we opened, even if its path leads elsewhere by now.
        for entry in fs::read_dir(format!("/proc/self/fd/{}", self.0.as_raw_fd()))? {
            let entry = entry?;
            // Another process may have removed the file.
            let Ok(metadata) = entry.metadata() else { continue };
            if let (Ok(name), true) = (entry.file_name().into_string(), metadata.is_file()) {
                files.push(Listed { name, bytes: metadata.len(), modified: metadata.modified()? });
            }
        }
        Ok(files)
    }

    /// Sets a file's modification time to now if it is older than `age`. The file must belong to this user.
    pub(crate) fn renew(&self, name: &str, age: Duration) -> io::Result<()> {
        let file = self.open_at(name, libc::O_RDONLY | libc::O_NONBLOCK)?;
        let now = SystemTime::now();
        if now.duration_since(file.metadata()?.modified()?).is_ok_and(|passed| passed > age) {
            file.set_modified(now)?;
        }
        Ok(())
    }

    /// Opens a file in this folder. A link is an error.
    fn open_at(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        let name = c_name(name)?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the name ends in zero, and the folder is open.
        let file = done(unsafe { libc::openat(self.0.as_raw_fd(), name.as_ptr(), flags, 0o600) })?;
        // SAFETY: the descriptor was just opened, and nothing else owns it.
        Ok(unsafe { File::from_raw_fd(file) })
    }
}

/// A file in the folder.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
}

/// Returns true if this user or root owns the file and no other user can write to it.
fn is_trusted(metadata: &Metadata) -> bool {
    may_trust(metadata.uid(), metadata.mode(), effective_user())
}

const fn may_trust(owner: u32, mode: u32, user: u32) -> bool {
    (owner == user || owner == 0) && mode & 0o022 == 0
}

fn effective_user() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() }
}

fn c_name(name: &str) -> io::Result<CString> {
    Ok(CString::new(OsStr::new(name).as_bytes())?)
}

/// Returns what a system call returned, or its error.
fn done(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_folder_is_closed_to_other_users() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let folder = PrivateFolder::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        folder.write("x", "x.tmp", b"one two").unwrap();
        assert_eq!(folder.read("x").unwrap(), b"one two");
        assert_eq!(fs::metadata(path.join("x")).unwrap().mode() & 0o777, 0o600);
        folder.write("x", "x.tmp", b"three").unwrap();
        assert_eq!(folder.read("x").unwrap(), b"three");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "nothing temporary is left");
    }

    #[test]
    fn if_others_can_write_to_the_folder_this_user_gets_one_inside() {
        let parent = tempfile::tempdir().unwrap();
        let open = parent.path().join("open");
        fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        fs::write(open.join("x"), "theirs").unwrap();
        let folder = PrivateFolder::open(&open).unwrap();
        assert!(folder.read("x").is_err());
        folder.write("x", "x.tmp", b"mine").unwrap();
        let own = open.join(format!("gpustream-{}", effective_user()));
        assert_eq!(fs::read(own.join("x")).unwrap(), b"mine");
        mode(&own, 0o770);
        assert!(PrivateFolder::open(&open).is_err(), "that one is open to others too");
    }

    #[test]
    fn only_this_user_and_root_are_trusted() {
        const ME: u32 = 1000;
        for (owner, mode, trusted) in [
            (ME, 0o700, true),
            (ME, 0o755, true),
            (0, 0o755, true),
            (0, 0o775, false),
            (0, 0o777, false),
            (0, 0o1777, false),
            (ME, 0o770, false),
            (1001, 0o755, false),
            (1001, 0o700, false),
        ] {
            assert_eq!(may_trust(owner, mode, ME), trusted, "{owner} {mode:o}");
        }
        // This folder belongs to root. Another user can read it, but not write to it.
        let folder = PrivateFolder::open(Path::new("/usr")).unwrap();
        if effective_user() != 0 {
            assert!(folder.write("gpustream-test", "gpustream-test.tmp", b"").is_err());
        }
    }

    #[test]
    fn links_pipes_and_files_that_others_can_write_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        let folder = PrivateFolder::open(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert!(PrivateFolder::open_private(&link).is_err());

        fs::write(parent.path().join("target"), "of a link").unwrap();
        symlink(parent.path().join("target"), real.join("linked")).unwrap();
        assert!(folder.read("linked").is_err());
        assert!(folder.write("y", "linked", b"through").is_err());
        assert_eq!(fs::read(parent.path().join("target")).unwrap(), b"of a link");
        fs::write(real.join("writable"), "by others").unwrap();
        mode(&real.join("writable"), 0o666);
        assert!(folder.read("writable").is_err());
        let pipe = CString::new(real.join("pipe").as_os_str().as_bytes()).unwrap();
        // SAFETY: a name that ends in zero.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert!(folder.read("pipe").is_err());
        // If there is a link where an entry should be, we replace it and do not write through it.
        folder.write("linked", "new", b"mine").unwrap();
        assert_eq!(folder.read("linked").unwrap(), b"mine");
        assert_eq!(fs::read(parent.path().join("target")).unwrap(), b"of a link");
    }
}
