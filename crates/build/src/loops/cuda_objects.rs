//! Replaces CUDA's barriers, pipelines and matrices by plain barriers, because that is all the rest of the rewrite knows.
//!
//! A `cuda::barrier` counts arrivals, so threads that play different roles may meet at it in different places. We only
//! replace one if it counts all threads of the block, and if its threads wait for the phase that they have just arrived
//! at. Then `bar.arrive_and_wait()` is `__syncthreads()`. The rest of the rewrite then proves that all threads come there;
//! otherwise they run on stacks, where the barrier counts.
//!
//! A copy is done when its call returns. So a pipeline of one thread has nothing to wait for. A pipeline of a block
//! becomes two barriers: no thread uses a stage before all have filled it, or fills it again before all have used it.
//!
//! The lanes of a warp wait for each other before they load or store a matrix, and after a store.

use tree_sitter::Node;

use super::edits::{self, Edit, line_breaks};
use super::waits::callee;
use crate::parse::{declarators, declared, descendants, named};

const NOTHING: &str = "((void)0)";
const BARRIER: &str = "__syncthreads()";

/// Returns the file without such objects in a function. Each line stays in its place. Returns `None` if there are none that
/// we can replace.
pub(super) fn without(text: &str, function: Node<'_>) -> Option<String> {
    let mut edits = Vec::new();
    for node in descendants(function) {
        match node.kind() {
            "declaration" => edits.extend(object(text, function, node).unwrap_or_default()),
            "expression_statement" => edits.extend(matrix(text, node).unwrap_or_default()),
            _ => {}
        }
    }
    for (range, new) in &mut edits {
        *new += &line_breaks(&text[range.clone()]);
    }
    (!edits.is_empty()).then(|| edits::in_file(text, function, edits))
}

/// Returns the edits of a statement that loads or stores a matrix.
fn matrix(text: &str, statement: Node<'_>) -> Option<Vec<Edit>> {
    let call = statement.named_child(0).filter(|node| node.kind() == "call_expression")?;
    let (new, after) = match callee(text, call)? {
        "load_matrix_sync" => ("gs_load_matrix", " }"),
        "store_matrix_sync" => ("gs_store_matrix", " __syncwarp(); }"),
        _ => return None,
    };
    let mut name = call.child_by_field_name("function")?;
    while name.kind() == "qualified_identifier" {
        name = name.child_by_field_name("name")?;
    }
    let (start, end) = (statement.start_byte(), statement.end_byte());
    Some(vec![
        (start..start, "{ __syncwarp(); ".to_owned()),
        (name.byte_range(), new.to_owned()),
        (end..end, after.to_owned()),
    ])
}

/// Returns the edits for all that a function does with the barrier or the pipeline in a declaration.
fn object(text: &str, function: Node<'_>, declaration: Node<'_>) -> Option<Vec<Edit>> {
    let declarators = declarators(declaration);
    let [declarator] = declarators[..] else { return None };
    let name = declared(declarator);
    let uses = uses(text, function, name);
    match declarator.child_by_field_name("value") {
        Some(value) => pipeline(text, declaration, name, value, &uses),
        None if declarator.kind() == "identifier" => barrier(text, function, &uses, declaration),
        None => None,
    }
}

/// Returns the places where a function mentions a variable, without its declaration.
fn uses<'t>(text: &str, function: Node<'t>, name: Node<'_>) -> Vec<Node<'t>> {
    let is_same = |node: &Node<'t>| {
        node.kind() == "identifier"
            && text[node.byte_range()] == text[name.byte_range()]
            && node.id() != name.id()
    };
    descendants(function).filter(is_same).collect()
}

/// Returns the method that is called on an object, and the call.
fn method<'t>(text: &'t str, object: Node<'t>) -> Option<(&'t str, Node<'t>)> {
    let field = object.parent().filter(|node| node.kind() == "field_expression")?;
    let call = field.parent().filter(|node| node.kind() == "call_expression")?;
    Some((callee(text, call)?, call))
}

/// Returns the function that takes an object as its last argument.
fn taker<'t>(text: &'t str, object: Node<'t>) -> Option<&'t str> {
    let list = object.parent().filter(|node| node.kind() == "argument_list")?;
    let is_last = named(list).last().is_some_and(|last| last.id() == object.id());
    list.parent().filter(|_| is_last).and_then(|call| callee(text, call))
}

fn is_statement(node: Node<'_>) -> bool {
    node.parent().is_some_and(|parent| parent.kind() == "expression_statement")
}

