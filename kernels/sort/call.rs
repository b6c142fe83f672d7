//! Calls of the public functions: their checks, and which way a sort goes.

use std::ops::Range;
use std::panic::Location;

use gpustream::interop::on_behalf;
use gpustream::{
    AsView as _, AsViewMut as _, CallSite, Error, ErrorKind, Plain, Result, Stream, View, ViewMut,
};

use super::SortOptions;
use super::blocks::{PORTION, sort_in_block, sort_tiles};
use super::gather::move_bytes;
use super::kernels::{Keys, Pairs};
use super::moved::{How, Moved, Values};
use super::segments::sort_segments;
use super::shares::sort_shares;
use crate::call::Form;
use crate::index::Index;
use crate::order::{Key, masks};

/// A call of a public function.
pub(super) struct Call<'a> {
    stream: &'a Stream,
    pub(super) site: CallSite,
}

impl<'a> Call<'a> {
    #[track_caller]
    pub(super) fn new(stream: &'a Stream, label: &'static str) -> Self {
        Self { stream, site: CallSite { label, location: Location::caller() } }
    }

    pub(super) fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        on_behalf(self.site, work)
    }

    pub(super) fn check_lengths(&self, a: usize, what_a: &str, b: usize, what_b: &str) -> Result<()> {
        if a == b {
            return Ok(());
        }
        let text = format!("there are {a} {what_a} and {b} {what_b}; give arrays of the same length");
        Err(Error::new(ErrorKind::ArgumentMismatch, text).with_call_site(self.site))
    }

    pub(super) fn sort<K: Key>(
        &self,
        keys: Moved<'_, K>,
        count: Option<View<'_, u64>>,
        options: &SortOptions,
        values: Values<'_>,
    ) -> Result<()> {
        let n = keys.result.len();
        if let Some(source) = &keys.source {
            self.check_lengths(source.len(), "keys", n, "elements of the result")?;
        }
        if let Some([source, result]) = values.lengths() {
            self.check_lengths(n, "keys", source, "values")?;
            self.check_lengths(n, "keys", result, "elements of the values' result")?;
        }
        let how = self.how::<K>(options, count)?;
        self.run(|| match size_of::<K>() {
            1 => sort_bits::<u8>(self.stream, keys.cast()?, &how, values),
            2 => sort_bits::<u16>(self.stream, keys.cast()?, &how, values),
            4 => sort_bits::<u32>(self.stream, keys.cast()?, &how, values),
            _ => sort_bits::<u64>(self.stream, keys.cast()?, &how, values),
        })
    }

    pub(super) fn sort_segments<K: Key, I: Index>(
        &self,
        keys: ViewMut<'_, K>,
        values: Option<(ViewMut<'_, u8>, usize)>,
        offsets: View<'_, I>,
        options: &SortOptions,
    ) -> Result<()> {
        let how = self.how::<K>(options, None)?;
        self.run(|| match size_of::<K>() {
            1 => sort_segments::<u8, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
            2 => sort_segments::<u16, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
            4 => sort_segments::<u32, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
            _ => sort_segments::<u64, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
        })
    }

    /// Checks the options.
    fn how<'b, K: Key>(&self, options: &SortOptions, count: Option<View<'b, u64>>) -> Result<How<'b>> {
        let width = 8 * size_of::<K>() as u32;
        let bits = options.bits.clone().unwrap_or(0..width);
        if bits.is_empty() || bits.end > width {
            let Range { start, end } = bits;
            let text = format!(
                "a sort by bits {start}..{end} of keys with {width} bits; give one bit at least, up to {width}"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_call_site(self.site));
        }
        Ok(How { masks: masks::<K>(options.order), bits, count })
    }
}

#[track_caller]
fn sort_bits<B: Keys>(stream: &Stream, keys: Moved<'_, B>, how: &How<'_>, values: Values<'_>) -> Result<()> {
    let n = keys.result.len();
    if n == 0 {
        return Ok(());
    }
    let form = Form::of(stream.device());
    let values = match values {
        Values::Bytes(bytes, size)
            if form == Form::Blocks && n <= B::IN_BLOCK && [1, 2, 4, 8, 16].contains(&size) =>
        {
            return sort_in_block(stream, keys, how, Some((bytes, size)), None);
        }
        Values::Bytes(bytes, 4) => {
            return sort_moving::<B, u32>(stream, form, keys, how, Some(bytes.cast()?), false);
        }
        Values::Bytes(bytes, 8) => {
            return sort_moving::<B, u64>(stream, form, keys, how, Some(bytes.cast()?), false);
        }
        Values::Bytes(bytes, size) if n as u64 > 1 << 32 => {
            let mut order = stream.alloc(n)?;
            sort_bits(stream, keys, how, Values::LongNumbers(order.view_mut()))?;
            return move_bytes::<u64>(stream, bytes, order.view(), size, how.count);
        }
        Values::Bytes(bytes, size) => {
            let mut order = stream.alloc(n)?;
            sort_bits(stream, keys, how, Values::Numbers(order.view_mut()))?;
            return move_bytes::<u32>(stream, bytes, order.view(), size, how.count);
        }
        values => values,
    };
    let in_block = form == Form::Blocks && n <= B::IN_BLOCK;
    match values {
        Values::Numbers(numbers) if in_block => sort_in_block(stream, keys, how, None, Some(numbers)),
        Values::None if in_block => sort_in_block(stream, keys, how, None, None),
        Values::Numbers(numbers) => {
            sort_moving(stream, form, keys, how, Some(Moved::in_place(numbers)), true)
        }
        Values::LongNumbers(numbers) => {
            sort_moving(stream, form, keys, how, Some(Moved::in_place(numbers)), true)
        }
        _ => sort_moving::<B, u32>(stream, form, keys, how, None, false),
    }
}

/// Sorts keys and moves values with them, if there are any. With `numbers` they are the keys' numbers.
#[track_caller]
fn sort_moving<B: Pairs<V>, V: Plain>(
    stream: &Stream,
    form: Form,
    keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<Moved<'_, V>>,
    numbers: bool,
) -> Result<()> {
    match form {
        Form::Blocks => sort_tiles(stream, keys, how, values, numbers, PORTION),
        Form::Shares => sort_shares(stream, keys, how, values, numbers),
    }
}
