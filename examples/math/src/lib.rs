//! What the examples share: options, pictures, and the kernels' bindings. `beside_cudarc` trains the network too.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use gpustream::Device;

/// Kernels of `spectral`.
pub mod flow {
    gpustream::include_kernels!("flow");
}

pub mod network;
pub mod spirals;

/// The option that chooses a device.
#[derive(clap::Args)]
pub struct DeviceArg {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl DeviceArg {
    /// Opens the device, and says which it is.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(&self) -> Result<Device> {
        let device = self.device.as_deref().map_or_else(Device::best, Device::open)?;
        println!("{}", device.info());
        Ok(device)
    }
}

/// Writes a picture of 256 colours as PNG, row by row. Makes its folder.
///
/// # Errors
/// Those of the file.
pub fn write_png(path: &Path, width: usize, palette: Vec<u8>, pixels: &[u8]) -> Result<()> {
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(path)?);
        let height = pixels.len() / width;
        let mut encoder = png::Encoder::new(&mut file, u32::try_from(width)?, u32::try_from(height)?);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette);
        encoder.write_header()?.write_image_data(pixels)?;
        file.flush()?; // a drop would lose the error
        anyhow::Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
