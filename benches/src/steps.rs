//! The steps that we run again and again. A replay can only gain if they repeat.

use std::rc::Rc;

use anyhow::Result;
use gpustream::Stream;

use crate::case::Step;
use crate::kernels::Kernels;
use crate::measure::{Queue, Sampler, call_time, microseconds, nanoseconds, part};
use crate::ours::{FEW, spin};

/// The operations of one run.
pub(crate) type Work<'a> = &'a mut dyn FnMut(&Stream) -> gpustream::Result<()>;

/// Returns a sampler of `step`, whose runs `run` submits.
pub(crate) fn sampler(
    step: Step,
    kernels: Rc<Kernels>,
    stream: Stream,
    mut run: impl FnMut(&Stream, Work<'_>) -> gpustream::Result<()> + 'static,
) -> Result<Sampler> {
    if step == Step::Apart {
        return Ok(Box::new(move || {
            microseconds(|| {
                run(&stream, &mut |s| (0..Step::APART).try_for_each(|_| spin(&kernels, s)))?;
                stream.finish()
            })
        }));
    }
    let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
    let mut value = 3.0;
    let call = move |stream: &Stream| {
        if step.has_new_values() {
            value += 1.0;
        }
        run(stream, &mut |s| {
            for _ in 0..Step::KERNELS {
                if step == Step::Temporaries {
                    let (mut a, mut b, mut c) = (s.alloc(FEW)?, s.alloc(FEW)?, s.alloc(FEW)?);
                    kernels.four(s, value, &y, &mut a, FEW)?;
                    kernels.four(s, value, &a, &mut b, FEW)?;
                    kernels.four(s, value, &b, &mut c, FEW)?;
                    kernels.four(s, value, &c, &mut y, FEW)?;
                } else {
                    kernels.four(s, value, &x, &mut y, FEW)?;
                }
            }
            Ok(())
        })
    };
    let whole = if step.is_whole() { whole(stream, call) } else { call_time(Step::RUNS, stream, call) };
    let kernels = if step == Step::Temporaries { 4 * Step::KERNELS } else { Step::KERNELS };
    Ok(part(kernels, whole))
}

/// Returns a sampler of the nanoseconds for one of several calls of `call`, from the first to the end of their work.
pub(crate) fn whole<S: Queue + 'static, E: Into<anyhow::Error>>(
    stream: S,
    mut call: impl FnMut(&S) -> Result<(), E> + 'static,
) -> Sampler {
    Box::new(move || {
        let all = nanoseconds(
            1,
            || {
                (0..Step::RUNS).try_for_each(|_| call(&stream).map_err(E::into))?;
                stream.finish()
            },
            || Ok(()),
        )?;
        Ok(all / Step::RUNS as f64)
    })
}
