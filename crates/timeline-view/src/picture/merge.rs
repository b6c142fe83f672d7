//! The shapes of a lane: slices that are wide enough on their own, and narrow ones merged. A trace can have
//! millions of slices, but a picture has only a thousand pixels, so most of them could not be seen on their
//! own.

use std::ops::Range;

use super::kind::Kind;
use super::row::Slice;
use super::scale::Scale;
use gpustream_timeline::Nanos;

/// How many pixels a run may have, so that its tooltip describes only what is close.
const RUN: f64 = 32.0;

/// Something to draw.
pub(super) enum Shape<'a> {
    /// A slice.
    One(&'a Slice<'a>),
    /// Adjacent slices, each narrower than the threshold.
    Many(Run),
}

/// Slices that are drawn together.
pub(super) struct Run {
    /// How many slices there are.
    pub(super) count: usize,
    /// From the first one's start to the last one's end.
    pub(super) time: Range<Nanos>,
    /// The total length of each kind, in the order of the kinds.
    pub(super) kinds: Vec<(Kind, Nanos)>,
    pub(super) cells: Vec<Cell>,
}

/// A part of a run: a few pixels. Each kind covers some part of their time.
pub(super) struct Cell {
    pub(super) x: f64,
    pub(super) width: f64,
    /// How much each kind covers, from 0 to 1.
    pub(super) kinds: Vec<(Kind, f64)>,
}

/// Adds a part to the total of its kind.
fn add<T: Copy>(sums: &mut Vec<(Kind, T)>, kind: Kind, part: T, plus: fn(T, T) -> T) {
    match sums.iter_mut().find(|(one, _)| *one == kind) {
        Some((_, sum)) => *sum = plus(*sum, part),
        None => sums.push((kind, part)),
    }
}

/// Returns the shapes for sorted slices. A slice has its own shape if it is at least `threshold` pixels wide,
/// or if no other is close.
pub(super) fn shapes<'a>(
    slices: impl Iterator<Item = &'a Slice<'a>>,
    scale: &Scale,
    threshold: f64,
) -> Vec<Shape<'a>> {
    let mut merger =
        Merger { scale, width: threshold.max(2.0), near: Vec::new(), rest: None, shapes: Vec::new() };
    for slice in slices {
        let window = &scale.window;
        if slice.time.start > window.end || slice.time.end < window.start {
            continue;
        }
        if scale.x(slice.time.end) - scale.x(slice.time.start) >= threshold {
            merger.flush();
            merger.shapes.push(Shape::One(slice));
        } else {
            merger.add(slice);
        }
    }
    merger.flush();
    merger.shapes
}

struct Merger<'s, 'a> {
    scale: &'s Scale,
    /// The width of a cell.
    width: f64,
    /// Narrow slices that are close to each other.
    near: Vec<&'a Slice<'a>>,
    /// The number of a cell, and the part of the last run that is in that cell. The next run takes the cell
    /// over.
    rest: Option<(usize, Vec<(Kind, f64)>)>,
    shapes: Vec<Shape<'a>>,
}

