//! Exchanges between processes: this test starts itself again, and the variable `ROLE` says what the process does.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpustream_collectives::{Exchange, ExchangeError, Rendezvous, TcpExchange};

use crate::{LONG, SHORT, reason, secret};

crate::tests![
    processes_meet_over_tcp,
    processes_meet_in_a_folder_whoever_comes_first,
    killed_rank_0_is_gone,
    stopped_rank_0_is_an_error_at_the_limit,
    killed_rank_harms_no_other,
    dropped_exchanges_leave_no_thread_and_no_descriptor,
];

const ROLE: &str = "GPUSTREAM_TEST_ROLE";
const RANKS: usize = 4;

/// Does what this process was started for, if it was started by a test.
pub(crate) fn play_role() -> bool {
    let Ok(role) = env::var(ROLE) else { return false };
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
            let exchange = TcpExchange::listen("127.0.0.1:0", &secret()).unwrap();
            println!("{}", exchange.address().unwrap());
            let _ = exchange.get("never", Duration::MAX);
        }
        None if role == "rounds" => rounds(),
        _ => panic!("no role `{role}`"),
    }
    true
}

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn start(role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(ROLE, role).envs(variables.iter().copied()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Waits for the process, which must succeed.
    #[track_caller]
    fn succeeds(mut self) {
        assert!(self.0.wait().unwrap().success());
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Puts this rank's bytes, and gets the others'; rank 0 stays until all have done so.
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

fn processes_meet_over_tcp() {
    let rank_0 = TcpExchange::listen("127.0.0.1:0", &secret()).unwrap();
    let place = format!("tcp://{}", rank_0.address().unwrap());
    let variables =
        [("GPUSTREAM_EXCHANGE", &place[..]), ("GPUSTREAM_EXCHANGE_SECRET", "the secret of the tests")];
    let others: Vec<_> = (1..RANKS).map(|rank| Process::start(&format!("rank {rank}"), &variables)).collect();
    meet(&rank_0, 0);
    others.into_iter().for_each(Process::succeeds);
}

fn processes_meet_in_a_folder_whoever_comes_first() {
    let scratch = tempfile::tempdir().unwrap();
    for last in [0, 2] {
        let place = format!("file:{}/run-{last}", scratch.path().display());
        let order = (0..RANKS).filter(|&rank| rank != last).chain([last]);
        let start = |rank| Process::start(&format!("rank {rank}"), &[("GPUSTREAM_EXCHANGE", &place)]);
        let ranks: Vec<_> = order.map(start).collect();
        ranks.into_iter().for_each(Process::succeeds);
    }
}

fn killed_rank_0_is_gone() {
    let mut rank_0 = Process::start("rank-0", &[]);
    let rank_1 = TcpExchange::connect(&rank_0.line(), &secret(), LONG).unwrap();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| rank_1.get("never", LONG).unwrap_err());
        rank_0.kill();
        let error = waiting.join().unwrap();
        assert!(matches!(reason(&error), ExchangeError::Gone { .. }), "{error}");
    });
    let error = rank_1.get("never", LONG).unwrap_err();
    assert!(matches!(reason(&error), ExchangeError::Gone { .. }), "{error}");
}

fn stopped_rank_0_is_an_error_at_the_limit() {
    let mut rank_0 = Process::start("rank-0", &[]);
    // Enough for a busy machine to connect.
    let limit = Duration::from_secs(2);
    let rank_1 = TcpExchange::connect(&rank_0.line(), &secret(), limit).unwrap();
    let stop = Command::new("kill").args(["-STOP", &rank_0.0.id().to_string()]).status();
    assert!(stop.unwrap().success());
    let start = Instant::now();
    for error in [rank_1.get("never", SHORT).unwrap_err(), rank_1.put("key", b"").unwrap_err()] {
        assert!(matches!(reason(&error), ExchangeError::Unreachable { .. }), "{error}");
    }
    // The limits are a few seconds in all; a minute says only that they are not forever.
    assert!(start.elapsed() < LONG);
}

fn killed_rank_harms_no_other() {
    let rank_0 = TcpExchange::listen("127.0.0.1:0", &secret()).unwrap();
    let address = rank_0.address().unwrap().to_string();
    let mut killed = Process::start(&format!("wait {address}"), &[]);
    rank_0.get("waits", LONG).unwrap();
    killed.kill();
    let rank_2 = TcpExchange::connect(&address, &secret(), LONG).unwrap();
    rank_2.put("key", b"7").unwrap();
    assert_eq!(rank_0.get("key", LONG).unwrap(), b"7");
}

fn dropped_exchanges_leave_no_thread_and_no_descriptor() {
    Process::start("rounds", &[]).succeeds();
}

fn rounds() {
    let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let before = (count("task"), count("fd"));
    for round in 0..100 {
        let rank_0 = TcpExchange::listen("127.0.0.1:0", &secret()).unwrap();
        let address = rank_0.address().unwrap().to_string();
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
