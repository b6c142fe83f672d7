//! Worlds, as launchers describe them and as programs make them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use gpustream::{Device, ErrorKind, Result};
use gpustream_collectives::{Launcher, World};

const TORCHRUN: &[(&str, &str)] = &[
    ("RANK", "5"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "29500"),
];
const OPEN_MPI: &[(&str, &str)] =
    &[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
const PMI: &[(&str, &str)] = &[("PMI_RANK", "0"), ("PMI_SIZE", "3")];
const SLURM: &[(&str, &str)] = &[("SLURM_PROCID", "6"), ("SLURM_NTASKS", "7"), ("SLURM_LOCALID", "2")];

/// Makes the world that these variables describe.
fn world(variables: &[&[(&str, &str)]]) -> Result<World> {
    let variables = variables.concat();
    World::from_variables(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[track_caller]
fn refused(variables: &[&[(&str, &str)]], words: &[&str]) {
    let error = world(variables).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    for words in words {
        assert!(error.message().contains(words), "`{words}` is not in: {error}");
    }
}

#[test]
fn each_launcher_tells_its_world() {
    let found = |variables: &[(&str, &str)]| {
        let world = world(&[variables]).unwrap();
        (world.launcher().unwrap(), world.rank(), world.size(), world.local_rank())
    };
    assert_eq!(found(TORCHRUN), (Launcher::Torchrun, 5, 8, Some(1)));
    assert_eq!(found(OPEN_MPI), (Launcher::OpenMpi, 2, 4, Some(0)));
    assert_eq!(found(PMI), (Launcher::Pmi, 0, 3, None));
    assert_eq!(found(SLURM), (Launcher::Slurm, 6, 7, Some(2)));
    let hydra = world(&[PMI, &[("MPI_LOCALRANKID", " 1 ")]]).unwrap();
    assert_eq!(hydra.local_rank(), Some(1));
}

#[test]
fn address_of_rank_0_is_that_of_the_variables_alone() {
    assert_eq!(world(&[TORCHRUN]).unwrap().master(), Some(("node0", 29500)));
    assert_eq!(world(&[SLURM]).unwrap().master(), None);
    let with_address = world(&[SLURM, &TORCHRUN[3..]]).unwrap();
    assert_eq!(
        (with_address.launcher(), with_address.master()),
        (Some(Launcher::Slurm), Some(("node0", 29500)))
    );
    refused(&[SLURM, &[("MASTER_ADDR", "node0")]], &["MASTER_PORT is missing"]);
    refused(&[PMI, &[("MASTER_PORT", "1")]], &["MASTER_ADDR is missing"]);
    for port in ["0", "65536", "http"] {
        refused(
            &[PMI, &[("MASTER_ADDR", "a"), ("MASTER_PORT", port)]],
            &[&format!("MASTER_PORT={port}"), "65535"],
        );
    }
}

#[test]
fn first_complete_set_wins() {
    let launcher = |variables: &[&[(&str, &str)]]| world(variables).unwrap().launcher().unwrap();
    assert_eq!(launcher(&[SLURM, PMI, OPEN_MPI, TORCHRUN]), Launcher::Torchrun);
    assert_eq!(launcher(&[SLURM, PMI, OPEN_MPI]), Launcher::OpenMpi);
    assert_eq!(launcher(&[SLURM, PMI]), Launcher::Pmi);
    // We skip an incomplete set if a complete one follows.
    assert_eq!(launcher(&[&TORCHRUN[..2], &PMI[..1], SLURM]), Launcher::Slurm);
}

#[test]
fn incomplete_sets_name_what_is_missing() {
    refused(&[&TORCHRUN[..3]], &["torchrun", "MASTER_ADDR, MASTER_PORT are missing"]);
    refused(&[&OPEN_MPI[1..]], &["Open MPI", "of these OMPI_COMM_WORLD_RANK is missing"]);
    refused(&[&PMI[..1]], &["PMI", "PMI_SIZE is missing"]);
    refused(&[&SLURM[..2]], &["SLURM", "SLURM_LOCALID is missing"]);
    refused(&[&SLURM[..2], &PMI[1..]], &["PMI_RANK is missing", "SLURM_LOCALID is missing"]);
    // An empty variable counts as missing.
    refused(&[&[("PMI_SIZE", " ")], &PMI[..1]], &["PMI_SIZE is missing"]);
    refused(&[], &["torchrun", "mpirun", "srun", "World::alone", "World::local"]);
}

#[test]
fn variables_that_make_no_sense_are_refused() {
    for (name, value) in
        [("PMI_RANK", "x"), ("PMI_RANK", "-1"), ("PMI_SIZE", "1.0"), ("PMI_SIZE", "99999999999999999999")]
    {
        refused(&[&[(name, value)], PMI], &[&format!("{name}={value}")]);
    }
    refused(&[&[("PMI_SIZE", "0")], PMI], &["PMI_SIZE=0"]);
    refused(&[&[("PMI_RANK", "3")], PMI], &["PMI_RANK=3", "3 ranks", "0 to 2"]);
    refused(&[&[("SLURM_LOCALID", "7")], SLURM], &["SLURM_LOCALID=7"]);
    // A complete set that makes no sense is an error; we do not go on to the next one.
    refused(&[&[("RANK", "8")], TORCHRUN, SLURM], &["RANK=8"]);
}

#[test]
fn world_of_several_processes_needs_gpus() {
    let device = Device::open("cpu").unwrap();
    let error = world(&[SLURM]).unwrap().communicator(&device).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("rank 6 of 7"), "{error}");
    let one = world(&[&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]]).unwrap().communicator(&device).unwrap();
    assert_eq!((one.rank(), one.size()), (0, 1));
}

#[test]
fn worlds_of_one_process_are_what_they_were_made_of() {
    let device = Device::open("cpu").unwrap();
    let alone = World::alone();
    assert_eq!((alone.rank(), alone.size(), alone.local_rank(), alone.launcher()), (0, 1, Some(0), None));
    assert_eq!(alone.communicators().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let local = World::local(&[device.clone(), device.clone()]).unwrap();
    assert_eq!((local.rank(), local.size(), local.master()), (0, 2, None));
    assert_eq!(local.communicator(&device).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let ranks = local.communicators().unwrap();
    assert_eq!(ranks.iter().map(|rank| (rank.rank(), rank.size())).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    assert_eq!(World::local(&[]).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
