//! The messages between rank 0 and the others.

use std::time::Duration;

use super::super::store::Put;
use super::super::{MAX_KEY, MAX_VALUE};

/// A rank's message to rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Put {
        key: &'a str,
        bytes: &'a [u8],
    },
    Get {
        key: &'a str,
        /// How long rank 0 may wait for the key. We send it in whole milliseconds.
        wait: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    Put(Put),
    Found(&'a [u8]),
    /// No rank put the key while rank 0 was waiting.
    NotYet,
}

const PUT: u8 = 0;
const GET: u8 = 1;

const STORED: u8 = 0;
const TWICE: u8 = 1;
const FULL: u8 = 2;
const FOUND: u8 = 3;
const NOT_YET: u8 = 4;

impl<'a> Request<'a> {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let joined = |kind: u8, key: &str, rest: &[u8]| {
            [&[kind], &(key.len() as u16).to_le_bytes()[..], key.as_bytes(), rest].concat()
        };
        match self {
            Self::Put { key, bytes } => joined(PUT, key, bytes),
            Self::Get { key, wait } => {
                let milliseconds = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
                joined(GET, key, &milliseconds.to_le_bytes())
            }
        }
    }

    /// Parses a request. Returns `None` if the message is not one.
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        let (&[kind, low, high], rest) = message.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        let key = std::str::from_utf8(key).ok().filter(|key| (1..=MAX_KEY).contains(&key.len()))?;
        match kind {
            PUT if rest.len() <= MAX_VALUE => Some(Self::Put { key, bytes: rest }),
            GET => {
                let milliseconds = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Self::Get { key, wait: Duration::from_millis(milliseconds.into()) })
            }
            _ => None,
        }
    }
}

impl<'a> Answer<'a> {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Put(Put::Stored) => vec![STORED],
            Self::Put(Put::Twice) => vec![TWICE],
            Self::Put(Put::Full) => vec![FULL],
            Self::Found(bytes) => [&[FOUND], bytes].concat(),
            Self::NotYet => vec![NOT_YET],
        }
    }

    /// Parses an answer. Returns `None` if the message is not one.
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        match message.split_first()? {
            (&STORED, []) => Some(Self::Put(Put::Stored)),
            (&TWICE, []) => Some(Self::Put(Put::Twice)),
            (&FULL, []) => Some(Self::Put(Put::Full)),
            (&FOUND, bytes) => Some(Self::Found(bytes)),
            (&NOT_YET, []) => Some(Self::NotYet),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let wait = Duration::from_millis(1500);
        for request in [Request::Put { key: "k", bytes: b"" }, Request::Get { key: "ключ", wait }] {
            assert_eq!(Request::read(&request.to_bytes()), Some(request));
        }
        let puts = [Put::Stored, Put::Twice, Put::Full].map(Answer::Put);
        for answer in puts.into_iter().chain([Answer::Found(b"bytes"), Answer::NotYet]) {
            assert_eq!(Answer::read(&answer.to_bytes()), Some(answer));
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let long = Request::Put { key: "k", bytes: &vec![0; MAX_VALUE + 1] }.to_bytes();
        let no_key = Request::Put { key: "", bytes: b"" }.to_bytes();
        for bad in [
            &[][..],
            &[PUT, 9, 0, b'k'],
            &[PUT, 1, 0, 0xff],
            &[GET, 1, 0, b'k', 0],
            &[9, 1, 0, b'k'],
            &long,
            &no_key,
        ] {
            assert_eq!(Request::read(bad), None);
        }
        for bad in [&[][..], &[STORED, 0], &[9]] {
            assert_eq!(Answer::read(bad), None);
        }
    }
}
