//! What every exchange must do.

use std::sync::Arc;
use std::thread;

use gpustream::ErrorKind;
use gpustream_collectives::{Exchange, ExchangeError, FileExchange, LocalExchange, TcpExchange};
use tempfile::TempDir;

use crate::{LONG, SHORT, reason, secret};

/// The ranks of an exchange. Fields are dropped in order, so rank 0 goes almost last, and then the folder.
struct Ranks {
    name: &'static str,
    others: Vec<Arc<dyn Exchange>>,
    rank_0: Arc<dyn Exchange>,
    _folder: Option<TempDir>,
}

impl Ranks {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Exchange>> {
        [&self.rank_0].into_iter().chain(&self.others)
    }
}

/// Makes one exchange of each kind.
fn kinds(size: usize) -> [Ranks; 3] {
    let local = LocalExchange::new();
    let others = (1..size).map(|_| Arc::new(local.clone()) as Arc<dyn Exchange>).collect();
    let local = Ranks { name: "local", others, rank_0: Arc::new(local), _folder: None };

    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("exchange");
    let rank_0 = Arc::new(FileExchange::create(&folder).unwrap());
    let others = (1..size).map(|_| Arc::new(FileExchange::open(&folder, LONG).unwrap()) as Arc<dyn Exchange>);
    let file = Ranks { name: "file", others: others.collect(), rank_0, _folder: Some(scratch) };

    let rank_0 = Arc::new(TcpExchange::listen("127.0.0.1:0", &secret()).unwrap());
    let address = rank_0.address().unwrap().to_string();
    let connect = |_| Arc::new(TcpExchange::connect(&address, &secret(), LONG).unwrap()) as Arc<dyn Exchange>;
    let tcp = Ranks { name: "tcp", others: (1..size).map(connect).collect(), rank_0, _folder: None };
    [local, file, tcp]
}

/// Returns the bytes that a rank puts. Their lengths differ, from zero to the maximum.
fn bytes_of(rank: usize) -> Vec<u8> {
    let len = [0, 128, 1 << 20, 65_537][rank % 4];
    (0..len).map(|i| (i * 31 + rank) as u8).collect()
}

#[test]
fn ranks_get_what_others_put() {
    const RANKS: usize = 8;
    for ranks in kinds(RANKS) {
        thread::scope(|threads| {
            for (rank, exchange) in ranks.all().enumerate() {
                threads.spawn(move || {
                    exchange.put(&format!("of/rank {rank} é.."), &bytes_of(rank)).unwrap();
                    for other in (0..RANKS).map(|i| (rank + i) % RANKS) {
                        let got = exchange.get(&format!("of/rank {other} é.."), LONG).unwrap();
                        assert!(
                            got == bytes_of(other),
                            "{}: rank {rank} got other bytes of {other}",
                            ranks.name
                        );
                    }
                });
            }
        });
    }
}

#[test]
fn key_can_be_put_only_once() {
    for ranks in kinds(6) {
        let put = thread::scope(|threads| {
            let puts: Vec<_> = ranks
                .all()
                .enumerate()
                .map(|(rank, exchange)| threads.spawn(move || exchange.put("key", &[rank as u8; 100])))
                .collect();
            puts.into_iter().map(|put| put.join().unwrap()).collect::<Vec<_>>()
        });
        let first = put.iter().position(Result::is_ok).unwrap();
        for (rank, put) in put.iter().enumerate().filter(|&(rank, _)| rank != first) {
            let error = put.as_ref().unwrap_err();
            assert_eq!(
                reason(error),
                &ExchangeError::PutTwice { key: "key".into() },
                "{}: rank {rank}",
                ranks.name
            );
        }
        for exchange in ranks.all() {
            assert_eq!(exchange.get("key", LONG).unwrap(), [first as u8; 100], "{}", ranks.name);
        }
    }
}

#[test]
fn get_ends_at_its_limit_and_names_the_key() {
    for ranks in kinds(2) {
        for exchange in ranks.all() {
            let error = exchange.get("nobody's", SHORT).unwrap_err();
            assert_eq!(reason(&error), &ExchangeError::Late { key: "nobody's".into(), limit: SHORT });
            assert!(error.message().contains("`nobody's`") && error.message().contains("300ms"), "{error}");
            // The exchange still works.
            exchange.put(&format!("{exchange:p}"), b"1").unwrap();
            assert_eq!(exchange.get(&format!("{exchange:p}"), std::time::Duration::ZERO).unwrap(), b"1");
        }
    }
}

#[test]
fn keys_and_values_beyond_their_limits_are_refused() {
    let (longest, too_long) = ("k".repeat(200), "k".repeat(201));
    for ranks in kinds(2) {
        for (rank, exchange) in ranks.all().enumerate() {
            let largest = vec![1; 1 << 20];
            exchange.put(&format!("{rank}{}", &longest[1..]), &largest).unwrap();
            let too_large = exchange.put("large", &[largest, vec![1]].concat()).unwrap_err();
            assert!(
                too_large.message().contains("1048577") && too_large.message().contains("1 MiB"),
                "{too_large}"
            );
            for error in [
                too_large,
                exchange.put(&too_long, b"").unwrap_err(),
                exchange.get(&too_long, LONG).unwrap_err(),
                exchange.put("", b"").unwrap_err(),
                exchange.get("", LONG).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}: {error}", ranks.name);
            }
        }
    }
}

#[test]
fn waiting_rank_delays_no_other() {
    for ranks in kinds(4) {
        let [first, second, third] = &ranks.others[..] else { panic!("three others") };
        thread::scope(|threads| {
            // The first two wait for something, but the third puts it only after it got something else. If a waiting rank
            // delayed others, this would hang.
            let waiting = [first, second].map(|rank| threads.spawn(|| rank.get("last", LONG)));
            ranks.rank_0.put("early", b"e").unwrap();
            assert_eq!(third.get("early", LONG).unwrap(), b"e");
            // A second thread of the first rank is not delayed either.
            assert_eq!(first.get("early", LONG).unwrap(), b"e");
            third.put("last", b"l").unwrap();
            for waiting in waiting {
                assert_eq!(waiting.join().unwrap().unwrap(), b"l");
            }
        });
    }
}
