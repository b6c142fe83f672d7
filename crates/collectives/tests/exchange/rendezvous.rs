//! Where ranks meet, according to variables.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use gpustream::{ErrorKind, Result};
use gpustream_collectives::{ExchangeError, Rendezvous};

use crate::{LONG, SHORT, reason};

const SECRET: (&str, &str) = ("GPUSTREAM_EXCHANGE_SECRET", "the secret of the tests");
const MASTER: [(&str, &str); 2] = [("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500")];
const AGENT: (&str, &str) = ("TORCHELASTIC_USE_AGENT_STORE", "True");

fn place(variables: &[(&str, &str)]) -> Result<Rendezvous> {
    Rendezvous::from_variables(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[track_caller]
fn refused(variables: &[(&str, &str)], words: &[&str]) {
    let error = place(variables).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    for words in words {
        assert!(error.message().contains(words), "`{words}` is not in: {error}");
    }
    assert!(!error.message().contains(SECRET.1), "{error}");
}

#[track_caller]
fn is_tcp(variables: &[(&str, &str)], expected: &str) {
    match place(variables).unwrap() {
        Rendezvous::Tcp { address, .. } => assert_eq!(address, expected),
        other => panic!("another place: {other:?}"),
    }
}

#[test]
fn places_are_read_from_variables() {
    is_tcp(&[("GPUSTREAM_EXCHANGE", " tcp://node1:1234/ "), SECRET], "node1:1234");
    is_tcp(&[("GPUSTREAM_EXCHANGE", "tcp://[::1]:1234"), SECRET], "[::1]:1234");
    // The variable takes precedence over the launcher's, even if torchrun's agent listens.
    is_tcp(&[("GPUSTREAM_EXCHANGE", "tcp://node1:1"), SECRET, MASTER[0], MASTER[1], AGENT], "node1:1");
    for folder in ["file:/shared/run-1", "file:///shared/run-1"] {
        match place(&[("GPUSTREAM_EXCHANGE", folder)]).unwrap() {
            Rendezvous::Folder(folder) => assert_eq!(folder, Path::new("/shared/run-1")),
            other => panic!("another place: {other:?}"),
        }
    }
    // MPI needs no secret.
    assert!(matches!(place(&[("GPUSTREAM_EXCHANGE", "mpi")]).unwrap(), Rendezvous::Mpi));
    if !cfg!(feature = "mpi") {
        let error = Rendezvous::Mpi.join(0, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `mpi`"), "{error}");
    }
}

#[test]
fn address_of_the_launcher_serves_without_a_place() {
    is_tcp(&[SECRET, MASTER[0], MASTER[1]], "node0:29500");
    is_tcp(&[SECRET, MASTER[0], MASTER[1], ("TORCHELASTIC_USE_AGENT_STORE", "False")], "node0:29500");
    is_tcp(&[SECRET, ("MASTER_ADDR", "fe80::1"), MASTER[1], ("GPUSTREAM_EXCHANGE", " ")], "[fe80::1]:29500");
    refused(&[SECRET], &["GPUSTREAM_EXCHANGE", "tcp://", "file:/", "MASTER_ADDR"]);
    refused(&[SECRET, MASTER[0]], &["MASTER_PORT is missing"]);
}

#[test]
fn ranks_of_one_host_meet_after_torchruns_agent_without_a_secret() {
    let sizes = |all, here| [("WORLD_SIZE", all), ("LOCAL_WORLD_SIZE", here)];
    let variables =
        |sizes: [(&'static str, &'static str); 2]| [MASTER[0], MASTER[1], AGENT, sizes[0], sizes[1]];
    let shown = format!("{:?}", place(&variables(sizes("4", "4"))).unwrap());
    assert!(shown.contains("127.0.0.1:29501") && shown.contains("127.0.0.1:29516"), "{shown}");
    assert!(!shown.contains("\"127.0.0.1:29500\"") && !shown.contains("127.0.0.1:29517"), "{shown}");
    // Programs on other hosts could connect there.
    for sizes in [sizes("8", "4"), sizes("8", " "), sizes(" ", " ")] {
        refused(&variables(sizes), &["node0:29500", "GPUSTREAM_EXCHANGE_SECRET", "openssl rand -hex 32"]);
        let shown = format!("{:?}", place(&[&variables(sizes)[..], &[SECRET]].concat()).unwrap());
        assert!(shown.contains("node0:29501") && shown.contains("node0:29516"), "{shown}");
    }
    // There are no ports after the last one.
    let last = [SECRET, MASTER[0], ("MASTER_PORT", "65535"), AGENT];
    let error = place(&last).unwrap().join(0, Duration::ZERO).unwrap_err();
    assert!(matches!(reason(&error), ExchangeError::NoFreePort { .. }), "{error}");
}

/// Returns the meeting place that the ranks of one host find from this port, for a run and a secret.
fn behind(port: u16, run: &str, secret: &str) -> Rendezvous {
    let port = port.to_string();
    place(&[
        ("GPUSTREAM_EXCHANGE_SECRET", secret),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", &port),
        AGENT,
        ("WORLD_SIZE", "4"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("TORCHELASTIC_RUN_ID", run),
    ])
    .unwrap()
}

#[test]
fn rank_0_of_another_run_is_another_program() {
    // The test occupies this port, and the ports after it are probably free.
    let agent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = agent.local_addr().unwrap().port();
    let rank_0 = |run: &str, secret: &str| behind(port, run, secret).join(0, LONG).unwrap();
    let _others = [rank_0("a", SECRET.1), rank_0("b", "another secret of the tests")];
    let find = |limit| behind(port, "b", SECRET.1).join(1, limit);
    // A busy machine may need longer to look at all ports.
    let mut limits = (0..).map(|doublings| SHORT * 2u32.pow(doublings));
    let looked = limits.any(|limit| {
        let error = find(limit).unwrap_err();
        let ExchangeError::Unreachable { address, last, .. } = reason(&error) else { panic!("{error}") };
        assert!(address.contains(&format!("127.0.0.1:{}", port + 16)), "{error}");
        last.contains("another run")
    });
    assert!(looked);
    let own = rank_0("b", SECRET.1);
    own.put("id", b"7").unwrap();
    assert_eq!(find(LONG).unwrap().get("id", LONG).unwrap(), b"7");
}

#[test]
fn tcp_needs_a_secret() {
    for secret in [None, Some(("GPUSTREAM_EXCHANGE_SECRET", " "))] {
        let variables = MASTER.into_iter().chain(secret).collect::<Vec<_>>();
        refused(&variables, &["GPUSTREAM_EXCHANGE_SECRET", "openssl rand -hex 32", "node0:29500"]);
    }
    refused(&[MASTER[0], MASTER[1], ("GPUSTREAM_EXCHANGE_SECRET", "123")], &["3 bytes", "16"]);
}

#[test]
fn places_that_make_no_sense_are_refused() {
    for bad in [
        "tcp://node",
        "tcp://:1",
        "tcp://node:0",
        "tcp://node:65536",
        "tcp://",
        "file:",
        "file:run",
        "http://a:1",
        "x",
    ] {
        refused(&[("GPUSTREAM_EXCHANGE", bad), SECRET], &[&format!("GPUSTREAM_EXCHANGE={bad}")]);
    }
}
