//! Exchanges between processes. A test runs `child` in another process, and tells it with the variable `ROLE` what it must
//! do there.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpustream_collectives::{Exchange, ExchangeError, Rendezvous, TcpExchange};

use crate::tcp::rank_0;
use crate::{LONG, SHORT, reason, secret};

const ROLE: &str = "GPUSTREAM_TEST_ROLE";
const RANKS: usize = 4;

/// Does what a test below started this process for. Does nothing otherwise.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    match role.split_once(' ') {
        Some(("rank", rank)) => {
            let rank = rank.parse().unwrap();
            meet(&*Rendezvous::from_env().unwrap().join(rank, LONG).unwrap(), rank);
        }
        Some(("wait", address)) => {
            let exchange = TcpExchange::connect(address, &secret(), LONG).unwrap();
            exchange.put("waits", b"").unwrap();
            let _ = exchange.get("never", Duration::MAX);
        }
        None if role == "rank-0" => {
            let (exchange, address) = rank_0();
            println!("{address}");
            let _ = exchange.get("never", Duration::MAX);
        }
        None if role == "torchrun" => {
            let rank = env::var("RANK").unwrap().parse().unwrap();
            let exchange = Rendezvous::from_env().unwrap().join(rank, LONG).unwrap();
            meet(&*exchange, rank);
            if rank == 0 {
                // This process runs until it is killed, because the others may still wait for an answer.
                let _ = exchange.get("never", Duration::MAX);
            }
        }
        None if role == "rounds" => rounds(),
        _ => panic!("no role `{role}`"),
    }
}

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn start(role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "processes::child", "--nocapture"])
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Waits for the process. It must succeed.
    #[track_caller]
    fn succeeds(mut self) {
        assert!(self.0.wait().unwrap().success());
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Returns the address that the process prints among the output of its test harness.
    fn address(&mut self) -> String {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let address = |word: &&str| word.parse::<SocketAddr>().is_ok();
        lines.find_map(|line| line.split(' ').find(address).map(str::to_owned)).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Puts this rank's bytes and gets those of the others. Rank 0 stays until all have done so.
fn meet(exchange: &dyn Exchange, rank: usize) {
    exchange.put(&format!("rank {rank}"), &[rank as u8; 128]).unwrap();
    for other in 0..RANKS {
        assert_eq!(exchange.get(&format!("rank {other}"), LONG).unwrap(), [other as u8; 128]);
    }
    exchange.put(&format!("rank {rank} has all"), b"").unwrap();
    for other in (0..RANKS).filter(|_| rank == 0) {
        exchange.get(&format!("rank {other} has all"), LONG).unwrap();
    }
}

#[test]
fn processes_meet_over_tcp() {
    let (rank_0, address) = rank_0();
    let place = format!("tcp://{address}");
    let variables =
        [("GPUSTREAM_EXCHANGE", &place[..]), ("GPUSTREAM_EXCHANGE_SECRET", "the secret of the tests")];
    let others: Vec<_> = (1..RANKS).map(|rank| Process::start(&format!("rank {rank}"), &variables)).collect();
    meet(&rank_0, 0);
    others.into_iter().for_each(Process::succeeds);
}

#[test]
fn processes_meet_in_a_folder_in_any_order() {
    let scratch = tempfile::tempdir().unwrap();
    for last in [0, 2] {
        let place = format!("file:{}/run-{last}", scratch.path().display());
        let order = (0..RANKS).filter(|&rank| rank != last).chain([last]);
        let start = |rank| Process::start(&format!("rank {rank}"), &[("GPUSTREAM_EXCHANGE", &place)]);
        let ranks: Vec<_> = order.map(start).collect();
        ranks.into_iter().for_each(Process::succeeds);
    }
}

/// Two runs can share a host and have agents with neighbouring ports. Programs in between may listen and say nothing, or say
/// the wrong thing.
#[test]
fn torchrun_processes_meet_at_ports_after_its_agent() {
    let temporary = tempfile::tempdir().unwrap();
    let agent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = agent.local_addr().unwrap().port();
    // If another program has taken a port, it is occupied too.
    let taken: Vec<_> =
        (1..=8).filter_map(|behind| TcpListener::bind(("127.0.0.1", port + behind)).ok()).collect();
    for (number, listener) in taken.iter().enumerate().filter(|(number, _)| number % 2 == 1) {
        let listener = listener.try_clone().unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let greeting =
                    [&b"gpustream exchange 1\n"[..], b"SSH-2.0-something else\r\n"][number / 2 % 2];
                let _ = stream.write_all(greeting).and_then(|()| stream.write_all(&[b'x'; 100]));
            }
        });
    }
    let folder = temporary.path().display().to_string();
    let start = |run: &'static str, port: u16, rank: usize| {
        let (port, rank, size) = (port.to_string(), rank.to_string(), RANKS.to_string());
        Process::start(
            "torchrun",
            &[
                ("TMPDIR", &folder),
                ("RANK", &rank),
                ("LOCAL_RANK", &rank),
                ("WORLD_SIZE", &size),
                ("LOCAL_WORLD_SIZE", &size),
                ("MASTER_ADDR", "an unresolved name"),
                ("MASTER_PORT", &port),
                ("TORCHELASTIC_USE_AGENT_STORE", "True"),
                ("TORCHELASTIC_RESTART_COUNT", "0"),
                ("TORCHELASTIC_RUN_ID", run),
            ],
        )
    };
    let start = |rank| [start("none", port, rank), start("none", port + 1, rank)];
    let others: Vec<_> = (1..RANKS).flat_map(start).collect();
    let _stay = start(0);
    others.into_iter().for_each(Process::succeeds);
}

