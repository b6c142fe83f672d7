//! A fill node's parameters, with the fields in the order that the library reads.
//!
//! AMD's page on the changes in HIP 7.0 gives `hipMemsetParams` CUDA's field order, but AMD's headers from 7.0 to 7.14
//! have the order of 5 and 6. We cannot know which one a library reads, so we ask: first in the header's order and,
//! from 7.0 on, if it returns "invalid value", in the documented one. We remember the order that it took. We can trust
//! the answer, because each order is invalid to a library that reads the other one: the element size is then 0, and HIP
//! refuses a size that is not 1, 2 or 4 (`ihipGraphAddMemsetNode` in AMD's `hip_graph.cpp`;
//! `ihipGraphMemsetParams_validate` in `hip_memory.cpp` for nodes of executable graphs).

use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use gpustream_hal::Fill;
use gpustream_hal::driver::{Answer, Status};

use crate::api::Api;
use crate::ffi::{hipMemsetParams, hipMemsetParamsDocumented};
use crate::handle::address_of;
use crate::version::Version;

/// Writes the header's order. The documented order has the size at the height's upper half, which is 0 here.
fn header(fill: &Fill) -> hipMemsetParams {
    hipMemsetParams {
        dst: address_of(fill.dst),
        elementSize: fill.pattern.width() as u32,
        height: 1,
        pitch: fill.count * fill.pattern.width(),
        value: fill.pattern.value(),
        width: fill.count,
    }
}

/// Writes the documented order. The header's order has the size at the pitch's lower half. So the pitch must not be the row's
/// length, which can be 1, 2 or 4. HIP does not use the pitch of a single row.
fn documented(fill: &Fill) -> hipMemsetParamsDocumented {
    hipMemsetParamsDocumented {
        dst: address_of(fill.dst),
        pitch: 0,
        value: fill.pattern.value(),
        elementSize: fill.pattern.width() as u32,
        width: fill.count,
        height: 1,
        rest: 0,
    }
}

/// The order that a library reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Order {
    Unknown,
    Header,
    Documented,
}

/// The order that a library reads, if we know it yet. It changes once, from unknown to known.
pub(crate) struct MemsetOrder(AtomicU8);

impl MemsetOrder {
    pub(crate) const fn of(version: Version) -> Self {
        let order = if version.major() < 7 { Order::Header } else { Order::Unknown };
        Self(AtomicU8::new(order as u8))
    }

    /// Makes a call with the parameters of `fill`. If we do not know the order and the library refuses the first, makes a second
    /// call.
    pub(crate) fn call<'a>(
        &self,
        fill: &Fill,
        call: impl Fn(*const hipMemsetParams) -> Answer<'a, Api>,
    ) -> Answer<'a, Api> {
        let header = || call(&header(fill));
        let documented = || call(ptr::from_ref(&documented(fill)).cast());
        let learn = |order, answer: &Answer<'_, Api>| {
            let success = answer.status == Some(Status::SUCCESS);
            if success {
                // Relaxed is enough: we publish nothing else, and threads that learn at the same time learn the same.
                self.0.store(order as u8, Ordering::Relaxed);
            }
            success
        };
        let known = self.0.load(Ordering::Relaxed);
        if known == Order::Header as u8 {
            return header();
        }
        if known == Order::Documented as u8 {
            return documented();
        }
        let first = header();
        if learn(Order::Header, &first) || first.status != Some(Status::INVALID_VALUE) {
            return first;
        }
        let second = documented();
        // If the library refuses a fill in both orders, the fill itself is invalid.
        if learn(Order::Documented, &second) { second } else { first }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use gpustream_hal::driver::DriverFunction;
    use gpustream_hal::library::Library;
    use gpustream_hal::{FillPattern, RawBuffer};

    use super::*;

    /// The size of an element, rows, elements, value.
    type Read = (u32, usize, usize, u32);

    fn read(params: *const hipMemsetParams, order: Order) -> Read {
        // SAFETY: the parameters are alive, and as long in both orders.
        unsafe {
            if order == Order::Header {
                let params = *params;
                (params.elementSize, params.height, params.width, params.value)
            } else {
                let params = *params.cast::<hipMemsetParamsDocumented>();
                (params.elementSize, params.height, params.width, params.value)
            }
        }
    }

    fn fills() -> impl Iterator<Item = Fill> {
        let patterns = [0, 1, 2, 4, 0x0102_0304, u32::MAX].into_iter().flat_map(|value| {
            [FillPattern::U8(value as u8), FillPattern::U16(value as u16), FillPattern::U32(value)]
        });
        let counts = [1, 2, 3, 4, 8, 1 << 20, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, (1 << 32) + 4, 1 << 50];
        patterns.flat_map(move |pattern| {
            counts.map(|count| Fill { dst: RawBuffer(0x0001_0000_0001), pattern, count })
        })
    }

    #[test]
    fn parameters_of_one_order_are_invalid_in_the_other() {
        for fill in fills() {
            let (header, documented) = (header(&fill), documented(&fill));
            let (header, documented) = (&raw const header, (&raw const documented).cast());
            let meant = (fill.pattern.width() as u32, 1, fill.count, fill.pattern.value());
            assert_eq!(read(header, Order::Header), meant);
            assert_eq!(read(documented, Order::Documented), meant);
            assert_eq!(read(header, Order::Documented).0, 0, "the size of an element");
            assert_eq!(read(documented, Order::Header).0, 0, "the size of an element");
        }
    }

    /// Returns what a library with this version and this order answered, fill by fill.
    fn asked(version: Version, reads: Order, fills: &[Fill]) -> Vec<Vec<u32>> {
        static FUNCTION: DriverFunction =
            DriverFunction { name: "hipGraphExecMemsetNodeSetParams", since: "4.5" };
        // SAFETY: it is this process, which is already loaded.
        let library = Library::from(libloading::os::unix::Library::this());
        // SAFETY: we call no function of the library.
        let (api, _) = unsafe { Api::load(&library) };
        let order = MemsetOrder::of(version);
        let ask = |fill: &Fill| {
            let statuses = RefCell::new(Vec::new());
            let answer = order.call(fill, |params| {
                let (element, rows, count, _) = read(params, reads);
                let valid = [1, 2, 4].contains(&element) && rows == 1 && count > 0;
                let status = if valid { Status::SUCCESS } else { Status::INVALID_VALUE };
                statuses.borrow_mut().push(status.0);
                Answer { api: &api, function: &FUNCTION, status: Some(status) }
            });
            let statuses = statuses.into_inner();
            assert_eq!(answer.status.map(|status| status.0), statuses.last().copied());
            statuses
        };
        fills.iter().map(ask).collect()
    }

    #[test]
    fn the_order_is_learned_from_the_first_fill_that_is_taken() {
        let fill = |count| Fill { dst: RawBuffer(64), pattern: FillPattern::U8(1), count };
        let fills = [fill(0), fill(1), fill(0), fill(4)];
        let (six, seven) = (Version::new(6, 4), Version::new(7, 0));
        assert_eq!(asked(six, Order::Header, &fills), [[1], [0], [1], [0]].map(Vec::from));
        assert_eq!(
            asked(seven, Order::Header, &fills),
            [vec![1, 1], vec![0], vec![1], vec![0]],
            "the header's order"
        );
        assert_eq!(
            asked(seven, Order::Documented, &fills),
            [vec![1, 1], vec![1, 0], vec![1], vec![0]],
            "the documented order"
        );
    }
}
