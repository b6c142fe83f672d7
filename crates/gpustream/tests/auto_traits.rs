//! You can send types to other threads and share them between threads, unless their documentation says that you cannot.

use std::marker::PhantomData;

use gpustream::interop::{ExitHold, Failures, GraphWatcher, StreamWatcher};
use gpustream::{
    Arg, Array, Buffer, Build, Compile, CopyBatch, Device, DeviceOptions, Download, Error, Event, Export,
    Flag, Global, GlobalMemory, GlobalVariable, Graph, GraphBuilder, Kernel, Launch, Managed, MemorySnapshot,
    MemoryStats, Module, ModuleSource, Node, Piece, Pinned, Pipeline, Pitched, RawMemory, ReadGuard, Replay,
    ReplayStats, SharedEvent, Stream, Surface, Synchronize, TexelBuffer, Texture, TimedEvent, Trace,
    TypedKernel, View, ViewMut, Volatile, VolatileMut, WriteGuard,
};

fn send_and_sync<T: Send + Sync>() {}

#[test]
fn types_go_to_other_threads() {
    send_and_sync::<(Device, DeviceOptions, Stream, Event, TimedEvent, Synchronize, Download<f32>)>();
    send_and_sync::<(Buffer<f32>, Pinned<f32>, Managed<f32>, Flag, MemoryStats, MemorySnapshot)>();
    send_and_sync::<(Array<f32>, TexelBuffer<f32>, Texture, Surface)>();
    send_and_sync::<(CopyBatch<'_>, View<'_, f32>, ViewMut<'_, f32>, Volatile<'_, f32>, VolatileMut<'_, f32>)>(
    );
    send_and_sync::<(ReadGuard<'_, f32>, WriteGuard<'_, f32>, Piece<'_, f32, f32>)>();
    send_and_sync::<(Compile, Build, TypedKernel<(View<'_, f32>, f32)>)>();
    send_and_sync::<(Module, ModuleSource<'_>, Kernel, Launch, Graph, GraphBuilder, Node, Replay, Error)>();
    send_and_sync::<(Global<f32>, GlobalMemory, GlobalVariable<'_>, GraphWatcher, ReplayStats, Trace)>();
    send_and_sync::<(Export, SharedEvent, RawMemory, Pitched, Failures, StreamWatcher, ExitHold)>();
}

/// Asks whether a type is `Send`; the next type asks for `Sync`. This works because an inherent constant is found before the
/// trait's.
struct Goes<T>(PhantomData<T>);
struct IsShared<T>(PhantomData<T>);

trait No {
    const ANSWER: bool = false;
}
impl<T> No for Goes<T> {}
impl<T> No for IsShared<T> {}

impl<T: Send> Goes<T> {
    const ANSWER: bool = true;
}
impl<T: Sync> IsShared<T> {
    const ANSWER: bool = true;
}

#[test]
fn arguments_and_pipelines_stay() {
    assert_eq!([Goes::<Stream>::ANSWER, IsShared::<Stream>::ANSWER], [true; 2], "the questions work");
    assert_eq!([Goes::<Arg<'_>>::ANSWER, IsShared::<Arg<'_>>::ANSWER], [false; 2]);
    assert_eq!([Goes::<Pipeline<'_>>::ANSWER, IsShared::<Pipeline<'_>>::ANSWER], [false; 2]);
}
