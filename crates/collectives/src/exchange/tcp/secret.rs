//! The secret that ranks share, and the codes that authenticate a message.

use std::fmt;
use std::sync::Arc;

use gpustream::Result;
use hmac_sha256::HMAC;

use crate::failure::invalid;

/// How long a secret must be, in bytes.
const SHORTEST: usize = 16;

pub(super) const CODE: usize = 32;

/// A text that all ranks of a [`TcpExchange`](super::TcpExchange) know and no other program does. It must
/// have at least 16 bytes and should be random; `openssl rand -hex 32` makes a good one. Do not use a short
/// or guessable text, because a program that records the connections can try secrets offline.
///
/// ```
/// use gpustream_collectives::Secret;
/// let secret = Secret::new("5e1f0c9a66d24b1f8f0e3b7a2c4d9e10")?;
/// assert_eq!(format!("{secret:?}"), "Secret(..)");
/// assert!(Secret::new("1234").is_err());
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Returns a secret with this text.
    ///
    /// # Errors
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if it has less than 16 bytes.
    pub fn new(text: &str) -> Result<Self> {
        if text.len() < SHORTEST {
            return invalid(format!(
                "the ranks' secret has {} bytes, but needs at least {SHORTEST}; make one with `openssl rand -hex 32`, and give \
                 it to all ranks as GPUSTREAM_EXCHANGE_SECRET",
                text.len()
            ));
        }
        Ok(Self(text.into()))
    }

    /// Derives a run's secret from this one.
    pub(in super::super) fn of_run(&self, run: &str) -> Self {
        Self::of_bytes(self.key().code(&[b"run", run.as_bytes()]))
    }

    /// Returns the secret whose text is these bytes in hexadecimal.
    pub(in super::super) fn of_bytes(bytes: [u8; 32]) -> Self {
        let [high, low] =
            [0, 16].map(|at| bytes[at..].first_chunk().map_or(0, |half| u128::from_be_bytes(*half)));
        Self(format!("{high:032x}{low:032x}").into())
    }

    pub(in super::super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn key(&self) -> Key {
        Key::new(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// An HMAC-SHA256 key.
#[derive(Clone)]
pub(super) struct Key(Box<[u8]>);

impl Key {
    fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the code of a message, which is the concatenation of `parts`.
    pub(super) fn code(&self, parts: &[&[u8]]) -> [u8; CODE] {
        self.over(parts).finalize()
    }

    /// Returns true if `code` belongs to the message. It takes equally long wherever the codes differ,
    /// because an attacker could otherwise guess a code byte by byte.
    pub(super) fn is_code(&self, parts: &[&[u8]], code: &[u8; CODE]) -> bool {
        self.over(parts).finalize_verify(code)
    }

    /// Derives a key from this one and a message.
    pub(super) fn derive(&self, parts: &[&[u8]]) -> Self {
        Self::new(&self.code(parts))
    }

    fn over(&self, parts: &[&[u8]]) -> HMAC {
        let mut mac = HMAC::new(&self.0);
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sixth and second test cases of RFC 4231: keys longer and shorter than a block.
    #[test]
    fn codes_are_those_of_the_standard() {
        let long =
            Key::new(&[0xaa; 131]).code(&[b"Test Using Larger Than Block-Size Key - ", b"Hash Key First"]);
        let (high, low) =
            (0x60e4_3159_1ee0_b67f_0d8a_26aa_cbf5_b77f, 0x8e0b_c621_3728_c514_0546_040f_0ee3_7f54_u128);
        assert_eq!(long, [u128::to_be_bytes(high), low.to_be_bytes()].concat()[..]);
        let short = Key::new(b"Jefe").code(&[b"what do ya want for nothing?"]);
        let (high, low) =
            (0x5bdc_c146_bf60_754e_6a04_2426_0895_75c7, 0x5a00_3f08_9d27_3983_9dec_58b9_64ec_3843_u128);
        assert_eq!(short, [u128::to_be_bytes(high), low.to_be_bytes()].concat()[..]);
        assert!(Key::new(b"Jefe").is_code(&[b"what do ya want for ", b"nothing?"], &short));
        assert!(!Key::new(b"Jefe").is_code(&[b"what do ya want for nothing"], &short));
    }
}
