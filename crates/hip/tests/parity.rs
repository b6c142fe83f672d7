//! The same work must make the same calls on CUDA and on HIP, method by method: the same number, order and sizes.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

mod scene;

use fake_hip::Call;
use scene::every_method;

/// The CUDA calls that HIP has no counterpart for, or does not need.
const CUDA_ONLY: &[&str] = &[
    "DeviceGet",              // HIP's devices are their numbers.
    "DevicePrimaryCtxRetain", // and have no contexts.
    "FuncGetParamInfo",       // No way to ask.
    "FuncSetAttribute",       // Shared memory needs no opt-in.
];

/// Returns the word for what a call does, unless only CUDA needs the call.
fn word(call: &Call) -> Option<&'static str> {
    Some(call.word()).filter(|word| !CUDA_ONLY.contains(word))
}

/// Returns the sizes, counts and values that `other` has too, by name. The two calls must agree on them.
fn shared_sizes(call: &Call, other: &Call) -> Vec<(&'static str, u64)> {
    const NAMES: [&str; 4] = ["bytes", "count", "priority", "value"];
    // We do not compare the address of an answer, because only the caller uses it.
    let compared = |name: &str| NAMES.contains(&name) && !call.name.contains("Get");
    let known = |name: &str| other.args.iter().any(|(other, _)| *other == name);
    call.args.iter().copied().filter(|(name, _)| compared(name) && known(name)).collect()
}

#[test]
fn hip_makes_the_calls_that_cuda_makes() {
    let cuda = {
        let recorder = fake_cuda::load();
        let device = gpustream_cuda::backend().open(0).unwrap();
        every_method(&recorder, &*device, false)
    };
    let recorder = fake_hip::load(fake_hip::Profile::Rocm6);
    let device = gpustream_hip::backend().open(0).unwrap();
    let hip = every_method(&recorder, &*device, false);

    assert_eq!(cuda.len(), hip.len());
    for ((method, cuda), (_, hip)) in cuda.iter().zip(&hip) {
        let words = |calls: &[Call]| calls.iter().filter_map(word).collect::<Vec<_>>();
        assert_eq!(words(cuda), words(hip), "{method}: {cuda:?}\n{hip:?}");
        let counted = cuda.iter().filter(|call| word(call).is_some());
        for (cuda, hip) in counted.zip(hip) {
            assert_eq!(shared_sizes(cuda, hip), shared_sizes(hip, cuda), "{method}: {cuda}, {hip}");
        }
        // One driver call for one method, if the driver has one.
        let several = ["memory", "function_info", "graph_size", "graph_add_node"];
        assert!(hip.len() <= 1 || several.contains(method), "{method}: {hip:?}");
    }
}
