//! Plain data: the types that elements can have, and types for C++ data that Rust has no type for.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// Types that device memory can hold, because any bytes are a valid value: numbers, arrays of them, and structs of them.
///
/// You don't implement `Plain` yourself. Every type that implements `bytemuck`'s [`Pod`](crate::Pod) is `Plain`, so derive
/// `Pod` for your structs:
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
/// Memory that this library allocates begins at a multiple of the elements' alignment, even if that is `align(4096)`, and of at
/// least 16 bytes. Drivers only align to 256 bytes, so if you need more, the allocation is longer by that much. Memory that you
/// bring must be aligned already: [`Pinned::from_raw`](crate::Pinned::from_raw) and similar functions refuse it otherwise.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored in device memory, because it is not plain data",
    label = "some bytes may not be a valid `{Self}`",
    note = "if it is a struct of plain data, derive it: `#[derive(Clone, Copy, gpustream::Pod, gpustream::Zeroable)] \
            #[bytemuck(crate = \"gpustream::bytemuck\")] #[repr(C)]`",
    note = "instead of `bool` use `gpustream::Bool`, and instead of `char` or an enum use an integer; references and boxes must \
            stay on the host"
)]
pub trait Plain: Pod {}

#[diagnostic::do_not_recommend]
impl<T: Pod> Plain for T {}

/// A C++ `bool` in memory: an element of `bool*`, or a member of a struct.
///
/// This is a byte because memory may hold any byte, and a Rust `bool` that is neither 0 nor 1 is undefined behaviour. Every
/// byte except 0 counts as true.
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

    /// Returns true if the byte is not 0.
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

/// The bytes between the members of a generated struct, where C++ has padding. They have no meaning, so any two are equal.
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
