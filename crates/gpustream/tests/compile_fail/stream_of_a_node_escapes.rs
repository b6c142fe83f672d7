//! The stream that stands for a node, or for a recording, exists only during its closure.
use gpustream::{GraphBuilder, Result, Stream};

fn of_a_node(builder: &mut GraphBuilder) -> Result<()> {
    let mut kept: Option<&Stream> = None;
    builder.node(&[], |s| {
        kept = Some(s);
        s.host_fn_repeat(|| ())
    })?;
    kept.map_or(Ok(()), |s| s.host_fn_repeat(|| ()))
}

fn of_a_capture(stream: &Stream) -> Result<()> {
    let mut kept: Option<&Stream> = None;
    stream.capture(|s| {
        kept = Some(s);
        Ok(())
    })?;
    kept.map_or(Ok(()), Stream::synchronize)
}

fn main() {}
