//! Bytes that processes pass each other through MPI, before they have a communicator.

use std::thread;
use std::time::Duration;

use gpustream::ErrorKind;
use gpustream_collectives::{Exchange, MpiExchange, Rendezvous, World};

use crate::{LONG, RANKS, tests};

tests!(
    each_rank_gets_what_each_puts,
    a_get_waits_for_the_put,
    threads_wait_for_keys_of_their_own,
    exchanges_are_apart,
    a_key_that_is_never_put_times_out,
    a_key_is_put_once,
    the_variable_names_mpi,
);

fn join() -> (usize, MpiExchange) {
    (World::from_env().unwrap().rank(), MpiExchange::join(LONG).unwrap())
}

/// Puts a key for this rank, and waits until every rank has put its own.
fn meet(exchange: &MpiExchange, own: usize, what: &str) {
    exchange.put(&format!("{own} {what}"), &[]).unwrap();
    for rank in 0..RANKS {
        exchange.get(&format!("{rank} {what}"), LONG).unwrap();
    }
}

fn each_rank_gets_what_each_puts() {
    let (own, exchange) = join();
    let bytes = |rank: usize, len: usize| -> Vec<u8> { (0..len).map(|at| (at * 7 + rank) as u8).collect() };
    // We try several lengths, because MPI sends short messages at once, and long ones only when the receiver asks.
    for len in [0, 1, 128, 100_000, 1 << 20] {
        exchange.put(&format!("{len} of {own}"), &bytes(own, len)).unwrap();
        for rank in (0..RANKS).rev() {
            assert_eq!(exchange.get(&format!("{len} of {rank}"), LONG).unwrap(), bytes(rank, len));
        }
    }
}

fn a_get_waits_for_the_put() {
    let (own, exchange) = join();
    if own == 0 {
        for rank in 1..RANKS {
            exchange.get(&format!("{rank} waits"), LONG).unwrap();
        }
        exchange.put("id", &[7; 128]).unwrap();
    } else {
        thread::scope(|threads| {
            let id = threads.spawn(|| exchange.get("id", LONG));
            exchange.put(&format!("{own} waits"), &[]).unwrap();
            assert_eq!(id.join().unwrap().unwrap(), [7; 128]);
        });
    }
    // A process must not end while others still need what it put.
    meet(&exchange, own, "is done");
}

fn threads_wait_for_keys_of_their_own() {
    let (own, exchange) = join();
    thread::scope(|threads| {
        for thread in 0..4_u8 {
            let exchange = &exchange;
            threads.spawn(move || {
                for round in 0..20 {
                    let key = |rank| format!("{round} of {thread} of {rank}");
                    exchange.put(&key(own), &[thread]).unwrap();
                    assert_eq!(exchange.get(&key((own + 1) % RANKS), LONG).unwrap(), [thread]);
                }
            });
        }
    });
}

fn exchanges_are_apart() {
    let (own, first) = join();
    let second = MpiExchange::join(LONG).unwrap();
    if own == 0 {
        second.put("id", &[2]).unwrap();
        first.put("id", &[1]).unwrap();
    }
    assert_eq!(first.get("id", LONG).unwrap(), [1]);
    assert_eq!(second.get("id", LONG).unwrap(), [2]);
    drop(first);
    meet(&second, own, "goes on");
}

fn a_key_that_is_never_put_times_out() {
    let (own, exchange) = join();
    let late = exchange.get("nobody's", Duration::from_millis(20)).unwrap_err();
    assert!(late.to_string().contains("no rank put the key"), "{late}");
    meet(&exchange, own, "goes on");
}

fn a_key_is_put_once() {
    let (own, exchange) = join();
    let key = format!("of {own}");
    exchange.put(&key, &[1]).unwrap();
    let again = exchange.put(&key, &[2]).unwrap_err();
    assert!(again.to_string().contains("already put into the exchange"), "{again}");
    for rank in 0..RANKS {
        let key = format!("of {rank}");
        assert_eq!(exchange.get(&key, LONG).unwrap(), [1]);
        assert!(exchange.put(&key, &[3]).is_err(), "another rank has put the key");
    }
    assert!(exchange.put("", &[]).is_err() && exchange.put("long", &vec![0; (1 << 20) + 1]).is_err());
    assert!(exchange.get("", LONG).is_err());
}

fn the_variable_names_mpi() {
    let place = Rendezvous::from_variables(|name| (name == "GPUSTREAM_EXCHANGE").then(|| "mpi".into()));
    let own = World::from_env().unwrap().rank();
    let place = place.unwrap();
    let other = place.join(own + 1, LONG).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Unsupported, "{other}");
    let exchange = place.join(own, LONG).unwrap();
    exchange.put(&format!("{own}"), &[9]).unwrap();
    for rank in 0..RANKS {
        assert_eq!(exchange.get(&format!("{rank}"), LONG).unwrap(), [9]);
    }
}
