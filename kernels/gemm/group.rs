//! Many small products in one launch.
//!
//! A kernel has a fixed number of parameters, and a group any number of matrices. So one parameter has all addresses, and we name the
//! memory as for a call of a foreign library.

use std::ffi::c_void;
use std::ptr::from_ref;

use gpustream::{Arg, AsView as _, Kernel, Plain, Result, Stream};

use super::Multiply;
use super::forms::{
    Call, Form, Halves, LARGE, LARGE_OF_FLOATS, Launched, MOST_BLOCKS, SMALL_OF_FLOATS, halves, small,
    strided,
};

/// How many products a launch takes, as the kernels' `Group` says.
const MOST: usize = 28;

const LABEL: &str = "multiply_matrices_grouped";

/// Makes a kernel's parameter of products and the numbers of their first tiles.
macro_rules! group {
    ($kernels:ident, $calls:ident, $firsts:expr, $tiles:expr) => {{
        let mut group = $kernels::Group { count: $calls.len() as u32, tiles: $tiles, ..Default::default() };
        for ((part, call), first) in group.parts.iter_mut().zip(&*$calls).zip($firsts) {
            *part = $kernels::Part {
                a: call.a.0.as_raw().0,
                b: call.b.0.as_raw().0,
                c: call.c.0.view().as_raw().0,
                bias: call.bias.as_ref().map_or(0, |bias| bias.as_raw().0),
                of_a: call.a.1.into(),
                of_b: call.b.1.into(),
                of_c: call.c.1.into(),
                first,
                alpha: call.alpha,
                beta: call.beta,
                batch: call.size[2] as u32,
                activation: call.activation,
                a_by_columns: call.by_columns[0].into(),
                b_by_columns: call.by_columns[1].into(),
            };
        }
        group
    }};
}

/// Returns where the tiles of each product begin, and how many there are.
fn tiles<T: Multiply>(form: &Form, calls: &[Call<'_, T>]) -> (Vec<usize>, usize) {
    let mut all = 0_usize;
    let firsts = calls.iter().map(|call| {
        let first = all;
        all = all.saturating_add(form.tiles(call.size));
        first
    });
    (firsts.collect(), all)
}

/// Launches a kernel that computes `calls`, whose addresses are in `group`.
fn enqueue<T: Multiply, G: Plain>(
    stream: &Stream,
    kernel: &Kernel,
    (form, tiles): (&Form, usize),
    group: &G,
    calls: &mut [Call<'_, T>],
) -> Result<()> {
    let config = form.of_blocks(stream, tiles.min(MOST_BLOCKS) as u32).resolve(stream.device().info())?;
    let mut memory = Vec::with_capacity(4 * calls.len());
    for call in calls {
        memory.extend([Arg::read(&call.a.0), Arg::read(&call.b.0), Arg::write(&mut call.c.0)]);
        memory.extend(call.bias.as_ref().map(Arg::read));
    }
    let args: [*mut c_void; 2] =
        [from_ref(group).cast_mut().cast(), from_ref(&form.shared).cast_mut().cast()];
    let device = stream.device().raw();
    // SAFETY: the kernel goes to the stream that we get. It reads and writes the matrices in `group`, which `memory` names, and stays
    // inside of them, because each product was checked. The arguments are its two parameters, and the call reads them before it returns.
    // The kernel's module is an extension of the device, so it lives as long as the device does.
    unsafe {
        stream.external(LABEL, &memory[..], |raw, ()| device.launch(kernel.as_raw(), &config, &args, raw))
    }
}

/// Returns the products that do not fill the device alone. Launches the others.
fn without_large<'a, T: Multiply>(large: &Form, calls: Vec<Call<'a, T>>) -> Result<Vec<Call<'a, T>>> {
    let (large, small) = calls.into_iter().partition::<Vec<_>, _>(|call| large.suits(call));
    large.into_iter().try_for_each(<T as Launched>::launch)?;
    Ok(small)
}

/// For `f16` and `bf16`: kernels for each order of storage.
/// `name` is the type's name in C++.
pub(super) fn of_halves<T: Multiply<Sum = f32>>(
    stream: &Stream,
    calls: Vec<Call<'_, T>>,
    name: &str,
) -> Result<()> {
    let mut calls = without_large(&LARGE, calls)?;
    let loaded = stream.device().extension(Halves::load)?;
    calls.sort_by_key(|call| call.by_columns);
    for calls in calls.chunk_by_mut(|x, y| x.by_columns == y.by_columns) {
        let form = small(&calls[0]);
        let [a, b] = calls[0].by_columns.map(u32::from);
        let kernel = loaded.kernels.module().kernel(&format!("gemm_group<{name}, {a}, {b}>"))?;
        for calls in calls.chunks_mut(MOST) {
            let (firsts, tiles) = tiles(&form, calls);
            enqueue(stream, &kernel, (&form, tiles), &group!(halves, calls, firsts, tiles), calls)?;
        }
    }
    Ok(())
}

/// For `f32`: one kernel for all orders.
pub(super) fn of_floats(stream: &Stream, calls: Vec<Call<'_, f32>>) -> Result<()> {
    let mut calls = without_large(&LARGE_OF_FLOATS, calls)?;
    let kernels = stream.device().extension(strided::Kernels::load)?;
    let kernel = kernels.module().kernel("gemm_group_floats")?;
    for calls in calls.chunks_mut(MOST) {
        let (firsts, tiles) = tiles(&SMALL_OF_FLOATS, calls);
        enqueue(stream, &kernel, (&SMALL_OF_FLOATS, tiles), &group!(strided, calls, firsts, tiles), calls)?;
    }
    Ok(())
}
