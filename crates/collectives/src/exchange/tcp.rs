//! The exchange over TCP.

mod channel;
mod client;
mod message;
mod secret;
mod server;

pub use secret::Secret;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use std::{fmt, io};

use gpustream::{Error, Result};

use self::client::Client;
use self::server::Server;
use super::{Exchange, ExchangeError, check_key, check_value, local};

/// An exchange for processes that can reach rank 0 over TCP.
///
/// Rank 0 [listens](Self::listen) at the address that you give it, and nowhere else, and stores what is put.
/// The other ranks [connect](Self::connect). Both sides of a connection prove that they know the [`Secret`]
/// (with HMAC-SHA256, so the secret itself is never sent), and every message carries a code, so that changes
/// are detected. Nothing is encrypted.
///
/// Rank 0 needs a thread and a descriptor for each connection, up to 4096. Every other rank has one
/// connection, or as many as it has threads that use the exchange at once. So for 1,024 ranks, `ulimit -n`
/// must allow rank 0 that many descriptors. Rank 0 closes a connection that does not prove within ten seconds
/// that it knows the secret, and accepts at most 256 such connections at a time.
///
/// If rank 0 drops its exchange, its threads end and all values are gone. So rank 0 must keep the exchange
/// until all ranks have what they need. If rank 0 is gone, other ranks get
/// [`ExchangeError::Gone`](super::ExchangeError::Gone).
///
/// ```
/// use std::time::Duration;
/// use gpustream_collectives::{Exchange, Secret, TcpExchange};
///
/// let secret = Secret::new("made by `openssl rand -hex 32`")?;
/// let rank_0 = TcpExchange::listen("127.0.0.1:0", &secret)?;           // port 0 lets the system choose one
/// let address = rank_0.address().expect("rank 0 listens").to_string();
///
/// let rank_1 = TcpExchange::connect(&address, &secret, Duration::from_secs(10))?;
/// rank_0.put("id", &[7; 128])?;
/// assert_eq!(rank_1.get("id", Duration::from_secs(10))?, [7; 128]);
/// # Ok::<(), gpustream::Error>(())
/// ```
pub struct TcpExchange(Side);

enum Side {
    Listens(Server),
    Connects(Client),
}

impl TcpExchange {
    /// Listens at `address`, as rank 0 must: `HOST:PORT`, such as `10.0.0.1:29500` or `[::1]:29500`. If a
    /// host name has several addresses, we use the first. Beware that on many systems a host's own name means
    /// the loopback interface, which other hosts cannot reach.
    ///
    /// # Errors
    /// [`External`](gpustream::ErrorKind::External), with a [`std::io::Error`], if we cannot listen at the address.
    pub fn listen(address: &str, secret: &Secret) -> Result<Self> {
        let server = TcpListener::bind(address).and_then(|listener| Server::start(listener, secret.key()));
        match server {
            Ok(server) => Ok(Self(Side::Listens(server))),
            Err(error) => {
                let context = format!(
                    "rank 0 cannot listen at {address} for the exchange; name an address of rank 0's own host"
                );
                Err(Error::external(error).with_context(context))
            }
        }
    }

    /// Listens at the first of these addresses whose port is free.
    pub(super) fn listen_at_first(addresses: &[String], secret: &Secret) -> Result<Self> {
        for address in addresses {
            match Self::listen(address, secret) {
                Err(error) if is_in_use(&error) => {}
                listens => return listens,
            }
        }
        Err(ExchangeError::NoFreePort { addresses: range(addresses) }.into())
    }

    /// Connects to rank 0 at whichever of these addresses it listens. At the others there may be any other
    /// program.
    pub(super) fn find(addresses: &[String], secret: &Secret, limit: Duration) -> Result<Self> {
        Client::find(addresses, &secret.key(), limit).map(|client| Self(Side::Connects(client)))
    }

    /// Connects to rank 0, as all other ranks must. Retries until rank 0 listens, at most for `limit` plus
    /// the time that the system takes to look up a host name. Blocks until then. A put later has the same
    /// time limit.
    ///
    /// # Errors
    /// [`External`](gpustream::ErrorKind::External), with an [`ExchangeError`](super::ExchangeError): `Unreachable` if the limit has passed, `WrongSecret` if rank 0 has another secret.
    pub fn connect(address: &str, secret: &Secret, limit: Duration) -> Result<Self> {
        Client::connect(address, secret.key(), limit).map(|client| Self(Side::Connects(client)))
    }

    /// Returns the address that this process listens at, if it is rank 0.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Side::Listens(server) => Some(server.address),
            Side::Connects(_) => None,
        }
    }
}

/// Returns true if an error means that a port is taken.
fn is_in_use(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Returns text for some addresses.
fn range(addresses: &[String]) -> String {
    match addresses {
        [first, .., last] => format!("{first} to {last}"),
        addresses => addresses.concat(),
    }
}

impl fmt::Debug for TcpExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TcpExchange");
        match &self.0 {
            Side::Listens(server) => {
                shown.field("listens", &server.address).field("keys", &server.store().len())
            }
            Side::Connects(client) => shown.field("connects", &client.address),
        };
        shown.finish()
    }
}

impl Exchange for TcpExchange {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            Side::Listens(server) => local::put(server.store(), key, bytes),
            Side::Connects(client) => {
                check_key(key)?;
                check_value(key, bytes)?;
                let put = client.put(key, bytes);
                put.map_err(|error| error.with_context(format_args!("cannot put the key `{key}`")))
            }
        }
    }

    /// As the trait says. If this rank must ask rank 0, it returns within `limit` and one second.
    fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        match &self.0 {
            Side::Listens(server) => local::get(server.store(), key, limit),
            Side::Connects(client) => {
                check_key(key)?;
                let got = client.get(key, limit);
                got.map_err(|error| error.with_context(format_args!("cannot get the key `{key}`")))
            }
        }
    }
}
