//! When the host has waited for a kernel, the text that the kernel printed must be out.

use conformance::{Child, printing, tests, with_stream};
use gpustream::{Device, Launch, Result};

tests! {
    Plain: text_is_out_after_the_wait;
    Part: print;
}

const ROUNDS: u32 = 4;
const THREADS: u32 = 3;

fn text_is_out_after_the_wait(device: &Device) -> Result<()> {
    let output = Child::of(device, "printing::print").succeeds()?;
    let of = |start: &str| output.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(of("kernel "), (ROUNDS * 2 * THREADS) as usize, "{output}");
    let round = |line: &str| line.split([' ', ':']).nth(1).and_then(|round| round.parse::<u32>().ok());
    // Launches print in stream order. The threads of one launch may print in any order.
    let kernels: Vec<_> =
        output.lines().filter(|line| line.starts_with("kernel ")).filter_map(round).collect();
    assert!(kernels.is_sorted(), "{output}");
    // On a GPU we cannot compare with the host's text, because the kernel's text goes through a buffer of the C
    // library.
    if device.info().backend == gpustream::BackendName::CPU {
        let all: Vec<_> = output
            .lines()
            .filter(|line| line.starts_with("kernel ") || line.starts_with("host "))
            .filter_map(round)
            .collect();
        assert!(all.is_sorted(), "{output}");
        assert_eq!(of("host "), ROUNDS as usize, "{output}");
    }
    Ok(())
}

/// Prints a line after each wait for two launches. Numbers go up by four in each round, because the host and both
/// launches have one each.
fn print(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, printing::Kernels::load)?;
    let block = Launch::new([1; 3], [THREADS, 1, 1]);
    for round in 0..ROUNDS {
        println!("host {}: waits", 4 * round);
        kernels.say(&s, &block, 4 * round + 1)?;
        kernels.say(&s, &Launch::new([THREADS, 1, 1], [1; 3]), 4 * round + 2)?;
        match round {
            0 => s.synchronize()?,
            1 => s.record()?.synchronize()?,
            2 => drop(s.download(&s.zeros::<u32>(1)?)?),
            _ => conformance::synchronize(device)?,
        }
    }
    Ok(())
}
