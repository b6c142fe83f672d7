//! The solver: one rank's slab of the cube, and the calls of one round.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use examples::poisson::Kernels;
use gpustream::{AsView, Buffer, Stream, StreamOptions};
use gpustream_collectives::{Communicator, Op};
use gpustream_kernels::reduce::Reduce as _;

use crate::problem::{exact, width};

/// When the halo travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// While the inner planes are computed.
    Overlapped,
    /// Before the inner planes are computed, on the same stream.
    InTurn,
}

/// How long a solution took.
pub(crate) struct Run {
    pub(crate) rounds: u32,
    pub(crate) time: Duration,
}

impl Run {
    /// Returns the time of one round in seconds.
    pub(crate) fn round(&self) -> f64 {
        self.time.as_secs_f64() / f64::from(self.rounds)
    }
}

/// One rank's part of the problem.
pub(crate) struct Solver<'a> {
    communicator: &'a Communicator,
    kernels: Kernels,
    stream: Stream,
    /// The halo travels on this stream.
    halo: Stream,
    side: usize,
    /// The cube's number for this rank's first plane.
    first: usize,
    planes: usize,
    /// g at the points along one axis. The exact solution is the product of three such values.
    value: Buffer<f64>,
    x: Buffer<f64>,
    residual: Buffer<f64>,
    /// The rank's planes, with one plane of each neighbour below and above them: the halo, which is 0 at the border of the
    /// cube.
    direction: Buffer<f64>,
    product: Buffer<f64>,
    /// The residual's squared norm over all ranks.
    square: Buffer<f64>,
}

impl<'a> Solver<'a> {
    /// Prepares the equation with x = 0 as the first guess. Both sides are multiplied by the squared width of the grid.
    pub(crate) fn new(communicator: &'a Communicator, side: usize) -> Result<Self> {
        let (device, rank, ranks) = (communicator.device(), communicator.rank(), communicator.size());
        let first = rank * side / ranks;
        let planes = (rank + 1) * side / ranks - first;
        let n = side * side * planes;
        let stream = device.stream()?;
        // Moving a halo takes only a few threads, and they should not have to wait until a large kernel leaves room for
        // them.
        let urgent = StreamOptions::default().priority(device.info().limits.stream_priorities.greatest);
        let kernels = Kernels::load(device)?;

        let along_an_axis = |derivative, factor: f64| -> Vec<f64> {
            (1..=side).map(|i| factor * exact(derivative, i as f64 * width(side))).collect()
        };
        let value = stream.upload(&along_an_axis(0, 1.0))?;
        let curvature = stream.upload(&along_an_axis(2, -width(side).powi(2)))?;
        let mut residual = stream.alloc(n)?;
        kernels.right_side(&stream, &value, &curvature, &mut residual, side, first, planes)?;
        let mut direction = stream.zeros(n + 2 * side * side)?;
        stream.copy(&residual, &mut direction.slice_mut(side * side..side * side + n)?)?;

        let halo = device.stream_with(urgent)?;
        stream.set_name("solver");
        halo.set_name("halo");
        let mut solver = Self {
            communicator,
            kernels,
            halo,
            side,
            first,
            planes,
            value,
            x: stream.zeros(n)?,
            square: stream.zeros(1)?,
            product: stream.zeros(n)?,
            residual,
            direction,
            stream,
        };
        solver.square = solver.dot(&solver.residual, &solver.residual)?;
        Ok(solver)
    }

    /// Goes on until the residual is small. Each time we look at the residual, calls `report` with the round and the
    /// residual divided by the right side.
    pub(crate) fn solve(
        &mut self,
        order: Order,
        tolerance: f64,
        most: u32,
        check_every: u32,
        report: impl Fn(u32, f64),
    ) -> Result<Run> {
        let small = self.stream.download(&self.square)?[0] * tolerance * tolerance;
        self.start_together()?;
        let start = Instant::now();
        for rounds in 1..=most {
            self.round(order)?;
            if rounds.is_multiple_of(check_every) || rounds == most {
                // All ranks get the same number, so they all stop in the same round.
                let square = self.stream.download(&self.square)?[0];
                report(rounds, tolerance * (square / small).sqrt());
                if square <= small {
                    return Ok(Run { rounds, time: start.elapsed() });
                }
            }
        }
        let square = self.stream.download(&self.square)?[0];
        let reached = tolerance * (square / small).sqrt();
        bail!(
            "after {most} rounds the residual is {reached:.1e} of the right side: give more --iterations or a larger --tolerance"
        )
    }

