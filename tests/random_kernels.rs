//! The CPU backend can run a block as loops over its threads, or with a stack for each thread. Random kernels must
//! compute the same numbers in both ways.
//!
//! `GPUSTREAM_RANDOM_KERNELS` says how many files to write, 1 unless you set it. If a file fails, you see its seed, so
//! that you can write it again.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;

use gpustream::{Arg, Device, Image, Launch, Module, ModuleSource, Result};
use gpustream_build::{Backend, Kernels, Threads};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

const KERNELS: usize = 12;
const THREADS: u32 = 64;
const BLOCKS: u32 = 2;

/// Macros and functions for all kernels. `run` puts a definition of `ON_STACKS` in front. If that macro could return
/// from a kernel, the compiler must use stacks.
const HEADER: &str = "#include <gpustream/kernel.cuh>
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define LAST e
#define PART(i) l[(unsigned)(i) % 3]
#define SET(variable) variable
#define STEP f += 5
#define NEXT STEP
struct Pair { unsigned x, y; };
__device__ unsigned weighed(unsigned a, unsigned b) { a += 3 * b; return a; }
__device__ void by_reference(unsigned& r, unsigned by) { r = r * 3 + by; }
__device__ void by_pointer(unsigned* r, unsigned by) { *r += by; }
__device__ unsigned met(unsigned* s, unsigned value, unsigned by) {
    unsigned i = threadIdx.x, sum = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        __syncthreads();
        s[threadIdx.x] = value + i;
        __syncthreads();
        sum += s[(threadIdx.x + by) % 64];
    }
    __syncthreads();
    return sum + i;
}
__device__ void met_by_reference(unsigned* s, unsigned& r) {
    __syncthreads();
    s[threadIdx.x] = r;
    __syncthreads();
    r += s[63 - threadIdx.x];
    __syncthreads();
}
";

/// Declares a kernel's variables. A thread may change only its own elements, and those of `s` between barriers.
const BEGIN: &str = "    ON_STACKS;
    __shared__ unsigned s[64];
    __shared__ unsigned two[128];
    unsigned a = threadIdx.x, b = x[threadIdx.x], c = n, e = 3, f = u;
    unsigned l[3] = {1, a, b};
    Pair v = {n, threadIdx.x};
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned beside = threadIdx.x + 5;
    s[threadIdx.x] = 0;
    two[2 * threadIdx.x] = n;
    two[2 * threadIdx.x + 1] = u;
";

/// Combines everything that a kernel computed into one number for each thread.
const END: &str = "    y[at] = a + 3 * b + 5 * c + 7 * e + 9 * f + 11 * l[0] + 13 * l[1] + 17 * l[2] + 19 * v.x + 23 * v.y + 29 * u +
            31 * two[2 * threadIdx.x] + 37 * two[2 * threadIdx.x + 1] + 41 * y[4 * at + 128] + 43 * y[4 * at + 129] +
            47 * y[4 * at + 130] + 51 * y[4 * at + 131];
}
";

/// The threads that are sure to reach a place together.
#[derive(Clone, Copy, PartialEq)]
enum Together {
    Block,
    Warp,
    Alone,
}

struct Writer {
    rng: TestRng,
    text: String,
    /// The variables of each thread that have a meaning, the innermost last.
    names: Vec<String>,
    depth: usize,
}

