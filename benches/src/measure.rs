//! Samples of all contenders, taken in turns, and their medians and quantiles.

use std::time::Instant;

use anyhow::Result;

use crate::case::Case;

/// A function that takes one sample, in the case's unit.
pub(crate) type Sampler = Box<dyn FnMut() -> Result<f64>>;

/// One way to do the measured operations. A way may lack some of them.
pub(crate) trait Contender {
    /// Returns the column's title.
    fn name(&self) -> &'static str;

    /// Prepares the measurement of `case`; returns `None` if this way does not have it.
    fn prepare(&self, case: Case) -> Result<Option<Sampler>>;
}

/// A contender's samples for one case.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) contender: &'static str,
    /// The samples in ascending order.
    sorted: Vec<f64>,
}

impl Samples {
    fn new(contender: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { contender, sorted: samples }
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the value below which `part` of the samples lie, interpolated.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let Some(last) = self.sorted.len().checked_sub(1) else { return f64::NAN };
        let at = part * last as f64;
        let (below, above) = (self.sorted[at as usize], self.sorted[(at as usize + 1).min(last)]);
        below + (above - below) * at.fract()
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.sorted
    }
}

/// The results for one case.
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) samples: Vec<Samples>,
    /// Contenders that failed, with their errors. The run goes on, because you may lack a library that only one
    /// contender needs.
    pub(crate) failures: Vec<(&'static str, String)>,
}

impl Row {
    pub(crate) fn median(&self, contender: &str) -> Option<f64> {
        self.samples.iter().find(|samples| samples.contender == contender).map(Samples::median)
    }
}

/// Measures one case: two rounds to warm up, then `rounds` rounds. In each, every contender takes one sample, because then the
/// machine's other work affects all of them alike.
pub(crate) fn measure(case: Case, contenders: &[Box<dyn Contender>], rounds: usize) -> Row {
    let mut row = Row { case, samples: Vec::new(), failures: Vec::new() };
    let mut running = Vec::new();
    for contender in contenders {
        match contender.prepare(case) {
            Ok(Some(sampler)) => running.push((contender.name(), sampler, Vec::new())),
            Ok(None) => {}
            Err(error) => row.failures.push((contender.name(), format!("{error:#}"))),
        }
    }
    for round in 0..rounds + 2 {
        running.retain_mut(|(name, sampler, samples)| match sampler() {
            Ok(sample) => {
                if round >= 2 {
                    samples.push(sample);
                }
                true
            }
            Err(error) => {
                row.failures.push((name, format!("{error:#}")));
                false
            }
        });
    }
    row.samples = running.into_iter().map(|(name, _, samples)| Samples::new(name, samples)).collect();
    row
}

/// A contender's stream, or several.
pub(crate) trait Queue {
    /// Blocks until all that was submitted is done.
    fn finish(&self) -> Result<()>;
}

/// There is nothing to wait for.
impl Queue for () {
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

impl<S: Queue> Queue for [S; 2] {
    fn finish(&self) -> Result<()> {
        self.iter().try_for_each(S::finish)
    }
}

/// Returns a sampler of the nanoseconds for one of `count` calls of `call`. We must wait for their work, but do not
/// count it.
pub(crate) fn call_time<S: Queue + 'static, E: Into<anyhow::Error>>(
    count: usize,
    stream: S,
    mut call: impl FnMut(&S) -> Result<(), E> + 'static,
) -> Sampler {
    Box::new(move || nanoseconds(count, || call(&stream).map_err(E::into), || stream.finish()))
}

/// Returns a sampler of a rate in GB/s: each call of `call` moves `bytes`, and we wait for all calls together.
pub(crate) fn rate<S: Queue + 'static, E: Into<anyhow::Error>>(
    bytes: usize,
    stream: S,
    mut call: impl FnMut(&S) -> Result<(), E> + 'static,
) -> Sampler {
    Box::new(move || {
        gigabytes(bytes, |count| {
            (0..count).try_for_each(|_| call(&stream).map_err(E::into))?;
            stream.finish()
        })
    })
}

/// Returns a sampler of one of `parts` equal parts of what `whole` measures.
pub(crate) fn part(parts: usize, mut whole: Sampler) -> Sampler {
    Box::new(move || Ok(whole()? / parts as f64))
}

/// Measures the microseconds of `work`.
pub(crate) fn microseconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Measures the nanoseconds of one of `count` calls of `call`; `after` runs behind them and is not counted.
pub(crate) fn nanoseconds(
    count: usize,
    mut call: impl FnMut() -> Result<()>,
    after: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..count {
        call()?;
    }
    let time = start.elapsed();
    after()?;
    Ok(time.as_secs_f64() * 1e9 / count as f64)
}

/// Measures the rate, in GB/s, of moving `bytes` as often as `work` is asked to; `work` returns when all is done.
pub(crate) fn gigabytes(bytes: usize, work: impl FnOnce(usize) -> Result<()>) -> Result<f64> {
    // We move small sizes many times, so that clock and launch hardly count, and large ones three times.
    let count = (64usize << 20).div_ceil(bytes.max(64 << 10)).max(3);
    let start = Instant::now();
    work(count)?;
    Ok((bytes * count) as f64 / start.elapsed().as_secs_f64() / 1e9)
}

/// Returns the 99th percentile of 200 values of `sample`.
pub(crate) fn tail(sample: impl FnMut() -> Result<f64>) -> Result<f64> {
    let samples = std::iter::repeat_with(sample).take(200).collect::<Result<_>>()?;
    Ok(Samples::new("", samples).quantile(0.99))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let samples = Samples::new("x", vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert!((samples.median() - 3.0).abs() < 1e-12);
        assert!((samples.quantile(0.1) - 1.4).abs() < 1e-12);
        assert!((samples.quantile(1.0) - 5.0).abs() < 1e-12);
        assert!(Samples::new("x", vec![]).median().is_nan());
    }

    struct Fixed(&'static str, Option<f64>);

    impl Contender for Fixed {
        fn name(&self) -> &'static str {
            self.0
        }

        fn prepare(&self, _case: Case) -> Result<Option<Sampler>> {
            let value = self.1;
            Ok(value.map(|value| -> Sampler {
                let mut calls = 0;
                Box::new(move || {
                    calls += 1;
                    anyhow::ensure!(value >= 0.0 || calls < 4, "it broke");
                    // The two rounds to warm up are not counted.
                    Ok(if calls <= 2 { 1e9 } else { value })
                })
            }))
        }
    }

    #[test]
    fn a_failing_contender_drops_out_and_the_others_go_on() {
        let contenders: Vec<Box<dyn Contender>> = vec![
            Box::new(Fixed("good", Some(7.0))),
            Box::new(Fixed("broken", Some(-1.0))),
            Box::new(Fixed("absent", None)),
        ];
        let row = measure(Case::Launch, &contenders, 5);
        assert_eq!(row.median("good"), Some(7.0));
        assert_eq!((row.median("broken"), row.median("absent")), (None, None));
        assert_eq!(row.failures, [("broken", "it broke".to_owned())]);
    }
}