    /// Submits one round and does not wait for it, so the host can run ahead.
    fn round(&mut self, order: Order) -> gpustream::Result<()> {
        self.exchange(order)?;
        // First the planes inside, then the two that must wait for the halo.
        let last = self.planes - 1;
        self.apply(1, last.max(1))?;
        self.apply(0, 1)?;
        self.apply(last.max(1), self.planes)?;

        let n = self.x.len();
        let own = self.side * self.side..self.side * self.side + n;
        let curvature = self.dot(&self.direction.slice(own.clone())?, &self.product)?;
        let Self { kernels, stream, square, direction, product, x, residual, .. } = self;
        let direction = &direction.slice(own.clone())?;
        kernels.advance(stream, square, &curvature, direction, product, x, residual, n)?;
        let square = self.dot(&self.residual, &self.residual)?;
        let Self { kernels, stream, square: before, direction, residual, .. } = self;
        kernels.turn(stream, &square, before, residual, &mut direction.slice_mut(own)?, n)?;
        self.square = square;
        Ok(())
    }

    /// Sends each neighbour the plane next to it, and receives the neighbour's.
    fn exchange(&mut self, order: Order) -> gpustream::Result<()> {
        let Self { communicator, side, planes, direction, .. } = self;
        let (rank, plane, inside) = (communicator.rank(), *side * *side, *planes * *side * *side);
        let stream = if order == Order::Overlapped { &self.halo } else { &self.stream };
        communicator.group(|calls| {
            let (below, rest) = direction.split_at_mut(plane)?;
            let (own, above) = rest.split_at_mut(inside)?;
            let own = own.into_view();
            if rank > 0 {
                calls.send(stream, own.slice(..plane)?, rank - 1)?;
                calls.recv(stream, below, rank - 1)?;
            }
            if rank + 1 < communicator.size() {
                calls.send(stream, own.slice(inside - plane..)?, rank + 1)?;
                calls.recv(stream, above, rank + 1)?;
            }
            Ok(())
        })
    }

    /// Computes product = A * direction for the planes from `start` up to, but not including, `end`. That also reads one
    /// more plane on each side.
    fn apply(&mut self, start: usize, end: usize) -> gpustream::Result<()> {
        if start == end {
            return Ok(());
        }
        let plane = self.side * self.side;
        let direction = self.direction.slice(start * plane..(end + 2) * plane)?;
        let mut product = self.product.slice_mut(start * plane..end * plane)?;
        self.kernels.apply(&self.stream, &direction, &mut product, self.side, end - start)
    }

    /// Computes the dot product of two arrays over all ranks. Each rank has its part of them.
    fn dot(&self, x: &impl AsView<f64>, y: &impl AsView<f64>) -> gpustream::Result<Buffer<f64>> {
        let mut dot = self.stream.dot(x, y)?;
        self.communicator.all_reduce_in_place(&self.stream, &mut dot, Op::Sum)?;
        Ok(dot)
    }

    /// Returns the solution's largest error over all ranks.
    pub(crate) fn error(&mut self) -> Result<f64> {
        let Self { kernels, stream, value, x, product: error, side, first, planes, .. } = self;
        kernels.difference(stream, value, x, error, *side, *first, *planes)?;
        let mut largest = stream.max(error)?;
        self.communicator.all_reduce_in_place(stream, &mut largest, Op::Max)?;
        Ok(stream.download(&largest)?[0])
    }

    /// Returns the time, in seconds, of an exchange while nothing else runs, so that we can say which part of it was hidden.
    pub(crate) fn time_exchange(&mut self, rounds: u32) -> Result<f64> {
        self.start_together()?;
        let start = Instant::now();
        for _ in 0..rounds {
            self.exchange(Order::InTurn)?;
        }
        self.stream.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(rounds))
    }

    /// Waits until all ranks have come here and their devices are done.
    fn start_together(&self) -> Result<()> {
        self.communicator.barrier(&self.stream)?;
        Ok(self.stream.synchronize()?)
    }
}