#[test]
fn killed_rank_0_is_gone() {
    let mut rank_0 = Process::start("rank-0", &[]);
    let rank_1 = TcpExchange::connect(&rank_0.address(), &secret(), LONG).unwrap();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| rank_1.get("never", LONG).unwrap_err());
        rank_0.kill();
        let error = waiting.join().unwrap();
        assert!(matches!(reason(&error), ExchangeError::Gone { .. }), "{error}");
    });
    let error = rank_1.get("never", LONG).unwrap_err();
    assert!(matches!(reason(&error), ExchangeError::Gone { .. }), "{error}");
}

#[test]
fn stopped_rank_0_is_an_error_at_the_limit() {
    let mut rank_0 = Process::start("rank-0", &[]);
    // This must be long enough for a busy machine to connect.
    let limit = Duration::from_secs(2);
    let rank_1 = TcpExchange::connect(&rank_0.address(), &secret(), limit).unwrap();
    let stop = Command::new("kill").args(["-STOP", &rank_0.0.id().to_string()]).status();
    assert!(stop.unwrap().success());
    let start = Instant::now();
    for error in [rank_1.get("never", SHORT).unwrap_err(), rank_1.put("key", b"").unwrap_err()] {
        assert!(matches!(reason(&error), ExchangeError::Unreachable { .. }), "{error}");
    }
    // The limits add up to a few seconds. The minute only shows that the wait is not endless.
    assert!(start.elapsed() < LONG);
}

#[test]
fn killed_rank_harms_no_other() {
    let (rank_0, address) = rank_0();
    let mut killed = Process::start(&format!("wait {address}"), &[]);
    rank_0.get("waits", LONG).unwrap();
    killed.kill();
    let rank_2 = TcpExchange::connect(&address, &secret(), LONG).unwrap();
    rank_2.put("key", b"7").unwrap();
    assert_eq!(rank_0.get("key", LONG).unwrap(), b"7");
}

#[test]
fn dropped_exchanges_leave_no_thread_and_no_descriptor() {
    Process::start("rounds", &[]).succeeds();
}

fn rounds() {
    let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let before = (count("task"), count("fd"));
    for round in 0..100 {
        let (rank_0, address) = rank_0();
        let silent = std::net::TcpStream::connect(&address).unwrap();
        let rank_1 = TcpExchange::connect(&address, &secret(), LONG).unwrap();
        rank_1.put("key", b"7").unwrap();
        assert_eq!(rank_0.get("key", LONG).unwrap(), b"7");
        assert!(count("task") > before.0, "threads are counted");
        // In either order.
        if round % 2 == 0 {
            drop((rank_1, rank_0));
        } else {
            drop((rank_0, rank_1));
        }
        drop(silent);
    }
    assert_eq!(count("fd"), before.1);
    // The system may still count a thread that was joined.
    let end = Instant::now() + LONG;
    while count("task") > before.0 {
        assert!(Instant::now() < end, "{} threads are left of {}", count("task"), before.0);
        thread::yield_now();
    }
}
