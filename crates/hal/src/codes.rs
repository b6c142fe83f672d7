//! What a driver's return codes mean, for the drivers that share their numbers.

use crate::ErrorKind;

impl ErrorKind {
    /// Returns the kind of failure that `code` stands for, a `CUresult` or a `hipError_t`.
    ///
    /// HIP took over CUDA's numbers, and both keep them stable between versions, so one table is enough for both backends.
    /// We use integers, because newer drivers return codes that no binding has a name for.
    #[must_use]
    pub const fn from_driver_code(code: i64) -> Self {
        match code {
            1 => Self::InvalidArgument,
            2 => Self::OutOfMemory,
            // Invalid configuration, out of resources, cooperative launch too large, invalid cluster size (in HIP
            // 912 is an invalid texture, which nothing here can cause).
            9 | 701 | 720 | 912 => Self::InvalidLaunch,
            // Insufficient driver, devices that another process holds, system driver mismatch.
            35 | 46 | 803 => Self::DriverUnusable,
            // No device, invalid device.
            100 | 101 => Self::NoDevice,
            // Invalid image, invalid PTX (CUDA) or kernel file (HIP), invalid source, file not found, missing
            // symbol, failed initialisation of a shared object.
            200 | 218 | 300..=303 => Self::InvalidModule,
            // No binary for this GPU, PTX newer than the driver, compiler disabled.
            209 | 222 | 223 => Self::NoImageForDevice,
            500 => Self::KernelNotFound,
            // An uncorrectable memory error; then the faults of kernels, and a context that was destroyed while we used it.
            214 | 700 | 702 | 709 | 710 | 714..=719 => Self::DeviceLost,
            // Peer access or the call itself not supported.
            217 | 801 => Self::Unsupported,
            900..=908 => Self::Captured,
            _ => Self::Driver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_capture_and_the_unknown_are_told_apart() {
        for fault in [700, 702, 710, 716, 719] {
            assert_eq!(ErrorKind::from_driver_code(fault), ErrorKind::DeviceLost);
        }
        for captured in [900, 901, 907, 908] {
            assert_eq!(ErrorKind::from_driver_code(captured), ErrorKind::Captured);
        }
        assert_eq!(ErrorKind::from_driver_code(123_456), ErrorKind::Driver);
        assert_eq!(ErrorKind::from_driver_code(-1), ErrorKind::Driver);
    }
}
