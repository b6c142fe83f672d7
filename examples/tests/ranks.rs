//! The examples with several ranks or devices: on one device and on three, with sizes that their number does not divide, and
//! started as launchers start them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod programs;

use std::fs;
use std::process::{Command, Output};

use programs::{example, refused};

/// Returns a command that runs an example on this many devices of the CPU.
fn on(devices: usize, name: &str, options: &[&str]) -> Command {
    let mut command = example(name);
    command.env("GPUSTREAM_CPU_DEVICES", devices.to_string()).args(options);
    command
}

/// Asserts that the program succeeds, and returns what it printed.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Asserts that the program succeeds, and that it prints each of `texts`.
#[track_caller]
fn prints(command: &mut Command, texts: &[&str]) {
    let stdout = printed(command);
    for text in texts {
        assert!(stdout.contains(text), "{command:?}: `{stdout}` does not say `{text}`");
    }
}

#[test]
fn poisson_on_three_devices_has_the_error_of_one() {
    // With 15 points the coarse grid has only seven planes, so two of the three ranks have no plane that can do without the
    // halo.
    for side in ["15", "16", "31"] {
        let error = |devices| {
            let stdout = printed(&mut on(devices, "poisson", &["--side", side]));
            stdout.lines().find(|line| line.starts_with("largest error")).unwrap().to_owned()
        };
        assert_eq!(error(1), error(3), "{side} points a side");
    }
}

#[test]
fn poisson_with_one_plane_for_each_rank_is_right() {
    prints(&mut on(1, "poisson", &["--side", "15", "--ranks", "7"]), &["ranks: 7", "efficiency"]);
}

#[test]
fn poisson_on_one_device_has_no_halo() {
    prints(&mut on(1, "poisson", &["--side", "15"]), &["ranks: 1", "no halo"]);
}

#[test]
fn poisson_that_does_not_converge_is_an_error_on_every_rank() {
    refused(
        &mut on(3, "poisson", &["--side", "15", "--iterations", "3"]),
        &["after 3 rounds", "--iterations"],
    );
    refused(&mut on(1, "poisson", &["--side", "15", "--ranks", "8"]), &["8 ranks share 7 planes", "--side"]);
}

#[test]
fn data_parallel_on_three_devices_learns_what_one_rank_learns() {
    let sizes = ["--samples", "101", "--width", "7", "--layers", "3", "--bucket"];
    for bucket in ["0", "1", "1000"] {
        let options = [&sizes[..], &[bucket, "--rate", "0.2"]].concat();
        prints(
            &mut on(3, "data_parallel", &options),
            &["ranks: 3", "all ranks have the same weights", "one rank with all samples", "hidden: "],
        );
    }
}

#[test]
fn data_parallel_with_one_sample_for_each_rank_is_right() {
    let options = ["--samples", "3", "--width", "5", "--rate", "0.1"];
    prints(&mut on(3, "data_parallel", &options), &["ranks: 3", "the same weights"]);
    prints(&mut on(1, "data_parallel", &options), &["ranks: 1", "the same weights"]);
}

#[test]
fn data_parallel_draws_both_orders() {
    let folder = tempfile::tempdir().unwrap();
    for (name, begin) in [("steps.svg", "<svg"), ("steps.html", "<!")] {
        let file = folder.path().join(name);
        printed(on(2, "data_parallel", &["--samples", "30", "--width", "5", "--trace"]).arg(&file));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(begin), "{name}: {text:.100}");
        for order in ["one after the other", "overlapped"] {
            assert!(text.contains(order), "{name} does not say `{order}`");
        }
    }
}

#[test]
fn data_parallel_that_does_not_learn_is_an_error() {
    let options = ["--samples", "9", "--width", "5", "--rate", "0"];
    refused(&mut on(3, "data_parallel", &options), &["the loss went from", "--rate"]);
}

#[test]
fn lattice_boltzmann_on_several_devices_draws_what_one_draws() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |devices: usize, parts: &str| {
        let out = folder.path().join(parts);
        let options = ["--size", "16", "--frames", "3", "--steps", "40", "--devices", parts];
        prints(on(devices, "lattice_boltzmann", &options).arg("--out").arg(&out), &["the same bits"]);
        [0, 1, 2].map(|number| fs::read(out.join(format!("frame_000{number}.png"))).unwrap())
    };
    let alone = draw(1, "1");
    assert!(alone[0] != alone[1] && alone[1] != alone[2], "nothing moves");
    // Three parts have 5 or 6 rows each. Eight have two each, and none of these can do without the halo.
    assert!(draw(3, "3") == alone, "three devices");
    assert!(draw(3, "8") == alone, "eight parts on three devices");
    assert!(draw(1, "2") == alone, "two parts on one device");
}

#[test]
fn lattice_boltzmann_with_fewer_than_two_rows_for_a_part_is_refused() {
    refused(
        &mut on(1, "lattice_boltzmann", &["--size", "16", "--devices", "9"]),
        &["9 parts share 16 rows", "--size"],
    );
}

#[test]
fn process_of_a_launcher_is_one_rank_of_its_world() {
    let torchrun = [
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_RANK", "0"),
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", "29500"),
    ];
    let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_LOCALID", "0")];
    for name in ["poisson", "data_parallel"] {
        let options: &[&str] =
            if name == "poisson" { &["--side", "15"] } else { &["--samples", "30", "--width", "5"] };
        for variables in [&torchrun[..], &slurm] {
            prints(on(3, name, options).envs(variables.iter().copied()), &["ranks: 1"]);
        }
        let mut incomplete = on(3, name, options);
        refused(
            incomplete.env("RANK", "0"),
            &["RANK says that a launcher", "--ranks", "WORLD_SIZE", "LOCAL_RANK"],
        );
        prints(on(3, name, options).env("RANK", "0").args(["--ranks", "2"]), &["ranks: 2"]);
    }
}

#[test]
fn process_without_a_device_of_its_own_is_refused() {
    let slurm = |local| [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "3"), ("SLURM_LOCALID", local)];
    refused(on(2, "poisson", &[]).envs(slurm("2")), &["number 2 on its host", "2 devices of cpu"]);
    let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    refused(on(2, "poisson", &[]).envs(hydra), &["does not tell this process's number", "2 devices of cpu"]);
    let mut unknown = Command::new(programs::path("poisson"));
    refused(unknown.envs(slurm("0")).args(["--device", "foo"]), &["no backend named `foo`"]);
}
