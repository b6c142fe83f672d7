//! Graphs (stub).
use crate::device::CpuDevice;
use crate::stream::Stream;
use crate::work::Work;
use crate::worker::Worker;
use gpustream_hal::{Graphs, Result};
use std::sync::Arc;
pub(crate) struct GraphRun;
pub(crate) struct Capture;
#[derive(Clone)]
pub(crate) struct CapturedPoint;
impl Capture {
    pub(crate) fn invalidate(&self) {}
}
pub(crate) fn record_work(_c: &Arc<Capture>, _s: &Arc<Stream>, _w: Work) -> Result<()> {
    Ok(())
}
pub(crate) fn record_point(_c: &Arc<Capture>, _s: &Arc<Stream>) -> CapturedPoint {
    CapturedPoint
}
pub(crate) fn join(_s: &Arc<Stream>, _p: &CapturedPoint) -> Result<()> {
    Ok(())
}
pub(crate) fn refuse_outside_wait(_c: &Arc<Capture>) -> Result<()> {
    Ok(())
}
pub(crate) fn begin(_w: &mut Worker, _r: Arc<GraphRun>, _s: Arc<Stream>) {}
pub(crate) fn run_node(_w: &mut Worker, _r: Arc<GraphRun>, _n: usize) {}
pub(crate) fn completed_node(_w: &mut Worker, _r: Arc<GraphRun>, _n: usize) {}
impl Graphs for CpuDevice {}
