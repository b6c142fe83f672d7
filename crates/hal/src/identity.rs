//! How a vendor's tools name a device: by its UUID and its place on the PCI bus.
//!
//! A device's ordinal depends on what the environment hides (`CUDA_VISIBLE_DEVICES`) and on the driver's order. These names
//! do not, so operators and device plugins use them instead.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// A device's names, as far as the driver tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The UUID as the vendor's tools write it: `GPU-` and 32 digits in five groups (NVIDIA), `MIG-` and the same for an
    /// instance of a divided GPU, `GPU-` and 16 digits (AMD).
    pub uuid: Option<String>,
    /// The place on the PCI bus. The instances of a divided GPU all have the GPU's.
    pub pci: Option<PciAddress>,
}

impl Identity {
    /// Returns true if `uuid` is this device's UUID. We ignore case, and whether it begins with `GPU-` or `MIG-`, because
    /// the digits alone are unique.
    #[must_use]
    pub fn has_uuid(&self, uuid: &str) -> bool {
        let digits = |uuid: &str| uuid.split_once('-').map(|(_, digits)| digits.to_ascii_lowercase());
        digits(uuid).is_some_and(|wanted| self.uuid.as_deref().and_then(digits) == Some(wanted))
    }
}

/// Writes a UUID as NVIDIA's tools do, with the prefix `GPU-` or `MIG-`.
#[must_use]
pub fn uuid_text(prefix: &str, bytes: [u8; 16]) -> String {
    let mut text = prefix.to_owned();
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A place on the PCI bus.
///
/// ```
/// use gpustream_hal::PciAddress;
/// let address: PciAddress = "0000:3B:00.0".parse()?;
/// assert_eq!(address.to_string(), "0000:3b:00.0");
/// assert_eq!("3b:00.0".parse::<PciAddress>()?, address);
/// # Ok::<(), gpustream_hal::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// The domain; 0 on most machines.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device on the bus, below 32.
    pub device: u8,
    /// The device's function, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    /// As in `/sys/bus/pci/devices`: `0000:3b:00.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            let message = format!(
                "`{text}` is not a PCI address; write domain, bus, device and function, for example 0000:3b:00.0"
            );
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

impl PciAddress {
    fn parse(text: &str) -> Option<Self> {
        // We check the digits ourselves, because the standard library's parser also takes a sign and any number of zeros.
        let number = |text: &str, digits: usize, below: u64| {
            let is_number =
                (1..=digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u32::from_str_radix(text, 16).ok().filter(|&number| is_number && u64::from(number) < below)
        };
        let small = |text, below| number(text, 2, below).map(|number| number as u8);
        let (place, function) = text.split_once('.')?;
        let (bus, device) = place.rsplit_once(':')?;
        let (domain, bus) = bus.split_once(':').unwrap_or(("0", bus));
        Some(Self {
            domain: number(domain, 8, 1 << 32)?,
            bus: small(bus, 256)?,
            device: small(device, 32)?,
            function: small(function, 8)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_all_tools_write_them_and_nothing_else_is() {
        let expected = PciAddress { domain: 0, bus: 0x3b, device: 0x1f, function: 7 };
        for text in ["0000:3b:1f.7", "00000000:3B:1F.7", "3b:1f.7"] {
            assert_eq!(text.parse::<PciAddress>().unwrap(), expected);
        }
        let far: PciAddress = "10000:01:00.0".parse().unwrap();
        assert_eq!((far.domain, far.to_string().as_str()), (0x10000, "10000:01:00.0"));
        for text in [
            "",
            ".",
            "0",
            "3b",
            "3b:00",
            "3b.0",
            "3b:20.0",
            "3b:00.8",
            "1:2",
            "+3b:00.0",
            "3b:00.0.0",
            "1:2:3:4.0",
            "000000000:3b:00.0",
            "13b:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_uuid_is_known_by_its_digits() {
        let bytes: [u8; 16] = std::array::from_fn(|index| (index * 17) as u8);
        let uuid = uuid_text("GPU-", bytes);
        assert_eq!(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
        let identity = Identity { uuid: Some(uuid.clone()), pci: None };
        for same in [&uuid, &uuid.to_uppercase(), &uuid.replace("GPU", "MIG")] {
            assert!(identity.has_uuid(same), "{same}");
        }
        for other in ["GPU-", "GPU", "", &uuid[..20], &uuid.replace('f', "e")] {
            assert!(!identity.has_uuid(other), "{other}");
        }
        assert!(!Identity::default().has_uuid("GPU-"));
    }
}
