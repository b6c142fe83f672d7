//! Your own struct must derive `gpustream::Pod` before you can use it as an element.
use gpustream::{Buffer, Result, Stream};

#[derive(Clone, Copy)]
#[repr(C)]
struct Particle {
    place: [f32; 3],
    mass: f32,
}

fn upload(s: &Stream, values: &[Particle]) -> Result<Buffer<Particle>> {
    s.upload(values)
}

fn main() {}