fn pipeline(
    text: &str,
    declaration: Node<'_>,
    name: Node<'_>,
    value: Node<'_>,
    uses: &[Node<'_>],
) -> Option<Vec<Edit>> {
    let call = (value.kind() == "call_expression").then_some(value)?;
    if callee(text, call)? != "make_pipeline" {
        return None;
    }
    let waits = match named(call.child_by_field_name("arguments")?).len() {
        0 => NOTHING,
        2 => BARRIER,
        _ => return None,
    };
    let local = format!(
        "cuda::pipeline<cuda::thread_scope_thread> {} = cuda::make_pipeline();",
        &text[name.byte_range()]
    );
    let mut edits = match waits {
        BARRIER => vec![(declaration.byte_range(), local)],
        _ => Vec::new(),
    };
    for &used in uses {
        match method(text, used) {
            Some((method, call)) if is_statement(call) => {
                let plain = match method {
                    "producer_acquire" | "consumer_wait" => waits,
                    "producer_commit" | "consumer_release" => NOTHING,
                    _ => return None,
                };
                edits.push((call.byte_range(), plain.to_owned()));
            }
            None if matches!(taker(text, used)?, "memcpy_async" | "pipeline_consumer_wait_prior") => {}
            _ => return None,
        }
    }
    Some(edits)
}

fn barrier(text: &str, function: Node<'_>, uses: &[Node<'_>], declaration: Node<'_>) -> Option<Vec<Edit>> {
    let declares = &text[declaration.byte_range()];
    if !declares.contains("__shared__") || !declares.contains("barrier") {
        return None;
    }
    let (mut edits, mut inits) = (Vec::new(), 0);
    for &used in uses {
        match method(text, used) {
            Some(("arrive_and_wait", call)) if is_statement(call) => {
                edits.push((call.byte_range(), BARRIER.to_owned()));
            }
            Some(("arrive", call)) => edits.extend(token(text, function, used, call)?),
            // The token's edits are those of its waits.
            Some(("wait", _)) => {}
            Some(_) => return None,
            None if taker(text, used) == Some("memcpy_async") => {}
            None => {
                counts_all(text, used)?;
                inits += 1;
            }
        }
    }
    let waits = uses.iter().filter(|used| matches!(method(text, **used), Some(("wait", _))));
    let replaced = waits
        .into_iter()
        .all(|used| edits.iter().any(|(range, _): &Edit| range.contains(&used.start_byte())));
    (inits == 1 && replaced).then_some(edits)
}

/// Checks that an object is in `init(&object, n)`, where `n` is the number of threads in the block.
fn counts_all(text: &str, object: Node<'_>) -> Option<()> {
    let list = object.parent().filter(|node| node.kind() == "pointer_expression")?.parent()?;
    let call = list.parent().filter(|_| list.kind() == "argument_list")?;
    let count = *named(list).get(1).filter(|_| callee(text, call) == Some("init"))?;
    let plain: String = text[count.byte_range()].chars().filter(|c| !"() ".contains(*c)).collect();
    let is_block = |word: &str| {
        let group = word.strip_suffix(".size").or_else(|| word.strip_suffix(".num_threads"));
        group.is_some_and(|group| is_block_group(text, call, group))
    };
    let is_all = |word: &str| {
        matches!(word, "blockDim.x" | "blockDim.x*blockDim.y" | "blockDim.x*blockDim.y*blockDim.z")
    };
    (is_all(&plain) || is_block(&plain)).then_some(())
}

/// Returns true if a name means the block's group in the function around a node.
fn is_block_group(text: &str, node: Node<'_>, name: &str) -> bool {
    let mut function = node;
    while let Some(parent) = function.parent().filter(|_| function.kind() != "function_definition") {
        function = parent;
    }
    let is_made = |declarator: Node<'_>| {
        let value = declarator.child_by_field_name("value").filter(|value| value.kind() == "call_expression");
        &text[declared(declarator).byte_range()] == name
            && value.is_some_and(|value| callee(text, value) == Some("this_thread_block"))
    };
    descendants(function).filter(|node| node.kind() == "declaration").flat_map(declarators).any(is_made)
}

/// Returns the edits for `T token = object.arrive();` and its waits, which are all that use the token.
fn token(text: &str, function: Node<'_>, object: Node<'_>, arrives: Node<'_>) -> Option<Vec<Edit>> {
    let declarator = arrives.parent().filter(|node| node.kind() == "init_declarator")?;
    let declaration = declarator.parent().filter(|node| declarators(*node).len() == 1)?;
    let uses = uses(text, function, declared(declarator));
    let mut edits = vec![(declaration.byte_range(), ";".to_owned())];
    for &used in &uses {
        let mut list = used.parent()?;
        // `std::move(token)`
        if let Some(call) = list.parent().filter(|call| callee(text, *call) == Some("move")) {
            list = call.parent()?;
        }
        let call = list.parent().filter(|call| list.kind() == "argument_list" && is_statement(*call))?;
        let waits = call.child_by_field_name("function")?.child_by_field_name("argument")?;
        if callee(text, call) != Some("wait") || text[waits.byte_range()] != text[object.byte_range()] {
            return None;
        }
        edits.push((call.byte_range(), BARRIER.to_owned()));
    }
    (!uses.is_empty()).then_some(edits)
}
