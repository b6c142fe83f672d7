//! A graph's closures run on other threads, so they must be `Send`.
use std::rc::Rc;

use gpustream::{GraphBuilder, Node, Result};

fn node(builder: &mut GraphBuilder) -> Result<Node> {
    let shared = Rc::new(1);
    builder.node(&[], |s| s.host_fn_repeat(move || drop(shared.clone())))
}

fn main() {}
