//! Checks an image's header, because the driver trusts the lengths inside. If you passed it half a file, it could read
//! past the end.

use gpustream_hal::{ErrorKind, Result};

use crate::error::error;

const ELF: [u8; 4] = *b"\x7fELF";
const FATBIN: u32 = 0xba55_ed50;

/// An image in the form that the driver takes: aligned, and with a NUL after it, which ends PTX.
pub(crate) struct Aligned {
    words: Vec<u64>,
}

impl Aligned {
    /// Checks the header of `image`, and copies it.
    pub(crate) fn new(image: &[u8]) -> Result<Self> {
        if let Some(expected) = expected_len(image)
            && expected > image.len() as u64
        {
            let text = format!(
                "the image is cut short: it has {} bytes, but its header says {expected}; build the kernels again",
                image.len()
            );
            return Err(error(ErrorKind::InvalidModule, text));
        }
        if image.is_empty() {
            return Err(error(ErrorKind::InvalidModule, "the image is empty; build the kernels again"));
        }
        // The words have at least one byte more than the image, and the extra bytes are zero.
        let mut words = vec![0u64; image.len() / 8 + 1];
        for (word, bytes) in words.iter_mut().zip(image.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        Ok(Self { words })
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }
}

/// Returns the length that a cubin or fatbin states; `None` for PTX, which is text.
fn expected_len(image: &[u8]) -> Option<u64> {
    if image.starts_with(&ELF) {
        // A 64-bit ELF ends with the section headers: e_shnum entries of e_shentsize bytes, at e_shoff.
        let (Some(offset), Some(size), Some(count)) = (le64(image, 40), le16(image, 58), le16(image, 60))
        else {
            return Some(64);
        };
        return offset.checked_add(size * count).or(Some(u64::MAX));
    }
    if le32(image, 0) == Some(FATBIN) {
        // The header is: u32 magic, u16 version, u16 header size, u64 size of the rest.
        let (Some(header), Some(body)) = (le16(image, 6), le64(image, 8)) else { return Some(16) };
        return header.checked_add(body).or(Some(u64::MAX));
    }
    None
}

fn le16(image: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u16::from_le_bytes(image.get(at..at + 2)?.try_into().ok()?)))
}

fn le32(image: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?))
}

fn le64(image: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(image.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fatbin(body: usize) -> Vec<u8> {
        let mut image = FATBIN.to_le_bytes().to_vec();
        image.extend(1u16.to_le_bytes());
        image.extend(16u16.to_le_bytes());
        image.extend((body as u64).to_le_bytes());
        image.resize(16 + body, 7);
        image
    }

    #[test]
    fn fatbin_cut_short_is_refused_and_a_whole_one_is_not() {
        let image = fatbin(100);
        assert!(Aligned::new(&image).is_ok());
        for cut in [0, 5, 15, 16, 115] {
            if cut == 0 || cut >= 4 {
                let error = Aligned::new(&image[..cut]).err();
                assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::InvalidModule), "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_elf_header_with_an_absurd_offset_is_refused() {
        let mut image = vec![0u8; 128];
        image[..4].copy_from_slice(&ELF);
        image[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        image[58] = 64;
        image[60] = 2;
        assert!(Aligned::new(&image).is_err());
    }

    #[test]
    fn text_ends_in_a_nul_at_every_length() {
        for len in 1..20 {
            let text = vec![b'x'; len];
            let image = Aligned::new(&text).unwrap();
            // SAFETY: the copy has at least one byte more than the text.
            let copy = unsafe { std::slice::from_raw_parts(image.as_ptr(), len + 1) };
            assert_eq!(&copy[..len], &text[..]);
            assert_eq!(copy[len], 0);
        }
    }
}
