//! The shape of a transform: its dimensions, how many follow each other, and the places of the elements.

use std::fmt;

use gpustream::{Error, ErrorKind, Result};

/// The shape of one Fourier transform, or of a batch of equal ones: one to three dimensions, the last one contiguous.
///
/// ```
/// use gpustream_math::prelude::*;
/// let rows = FftShape::new_1d(1024).batch(100);                  // 100 rows, each by itself
/// let image = FftShape::new_2d(480, 640);                        // rows, columns
/// assert_eq!((rows.len(), image.len(), image.half_len()), (102_400, 480 * 640, 480 * 321));
/// // Every column of a matrix of 480 × 640.
/// let columns = FftShape::new_1d(480).batch(640).input(Spacing::new().step(640).distance(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FftShape {
    /// Planes, rows and columns. Missing dimensions have the length 1.
    pub(super) lens: [usize; 3],
    pub(super) rank: usize,
    pub(super) batch: usize,
    input: Spacing,
    output: Spacing,
}

/// The places of elements that do not follow each other.
///
/// Element `(z, y, x)` of transform `b` is at index `b * distance + ((z * rows + y) * columns + x) * step`. Here `rows` and
/// `columns` are those of the array that the elements lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spacing {
    step: Option<usize>,
    columns: Option<usize>,
    rows: Option<usize>,
    distance: Option<usize>,
}

impl Spacing {
    /// Returns a spacing without gaps.
    pub const fn new() -> Self {
        Self { step: None, columns: None, rows: None, distance: None }
    }

    /// Sets how many elements it is from one to the next in the last dimension.
    #[must_use]
    pub const fn step(self, elements: usize) -> Self {
        Self { step: Some(elements), ..self }
    }

    /// Sets how many columns the array has. The transform takes the first of them.
    #[must_use]
    pub const fn columns(self, columns: usize) -> Self {
        Self { columns: Some(columns), ..self }
    }

    /// Sets how many rows each plane of the array has. The transform takes the first of them.
    #[must_use]
    pub const fn rows(self, rows: usize) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// Sets how many elements it is from the first element of one transform to that of the next.
    #[must_use]
    pub const fn distance(self, elements: usize) -> Self {
        Self { distance: Some(elements), ..self }
    }
}

impl FftShape {
    const fn new(lens: [usize; 3], rank: usize) -> Self {
        Self { lens, rank, batch: 1, input: Spacing::new(), output: Spacing::new() }
    }

    /// Returns the shape of one transform of `len` elements.
    pub const fn new_1d(len: usize) -> Self {
        Self::new([1, 1, len], 1)
    }

    /// Returns the shape of a transform in two dimensions.
    pub const fn new_2d(rows: usize, columns: usize) -> Self {
        Self::new([1, rows, columns], 2)
    }

    /// Returns the shape of a transform in three dimensions.
    pub const fn new_3d(planes: usize, rows: usize, columns: usize) -> Self {
        Self::new([planes, rows, columns], 3)
    }

    /// Sets the number of transforms, 1 unless you set it.
    #[must_use]
    pub const fn batch(self, transforms: usize) -> Self {
        Self { batch: transforms, ..self }
    }

    /// Sets the spacing of the input. Without gaps unless you set it.
    #[must_use]
    pub const fn input(self, spacing: Spacing) -> Self {
        Self { input: spacing, ..self }
    }

    /// Sets the spacing of the output. Without gaps unless you set it.
    #[must_use]
    pub const fn output(self, spacing: Spacing) -> Self {
        Self { output: spacing, ..self }
    }

    /// Returns the number of elements of all transforms.
    pub const fn len(&self) -> usize {
        let [planes, rows, columns] = self.lens;
        self.batch.saturating_mul(planes).saturating_mul(rows).saturating_mul(columns)
    }

    /// Returns true if there are no elements.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of complex elements that [`fft_real`](super::Fft::fft_real) gives: `n / 2 + 1` of each `n` in the last
    /// dimension.
    pub const fn half_len(&self) -> usize {
        let [planes, rows, columns] = self.lens;
        self.batch.saturating_mul(planes).saturating_mul(rows).saturating_mul(columns / 2 + 1)
    }

    /// Returns the shape whose output is where its input is.
    pub(super) const fn with_equal_spacings(self) -> Self {
        Self { output: self.input, ..self }
    }

    /// Returns the shape of a real transform in place: `forward`, the input is the real side.
    pub(super) const fn padded_in_place(self, forward: bool) -> Self {
        let columns = self.lens[2] / 2 + 1;
        let (half, real) = (Spacing::new(), Spacing::new().columns(2 * columns));
        if forward { self.input(real).output(half) } else { self.input(half).output(real) }
    }

    /// Checks the shape, and returns both sides. `halves` says which of them has half of the last dimension.
    pub(super) fn sides(&self, halves: [bool; 2]) -> Result<[Side; 2]> {
        if self.lens.contains(&0) {
            let message = format!("{self}: a transform of no elements; give lengths of at least 1");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let side = |half: bool, spacing: Spacing| {
            let [planes, rows, columns] = self.lens;
            let lens = [planes, rows, if half { columns / 2 + 1 } else { columns }];
            Side::new(lens, self.batch, spacing).map_err(|error| error.with_context(self))
        };
        Ok([side(halves[0], self.input)?, side(halves[1], self.output)?])
    }
}

impl fmt::Display for FftShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lens: Vec<_> = self.lens[3 - self.rank..].iter().map(ToString::to_string).collect();
        write!(f, "an FFT of {}", lens.join("×"))?;
        if self.batch == 1 { Ok(()) } else { write!(f, ", {} times", self.batch) }
    }
}

