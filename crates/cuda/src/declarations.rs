//! Our own declarations for what may be missing in cudarc's bindings, or may have another form there.
//!
//! Your application may choose any version of the bindings from 12.0 on, and must not lose a newer function because of
//! that. So if the driver has a function, we call it. So we declare the types that 12.0 lacks, or that changed since,
//! under CUDA's names. If the chosen bindings have them too, the compiler compares ours with theirs: see `same`.
#![allow(non_camel_case_types, non_snake_case)] // CUDA's own names.

use std::ffi::{c_int, c_longlong, c_uchar, c_uint, c_void};
use std::mem::offset_of;

use cudarc::driver::sys::{
    self as bindings, CUcontext, CUgraph, CUmemAccess_flags, CUmemAllocationHandleType, CUmemAllocationType,
};

/// Declares enumerations with the values that we pass, and compares them with the bindings'.
///
/// What a block imports hides the names around the block. So a name inside means cudarc's if the chosen version has it, and ours
/// otherwise. In the same way, a variant hides a constant of a trait.
macro_rules! enumerations {
    ($($(#[$meta:meta])* $name:ident { $($value:ident = $number:literal,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(u32)]
            #[derive(Clone, Copy)]
            pub(crate) enum $name { $($value = $number,)* }

            #[allow(dead_code, clippy::unnecessary_cast)]
            const _: () = {
                #[allow(unused_imports, clippy::wildcard_imports)]
                use bindings::*;
                trait Absent { $( const $value: u32 = $number; )* }
                impl Absent for $name {}
                assert!(size_of::<$name>() == 4);
                $( assert!($name::$value as u32 == $number); )*
            };
        )*
    };
}

/// Compares the sizes of structs and the offsets of these fields with the bindings', as [`enumerations`] does for values.
macro_rules! same {
    ($($name:ident { $($field:ident $(.$inner:ident)*),* })*) => {
        $(
            const _: () = {
                use self::$name as Ours;
                #[allow(unused_imports, clippy::wildcard_imports)]
                use bindings::*;
                assert!(size_of::<Ours>() == size_of::<$name>() && align_of::<Ours>() >= align_of::<$name>());
                $( assert!(offset_of!(Ours, $field $(.$inner)*) == offset_of!($name, $field $(.$inner)*)); )*
            };
        )*
    };
}

pub(crate) type CUlogIterator = c_uint;
pub(crate) type CUgraphConditionalHandle = u64;
/// We only pass null pointers to it.
pub(crate) type CUgraphEdgeData = c_void;
/// Points to something that only the driver knows.
pub(crate) type CUdevResourceDesc = *mut c_void;
/// Points to something that only the driver knows.
pub(crate) type CUgreenCtx = *mut c_void;

pub(crate) const CU_GRAPH_COND_ASSIGN_DEFAULT: c_uint = 1;

enumerations! {
    /// `HOST` since 12.2.
    CUmemLocationType {
        CU_MEM_LOCATION_TYPE_INVALID = 0,
        CU_MEM_LOCATION_TYPE_DEVICE = 1,
        CU_MEM_LOCATION_TYPE_HOST = 2,
    }
    /// Since 12.3.
    CUgraphNodeType { CU_GRAPH_NODE_TYPE_CONDITIONAL = 13, }
    /// Since 12.3.
    CUgraphConditionalNodeType { CU_GRAPH_COND_TYPE_IF = 0, CU_GRAPH_COND_TYPE_WHILE = 1, }
    /// Since 12.4.
    CUdevResourceType { CU_DEV_RESOURCE_TYPE_SM = 1, }
    /// Since 12.4.
    CUgreenCtxCreate_flags { CU_GREEN_CTX_DEFAULT_STREAM = 1, }
    /// Since 12.8.
    CUmemcpySrcAccessOrder {
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
        CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2,
    }
}

/// From 13.2 on the bindings have a union instead of `id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUmemLocation {
    pub(crate) type_: CUmemLocationType,
    pub(crate) id: c_int,
}

/// Changes with [`CUmemLocation`].
#[repr(C)]
pub(crate) struct CUmemAccessDesc {
    pub(crate) location: CUmemLocation,
    pub(crate) flags: CUmemAccess_flags,
}

/// Changes with [`CUmemLocation`].
#[repr(C)]
pub(crate) struct CUmemAllocationProp {
    pub(crate) type_: CUmemAllocationType,
    pub(crate) requestedHandleTypes: CUmemAllocationHandleType,
    pub(crate) location: CUmemLocation,
    pub(crate) win32HandleMetaData: *mut c_void,
    /// Such as compression. All zero.
    pub(crate) allocFlags: [c_uchar; 8],
}

/// Since 12.2; the conditional member since 12.3.
#[repr(C)]
pub(crate) struct CUgraphNodeParams {
    pub(crate) type_: CUgraphNodeType,
    pub(crate) reserved0: [c_int; 3],
    pub(crate) __bindgen_anon_1: CUgraphNodeParams_union,
    pub(crate) reserved2: c_longlong,
}

#[repr(C)]
pub(crate) union CUgraphNodeParams_union {
    pub(crate) reserved1: [c_longlong; 29],
    pub(crate) conditional: CUDA_CONDITIONAL_NODE_PARAMS,
}

/// Since 12.3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_CONDITIONAL_NODE_PARAMS {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) type_: CUgraphConditionalNodeType,
    pub(crate) size: c_uint,
    pub(crate) phGraph_out: *mut CUgraph,
    pub(crate) ctx: CUcontext,
}

/// Since 12.4. From 13.1 on there is a pointer at the end, in bytes that used to be reserved.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct CUdevResource {
    type_: CUdevResourceType,
    _internal_padding: [c_uchar; 92],
    pub(crate) __bindgen_anon_1: CUdevResource_union,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union CUdevResource_union {
    pub(crate) sm: CUdevSmResource,
    _oversize: [c_uchar; 48],
}

/// Since 12.4. Newer versions have more fields after this one.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUdevSmResource {
    pub(crate) smCount: c_uint,
}

/// Since 12.8. Changes with [`CUmemLocation`].
#[repr(C)]
pub(crate) struct CUmemcpyAttributes {
    pub(crate) srcAccessOrder: CUmemcpySrcAccessOrder,
    pub(crate) srcLocHint: CUmemLocation,
    pub(crate) dstLocHint: CUmemLocation,
    pub(crate) flags: c_uint,
}

same! {
    CUmemLocation { type_ }
    CUmemAccessDesc { location, flags }
    CUmemAllocationProp { type_, requestedHandleTypes, location, win32HandleMetaData, allocFlags }
    CUgraphNodeParams { type_, reserved0, __bindgen_anon_1, reserved2 }
    CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, phGraph_out, ctx }
    CUdevResource { type_, __bindgen_anon_1, __bindgen_anon_1.sm.smCount }
    CUmemcpyAttributes { srcAccessOrder, srcLocHint, dstLocHint, flags }
    CUlogIterator { }
    CUgraphConditionalHandle { }
    CUdevResourceDesc { }
    CUgreenCtx { }
}

const _: () = {
    use self::CU_GRAPH_COND_ASSIGN_DEFAULT as OURS;
    #[allow(unused_imports, clippy::wildcard_imports)]
    use bindings::*;
    assert!(OURS == CU_GRAPH_COND_ASSIGN_DEFAULT);
};
