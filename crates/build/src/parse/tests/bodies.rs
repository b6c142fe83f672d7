//! What we find in function bodies: loops, shared memory, barriers.

use super::*;

#[test]
fn a_strided_loop_is_found_through_helpers() {
    let text = r#"
template <typename T> __device__ void inner(T* x, size_t n) { GS_FOR_EACH_WIDE(i, n) { x[i] = 0; } }
template <typename T> __device__ void outer(T* x, size_t n) { inner(x, n); }
extern "C" __global__ void direct(float* x, size_t n) { GS_FOR_EACH(i, n) { x[i] = 0; } }
extern "C" __global__ void through(float* x, size_t n) { outer<float>(x, n); }
extern "C" __global__ void header(float* x, size_t n) { mine::from_header(x, n); }
extern "C" __global__ void guarded(float* x, size_t n) { /* GS_FOR_EACH */ size_t i = threadIdx.x; if (i < n) x[i] = 0; }
"#;
    let header = "namespace mine { inline __device__ void from_header(float* x, size_t n) \
                  { GS_FOR_EACH(i, n) { x[i] = 0; } } }";
    let module = with_header(text, header).unwrap();
    let strided: Vec<_> = module.kernels.iter().map(|k| (k.name.as_str(), k.strided)).collect();
    assert_eq!(strided, [("direct", true), ("through", true), ("header", true), ("guarded", false)]);
}

#[test]
fn dynamic_shared_arrays_are_found() {
    let module = read(
        r#"
template <typename T> __device__ T* tile() { extern __shared__ __align__(16) unsigned char bytes[]; return (T*)bytes; }
extern "C" __global__ void a() { extern __shared__ float tile_f[]; __shared__ float fixed[4]; }
extern "C" __global__ void b() { extern __shared__ float tile_f[]; }
namespace at::native { namespace { __global__ void c() { extern __shared__ float in_at[]; } } }
"#,
    );
    let in_at = "_ZN2at6native12_GLOBAL__N_15in_atE";
    assert_eq!(module.dynamic_shared, [in_at, "bytes", "in_at", "tile_f"]);
}

#[test]
fn a_barrier_of_the_grid_makes_its_kernel_cooperative() {
    const USES: [&str; 10] = [
        "extern \"C\" __global__ void k(unsigned* a) { gs::grid_barrier(a); }",
        "namespace { __device__ void meet(unsigned* a) { grid_barrier(a); }\n__device__ void go(unsigned* a) { meet(a); } }\n\
         extern \"C\" __global__ void k(unsigned* a) { go(a); }",
        "__device__ unsigned& meet(unsigned* a) { gs::grid_barrier(a); return *a; }\n\
         extern \"C\" __global__ void k(unsigned* a) { meet(a) = 1; }",
        "#define MEET(a) gs::grid_barrier(a)\nextern \"C\" __global__ void k(unsigned* a) { MEET(a); }",
        "struct Meet { unsigned* a; __device__ void operator()() const { gs::grid_barrier(a); } };\n\
         extern \"C\" __global__ void k(unsigned* a) { Meet{a}(); }",
        "static const auto meet = [](unsigned* a) { gs::grid_barrier(a); };\nextern \"C\" __global__ void k(unsigned* a) { meet(a); }",
        "extern \"C\" __global__ void k(unsigned* a) { cooperative_groups::this_grid().sync(); }",
        "extern \"C\" __global__ void k(unsigned* a) { auto g = cg::this_grid(); cg::sync(g); }",
        "__device__ void f(cg::grid_group g) { g.sync(); }\nextern \"C\" __global__ void k(unsigned* a) { f(make()); }",
        "extern \"C\" __global__ void k(unsigned* a) { mine::meet(a); }",
    ];
    let header = "namespace mine { inline __device__ void meet(unsigned* a) { gs::grid_barrier(a); } }";
    for text in USES {
        let with = |contract: &str| {
            let at = text.find("extern").unwrap();
            with_header(&format!("{}/// requires: {contract}\n{}", &text[..at], &text[at..]), header)
        };
        let module = with("1 <= len(a)").unwrap();
        assert!(module.kernels[0].contract.cooperative, "{text}");
        assert!(module.warnings[0].contains("barrier of the whole grid"), "{:?}", module.warnings);
        assert!(module.warnings[0].contains("`requires: cooperative, …`"), "{:?}", module.warnings);
        let module = with("cooperative, 1 <= len(a)").unwrap();
        assert!(module.warnings.is_empty());
        assert!(module.kernels[0].contract.cooperative && module.kernels[0].contract.requires.len() == 1);
        let unsafe_one = with_header(text, header).unwrap();
        assert!(!unsafe_one.kernels[0].contract.safe);
    }
    let none = "__device__ void meet(unsigned* a) { gs::grid_barrier(a); }\n/// requires: 1 <= len(a)\n\
                extern \"C\" __global__ void k(unsigned* a) { cg::this_thread_block().sync(); /* grid_barrier */ }";
    assert!(!read(none).kernels[0].contract.cooperative);
    let parameter =
        read("/// requires: cooperative <= 4\nextern \"C\" __global__ void k(int cooperative) {}");
    assert!(!parameter.kernels[0].contract.cooperative);
}
