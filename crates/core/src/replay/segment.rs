//! A segment: the part of a step between two calls that cannot go into a graph, and the shapes that this part has had.

use gpustream_hal::CallSite;

use super::ReplayRecording;
use super::order::Order;
use super::sequence::{Candidate, Difference, Sequence};
use super::shape::{Built, Shape};

/// We keep at most this many shapes of a segment.
const MOST_SHAPES: usize = 4;

/// At first, a shape goes if nothing has fitted it for this many runs.
const PATIENCE: u64 = 8;

/// The shapes of a segment.
pub(super) struct Segment {
    /// The shapes. A shape keeps its index.
    shapes: [Option<Shape>; MOST_SHAPES],
    /// The index of the last run's shape.
    last: usize,
    /// A shape goes if nothing has fitted it for this many runs. Grows with each graph that was made in vain.
    patience: u64,
}

impl Default for Segment {
    fn default() -> Self {
        Self { shapes: Default::default(), last: 0, patience: PATIENCE }
    }
}

/// An operation's place in a segment.
pub(super) enum Fit {
    /// With the operations before it, the operation makes up the first `next` operations of that shape.
    Shape { shape: usize, next: usize },
    /// All operations of a shape have come, so this one belongs to the next segment.
    NextSegment,
    /// No shape begins with these operations.
    None,
}

impl Segment {
    /// Begins a run, and removes the shapes that nothing has fitted for a long time.
    pub(super) fn begin(&mut self, run: u64, retired: &mut Vec<Built>) {
        for place in &mut self.shapes {
            if let Some(shape) = place
                && run - shape.last_run > self.patience
            {
                if shape.launches < 2 {
                    self.patience = self.patience.saturating_mul(2);
                }
                retired.extend(place.take().and_then(|shape| shape.graph));
            }
        }
    }

    pub(super) fn shape(&self, index: usize) -> Option<&Shape> {
        self.shapes.get(index).and_then(Option::as_ref)
    }

    pub(super) fn operation(&self, shape: usize, index: usize) -> Option<CallSite> {
        self.shape(shape)?.sequence.operation(index)
    }

    #[inline]
    pub(super) fn shape_mut(&mut self, index: usize) -> Option<&mut Shape> {
        self.shapes.get_mut(index)?.as_mut()
    }

    /// Takes the offered operation's values for operation `next` of a shape. The two must differ in nothing else.
    fn go_on(&mut self, shape: usize, next: usize, offer: &Candidate<'_>) {
        let Some(Some(shape)) = self.shapes.get_mut(shape) else { return };
        match shape.sequence.difference(next, offer) {
            Difference::None => shape.sequence.came_from(next, offer.operation()),
            difference => shape.replace(next, offer, difference),
        }
    }

    /// Finds the place of an operation that comes after the ones that are `held`: the index of a shape, and how many of its
    /// operations have come.
    pub(super) fn fit(&mut self, held: Option<(usize, usize)>, offer: &Candidate<'_>, run: u64) -> Fit {
        let (current, next) = held.unwrap_or((self.expected(), 0));
        let goes_on = |sequence: &Sequence| {
            next < sequence.len() && sequence.difference(next, offer) <= Difference::Values
        };
        if let Some(shape) = self.switch_to(current, next, goes_on) {
            self.go_on(shape, next, offer);
            return Fit::Shape { shape, next: next + 1 };
        }
        let Some(shape) = self.shape(current) else { return Fit::None };
        if next >= shape.sequence.len() {
            // If the shape was only noted and never launched, we make it longer instead, because it may not end here again.
            return if shape.launches > 0 { Fit::NextSegment } else { Fit::None };
        }
        if shape.sequence.difference(next, offer) != Difference::Memory {
            return Fit::None;
        }
        // If memory comes in turn, there is a shape for each. If there is no room for another shape, we set the nodes
        // instead.
        let (sequence, in_order) = (shape.sequence.clone(), shape.chained);
        let shape = match self.shapes.iter().position(Option::is_none) {
            Some(free) => {
                let cause = ReplayRecording::new("other memory", offer.operation());
                self.shapes[free] = Some(Shape::new(sequence, cause, in_order, run));
                free
            }
            None => current,
        };
        if let Some(shape) = &mut self.shapes[shape] {
            shape.replace(next, offer, Difference::Memory);
        }
        Fit::Shape { shape, next: next + 1 }
    }

