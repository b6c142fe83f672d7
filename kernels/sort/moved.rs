//! What a sort moves, and by what it sorts.

use std::ops::Range;

use gpustream::{Plain, Result, View, ViewMut};

use crate::order::LowBits;

/// What a sort moves: from one array to another, or in place if there is no source.
pub(super) struct Moved<'a, T> {
    pub(super) source: Option<View<'a, T>>,
    pub(super) result: ViewMut<'a, T>,
}

impl<'a, T: Plain> Moved<'a, T> {
    pub(super) fn in_place(result: ViewMut<'a, T>) -> Self {
        Self { source: None, result }
    }

    pub(super) fn into(source: View<'a, T>, result: ViewMut<'a, T>) -> Self {
        Self { source: Some(source), result }
    }

    #[track_caller]
    pub(super) fn cast<U: Plain>(self) -> Result<Moved<'a, U>> {
        Ok(Moved { source: self.source.map(View::cast).transpose()?, result: self.result.cast_mut()? })
    }
}

/// What moves with the keys.
pub(super) enum Values<'a> {
    None,
    /// Elements with this many bytes.
    Bytes(Moved<'a, u8>, usize),
    /// The keys' numbers.
    Numbers(ViewMut<'a, u32>),
    LongNumbers(ViewMut<'a, u64>),
}

impl<'a> Values<'a> {
    #[track_caller]
    pub(super) fn of<V: Plain>(values: Moved<'a, V>) -> Result<Self> {
        Ok(Self::Bytes(values.cast()?, size_of::<V>()))
    }

    /// Returns the lengths of source and result.
    pub(super) fn lengths(&self) -> Option<[usize; 2]> {
        match self {
            Self::None => None,
            Self::Bytes(Moved { source, result }, size) => {
                let result = result.len().checked_div(*size).unwrap_or(0);
                Some([
                    source.as_ref().map_or(result, |source| source.len().checked_div(*size).unwrap_or(0)),
                    result,
                ])
            }
            Self::Numbers(result) => Some([result.len(); 2]),
            Self::LongNumbers(result) => Some([result.len(); 2]),
        }
    }
}

/// By what to sort, and how many keys.
pub(super) struct How<'a> {
    pub(super) masks: [u64; 2],
    pub(super) bits: Range<u32>,
    pub(super) count: Option<View<'a, u64>>,
}

impl How<'_> {
    pub(super) fn passes(&self) -> u32 {
        self.bits.len().div_ceil(8) as u32
    }

    pub(super) fn masks<B: LowBits>(&self) -> [B; 2] {
        self.masks.map(B::low)
    }
}
