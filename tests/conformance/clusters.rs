//! Blocks form clusters of the shape that you ask for. If the device cannot give that shape, you get an error.

use conformance::{clusters::Kernels, kernels_and_streams, refused, tests, with_stream};
use gpustream::{Buffer, Device, ErrorKind, Launch, Result, Stream};

tests! {
    Plain: a_block_is_a_cluster_by_itself, blocks_of_a_cluster_reach_each_other, clusters_work_in_graphs,
        impossible_clusters_are_refused, grids_the_library_chooses_are_rounded_up;
}

const THREADS: u32 = 96;

/// A grid with a number for each block, and the memory for a launch's results.
struct Scene {
    grid: [u32; 3],
    x: Buffer<u32>,
    sizes: Buffer<u32>,
    places: Buffer<u32>,
}

impl Scene {
    fn new(s: &Stream, grid: [u32; 3]) -> Result<Self> {
        let blocks = grid.iter().product::<u32>() as usize;
        let values: Vec<u32> = (0..blocks as u32 * THREADS).collect();
        Ok(Self { grid, x: s.upload(&values)?, sizes: s.full(blocks, 9)?, places: s.full(blocks, 9)? })
    }

    fn launch(&mut self, kernels: &Kernels, s: &Stream, cluster: [u32; 3], rounds: u32) -> Result<()> {
        let launch = Launch::new(self.grid, [THREADS, 1, 1]).cluster(cluster);
        kernels.cluster_turn(s, &launch, &mut self.x, &mut self.sizes, &mut self.places, rounds)
    }

    /// Compares with a model: each block must have the number of the block that is `rounds` places further in its
    /// cluster.
    fn check(&self, s: &Stream, cluster: [u32; 3], rounds: u32) -> Result<()> {
        let (x, sizes, places) = (s.download(&self.x)?, s.download(&self.sizes)?, s.download(&self.places)?);
        let size = cluster.iter().product::<u32>();
        let [width, height, depth] = self.grid;
        let number = |at: [u32; 3]| at[0] + width * (at[1] + height * at[2]);
        for block in 0..width * height * depth {
            let at = [block % width, block / width % height, block / width / height];
            let within = [0, 1, 2].map(|axis| at[axis] % cluster[axis]);
            let place = within[0] + cluster[0] * (within[1] + cluster[1] * within[2]);
            let from = (place + rounds) % size;
            let from_within =
                [from % cluster[0], from / cluster[0] % cluster[1], from / cluster[0] / cluster[1]];
            let from = number([0, 1, 2].map(|axis| at[axis] - within[axis] + from_within[axis]));
            let what = format!("block {at:?} of {:?} in clusters of {cluster:?}", self.grid);
            assert_eq!((sizes[block as usize], places[block as usize]), (size, place), "{what}");
            let mine = &x[(block * THREADS) as usize..][..THREADS as usize];
            assert!(mine.iter().copied().eq(from * THREADS..(from + 1) * THREADS), "{what}: {mine:?}");
        }
        Ok(())
    }
}

/// This kernel runs everywhere. If a backend has no clusters, each block is its own cluster.
fn a_block_is_a_cluster_by_itself(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for grid in [[1, 1, 1], [5, 3, 2]] {
        let mut scene = Scene::new(&s, grid)?;
        scene.launch(&kernels, &s, [1, 1, 1], 3)?;
        scene.check(&s, [1, 1, 1], 3)?;
    }
    Ok(())
}

/// There are more clusters than the device can hold at once, so it must start all blocks of a cluster together.
fn blocks_of_a_cluster_reach_each_other(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (grid, cluster) in [
        ([2, 1, 1], [2, 1, 1]),
        ([9, 1, 1], [3, 1, 1]),
        ([4096, 1, 1], [4, 1, 1]),
        ([8192, 1, 1], [8, 1, 1]),
        ([3, 20, 1], [1, 4, 1]),
        ([6, 4, 10], [2, 2, 2]),
    ] {
        let mut scene = Scene::new(&s, grid)?;
        for rounds in [1, 10] {
            let launched = scene.launch(&kernels, &s, cluster, rounds);
            if !device.info().features.cluster_launch {
                let backend = device.info().backend;
                refused(
                    launched,
                    ErrorKind::Unsupported,
                    &["a launch with clusters is not supported", backend.as_str(), "cluster_turn"],
                );
                return Ok(());
            }
            launched?;
        }
        scene.check(&s, cluster, 11)?;
    }
    Ok(())
}

