//! How the examples must end if something is wrong: a closed pipe, impossible sizes, no memory, no room on the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod programs;

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use programs::{example, path, refused};

/// All examples, with options that keep each of them short.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("await_many", &["--jobs", "4", "--size", "100"]),
    ("conjugate_gradient", &["--side", "8"]),
    ("data_parallel", &["--samples", "9", "--width", "5", "--steps", "40", "--rate", "0.1"]),
    ("events_timing", &["--size", "1000", "--samples", "1"]),
    ("graph_replay", &["--rounds", "2"]),
    ("matrix_cores", &["--size", "64", "--runs", "1"]),
    ("nbody", &["--bodies", "8", "--steps", "20"]),
    ("heat", &["--size", "16", "--frames", "2", "--steps", "1"]),
    ("hello", &["--size", "100"]),
    ("larger_than_memory", &["--size", "1", "--piece", "1"]),
    ("lattice_boltzmann", &["--size", "16", "--frames", "2", "--steps", "4"]),
    ("multi_device", &["--size", "100"]),
    ("overlap", &["--size", "1000", "--rounds", "1"]),
    ("poisson", &["--side", "15"]),
    ("priorities", &["--size", "100", "--queue", "2"]),
    ("producer_consumer", &["--size", "100", "--batches", "2", "--rounds", "2"]),
    ("streams", &["--size", "100", "--rounds", "2"]),
    ("strict_mode", &["--size", "100"]),
    ("timelines", &["--size", "100", "--out", concat!(env!("CARGO_TARGET_TMPDIR"), "/timelines")]),
];

/// Returns a command that runs an example in at most `kib` KiB of addresses.
fn limited(kib: u32, name: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" --device cpu \"$@\"")]).arg(path(name));
    command
}

#[test]
fn closed_pipe_ends_quietly() {
    const SIGPIPE: i32 = 13;
    let out = tempfile::tempdir().unwrap();
    for (name, options) in EXAMPLES {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = example(name);
        let output = command.args(*options).current_dir(&out).stdout(writer).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGPIPE), "{name}: {}", output.status);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{name}");
    }
}

#[test]
fn size_zero_is_refused() {
    for (name, _) in EXAMPLES.iter().filter(|(_, options)| options.contains(&"--size")) {
        refused(example(name).args(["--size", "0"]), &["--size"]);
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    const TERA: &str = "1000000000000";
    for name in ["await_many", "events_timing", "hello", "multi_device", "overlap", "priorities"] {
        refused(limited(4_000_000, name).args(["--size", TERA]), &[]);
    }
    refused(limited(4_000_000, "hello").args(["--size", "2000000000"]), &["host memory", "--size"]);
    refused(limited(4_000_000, "heat").args(["--size", "65536"]), &["host memory", "--size"]);
}

#[test]
fn threads_that_are_not_there_are_an_error() {
    refused(example("await_many").args(["--threads", "4000000000"]), &["--threads"]);
    refused(&mut limited(64_000, "await_many"), &["ulimit"]);
    refused(example("larger_than_memory").args(["--size", "1", "--readers", "100000"]), &["--readers"]);
}

/// This proves little for root, because the limit does not apply there.
#[test]
fn threads_that_the_system_refuses_are_an_error() {
    let end = |threads: u32, name: &str, options: &[&str]| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={threads}")).arg(path(name)).args(["--device", "cpu"]).args(options);
        let Ok(Output { status, stderr, .. }) = command.output() else { return };
        let message = String::from_utf8(stderr).unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "{name}, {threads} threads: {status}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    };
    for threads in 1..12 {
        end(threads, "await_many", &["--jobs", "4", "--size", "100"]);
        end(threads, "larger_than_memory", &["--size", "1"]);
        end(threads, "hello", &[]);
    }
}

#[test]
fn file_without_room_is_refused_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = example("larger_than_memory");
    command.arg("--dir").arg(dir.path()).args(["--size", "8796093022207"]);
    refused(&mut command, &[dir.path().to_str().unwrap(), "bytes are free", "--size", "--dir"]);
    refused(example("larger_than_memory").args(["--size", "17592186044416"]), &["--size"]);
}

#[test]
fn killed_program_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = example("larger_than_memory");
    command.arg("--dir").arg(dir.path()).args(["--size", "20", "--piece", "1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // The program prints this line once it has made the file.
    let made = BufReader::new(child.stdout.as_mut().unwrap())
        .lines()
        .any(|line| line.unwrap().contains("a file made in"));
    assert!(made);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn path_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("below");
    let below = below.to_str().unwrap();
    refused(example("larger_than_memory").args(["--dir", below]), &[below, "Not a directory"]);
    refused(example("larger_than_memory").env("TMPDIR", below), &[below, "Not a directory"]);
    refused(example("larger_than_memory").arg(below), &[below, "Not a directory"]);
    refused(example("larger_than_memory").arg(dir.path()), &[dir.path().to_str().unwrap(), "not a file"]);
    for name in ["heat", "lattice_boltzmann"] {
        refused(example(name).args(["--out", below]), &[below, "Not a directory"]);
    }
}

#[test]
fn device_that_is_not_there_is_named_beside_those_that_are() {
    for (name, _) in EXAMPLES {
        let run = |device: &str| Command::new(path(name)).args(["--device", device]).output().unwrap();
        for (device, text) in [("foo", "no backend named `foo`"), ("cpu:77", "77"), ("cpu:", "`cpu:`")] {
            let output = run(device);
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{name}: {message}");
            assert!(message.contains(text) && message.contains("cpu:0"), "{name}: {message}");
        }
    }
}
