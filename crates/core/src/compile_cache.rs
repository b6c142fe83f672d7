//! Images made by run-time compilers, kept on disk.
//!
//! An image is code that the driver runs, so the cache is in a folder that only this user and root can write to. An entry's
//! file name is the SHA-256 of its key. We notice if a file is damaged or belongs to another key, because the entry contains
//! the key and a SHA-256 of its contents. Then we write it again. We rename a complete file to its final name, so other
//! processes never see half an entry.
//!
//! The folder has a maximum size. Whenever we add an entry, we remove the entries that have not been used for a long time.
//! If the rest is still too large, we also remove the ones that were unused for the longest time. A file's modification
//! time says when it was last used.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use gpustream_hal::notice::{self, Level, Notice};
use gpustream_hal::{self as hal, Compiled, Result, Source, environment};
use hmac_sha256::Hash;

use crate::checksum::sha256;
use crate::private_folder::{Listed, PrivateFolder};
use crate::process;

/// The folder's limits: how many bytes all entries may have, and how long an entry may be unused.
const MOST_BYTES: u64 = 1 << 30;
const LONGEST_UNUSED: Duration = Duration::from_secs(90 * DAY);
const DAY: u64 = 24 * 60 * 60;

/// A writer opens a temporary file and renames it within seconds. If a temporary file is this old, its writer was killed.
const LONGEST_WRITE: Duration = Duration::from_secs(60 * 60);

const MAGIC: &[u8] = b"gpustream image 3\n";

/// Compiles `source` for `device`, or finds the image in the cache. If we cannot use the cache, that only costs time. This
/// calls listeners, so you must not hold a lock.
///
/// # Errors
/// Those of [`compile`](hal::Modules::compile).
pub fn compile(device: &dyn hal::Device, source: &Source<'_>) -> Result<Compiled> {
    let info = device.info();
    let compiler = device.compiler()?;
    let key = key(source, info.backend.as_str(), &info.arch, &compiler);
    let open = |path: PathBuf| match PrivateFolder::open(&path) {
        Ok(folder) => Some((folder, path)),
        Err(error) => {
            not_kept(&format!("{}: {error}", path.display()));
            None
        }
    };
    let (folder, path) = folder().and_then(open).unzip();
    if let Some(compiled) = folder.as_ref().and_then(|folder| load(folder, &key)) {
        return Ok(compiled);
    }
    let (name, arch) = (|| source.name.to_owned(), || info.arch.clone());
    let tell = |level, make: &dyn Fn() -> Notice| process::users_code(|| notice::now(level, make));
    tell(Level::Debug, &|| Notice::CacheMiss { source: name(), arch: arch(), folder: path.clone() });
    let begun = Instant::now();
    // SAFETY: the options come from the build, or they define macros whose names and values were checked.
    let compiled = unsafe { device.compile(source) }?;
    let took = begun.elapsed();
    tell(Level::Info, &|| Notice::Compiled {
        source: name(),
        arch: arch(),
        compiler: compiler.clone(),
        took,
    });
    if let Some(folder) = folder
        && let Err(error) = store(&folder, &key, &compiled)
    {
        not_kept(&error.to_string());
    }
    Ok(compiled)
}

/// Returns the cache's folder: `GPUSTREAM_CACHE_DIR`, or `gpustream/images` in the user's cache folder.
fn folder() -> Option<PathBuf> {
    let from = |name: &str| environment::trusted(name).map(PathBuf::from);
    let folder = from("GPUSTREAM_CACHE_DIR").or_else(|| {
        let caches = from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")))?;
        Some(caches.join("gpustream").join("images"))
    });
    if folder.is_none() {
        let why = if environment::is_privileged() {
            "this program has rights that its caller does not have, so it ignores the folder from the environment"
        } else {
            "none of GPUSTREAM_CACHE_DIR, XDG_CACHE_HOME and HOME is set"
        };
        not_kept(why);
    }
    folder
}

/// Says, once in a process, that each start will compile again.
#[cold]
fn not_kept(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!(
            "gpustream: kernels that are compiled at run time are not kept ({why}), so the next start compiles them \
             again; set GPUSTREAM_CACHE_DIR to a folder that you own and others cannot write to"
        );
    });
}

/// Returns the key: everything that the compiled image depends on. Two different sources cannot have the same key, because
/// each text is preceded by its length, and each list by its number of items.
fn key(source: &Source<'_>, backend: &str, arch: &str, compiler: &str) -> Vec<u8> {
    let mut key = Vec::new();
    for text in [backend, compiler, arch, source.name, source.text] {
        push_sized(&mut key, text.as_bytes());
    }
    for pairs in [source.headers, source.kernels] {
        push_number(&mut key, pairs.len());
        for (name, text) in pairs {
            push_sized(&mut key, name.as_bytes());
            push_sized(&mut key, text.as_bytes());
        }
    }
    push_number(&mut key, source.options.len());
    for option in source.options {
        push_sized(&mut key, option.as_bytes());
    }
    key
}

/// Adds a number. [`number`] takes it off again.
fn push_number(to: &mut Vec<u8>, number: usize) {
    to.extend_from_slice(&(number as u64).to_le_bytes());
}