/// The elements of one side of a transform, with all numbers. The index of the last element does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    /// Planes, rows and columns.
    pub(super) lens: [usize; 3],
    /// The distances from one plane, row and column to the next.
    pub(super) steps: [usize; 3],
    /// The rows and columns of the array around them.
    pub(super) array: [usize; 2],
    pub(super) batch: usize,
    pub(super) distance: usize,
}

impl Side {
    fn new(lens: [usize; 3], batch: usize, spacing: Spacing) -> Result<Self> {
        let [planes, rows, columns] = lens;
        let step = spacing.step.unwrap_or(1);
        let array = [spacing.rows.unwrap_or(rows), spacing.columns.unwrap_or(columns)];
        if step == 0 || array[0] < rows || array[1] < columns {
            let message = format!(
                "{rows}×{columns} elements that are {step} apart, in an array of {}×{}: they overlap; give a step of at least 1, and \
                 an array that is not smaller",
                array[0], array[1]
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let too_large = || {
            Error::new(
                ErrorKind::InvalidArgument,
                "it has more elements than a number can count; make it smaller",
            )
        };
        let row = array[1].checked_mul(step).ok_or_else(too_large)?;
        let plane = array[0].checked_mul(row).ok_or_else(too_large)?;
        let whole = planes.checked_mul(plane).ok_or_else(too_large)?;
        let distance = spacing.distance.unwrap_or(whole);
        let side = Self { lens, steps: [plane, row, step], array, batch, distance };
        side.checked_span().map(|_| side).ok_or_else(too_large)
    }

    /// Returns the lengths and distances of all dimensions, the batch first.
    fn dimensions(&self) -> [(usize, usize); 4] {
        let [planes, rows, columns] = self.lens;
        let [plane, row, column] = self.steps;
        [(self.batch, self.distance), (planes, plane), (rows, row), (columns, column)]
    }

    fn checked_span(&self) -> Option<usize> {
        if self.batch == 0 {
            return Some(0);
        }
        let ends = self.dimensions().into_iter().map(|(len, step)| (len - 1).checked_mul(step));
        ends.into_iter().try_fold(1usize, |span, end| span.checked_add(end?))
    }

    /// Returns how many elements it is from the first to after the last.
    pub(super) fn span(&self) -> usize {
        self.checked_span().unwrap_or(0)
    }

    /// Returns true if no two elements are at the same place: each dimension begins after all shorter ones end.
    pub(super) fn is_apart(&self) -> bool {
        let mut dimensions = self.dimensions();
        dimensions.sort_by_key(|(_, step)| *step);
        let mut end = 0;
        dimensions.into_iter().filter(|(len, _)| *len > 1).all(|(len, step)| {
            let is_after = step > end;
            end += (len - 1) * step;
            is_after
        })
    }

    /// Returns the side of a copy of these elements without gaps.
    pub(super) fn dense(&self) -> Self {
        let [planes, rows, columns] = self.lens;
        let steps = [rows * columns, columns, 1];
        Self { steps, array: [rows, columns], distance: planes * rows * columns, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(shape: FftShape, halves: [bool; 2]) -> [Side; 2] {
        shape.sides(halves).unwrap()
    }

    #[test]
    fn spans_end_with_the_last_element() {
        let [full, half] = sides(FftShape::new_3d(2, 3, 8).batch(5), [false, true]);
        assert_eq!((full.span(), half.span()), (5 * 48, 5 * 30));
        let spaced = FftShape::new_2d(3, 4).batch(2).input(Spacing::new().step(2).columns(5).distance(100));
        assert_eq!(sides(spaced, [false; 2])[0].span(), 100 + 2 * 10 + 3 * 2 + 1);
        assert_eq!(sides(FftShape::new_1d(8).batch(0), [false; 2])[0].span(), 0);
    }

    #[test]
    fn elements_at_one_place_are_noticed() {
        let input = |shape: FftShape, spacing| sides(shape.input(spacing), [false; 2])[0].is_apart();
        assert!(input(FftShape::new_1d(480).batch(640), Spacing::new().step(640).distance(1)));
        assert!(!input(FftShape::new_1d(480).batch(640), Spacing::new().step(639).distance(1)));
        assert!(!input(FftShape::new_1d(8).batch(2), Spacing::new().distance(7)));
        assert!(!input(FftShape::new_1d(8).batch(2), Spacing::new().distance(0)));
        assert!(input(FftShape::new_3d(2, 3, 4).batch(2), Spacing::new()));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for shape in [
            FftShape::new_2d(0, 4),
            FftShape::new_1d(4).input(Spacing::new().step(0)),
            FftShape::new_2d(4, 4).output(Spacing::new().columns(3)),
            FftShape::new_2d(usize::MAX, 2),
            FftShape::new_1d(2).batch(usize::MAX),
        ] {
            assert_eq!(shape.sides([false; 2]).unwrap_err().kind(), ErrorKind::InvalidArgument, "{shape}");
        }
    }
}
