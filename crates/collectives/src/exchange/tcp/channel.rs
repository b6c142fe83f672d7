//! Authenticated connections: both sides have proved that they know the secret, and every message carries a
//! code.
//!
//! Rank 0 opens with a greeting and random bytes. The other side answers with its own random bytes and a code
//! over both, computed with the secret. Rank 0 answers with another code over both. The messages' key is
//! derived from the secret and both sides' random bytes. Each code covers the direction and the number of its
//! message, so an attacker cannot replay a message in another connection, direction or position.
//!
//! A message consists of its length in four bytes (little-endian), its bytes, and its code. Nothing is
//! encrypted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::super::{MAX_KEY, MAX_VALUE};
use super::secret::{CODE, Key};
use crate::deadline::Deadline;

/// What rank 0 sends first. It includes the version of the protocol.
const GREETING: &[u8; 21] = b"gpustream exchange 1\n";
/// How many random bytes each side sends.
const RANDOM: usize = 32;
/// The answers to a side that has proved that it knows the secret, and to one that has not.
const ACCEPTED: u8 = 1;
const REFUSED: u8 = 0;
/// The longest message: a key and a value, and a few bytes around them.
const MAX_MESSAGE: usize = MAX_KEY + MAX_VALUE + 16;
/// How long a message may take from its first byte to its last.
const MESSAGE_LIMIT: Duration = Duration::from_secs(30);

/// A connection that both sides trust.
pub(super) struct Channel {
    socket: Socket,
    key: Key,
    side: Side,
    sent: u64,
    received: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The side that accepted the connection: rank 0.
    Server,
    Client,
}

/// Why we do not trust a connection.
pub(super) enum Distrust {
    /// The other side is a rank 0, but it rejected our secret.
    WrongSecret,
    Io(io::Error),
}

impl From<io::Error> for Distrust {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Channel {
    /// Performs the handshake on a connection that rank 0 accepted, before the deadline.
    pub(super) fn accept(stream: Arc<TcpStream>, secret: &Key, deadline: Deadline) -> io::Result<Self> {
        let mut socket = Socket::new(stream, deadline)?;
        let ours = random()?;
        socket.write_all(&[&GREETING[..], &ours].concat())?;
        let (theirs, code) = (socket.read_array::<RANDOM>()?, socket.read_array::<CODE>()?);
        if !secret.is_code(&[b"client", &ours, &theirs], &code) {
            socket.write_all(&[REFUSED])?;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the other side has another secret"));
        }
        let code = secret.code(&[b"server", &ours, &theirs]);
        socket.write_all(&[&[ACCEPTED], &code[..]].concat())?;
        let key = secret.derive(&[b"messages", &ours, &theirs]);
        Ok(Self { socket, key, side: Side::Server, sent: 0, received: 0 })
    }

    /// Performs the handshake on a connection to rank 0, before the deadline.
    pub(super) fn connect(stream: TcpStream, secret: &Key, deadline: Deadline) -> Result<Self, Distrust> {
        let mut socket = Socket::new(Arc::new(stream), deadline)?;
        if socket.read_array()? != *GREETING {
            return Err(invalid("the program that listens there is not rank 0").into());
        }
        let (ours, theirs) = (random()?, socket.read_array::<RANDOM>()?);
        let code = secret.code(&[b"client", &theirs, &ours]);
        socket.write_all(&[ours, code].concat())?;
        if socket.read_array()? != [ACCEPTED] {
            return Err(Distrust::WrongSecret);
        }
        if !secret.is_code(&[b"server", &theirs, &ours], &socket.read_array::<CODE>()?) {
            return Err(invalid("the program that listens there does not know the secret").into());
        }
        let key = secret.derive(&[b"messages", &theirs, &ours]);
        Ok(Self { socket, key, side: Side::Client, sent: 0, received: 0 })
    }

    /// Sends a message before the deadline.
    pub(super) fn send(&mut self, message: &[u8], deadline: Deadline) -> io::Result<()> {
        let length = u32::try_from(message.len()).map_err(io::Error::other)?.to_le_bytes();
        let code = self.key.code(&[&[self.side as u8], &self.sent.to_le_bytes(), &length, message]);
        self.sent += 1;
        self.socket.deadline = deadline.or_after(MESSAGE_LIMIT);
        self.socket.write_all(&[&length, message, &code].concat())
    }

