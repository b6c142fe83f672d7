//! The exchange over TCP, with peers that are not ranks.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use gpustream::ErrorKind;
use gpustream_collectives::{Exchange, ExchangeError, Secret, TcpExchange};

use crate::{LONG, SHORT, reason, secret};

/// Returns an exchange that listens, and its address.
pub(crate) fn rank_0() -> (TcpExchange, String) {
    let rank_0 = TcpExchange::listen("127.0.0.1:0", &secret()).unwrap();
    let address = rank_0.address().unwrap().to_string();
    (rank_0, address)
}

/// Asserts that a rank can still come and get what rank 0 put.
fn rank_can_come(rank_0: &TcpExchange, address: &str) {
    rank_0.put("id", b"7").unwrap();
    let rank_1 = TcpExchange::connect(address, &secret(), LONG).unwrap();
    assert_eq!(rank_1.get("id", LONG).unwrap(), b"7");
}

#[test]
fn wrong_secret_is_an_error_at_once() {
    let (rank_0, address) = rank_0();
    let other = Secret::new("another secret of the tests").unwrap();
    let error = TcpExchange::connect(&address, &other, LONG).unwrap_err();
    assert_eq!(reason(&error), &ExchangeError::WrongSecret { address: address.clone() });
    assert!(error.message().contains("GPUSTREAM_EXCHANGE_SECRET"), "{error}");
    rank_can_come(&rank_0, &address);
}

#[test]
fn short_secret_is_refused() {
    let error = Secret::new("15 bytes: short").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("openssl rand -hex 32"), "{error}");
    assert!(!format!("{:?}", secret()).contains("tests"));
    assert!(!format!("{:?}", rank_0().0).contains("tests"));
}

#[test]
fn garbage_from_strangers_is_harmless() {
    let (rank_0, address) = rank_0();
    for rubbish in [&b"GET / HTTP/1.1\r\nHost: rank-0\r\n\r\n"[..], &vec![0xff; 100_000], b"\n"] {
        let mut peer = TcpStream::connect(&address).unwrap();
        // Rank 0 may close the connection while we are still writing.
        let _ = peer.write_all(rubbish);
        let _ = peer.shutdown(std::net::Shutdown::Write);
        // Rank 0 closes the connection, whatever it says before.
        let _ = peer.read_to_end(&mut Vec::new());
    }
    rank_can_come(&rank_0, &address);
}

#[test]
fn silent_peers_delay_no_rank() {
    let (rank_0, address) = rank_0();
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"s").unwrap();
    rank_can_come(&rank_0, &address);
    // They must not delay the end of rank 0 either.
    drop(rank_0);
    for mut peer in silent {
        peer.set_read_timeout(Some(LONG)).unwrap();
        // The connection ends, either cleanly or with a reset.
        if let Err(error) = peer.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}

/// You wait ten seconds for this test, because only then does rank 0 close silent connections.
#[test]
fn crowd_of_silent_peers_keeps_no_rank_out() {
    let (rank_0, address) = rank_0();
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(&address).unwrap()).collect();
    rank_can_come(&rank_0, &address);
    drop(silent);
}

#[test]
fn silent_and_babbling_rank_0_is_an_error_at_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The system accepts connections for the listener, although we never look at them.
    let error = TcpExchange::connect(&address, &secret(), SHORT).unwrap_err();
    let last = "no answer".to_owned();
    assert_eq!(reason(&error), &ExchangeError::Unreachable { address: address.clone(), limit: SHORT, last });
    thread::scope(|threads| {
        let rank_1 = threads.spawn(|| TcpExchange::connect(&address, &secret(), SHORT).unwrap_err());
        // The silent connection from before, and another that gets bytes that rank 0 would not send.
        drop(listener.accept().unwrap());
        listener.accept().unwrap().0.write_all(&[b'x'; 1000]).unwrap();
        assert!(matches!(reason(&rank_1.join().unwrap()), ExchangeError::Unreachable { .. }));
    });
}

#[test]
fn absent_rank_0_is_an_error_at_the_limit() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = TcpExchange::connect(&address, &secret(), SHORT).unwrap_err();
    assert!(
        matches!(reason(&error), ExchangeError::Unreachable { last, .. } if last.contains("refused")),
        "{error}"
    );
    assert!(error.message().contains(&address) && error.message().contains("300ms"), "{error}");
    let error = TcpExchange::connect("no port", &secret(), Duration::ZERO).unwrap_err();
    assert!(matches!(reason(&error), ExchangeError::Unreachable { .. }), "{error}");
}

#[test]
fn rank_0_may_come_later() {
    let early = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = early.local_addr().unwrap().to_string();
    thread::scope(|threads| {
        let rank_1 =
            threads.spawn(|| TcpExchange::connect(&address, &secret(), LONG).unwrap().get("id", LONG));
        // Rank 1 has tried once and failed when rank 0 comes.
        drop(early.accept().unwrap());
        drop(early);
        let rank_0 = TcpExchange::listen(&address, &secret()).unwrap();
        rank_0.put("id", b"7").unwrap();
        assert_eq!(rank_1.join().unwrap().unwrap(), b"7");
    });
}

#[test]
fn dropped_rank_0_is_an_error_for_waiting_ranks() {
    let (rank_0, address) = rank_0();
    let rank_1 = TcpExchange::connect(&address, &secret(), LONG).unwrap();
    thread::scope(|threads| {
        let waiting = [0, 1].map(|_| threads.spawn(|| rank_1.get("never", LONG)));
        drop(rank_0);
        for waiting in waiting {
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(reason(&error), ExchangeError::Gone { .. }), "{error}");
            assert!(error.message().contains("`never`") && error.message().contains(&address), "{error}");
        }
    });
    // Later calls find out at once.
    let error = rank_1.put("key", b"").unwrap_err();
    assert!(matches!(reason(&error), ExchangeError::Gone { .. }), "{error}");
}

#[test]
fn rank_0_listens_only_at_its_address() {
    let (rank_0, address) = rank_0();
    let port = rank_0.address().unwrap().port();
    assert!(rank_0.address().unwrap().ip().is_loopback());
    assert_eq!(
        TcpStream::connect(("127.0.0.2", port)).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    let error = TcpExchange::listen(&address, &secret()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::External);
    assert!(error.message().contains(&address), "{error}");
}

#[test]
fn many_ranks_connect_at_once() {
    const RANKS: usize = 200;
    let (rank_0, address) = rank_0();
    thread::scope(|threads| {
        let ranks: Vec<_> = (1..RANKS)
            .map(|rank| {
                let address = &address;
                threads.spawn(move || {
                    let exchange = TcpExchange::connect(address, &secret(), LONG)?;
                    exchange.put(&format!("rank {rank}"), &rank.to_le_bytes())?;
                    exchange.get("id", LONG)
                })
            })
            .collect();
        for rank in 1..RANKS {
            assert_eq!(rank_0.get(&format!("rank {rank}"), LONG).unwrap(), rank.to_le_bytes());
        }
        rank_0.put("id", b"7").unwrap();
        for rank in ranks {
            assert_eq!(rank.join().unwrap().unwrap(), b"7");
        }
    });
}
