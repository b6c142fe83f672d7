//! Plain data: the types of elements, and those of C++ for which Rust has no type of its own.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// A type of which any bytes are a value, so that memory of a device can hold its values: every type that is
/// [`Pod`](crate::Pod), which structs derive.
///
/// ```
/// use gpustream::{Buffer, Plain, Pod, Result, Stream, Zeroable};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[bytemuck(crate = "gpustream::bytemuck")]
/// #[repr(C)]
/// struct Particle {
///     place: [f32; 3],
///     mass: f32,
/// }
///
/// fn twice<T: Plain>(stream: &Stream, values: &[T]) -> Result<[Buffer<T>; 2]> {
///     Ok([stream.upload(values)?, stream.upload(values)?])
/// }
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// let [a, b] = twice(&stream, &[Particle { place: [0.0; 3], mass: 1.0 }])?;
/// assert_eq!((a.len(), b.len()), (1, 1));
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// Memory that the library allocates, of whatever kind, begins at a multiple of the elements' alignment, also if that is
/// `align(4096)`, and of 16 bytes at least. If an alignment is beyond 256 bytes, which is what drivers give, the allocation
/// is longer by as much. Memory of others must be aligned already: [`Pinned::from_raw`](crate::Pinned::from_raw) and its
/// kin refuse other memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plain data, of which the memory of devices consists",
    label = "not every sequence of bytes is known to be a `{Self}`",
    note = "a struct of plain data derives it: `#[derive(Clone, Copy, gpustream::Pod, gpustream::Zeroable)] #[bytemuck(crate = \
            \"gpustream::bytemuck\")] #[repr(C)]`",
    note = "for `bool` there is `gpustream::Bool`, for `char` and for enums there are integers; references and boxes stay on \
            the host"
)]
pub trait Plain: Pod {}

#[diagnostic::do_not_recommend]
impl<T: Pod> Plain for T {}

/// A `bool` of C++ in memory: an element of `bool*`, or a member of a struct.
///
/// Memory may hold any byte, so this is a byte; a Rust `bool` with another value than 0 and 1 would be undefined
/// behaviour. Every byte but 0 counts as true.
///
/// ```
/// use gpustream::Bool;
/// let flags = [true, false, true].map(Bool::from);
/// assert_eq!(flags.iter().filter(|flag| flag.get()).count(), 2);
/// ```
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// The value `true`.
    pub const TRUE: Self = Self(1);
    /// The value `false`.
    pub const FALSE: Self = Self(0);

    /// Returns whether the byte is anything but 0.
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> Self {
        value.get()
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The bytes between the members of a generated struct, where C++ has padding. They have no meaning: any two are equal.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub struct Padding<const N: usize>([u8; N]);

impl<const N: usize> Default for Padding<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> PartialEq for Padding<N> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<const N: usize> Eq for Padding<N> {}

impl<const N: usize> fmt::Debug for Padding<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_but_zero_is_true() {
        let bytes = [0_u8, 1, 2, 255];
        let bools: &[Bool] = bytemuck::cast_slice(&bytes);
        assert_eq!(bools, [false, true, true, true].map(Bool::from));
        assert_eq!(format!("{:?} {:?}", bools[0], bools[3]), "false true");
    }

    #[test]
    fn padding_is_equal_whatever_it_holds() {
        let bytes = [1_u8, 2];
        assert_eq!(*bytemuck::from_bytes::<Padding<2>>(&bytes), Padding::default());
        assert_eq!(format!("{:?}", Padding::<2>::default()), "_");
    }
}
