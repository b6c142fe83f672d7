//! Checksums of images: SHA-256, in hexadecimal digits.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{Error, ErrorKind, Image, Result};
use hmac_sha256::Hash;

/// An image's checksum. It does not match if the image is damaged or comes from another build.
#[derive(Debug)]
pub struct Checksum {
    /// SHA-256 in hexadecimal digits.
    sha256: &'static str,
    /// True once the bytes have matched. We need not check again, because an image inside a program does not change.
    good: AtomicBool,
}

impl Checksum {
    /// Creates the checksum of an image inside the program, from hexadecimal digits.
    pub const fn new(sha256: &'static str) -> Self {
        Self { sha256, good: AtomicBool::new(false) }
    }
}

/// Checks that the image has the bytes that its bindings were written for. This is not a method, because bindings can name
/// the type and must not be able to call it.
///
/// # Errors
/// [`ErrorKind::InvalidModule`] if the image has other bytes.
pub fn check(checksum: &Checksum, image: &Image<'_>) -> Result<()> {
    // Relaxed: no other memory depends on the flag.
    if checksum.good.load(Ordering::Relaxed) {
        return Ok(());
    }
    let found = sha256(image.bytes);
    if found != checksum.sha256 {
        return Err(Error::new(
            ErrorKind::InvalidModule,
            format!(
                "the {} image for {} is damaged or comes from another build: its {} bytes have the SHA-256 \
                 {found}, but the bindings were written for {}. Build it again",
                image.backend,
                image.targets.join(", "),
                image.bytes.len(),
                checksum.sha256
            ),
        ));
    }
    checksum.good.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Hash::hash(bytes).iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
