//! PNG files and their pixels.

use std::io::Cursor;

use anyhow::{Context, Result, ensure};
use png::{BitDepth, ColorType, Transformations};

/// An image of four bytes per pixel: red, green, blue and alpha, from the lowest up.
#[derive(Clone, PartialEq)]
pub struct Image {
    /// How many pixels a row has.
    pub width: usize,
    /// How many rows there are.
    pub height: usize,
    /// The pixels, row by row.
    pub pixels: Vec<u32>,
}

impl Image {
    /// Returns how many pixels a PNG file says that it has.
    pub fn pixels_of(file: &[u8]) -> Result<usize> {
        let reader = png::Decoder::new(Cursor::new(file)).read_info().context("this is no PNG file")?;
        Ok(reader.info().width as usize * reader.info().height as usize)
    }

    /// Reads a PNG file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let mut decoder = png::Decoder::new(Cursor::new(file));
        decoder.set_transformations(Transformations::normalize_to_color8() | Transformations::ALPHA);
        let mut reader = decoder.read_info().context("this is no PNG file")?;
        let mut samples = vec![0; reader.output_buffer_size().context("the image is too large")?];
        let info = reader.next_frame(&mut samples)?;
        let samples = &samples[..info.buffer_size()];
        let pixels = match info.color_type {
            ColorType::Rgba => samples.as_chunks().0.iter().map(|pixel| u32::from_le_bytes(*pixel)).collect(),
            ColorType::GrayscaleAlpha => {
                let wide = |[value, alpha]: &[u8; 2]| u32::from_le_bytes([*value, *value, *value, *alpha]);
                samples.as_chunks().0.iter().map(wide).collect()
            }
            other => anyhow::bail!("images of type {other:?} are not supported"),
        };
        let image = Self { width: info.width as usize, height: info.height as usize, pixels };
        ensure!(image.pixels.len() == image.width * image.height, "the image is cut off");
        Ok(image)
    }

    /// Writes a PNG file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width.try_into()?, self.height.try_into()?);
        encoder.set_color(ColorType::Rgba);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let samples: Vec<u8> = self.pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        encoder.write_header()?.write_image_data(&samples)?;
        Ok(file)
    }

    /// Blurs on the host what the kernels blur on the device, to check them.
    #[must_use]
    pub fn blurred(&self, radius: usize) -> Self {
        let mean = |pixels: &mut dyn ExactSizeIterator<Item = u32>| {
            let count = pixels.len() as u32;
            let mut sums = [0; 4];
            for pixel in pixels {
                sums.iter_mut().zip(pixel.to_le_bytes()).for_each(|(sum, value)| *sum += u32::from(value));
            }
            u32::from_le_bytes(sums.map(|sum| ((sum + count / 2) / count) as u8))
        };
        let Self { width, height, .. } = *self;
        let near = |at: usize, end: usize| at.saturating_sub(radius)..(at + radius + 1).min(end);
        let each = |value: &dyn Fn(usize, usize) -> u32| {
            (0..width * height).map(|at| value(at % width, at / width)).collect::<Vec<_>>()
        };
        let rows = each(&|x, y| mean(&mut near(x, width).map(|x| self.pixels[y * width + x])));
        let pixels = each(&|x, y| mean(&mut near(y, height).map(|y| rows[y * width + x])));
        Self { width, height, pixels }
    }
}