impl Writer {
    fn below(&mut self, end: usize) -> usize {
        self.rng.next_u32() as usize % end
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn name(&mut self) -> String {
        let index = self.below(self.names.len());
        self.names[index].clone()
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", 4 * self.depth);
    }

    /// Returns a place that only this thread touches.
    fn place(&mut self) -> String {
        let index =
            if self.below(3) == 0 { self.one_of(&["0", "1", "u", "n"]).to_owned() } else { self.name() };
        match self.below(12) {
            0 => format!("two[2 * threadIdx.x + (unsigned)({index}) % 2]"),
            1 => format!("y[4 * at + 128 + (unsigned)({index}) % 4]"),
            2 | 3 => format!("l[(unsigned)({index}) % 3]"),
            4 => format!("PART({index})"),
            5 => self.one_of(&["v.x", "v.y"]).to_owned(),
            6 => self.one_of(&["LAST", "SET(f)"]).to_owned(),
            _ => self.name(),
        }
    }

    fn value(&mut self, depth: usize) -> String {
        if depth == 0 || self.below(4) == 0 {
            return match self.below(10) {
                0..5 => self.place(),
                5 => format!("x[(unsigned)({}) % 64]", self.name()),
                6 => self.below(10).to_string(),
                _ => self.one_of(&["u", "n", "threadIdx.x", "blockIdx.x", "at", "beside"]).to_owned(),
            };
        }
        let (left, right) = (self.value(depth - 1), self.value(depth - 1));
        match self.below(12) {
            0 => format!("SMALLER({left}, {right})"),
            1 => format!("({} ? {left} : {right})", self.condition()),
            2 => format!("weighed({left}, {right})"),
            _ => format!("({left} {} {right})", self.one_of(&["+", "-", "*", "^", "&", "|"])),
        }
    }

    fn condition(&mut self) -> String {
        let bound = self.one_of(&["0", "1", "7", "31", "32", "33", "63", "n", "u % 40"]);
        match self.below(6) {
            0 => format!("threadIdx.x {} {bound}", self.one_of(&["<", "<=", ">", ">=", "=="])),
            1 => self
                .one_of(&["at < (int)n", "at > 3 && at < 40", "beside < n", "at - 1 < (int)u * 7"])
                .to_owned(),
            2 => format!("({}) % {} == 1", self.value(0), self.one_of(&["2", "3", "8"])),
            _ => format!("{} {} {}", self.value(1), self.one_of(&["<", ">=", "=="]), self.value(1)),
        }
    }

    /// Writes a statement that concerns one thread only.
    fn statement(&mut self) {
        let (place, value) = (self.place(), self.value(2));
        let text = match self.below(12) {
            0 => format!("by_reference({}, {value});", self.one_of(&["e", "f", "v.x", "l[1]", "l[u % 3]"])),
            1 => format!("by_pointer(&{}, {value});", self.one_of(&["e", "v.y", "l[0]", "l[n % 3]"])),
            2 => format!("{place}{};", self.one_of(&["++", "--"])),
            3 => "NEXT;".to_owned(),
            4 => format!("for (unsigned& part : l) part += {value};"),
            _ => format!("{place} {} {value};", self.one_of(&["=", "+=", "^=", "-="])),
        };
        self.line(&text);
    }

    /// Writes a statement that makes threads wait for each other or exchange values.
    fn meeting(&mut self, together: Together) {
        let (into, value) = (self.one_of(&["a", "b", "e", "v.x", "l[1]"]), self.value(1));
        let by = self.one_of(&["1", "2", "16", "u % 8"]);
        if self.below(4) == 0 {
            return self.lanes();
        }
        match self.below(if together == Together::Block { 7 } else { 3 }) {
            0 => self.line(&format!("{into} += __shfl_xor_sync(0xffffffffu, {value}, {by});")),
            1 => self.line(&format!("{into} = __shfl_down_sync(0xffffffffu, {into}, {by});")),
            2 => self.line(&format!("{into} += (unsigned)__ballot_sync(0xffffffffu, (int)({value} & 1));")),
            3 => self.line(&format!("{into} += (unsigned)__syncthreads_count((int)({value} & 1));")),
            4 => self.line(&format!("{into} = met(s, {value}, n % 3);")),
            5 => self.line("met_by_reference(s, f);"),
            _ => {
                self.line("__syncthreads();");
                self.line(&format!("s[threadIdx.x] = {value};"));
                self.line("__syncthreads();");
                self.line(&format!("{into} += s[(threadIdx.x + {by}) % 64];"));
            }
        }
    }

    /// Returns an expression over the variables `p`, `q` and `r`, which have one type. Floating-point values must stay
    /// whole and small, so that both ways give the same result.
    fn lane_value(&mut self, is_whole: bool, depth: usize) -> String {
        if depth == 0 || self.below(3) == 0 {
            return self.one_of(&["p", "q", "r", "(lane & 3)", "2"]).to_owned();
        }
        let (left, right) = (self.lane_value(is_whole, depth - 1), self.lane_value(is_whole, depth - 1));
        match self.below(if is_whole { 12 } else { 7 }) {
            0 => format!("({} ? {left} : {right})", self.lane_condition(is_whole)),
            1 => format!("min(r, (T)({left}))"),
            2 => format!("max((T)({left}), q)"),
            3 => format!("(T)({right} < {left})"),
            4 => format!("{}({left})", self.one_of(&["-", "+"])),
            5 | 6 => format!("({left} - {right})"),
            7 => format!("({left} >> {})", self.one_of(&["1", "(lane & 7)"])),
            8 => format!("(~{left} / 3)"),
            _ => format!("({left} {} {right})", self.one_of(&["+", "-", "*", "^", "&", "|"])),
        }
    }

    fn lane_condition(&mut self, is_whole: bool) -> String {
        match self.below(6) {
            0 => "lane >= d".to_owned(),
            1 => "(threadIdx.x & 31) + d < 32 || warpSize / 16 == d".to_owned(),
            2 => "u % 2 == 1".to_owned(),
            3 => "!(threadIdx.x > 40 && lane != 7)".to_owned(),
            _ => {
                let (left, right) = (self.lane_value(is_whole, 1), self.lane_value(is_whole, 1));
                format!("{left} {} {right}", self.one_of(&["<", "<=", ">", ">=", "==", "!="]))
            }
        }
    }

    /// Writes a statement of a warp that only computes with `p`, `q` and `r`, or shuffles them.
    fn lane_statement(&mut self, is_whole: bool) {
        let (target, value) = (self.one_of(&["p", "q", "r"]), self.lane_value(is_whole, 2));
        let shuffle = match self.below(7) {
            0 => format!("__shfl_sync(0xffffffffu, q, {})", self.one_of(&["0", "d", "37", "n % 50"])),
            1 => format!(
                "__shfl_xor_sync(0xffffffffu, (T)({value}), {})",
                self.one_of(&["d", "3", "n % 70, 16"])
            ),
            2 => format!(
                "__shfl_down_sync(0xffffffffu, {target}, {})",
                self.one_of(&["d", "1", "d, 16", "n % 9"])
            ),
            _ => format!("__shfl_up_sync(0xffffffffu, p, {})", self.one_of(&["d", "2", "u, 8", "n % 40"])),
        };
        let text = match self.below(7) {
            0 => format!("if ({}) {target} = {value};", self.lane_condition(is_whole)),
            1 => format!("if ({}) {{ q -= {value}; {target} = p; }}", self.lane_condition(is_whole)),
            2 => "__syncwarp();".to_owned(),
            3 => format!("{target} = {value};"),
            _ => format!("{target} {} {shuffle};", self.one_of(&["=", "-="])),
        };
        self.line(&text);
    }

    /// Writes shuffles that depend on each other, with nothing but arithmetic in between.
    fn lanes(&mut self) {
        let (is_whole, ty) = match self.below(7) {
            0 => (false, "float"),
            1 => (false, "double"),
            2 => (true, "int"),
            3 => (true, "long long"),
            4 => (true, "unsigned long long"),
            5 => (true, "bool"),
            _ => (true, "unsigned"),
        };
        let (first, second) = (self.name(), self.name());
        let first = format!("({first} % 50)");
        self.line("{");
        self.depth += 1;
        self.line(&format!("typedef {ty} T;"));
        self.line("const int lane = threadIdx.x % 32;");
        self.line("int d = 1;");
        self.line(&format!("T p = (T){first}, q = (T)({second} % 60), r = 1;"));
        for _ in 0..=self.below(3) {
            let head = self.one_of(&[
                "for (int d = 1; d < 32; d *= 2) {",
                "for (unsigned d = warpSize / 2; d > 0; d >>= 1) {",
                "for (int d = 0; d < (int)(n % 3); ++d) {",
                "{",
            ]);
            self.line(head);
            self.depth += 1;
            match self.below(4) {
                0 => self.line("T r = __shfl_down_sync(0xffffffffu, q, d);"),
                1 => self.line("const int half = d / 2; bool is_even = (lane & half) == 0; T r = is_even;"),
                _ => {}
            }
            for _ in 0..=self.below(3) {
                self.lane_statement(is_whole);
            }
            self.depth -= 1;
            self.line("}");
            self.lane_statement(is_whole);
            self.lane_statement(is_whole);
        }
        self.depth -= 1;
        self.line("    f += (unsigned)(int)p; e ^= (unsigned)(int)q; a += (unsigned)(int)r;");
        self.line("}");
    }

    /// Writes a statement that contains others.
    fn nested(&mut self, together: Together, left: usize) {
        let (counter, warp) = (self.one_of(&["i", "j"]), self.below(3) == 0);
        let (head, inside) = match (together, self.below(4)) {
            (Together::Alone, 0) => {
                let start = self.one_of(&["0u", "threadIdx.x % 4"]);
                (
                    format!("for (unsigned {counter} = {start}; {counter} < 3; ++{counter}) {{"),
                    Together::Alone,
                )
            }
            (Together::Alone, _) => (format!("if ({}) {{", self.condition()), Together::Alone),
            (_, 0) => {
                let end = self.one_of(&["2", "(int)(n % 3)", "SMALLER(2, (int)n)"]);
                (format!("for (int {counter} = 0; {counter} < {end}; ++{counter}) {{"), together)
            }
            (Together::Block, 1) if warp => {
                let condition = self.one_of(&["threadIdx.x < 32", "threadIdx.x / 32 == n % 2"]);
                (format!("if ({condition}) {{"), Together::Warp)
            }
            (_, 1) => {
                (format!("if ({}) {{", self.one_of(&["u % 2 == 0", "n > 5", "blockIdx.x == 1"])), together)
            }
            (_, 2) => ("{".to_owned(), together),
            _ => {
                let counter = self.one_of(&["i", "a", "e"]);
                let (first, step) =
                    (self.one_of(&["at", "(int)threadIdx.x"]), "(int)(blockDim.x * gridDim.x)");
                self.line(&format!(
                    "for (int {counter} = {first}; {counter} < (int)n; {counter} += {step}) v.y += {counter};"
                ));
                return;
            }
        };
        self.line(&head);
        self.block(inside, left - 1);
        self.line("}");
    }

    /// Writes statements, and declares variables that end with them.
    fn block(&mut self, together: Together, left: usize) {
        let outside = self.names.len();
        self.depth += 1;
        for _ in 0..=self.below(if left == 3 { 6 } else { 3 }) {
            match self.below(10) {
                0..2 if left < 3 => {
                    let name = self.one_of(&["a", "b", "c", "k", "m"]);
                    let value = self.value(2);
                    let mentions = value.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
                    if !mentions && !self.names[outside..].iter().any(|own| own == name) {
                        self.line(&format!("unsigned {name} = {value};"));
                        self.names.push(name.to_owned());
                    }
                }
                2..6 if together != Together::Alone => self.meeting(together),
                6..8 if left > 0 => self.nested(together, left),
                8 if together == Together::Block && left == 3 => self.line("u = n ^ u;"),
                _ => self.statement(),
            }
        }
        self.depth -= 1;
        self.names.truncate(outside);
    }
}

/// Returns a file of kernels.
fn file(seed: u64) -> String {
    let bytes: Vec<u8> = (0..4).flat_map(|_| seed.to_le_bytes()).collect();
    let names = ["a", "b", "c", "e", "f"].map(str::to_owned).to_vec();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut writer = Writer { rng, text: HEADER.to_owned(), names, depth: 0 };
    for number in 0..KERNELS {
        let parameters = "const unsigned* x, unsigned* y, unsigned n, unsigned u";
        let _ = write!(writer.text, "__global__ void k{number}({parameters}) {{\n{BEGIN}");
        writer.depth = 1;
        writer.meeting(Together::Block);
        writer.depth = 0;
        writer.block(Together::Block, 3);
        writer.text += END;
    }
    writer.text
}

/// What came of a file.
struct Outcome {
    /// The numbers that each kernel computes.
    results: Vec<Vec<u32>>,
    /// How many kernels run as loops.
    loops: usize,
    /// At how many places warps compute in vectors.
    in_lanes: usize,
}

/// Compiles a file with these options for the compiler, and runs its kernels.
fn run(device: &Device, text: &str, options: &[&str]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("k.cu");
    std::fs::write(&source, text).unwrap();
    let kernels = Kernels::new().file(&source).out_dir(folder.path()).environment_overrides(false);
    let arch = &*device.info().arch;
    let kernels = options.iter().fold(kernels, |kernels, option| kernels.flag(Backend::Cpu, *option));
    let built = kernels.backend(Backend::Cpu).cpu_level(arch).build();
    let built = built.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut loops = 0;
    for kernel in &built.files[0].kernels {
        match &kernel.threads {
            Some(Threads::Loops) => loops += 1,
            Some(Threads::Fibers { reason, .. }) if reason.contains("does not compile") => {
                panic!("the form of {} does not compile:\n{text}", kernel.kernel)
            }
            _ => {}
        }
    }
    let bytes = std::fs::read(folder.path().join(format!("k.{arch}.so"))).unwrap();
    let images =
        [Image { backend: device.info().backend.as_str(), targets: &[arch], bytes: &bytes, symbols: &[] }];
    let source = ModuleSource { name: "k", images: &images, globals: &[] };
    // SAFETY: the image was built just now.
    let module = unsafe { device.load_module(&source) }.unwrap();
    let results = (0..KERNELS).map(|number| launch(device, &module, number).unwrap()).collect();
    let code = std::fs::read_to_string(folder.path().join("k.cpu.cpp")).unwrap();
    Outcome { results, loops, in_lanes: code.matches("gs_cpu_in_lanes<").count() }
}

/// Returns what a kernel computes for several values of its arguments.
fn launch(device: &Device, module: &Module, number: usize) -> Result<Vec<u32>> {
    let (kernel, s) = (module.kernel(&format!("k{number}"))?, device.stream()?);
    let x = s.upload(&(0..THREADS).map(|i| i * 37 % 101).collect::<Vec<_>>())?;
    let mut results = Vec::new();
    for (n, u) in [(0, 0), (3, 1), (6, 2), (33, 5), (70, 7)] {
        let mut y = s.zeros::<u32>((BLOCKS * THREADS * 5) as usize)?;
        let args = [Arg::read(&x), Arg::write(&mut y), Arg::value(&n), Arg::value(&u)];
        // SAFETY: each thread stays within its own elements of `y`, and indices of `x` are taken modulo its length.
        unsafe { kernel.launch(&s, &Launch::new([BLOCKS, 1, 1], [THREADS, 1, 1]), &args)? };
        results.extend(s.download(&y)?);
    }
    Ok(results)
}

#[test]
fn kernels_mean_the_same_as_loops_and_on_stacks() {
    let files = std::env::var("GPUSTREAM_RANDOM_KERNELS").map_or(1, |files| files.parse().unwrap());
    let device = Device::open("cpu:0").unwrap();
    for seed in 0..files {
        let text = file(seed);
        let Outcome { results, loops, in_lanes } = run(&device, &format!("#define ON_STACKS\n{text}"), &[]);
        // These say what is right. Without optimisation, they compile in a fifth of the time.
        let apart = run(&device, &format!("#define ON_STACKS if (false) return\n{text}"), &["-O0"]);
        assert!(
            loops > KERNELS / 2 && in_lanes > KERNELS / 6,
            "seed {seed}: {loops} loops, {in_lanes} in lanes"
        );
        assert_eq!(apart.loops, 0, "seed {seed}");
        for (number, (together, apart)) in results.iter().zip(&apart.results).enumerate() {
            let differing = together.iter().zip(apart).position(|(together, apart)| together != apart);
            let body = || text.split("__global__ void ").nth(number + 1).unwrap_or_default();
            assert_eq!(differing, None, "kernel {number} of seed {seed}:\n{}", body());
        }
    }
}
