//! `gpustream timeline`, run as you would run it.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use gpustream_timeline::perfetto::Writer;
use gpustream_timeline::{Clock, Device, Operation, Point, Record, SourceLine, Stream, WorkKind};

/// Writes a trace of one kernel of 3 µs.
fn write_trace(file: &Path) {
    let mut writer = Writer::new(Vec::new());
    for record in [
        Record::Device(Device {
            id: 0,
            name: "cpu:0".to_owned(),
            clock: Clock::Host,
            error: 0,
            reason: String::new(),
        }),
        Record::Stream(Stream { id: 1, device: 0, name: "stream 1".to_owned(), legacy: false }),
        Record::Operation(Operation {
            point: Point { stream: 1, number: 1 },
            label: "saxpy".into(),
            place: SourceLine { file: "src/main.rs".into(), line: 7 },
            thread: 1,
            submitted: 0..500,
            ran: Some(1_000..4_000),
            work: WorkKind::Kernel { grid: [1, 1, 1], block: [256, 1, 1] },
            after: vec![],
            pieces: vec![],
        }),
    ] {
        writer.write(&record).unwrap();
    }
    fs::write(file, writer.finish().unwrap()).unwrap();
}

fn timeline(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpustream"));
    command.arg("timeline").args(args).current_dir(folder).output().unwrap()
}

#[test]
fn trace_is_reported_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(&folder.path().join("one.pftrace"));
    fs::copy(folder.path().join("one.pftrace"), folder.path().join("two.pftrace")).unwrap();

    let output = timeline(folder.path(), &["one.pftrace"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout.starts_with("total 4.000 µs = max(host 500 ns, device 3.000 µs)"), "{stdout}");

    let output = timeline(folder.path(), &["one.pftrace", "-o", "out.svg", "--width", "700"]);
    assert!(output.status.success(), "{output:?}");
    let svg = fs::read_to_string(folder.path().join("out.svg")).unwrap();
    assert!(svg.contains("width=\"700\"") && svg.contains("saxpy"), "{svg}");

    // If there are several traces, their files give them names.
    let output = timeline(folder.path(), &["one.pftrace", "two.pftrace", "-o", "out.html", "--to", "2us"]);
    assert!(output.status.success(), "{output:?}");
    let html = fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(html.contains("\"name\":\"two\"") && html.contains("\"to\":2000,"));
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(&folder.path().join("one.pftrace"));
    fs::write(folder.path().join("notes.txt"), "no trace").unwrap();
    for (args, says) in [
        (&["missing.pftrace"][..], "cannot read missing.pftrace"),
        (&["notes.txt"], "notes.txt: the file is not a gpustream timeline"),
        (&["one.pftrace", "-o", "out.png"], "out.png ends with neither .svg nor .html"),
        (&["one.pftrace", "--from", "12"], "a time has a unit"),
    ] {
        let output = timeline(folder.path(), args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(says), "{args:?}: {stderr}");
    }
}