impl<'a> Merger<'_, 'a> {
    fn cell(&self, time: Nanos) -> usize {
        ((self.scale.x(time) - self.scale.left) / self.width).floor().max(0.0) as usize
    }

    fn add(&mut self, slice: &'a Slice<'a>) {
        if let (Some(first), Some(last)) = (self.near.first(), self.near.last()) {
            let cell = self.cell(slice.time.start);
            let is_far = cell > self.cell(last.time.end) + 1;
            let is_long = (cell + 1 - self.cell(first.time.start).min(cell)) as f64 * self.width > RUN;
            if is_far || is_long && cell > self.cell(last.time.start) {
                self.flush();
                self.take_back(cell);
            }
        }
        self.near.push(slice);
    }

    fn flush(&mut self) {
        let near = std::mem::take(&mut self.near);
        match near[..] {
            [] => {}
            [one] => self.shapes.push(Shape::One(one)),
            [first, ..] => {
                let run = self.run(first, &near);
                self.shapes.push(Shape::Many(run));
            }
        }
    }

    /// Takes the cell with this number from the last run, because the next run begins in it.
    fn take_back(&mut self, cell: usize) {
        let x = self.scale.left + cell as f64 * self.width;
        if let Some(Shape::Many(run)) = self.shapes.last_mut() {
            self.rest = run.cells.pop_if(|last| last.x >= x).map(|last| (cell, last.kinds));
        }
    }

    fn run(&mut self, first: &Slice<'_>, near: &[&Slice<'_>]) -> Run {
        let start = self.cell(first.time.start);
        let window = &self.scale.window;
        let of_cell = (window.end - window.start).max(1) as f64 / self.scale.width * self.width;
        let mut cells: Vec<Vec<(Kind, Nanos)>> = Vec::new();
        let (mut kinds, mut end) = (Vec::new(), 0);
        for slice in near {
            let length = slice.time.end.saturating_sub(slice.time.start);
            add(&mut kinds, slice.kind, length, Nanos::saturating_add);
            end = end.max(slice.time.end);
            for cell in self.cell(slice.time.start).max(start)..=self.cell(slice.time.end).max(start) {
                let at = |cell: usize| window.start.saturating_add((cell as f64 * of_cell) as Nanos);
                let (from, to) = (at(cell), at(cell + 1));
                let part = slice.time.end.min(to).saturating_sub(slice.time.start.max(from));
                if cells.len() <= cell - start {
                    cells.resize_with(cell - start + 1, Vec::new);
                }
                if let Some(cell) = cells.get_mut(cell - start) {
                    // Even a slice without length must be visible.
                    add(cell, slice.kind, part.max(1), Nanos::saturating_add);
                }
            }
        }
        kinds.sort_unstable_by_key(|(kind, _)| *kind);
        let cells = cells.into_iter().enumerate().filter(|(_, kinds)| !kinds.is_empty());
        let cells = cells.map(|(at, mut kinds)| {
            kinds.sort_unstable_by_key(|(kind, _)| *kind);
            Cell {
                x: self.scale.left + (start + at) as f64 * self.width,
                width: self.width,
                kinds: kinds.into_iter().map(|(kind, time)| (kind, time as f64 / of_cell)).collect(),
            }
        });
        let mut run = Run { count: near.len(), time: first.time.start..end, kinds, cells: cells.collect() };
        let rest = self.rest.take().filter(|(cell, _)| *cell == start);
        if let Some(((_, rest), cell)) = rest.zip(run.cells.first_mut()) {
            for (kind, part) in rest {
                add(&mut cell.kinds, kind, part, |sum, part| sum + part);
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::row::Source;

    fn slice(time: Range<Nanos>, kind: Kind) -> Slice<'static> {
        Slice { time, lane: 0, kind, label: "", source: Source::Operation(0) }
    }

    #[test]
    fn narrow_neighbours_are_drawn_together_and_the_rest_one_by_one() {
        // A pixel is 100 ns, and a cell is two pixels.
        let scale = Scale { window: 0..100_000, left: 0.0, width: 1000.0 };
        let slices = [
            slice(0..50, Kind::Kernel),
            slice(60..110, Kind::Up),
            slice(200..210, Kind::Kernel),
            slice(300..900, Kind::Kernel),
            slice(950..960, Kind::Kernel),
            slice(40_000..40_001, Kind::Up),
        ];
        let shapes = shapes(slices.iter(), &scale, 1.0);
        let [Shape::Many(run), Shape::One(long), Shape::One(next), Shape::One(far)] = &shapes[..] else {
            panic!("{} shapes", shapes.len());
        };
        assert_eq!((run.count, run.time.clone()), (3, 0..210));
        assert_eq!(run.kinds, [(Kind::Kernel, 60), (Kind::Up, 50)]);
        let cells: Vec<_> = run.cells.iter().map(|cell| (cell.x, cell.kinds.clone())).collect();
        assert_eq!(
            cells,
            [(0.0, vec![(Kind::Kernel, 0.25), (Kind::Up, 0.25)]), (2.0, vec![(Kind::Kernel, 0.05)])]
        );
        assert_eq!([long, next, far].map(|slice| slice.time.start), [300, 950, 40_000]);
    }

    #[test]
    fn every_slice_counts_once_and_a_run_is_short() {
        let scale = Scale { window: 0..1_000_000, left: 0.0, width: 1000.0 };
        // Slices of 300 ns cross the borders of cells, which have 2 µs.
        let slices: Vec<_> =
            (0..1_650).map(|at| slice(at * 600 + 100..at * 600 + 400, Kind::Kernel)).collect();
        let shapes = shapes(slices.iter(), &scale, 1.0);
        let counts = shapes.iter().map(|shape| match shape {
            Shape::One(_) => 1,
            Shape::Many(run) => run.count,
        });
        assert_eq!(counts.sum::<usize>(), 1_650);
        assert!((31..40).contains(&shapes.len()), "{}", shapes.len());
        // About half of the time is covered everywhere, also at the border between two runs.
        let cells = shapes.iter().flat_map(|shape| match shape {
            Shape::One(_) => &[][..],
            Shape::Many(run) => &run.cells,
        });
        let cells: Vec<_> =
            cells.map(|cell| (cell.x, cell.kinds.iter().map(|(_, part)| part).sum::<f64>())).collect();
        assert!(cells.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(cells.iter().all(|(_, part)| (part - 0.5).abs() < 0.06));
    }
}