fn clusters_work_in_graphs(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut scene = Scene::new(&s, [32, 1, 1])?;
    let captured = s.capture(|s| scene.launch(&kernels, s, [8, 1, 1], 1));
    if !device.info().features.cluster_launch {
        refused(captured, ErrorKind::Unsupported, &["a launch with clusters"]);
        let mut builder = device.graph_builder()?;
        let refusal = builder.node(&[], |s| scene.launch(&kernels, s, [8, 1, 1], 1));
        refused(refusal, ErrorKind::Unsupported, &["a launch with clusters"]);
        builder.node(&[], |s| scene.launch(&kernels, s, [1, 1, 1], 1))?;
        builder.build()?.launch(&s)?;
        return scene.check(&s, [1, 1, 1], 1);
    }
    let captured = captured?;
    let (mut built, node) = crate::graphs::one_node(device, |s| scene.launch(&kernels, s, [8, 1, 1], 1))?;
    captured.launch(&s)?;
    captured.launch(&s)?;
    built.launch(&s)?;
    built.set_node(node, |s| scene.launch(&kernels, s, [8, 1, 1], 2))?;
    built.launch(&s)?;
    scene.check(&s, [8, 1, 1], 5)
}

fn impossible_clusters_are_refused(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut scene = Scene::new(&s, [12, 6, 1])?;
    for none in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]] {
        refused(
            scene.launch(&kernels, &s, none, 1),
            ErrorKind::InvalidLaunch,
            &["a cluster of", "cluster_turn"],
        );
    }
    for (cluster, texts) in [
        ([5, 1, 1], ["divide", "5 by 1 by 1", "12 by 6 by 1"]),
        ([1, 4, 1], ["divide", "1 by 4 by 1", "12 by 6 by 1"]),
        ([1, 1, 2], ["divide", "1 by 1 by 2", "12 by 6 by 1"]),
        ([12, 1, 1], ["12 blocks", "at most 8", "cluster_turn"]),
        ([3, 3, 1], ["9 blocks", "at most 8", "cluster_turn"]),
        ([u32::MAX, u32::MAX, u32::MAX], ["blocks", "at most 8", "cluster_turn"]),
    ] {
        let refusal = scene.launch(&kernels, &s, cluster, 1);
        if device.info().features.cluster_launch {
            refused(refusal, ErrorKind::InvalidLaunch, &texts);
        } else {
            refused(refusal, ErrorKind::Unsupported, &["a launch with clusters"]);
        }
    }
    // The refused launches did nothing, so the stream still works.
    scene.launch(&kernels, &s, [1, 1, 1], 1)?;
    scene.check(&s, [1, 1, 1], 1)
}

/// If the library chooses the grid, it may add blocks so that the clusters fill it, even if there is no work for them.
fn grids_the_library_chooses_are_rounded_up(device: &Device) -> Result<()> {
    let info = device.info();
    let blocks = |launch: Launch| launch.resolve(info).map(|config| config.grid);
    assert_eq!(blocks(Launch::covering(256 * 3).cluster([2, 1, 1]))?, [4, 1, 1]);
    assert_eq!(blocks(Launch::covering_blocks([33, 17, 1], [16, 16, 1]).cluster([2, 2, 1]))?, [4, 2, 1]);
    for launch in [Launch::strided(1_000_003), Launch::filling(1_000_003)] {
        assert_eq!(blocks(launch.cluster([8, 1, 1]))?[0], blocks(launch)?[0].next_multiple_of(8));
    }
    if !info.features.cluster_launch {
        return Ok(());
    }
    let (kernels, [s]) = kernels_and_streams(device)?;
    for n in [1, 256 * 3, 100_003] {
        let mut x = s.full(n, 2u32)?;
        for launch in [Launch::covering(n), Launch::strided(n), Launch::filling(n)] {
            kernels.step_with(&s, &launch.cluster([2, 1, 1]), &mut x, 1, n)?;
        }
        assert_eq!(s.download(&x)?, vec![281; n]);
    }
    Ok(())
}
