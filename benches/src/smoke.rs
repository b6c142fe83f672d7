//! Runs every measurement once on a fake device, because a benchmark that you cannot run here may still break. The
//! times mean nothing.

use gpustream::{Device, ErrorKind};

use crate::case::{Case, Step};
use crate::contenders;
use crate::measure::measure;

#[test]
fn every_case_of_a_cuda_device_runs() {
    let recorder = fake_cuda::load();
    let device = Device::open("cuda:0").unwrap();
    let contenders = match contenders(&device) {
        Ok(contenders) => contenders,
        Err(error) => {
            let kind = error.downcast_ref::<gpustream::Error>().map(gpustream::Error::kind);
            assert_eq!(kind, Some(ErrorKind::NoImageForDevice), "{error:#}");
            eprintln!("skipped: built without kernels for CUDA");
            return;
        }
    };
    for case in Case::all(false, 1 << 20, true) {
        let case = if let Case::Pipeline(_) = case { Case::Pipeline(1 << 12) } else { case };
        let row = measure(case, &contenders, 1);
        assert_eq!(row.failures, [], "{case}");
        let raw = row.median("raw").is_some() || case == Case::Step(Step::Temporaries);
        assert!(raw && row.median("gpustream").is_some(), "{case}");
    }
    drop(contenders);
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn every_case_of_the_cpu_runs() {
    let device = Device::open("cpu").unwrap();
    let contenders = contenders(&device).unwrap();
    let no_graphs = device.graph_builder().is_err_and(|error| error.kind() == ErrorKind::Unsupported);
    for case in Case::all(true, 1 << 24, true) {
        if no_graphs && matches!(case, Case::GraphLaunch(_) | Case::GraphSet(_)) {
            continue;
        }
        let row = measure(case, &contenders, 1);
        assert_eq!(row.failures, [], "{case}");
    }
}