/// Adds bytes, preceded by their length. [`sized`] takes them off again.
fn push_sized(to: &mut Vec<u8>, bytes: &[u8]) {
    push_number(to, bytes.len());
    to.extend_from_slice(bytes);
}

fn entry_name(key: &[u8]) -> String {
    format!("{}.image", sha256(key))
}

/// Returns an entry. It has, in this order: the magic, a checksum of the rest, the key, the number of symbols, the symbols
/// and the image. The key and each symbol are preceded by their length.
fn encode(key: &[u8], compiled: &Compiled) -> Vec<u8> {
    let mut rest = Vec::new();
    push_sized(&mut rest, key);
    push_number(&mut rest, compiled.symbols.len());
    for symbol in &compiled.symbols {
        push_sized(&mut rest, symbol.as_bytes());
    }
    rest.extend_from_slice(&compiled.image);
    [MAGIC, &Hash::hash(&rest), &rest].concat()
}

/// Returns an entry's contents, if the entry is complete and has this key.
fn decode(entry: &[u8], key: &[u8]) -> Option<Compiled> {
    let (checksum, mut rest) = entry.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
    let intact = Hash::hash(rest) == *checksum;
    if !intact || sized(&mut rest)? != key {
        return None;
    }
    let count = number(&mut rest)?;
    // A symbol takes at least the bytes of its length, so a damaged number cannot make us read more than there is.
    let symbols =
        (0..count).map(|_| String::from_utf8(sized(&mut rest)?.to_vec()).ok()).collect::<Option<_>>()?;
    Some(Compiled { image: rest.to_vec(), symbols })
}

/// Takes a number off the front.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    usize::try_from(u64::from_le_bytes(*number)).ok()
}

/// Takes bytes off the front that are preceded by their length.
fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let (key, image) = bytes.split_at(bytes.len() / 2);
    let compiled =
        Compiled { image: image.to_vec(), symbols: vec![String::from_utf8_lossy(key).into_owned()] };
    assert_eq!(decode(&encode(key, &compiled), key), Some(compiled));
    assert_eq!(decode(bytes, key), None);
}

fn load(folder: &PrivateFolder, key: &[u8]) -> Option<Compiled> {
    let name = entry_name(key);
    let compiled = decode(&folder.read(&name).ok()?, key)?;
    // This fails for entries that belong to root. That does not matter, because this user does not clean up root's folder.
    let _ = folder.renew(&name, Duration::from_secs(DAY));
    Some(compiled)
}

fn store(folder: &PrivateFolder, key: &[u8], compiled: &Compiled) -> io::Result<()> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    // This number differs in every process and call.
    let unique = RandomState::new().hash_one((std::process::id(), serial));
    let name = entry_name(key);
    folder.write(&name, &format!("{name}.{unique:016x}.tmp"), &encode(key, compiled))?;
    // We ignore errors here: even if the folder stays too large, the image is kept.
    let _ = bound(folder, &name, MOST_BYTES, SystemTime::now());
    Ok(())
}

