//! Matrices of other crates come to a device and back as they were, in each order.

use std::borrow::Cow;

use conformance::{refused, tests};
use faer::Mat;
use gpustream::{Device, ErrorKind, Result};
use gpustream_math::host::{FromElements, HostMatrix};
use gpustream_math::prelude::*;
use nalgebra::{DMatrix, SMatrix};
use ndarray::{Array2, ShapeBuilder as _, s};

tests! {
    Plain: arrays_of_ndarray_keep_their_order, matrices_of_nalgebra_and_faer_have_contiguous_columns,
        views_are_downloaded_as_they_are_seen, impossible_matrices_are_refused;
}

fn element(i: usize, j: usize) -> f32 {
    (100 * i + j) as f32
}

fn arrays_of_ndarray_keep_their_order(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    for (order, shape) in [(Order::RowMajor, (3, 5).set_f(false)), (Order::ColumnMajor, (3, 5).set_f(true))] {
        let host = Array2::from_shape_fn(shape, |(i, j)| element(i, j));
        let matrix = stream.upload_matrix(&host)?;
        assert_eq!((matrix.view().rows(), matrix.view().columns(), matrix.view().order()), (3, 5, order));
        assert_eq!(stream.download_matrix::<Array2<f32>>(&matrix)?, host);
    }
    // A view with gaps, and one that goes backwards, are copied.
    let host = Array2::from_shape_fn((6, 8), |(i, j)| element(i, j));
    for part in [host.slice(s![1..4, 2..7]), host.slice(s![..;-1, ..;2])] {
        let matrix = stream.upload_matrix(&part)?;
        assert_eq!(stream.download_matrix::<Array2<f32>>(&matrix)?, part);
    }
    let empty = stream.upload_matrix(&Array2::<f32>::zeros((0, 4)))?;
    assert_eq!(stream.download_matrix::<Array2<f32>>(&empty)?.dim(), (0, 4));
    Ok(())
}

fn matrices_of_nalgebra_and_faer_have_contiguous_columns(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let own = DMatrix::from_fn(4, 3, element);
    let fixed = SMatrix::<f32, 3, 2>::from_fn(element);
    let (a, b) = (stream.upload_matrix(&own)?, stream.upload_matrix(&fixed)?);
    assert_eq!(a.view().order(), Order::ColumnMajor);
    let mut c = Matrix::new(stream.alloc(8)?, 4, 2, Order::RowMajor)?;
    stream.gemm(&a, &b, &mut c)?;
    assert_eq!(stream.download_matrix::<DMatrix<f32>>(&c)?, own * fixed);

    // faer leaves gaps between columns whose length does not fill vector registers.
    let host = Mat::from_fn(5, 7, element);
    let matrix = stream.upload_matrix(&host)?;
    assert_eq!(matrix.view().order(), Order::ColumnMajor);
    assert_eq!(stream.download_matrix::<Mat<f32>>(&matrix)?, host);
    let turned = stream.upload_matrix(&host.transpose())?;
    assert_eq!(stream.download_matrix::<Mat<f32>>(turned.view().t())?, host);
    Ok(())
}

fn views_are_downloaded_as_they_are_seen(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let matrix = stream.upload_matrix(&Array2::from_shape_fn((6, 8), |(i, j)| element(i, j)))?;
    let part = matrix.view().part(2..5, 1..7)?;
    let want = |i, j| element(i + 2, j + 1);
    assert_eq!(
        stream.download_matrix::<Array2<f32>>(part)?,
        Array2::from_shape_fn((3, 6), |(i, j)| want(i, j))
    );
    assert_eq!(stream.download_matrix::<DMatrix<f32>>(part)?, DMatrix::from_fn(3, 6, want));
    assert_eq!(stream.download_matrix::<Mat<f32>>(part.t())?, Mat::from_fn(6, 3, |i, j| want(j, i)));
    Ok(())
}

/// Says that it has six elements, and has five.
struct Wrong;

impl HostMatrix for Wrong {
    type Element = f32;

    fn shape(&self) -> (usize, usize) {
        (2, 3)
    }

    fn elements(&self) -> (Cow<'_, [f32]>, Order) {
        (Cow::Borrowed(&[0.0; 5]), Order::RowMajor)
    }
}

#[derive(Debug)]
struct Shape;

impl FromElements for Shape {
    type Element = gpustream_math::Complex<f32>;

    fn from_elements(_: usize, _: usize, _: Order, _: Vec<Self::Element>) -> Self {
        Self
    }
}

fn impossible_matrices_are_refused(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    refused(stream.upload_matrix(&Wrong), ErrorKind::ArgumentMismatch, &["2×3", "5"]);
    let memory = stream.zeros(12)?;
    let batch = MatrixView::with_layout(&memory, Layout::new(2, 3).batch(2))?;
    refused(stream.download_matrix::<Shape>(batch), ErrorKind::InvalidArgument, &["matrix(i)"]);
    let conjugated = batch.matrix(0)?.h();
    refused(stream.download_matrix::<Shape>(conjugated), ErrorKind::InvalidArgument, &["conjugated"]);
    Ok(())
}