    /// Waits for a message until the deadline.
    pub(super) fn receive(&mut self, deadline: Deadline) -> io::Result<Vec<u8>> {
        self.socket.deadline = deadline;
        let [first] = self.socket.read_array()?;
        self.socket.deadline = deadline.or_after(MESSAGE_LIMIT);
        let [second, third, fourth] = self.socket.read_array()?;
        let length = [first, second, third, fourth];
        let len = u32::from_le_bytes(length) as usize;
        if len > MAX_MESSAGE {
            return Err(invalid("a message is too long"));
        }
        // The vector grows with the bytes that arrive. We do not trust the announced length, because a
        // stranger could use it to make us allocate.
        let mut message = Vec::new();
        if (&mut self.socket).take(len as u64).read_to_end(&mut message)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let code = self.socket.read_array::<CODE>()?;
        let other = if self.side == Side::Server { Side::Client } else { Side::Server };
        if !self.key.is_code(&[&[other as u8], &self.received.to_le_bytes(), &length, &message], &code) {
            return Err(invalid("a message was changed on the way"));
        }
        self.received += 1;
        Ok(message)
    }
}

/// A connection whose reads and writes end at a deadline, however slowly bytes trickle.
struct Socket {
    stream: Arc<TcpStream>,
    deadline: Deadline,
}

impl Socket {
    fn new(stream: Arc<TcpStream>, deadline: Deadline) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, deadline })
    }

    fn read_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.deadline.left()?)?;
        (&*self.stream).read(bytes).map_err(late)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.deadline.left()?)?;
        (&*self.stream).write(bytes).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Other owners may still hold the stream, so dropping it would not close it. An error means that the
        // connection is already closed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Converts a socket's error: "would block" means that its time limit has passed.
fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

fn random() -> io::Result<[u8; RANDOM]> {
    let mut bytes = [0; RANDOM];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::super::secret::Secret;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Returns rank 0's side and another rank's side of a connection.
    fn pair() -> (Channel, Channel) {
        let secret = Secret::new("a secret of the tests").unwrap().key();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = Arc::new(listener.accept().unwrap().0);
        let deadline = Deadline::after(LIMIT);
        thread::scope(|threads| {
            let server = threads.spawn(|| Channel::accept(accepted, &secret, deadline));
            let client = Channel::connect(stream, &secret, deadline);
            let client = client.unwrap_or_else(|_| panic!("the client trusts nobody"));
            (server.join().unwrap().unwrap(), client)
        })
    }

    /// Writes bytes without the channel's knowledge, and returns how the other side reacts.
    fn receive_raw(to: &mut Channel, from: &Channel, bytes: &[u8]) -> io::ErrorKind {
        (&*from.socket.stream).write_all(bytes).unwrap();
        to.receive(Deadline::after(LIMIT)).unwrap_err().kind()
    }

    #[test]
    fn messages_arrive_in_both_directions() {
        let (mut server, mut client) = pair();
        for text in [&b"one"[..], b"", &vec![7; 100_000]] {
            client.send(text, Deadline::after(LIMIT)).unwrap();
            assert_eq!(server.receive(Deadline::after(LIMIT)).unwrap(), text);
            server.send(text, Deadline::after(LIMIT)).unwrap();
            assert_eq!(client.receive(Deadline::after(LIMIT)).unwrap(), text);
        }
    }

    #[test]
    fn changed_repeated_and_reflected_messages_are_refused() {
        let sealed = |channel: &Channel, side: Side, number: u64, text: &[u8]| {
            let length = (text.len() as u32).to_le_bytes();
            let code = channel.key.code(&[&[side as u8], &number.to_le_bytes(), &length, text]);
            [&length, text, &code].concat()
        };
        let (mut server, client) = pair();
        let mut changed = sealed(&client, Side::Client, 0, b"text");
        changed[5] ^= 1;
        assert_eq!(receive_raw(&mut server, &client, &changed), io::ErrorKind::InvalidData);

        let (mut server, client) = pair();
        let first = sealed(&client, Side::Client, 0, b"text");
        (&*client.socket.stream).write_all(&first).unwrap();
        assert_eq!(server.receive(Deadline::after(LIMIT)).unwrap(), b"text");
        assert_eq!(receive_raw(&mut server, &client, &first), io::ErrorKind::InvalidData);

        let (mut server, client) = pair();
        let reflected = sealed(&client, Side::Server, 0, b"text");
        assert_eq!(receive_raw(&mut server, &client, &reflected), io::ErrorKind::InvalidData);
    }

    #[test]
    fn long_and_broken_off_messages_are_refused() {
        let (mut server, client) = pair();
        assert_eq!(receive_raw(&mut server, &client, &[0xff; 4]), io::ErrorKind::InvalidData);
        let (mut server, client) = pair();
        (&*client.socket.stream).write_all(&[100, 0, 0, 0, 1, 2, 3]).unwrap();
        drop(client);
        assert_eq!(server.receive(Deadline::after(LIMIT)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