/// Removes the leftovers of killed writers and the entries that were not used for a long time, and then more entries until
/// the rest has at most `most` bytes. `kept` stays. We do not touch files with other names, because they do not belong to
/// the cache.
fn bound(folder: &PrivateFolder, kept: &str, most: u64, now: SystemTime) -> io::Result<()> {
    let is_hex =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_entry = |name: &str| name.strip_suffix(".image").is_some_and(|sum| is_hex(sum, 64));
    let is_temporary = |name: &str| {
        let parts = name.strip_suffix(".tmp").and_then(|name| name.rsplit_once('.'));
        parts.is_some_and(|(entry, unique)| is_entry(entry) && is_hex(unique, 16))
    };
    // If the time is in the future, it is from a machine whose clock is ahead.
    let unused = |file: &Listed| now.duration_since(file.modified).unwrap_or_default();
    let mut files = folder.files()?;
    files.sort_by_key(unused);
    let mut bytes = 0;
    for file in files {
        let is_over = if is_temporary(&file.name) {
            unused(&file) > LONGEST_WRITE
        } else if is_entry(&file.name) && file.name != kept {
            bytes += file.bytes;
            bytes > most || unused(&file) > LONGEST_UNUSED
        } else {
            false
        };
        if is_over {
            // Another process may do the same.
            let _ = folder.remove(&file.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const SOURCE: Source<'_> = Source {
        name: "a.cu",
        text: "text",
        headers: &[("h", "header")],
        options: &["-O3"],
        kernels: &[("f", "&f")],
    };

    fn compiled(image: &[u8]) -> Compiled {
        Compiled { image: image.to_vec(), symbols: vec!["_Z1fv".to_owned(), String::new()] }
    }

    #[test]
    fn entries_survive_and_damage_is_seen() {
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(parent.path()).unwrap();
        let key = key(&SOURCE, "cuda", "sm_90", "nvrtc 13.0");
        let path = parent.path().join(entry_name(&key));
        assert_eq!(load(&folder, &key), None);
        store(&folder, &key, &compiled(b"image")).unwrap();
        assert_eq!(load(&folder, &key), Some(compiled(b"image")));
        fs::rename(&path, parent.path().join(entry_name(b"another key"))).unwrap();
        assert_eq!(load(&folder, b"another key"), None, "an entry under another one's name");
        store(&folder, &key, &compiled(b"image")).unwrap();
        let mut damaged = fs::read(&path).unwrap();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(load(&folder, &key), None, "a flipped bit");
        store(&folder, &key, &compiled(b"image")).unwrap();
        assert_eq!(load(&folder, &key), Some(compiled(b"image")), "written anew");
    }

    #[test]
    fn the_folder_is_bounded_by_age_and_size_and_killed_writers_leave_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(parent.path()).unwrap();
        let now = SystemTime::now();
        let days = |days: u64| now - Duration::from_secs(days * DAY);
        let entry = |letter: &str| format!("{}.image", letter.repeat(64));
        let temporary = |letter: &str| format!("{}.{}.tmp", entry("a"), letter.repeat(16));
        let write = |name: &str, modified: SystemTime| {
            let file = fs::File::create(parent.path().join(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(modified).unwrap();
        };
        let foreign = ["notes.txt", "x.image", "x.tmp"].map(str::to_owned);
        for name in &foreign {
            write(name, days(1000));
        }
        // From a machine whose clock is ahead.
        write(&entry("0"), now + Duration::from_secs(DAY));
        for (letter, age) in [("1", 1), ("2", 2), ("3", 3), ("4", 89), ("5", 91)] {
            write(&entry(letter), days(age));
        }
        write(&temporary("1"), days(1));
        write(&temporary("2"), now);
        let left = || {
            let mut names: Vec<_> = folder.files().unwrap().into_iter().map(|file| file.name).collect();
            names.retain(|name| !foreign.contains(name));
            names.sort_unstable();
            names
        };
        bound(&folder, &entry("3"), 1000, now).unwrap();
        let mut expected = vec![entry("0"), entry("1"), entry("2"), entry("3"), entry("4"), temporary("2")];
        expected.sort_unstable();
        assert_eq!(left(), expected, "one unused for long, one writer killed");
        bound(&folder, &entry("3"), 250, now).unwrap();
        expected.retain(|name| ![entry("2"), entry("4")].contains(name));
        assert_eq!(left(), expected, "the two that were used last, and the one that is kept");
        assert_eq!(folder.files().unwrap().len() - left().len(), foreign.len(), "files of others stay");
    }

    #[test]
    fn an_entry_that_is_used_is_kept_and_one_that_is_stored_makes_room() {
        let parent = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(parent.path()).unwrap();
        let ago = |name: &str, days: u64| {
            let file = fs::File::open(parent.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(days * DAY)).unwrap();
        };
        let old = [b"used", b"idle"];
        for key in old {
            store(&folder, key, &compiled(b"image")).unwrap();
        }
        for key in old {
            ago(&entry_name(key), 100);
        }
        assert!(load(&folder, b"used").is_some());
        store(&folder, b"new", &compiled(b"image")).unwrap();
        assert!(load(&folder, b"used").is_some() && load(&folder, b"new").is_some());
        assert_eq!(load(&folder, b"idle"), None);
    }

    #[test]
    fn everything_counts_towards_the_key() {
        let of = |source: &Source<'_>| key(source, "cuda", "sm_90", "nvrtc 13.0");
        let keys = [
            of(&SOURCE),
            key(&SOURCE, "hip", "sm_90", "nvrtc 13.0"),
            key(&SOURCE, "cuda", "sm_80", "nvrtc 13.0"),
            key(&SOURCE, "cuda", "sm_90", "nvrtc 13.1"),
            of(&Source { text: "other", ..SOURCE }),
            of(&Source { headers: &[], ..SOURCE }),
            of(&Source { options: &[], ..SOURCE }),
            of(&Source { kernels: &[], ..SOURCE }),
            of(&Source { headers: &[], options: &["h", "header", "-O3"], ..SOURCE }),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(keys[index + 1..].iter().all(|other| one != other), "{index}");
        }
    }

    proptest! {
        #[test]
        fn what_is_no_entry_is_refused(bytes: Vec<u8>, key: Vec<u8>) {
            prop_assert_eq!(decode(&bytes, &key), None);
            let with_magic = [MAGIC, &bytes].concat();
            prop_assert_eq!(decode(&with_magic, &key), None);
        }

        #[test]
        fn an_entry_gives_its_image_and_a_changed_one_nothing(
            key: Vec<u8>, image: Vec<u8>, at: prop::sample::Index, change in 1..=255_u8, cut: prop::sample::Index,
        ) {
            let entry = encode(&key, &compiled(&image));
            prop_assert_eq!(decode(&entry, &key), Some(compiled(&image)));
            let mut changed = entry.clone();
            changed[at.index(entry.len())] ^= change;
            prop_assert_eq!(decode(&changed, &key), None);
            prop_assert_eq!(decode(&entry[..cut.index(entry.len())], &key), None);
        }
    }
}