    /// Returns the index of the shape that we expect in the next run.
    #[inline]
    pub(super) fn expected(&self) -> usize {
        self.shape(self.last).map_or(self.last, |last| last.next)
    }

    /// Finds a shape that can stand for the first `len` operations of shape `current`, and that passes `has`. That is
    /// `current` itself, or another shape whose first operations differ at most in values.
    fn switch_to(&mut self, current: usize, len: usize, has: impl Fn(&Sequence) -> bool) -> Option<usize> {
        let agrees = |shape: &Shape| {
            let differs =
                |of: &Shape, at| shape.sequence.difference_from(&of.sequence, at) > Difference::Values;
            self.shape(current).is_none_or(|of| !(0..len).any(|at| differs(of, at)))
        };
        let fits = |index: &usize| {
            self.shape(*index)
                .is_some_and(|shape| has(&shape.sequence) && (*index == current || agrees(shape)))
        };
        let found = (current..current + MOST_SHAPES).map(|index| index % MOST_SHAPES).find(fits)?;
        if let Ok([Some(from), Some(to)]) = self.shapes.get_disjoint_mut([current, found]) {
            to.take_values(&from.sequence, len);
        }
        Some(found)
    }

    /// Returns the shape that has exactly the first `len` operations of shape `current`.
    pub(super) fn whole(&mut self, current: usize, len: usize) -> Option<usize> {
        self.switch_to(current, len, |sequence| sequence.len() == len)
    }

    /// Returns a shape, and notes that the current run has it.
    pub(super) fn use_shape(&mut self, index: usize, run: u64) -> Option<&mut Shape> {
        if let Some(Some(last)) = self.shapes.get_mut(self.last) {
            last.next = index;
        }
        self.last = index;
        let shape = self.shapes.get_mut(index)?.as_mut()?;
        shape.last_run = run;
        Some(shape)
    }

    /// Returns the first `len` operations of a shape.
    pub(super) fn first(&self, shape: usize, len: usize) -> Sequence {
        self.shape(shape).map_or_else(Sequence::default, |shape| shape.sequence.first(len))
    }

    /// Notes a sequence that ran plainly. It replaces the shape that has been unused for the longest time.
    pub(super) fn note(
        &mut self,
        sequence: Sequence,
        cause: ReplayRecording,
        in_order: bool,
        run: u64,
        retired: &mut Vec<Built>,
    ) {
        let oldest = |index: &usize| self.shape(*index).map_or(0, |shape| shape.last_run);
        let Some(place) = (0..MOST_SHAPES).min_by_key(oldest) else { return };
        retired.extend(self.shapes[place].take().and_then(|shape| shape.graph));
        let mut shape = Shape::new(sequence, cause, in_order, run);
        shape.next = place;
        self.shapes[place] = Some(shape);
        let _ = self.use_shape(place, run);
    }

    /// Calls `with` with each operation of the shape that ran last, and with the operations that it follows directly.
    pub(super) fn list(&self, in_order: bool, mut with: impl FnMut(CallSite, &[usize])) {
        let Some(shape) = self.shape(self.last) else { return };
        let own;
        let order = if let Some(built) = &shape.graph {
            &built.order
        } else {
            own = Order::of(&shape.sequence, in_order);
            &own
        };
        for index in 0..shape.sequence.len() {
            if let Some(operation) = shape.sequence.operation(index) {
                with(operation, order.after(index));
            }
        }
    }
}
