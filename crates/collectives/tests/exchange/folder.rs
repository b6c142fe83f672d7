//! The exchange in a folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use gpustream::ErrorKind;
use gpustream_collectives::{Exchange, ExchangeError, FileExchange};
use tempfile::TempDir;

use crate::{LONG, SHORT, reason};

/// Returns a folder that is removed at the end, and a path in it that does not exist yet.
fn scratch() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("exchange");
    (scratch, folder)
}

#[test]
fn folder_of_an_earlier_run_is_an_error_on_rank_0() {
    let (_scratch, folder) = scratch();
    drop(FileExchange::create(&folder).unwrap());
    let error = FileExchange::create(&folder).unwrap_err();
    assert_eq!(reason(&error), &ExchangeError::FolderExists { folder: folder.clone() });
    assert!(error.message().contains("give each run a folder of its own"), "{error}");
    let error = FileExchange::create(folder.join("not/there")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::External);
    assert!(error.message().contains("not/there"), "{error}");
}

#[test]
fn folder_that_never_comes_is_an_error_at_the_limit() {
    let (_scratch, folder) = scratch();
    let error = FileExchange::open(&folder, SHORT).unwrap_err();
    assert_eq!(reason(&error), &ExchangeError::FolderMissing { folder, limit: SHORT });
}

#[test]
fn rank_0_may_come_later() {
    let (_scratch, folder) = scratch();
    assert!(FileExchange::open(&folder, Duration::ZERO).is_err());
    thread::scope(|threads| {
        let rank_1 = threads.spawn(|| FileExchange::open(&folder, LONG).unwrap().get("id", LONG).unwrap());
        FileExchange::create(&folder).unwrap().put("id", b"7").unwrap();
        assert_eq!(rank_1.join().unwrap(), b"7");
    });
}

#[test]
fn folder_that_others_may_write_to_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (open, link, file) =
        (scratch.path().join("open"), scratch.path().join("link"), scratch.path().join("file"));
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    symlink(scratch.path(), &link).unwrap();
    fs::write(&file, "").unwrap();
    for folder in [open, link, file] {
        let error = FileExchange::open(&folder, LONG).unwrap_err();
        assert_eq!(reason(&error), &ExchangeError::FolderNotPrivate { folder });
    }
}

#[test]
fn keys_stay_in_the_folder_and_dropping_removes_nothing() {
    let (scratch, folder) = scratch();
    let rank_0 = FileExchange::create(&folder).unwrap();
    let long = "/".repeat(200);
    for key in ["../outside", "/tmp/outside", ".", "..", "a\0b", "a b\n", &long] {
        rank_0.put(key, key.as_bytes()).unwrap();
        assert_eq!(rank_0.get(key, LONG).unwrap(), key.as_bytes());
    }
    drop(rank_0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 7, "one file for each key, and none beside them");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    let mode = fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "the folder is its user's alone");
    assert_eq!(FileExchange::open(&folder, LONG).unwrap().get("..", LONG).unwrap(), b"..");
}

#[test]
fn foreign_file_is_refused() {
    let (_scratch, folder) = scratch();
    let rank_0 = FileExchange::create(&folder).unwrap();
    fs::File::create(folder.join("large")).unwrap().set_len(1 << 40).unwrap();
    let error = rank_0.get("large", LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    fs::create_dir(folder.join("folder")).unwrap();
    assert_eq!(rank_0.get("folder", LONG).unwrap_err().kind(), ErrorKind::External);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(rank_0.put("key", b"").unwrap_err().kind(), ErrorKind::External);
}
