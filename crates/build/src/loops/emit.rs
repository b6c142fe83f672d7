//! Writes a kernel's steps as C++, with the functions from `gpustream/cpu/loops.cuh`.
//!
//! A step that is a loop over threads becomes a call with a lambda, and the lambda's body begins with the variables
//! that it needs. What we write there follows from how the variable is kept. A variable of the block needs nothing, and
//! a value that follows from the thread's index is declared again. Otherwise we copy the thread's element from the
//! array `gs_of_NAME`, and store it again at the end. If only one loop uses a variable, it needs no array and is
//! declared inside that loop.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::lanes::Lanes;
use super::order::Accesses;
use super::progression::{Course, first_of};
use super::side_by_side::Rows;
use super::steps::{Few, Loop, Piece, Places, Purpose, Step};
use super::variables::{Kind, Variable, Variables};
use crate::diagnostic::SourceFile;

/// A loop over threads with more text than this is large, in bytes with the functions that it calls. The quantised products of
/// language models are: in all forms, each would take a compiler several seconds.
const LARGE_TEXT: usize = 1500;

/// The word that marks such a loop.
pub(super) const LARGE: &str = "gs_cpu_large";

/// Which loops over threads mention a variable.
#[derive(Default)]
struct Mentions {
    loops: BTreeSet<usize>,
    /// The kernel's innermost loop around the last of them.
    around: Option<usize>,
}

/// The text while it is being written.
pub(super) struct Emitter<'e, 't> {
    source: &'e SourceFile,
    path: &'e str,
    variables: &'e Variables<'e, 't>,
    /// Variables that must be arrays, because shuffles read them from other threads.
    stored: HashSet<usize>,
    mentions: HashMap<usize, Mentions>,
    /// Variables that one loop both changes and reads from other threads. They need two arrays, because each thread
    /// must read the old values.
    twofold: HashSet<usize>,
    /// How many loops over threads we have looked at.
    count: usize,
    /// The offset of the innermost branch that only some threads enter.
    branch: Option<usize>,
    out: String,
}

impl<'e, 't> Emitter<'e, 't> {
    pub(super) fn new(
        source: &'e SourceFile,
        path: &'e str,
        variables: &'e Variables<'e, 't>,
        stored: HashSet<usize>,
    ) -> Self {
        Self {
            source,
            path,
            variables,
            stored,
            mentions: HashMap::new(),
            twofold: HashSet::new(),
            count: 0,
            branch: None,
            out: String::new(),
        }
    }

    /// Returns the function's body and its attributes. If we cannot keep a variable between loops, returns the variable
    /// as the error.
    pub(super) fn body(mut self, steps: &[Step]) -> Result<(String, &'static str), &'e Variable<'t>> {
        self.look(steps);
        for (index, variable) in self.variables.list.iter().enumerate() {
            if variable.kind != Kind::Own {
                continue;
            }
            if !variable.storable && !self.is_local(index) {
                return Err(variable);
            }
            // The threads change this parameter, so each needs its own copy.
            if variable.declaration.is_none() {
                self.declare(index);
                let name = &variable.name;
                self.line(format!(
                    "gs_cpu_each(gs_threads, [&](const auto gs_turn) GS_CPU_LOOP {{ gs_of_{name}.at[gs_turn.thread] = {name}; \
                     }});"
                ));
            }
        }
        self.steps(steps);
        let attributes = if self.twofold.is_empty() { "" } else { " GS_CPU_CHAINED" };
        Ok((self.out, attributes))
    }

    /// Finds out which loops mention each variable.
    fn look(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Loop(Loop { purpose, pieces, around, written, read }) => {
                    self.mention(pieces.iter().chain(purpose.head()), *around);
                    self.twofold.extend(written.intersection(read));
                }
                Step::Common(_) | Step::Declare(_) => {}
                Step::Inside { body, .. } => self.look(body),
                Step::Branch { condition, around, body, .. } => {
                    self.mention([condition], *around);
                    self.look(body);
                }
                Step::Lanes { otherwise, .. } => self.look(otherwise),
            }
        }
    }

    fn mention<'p>(&mut self, pieces: impl IntoIterator<Item = &'p Piece>, around: Option<usize>) {
        self.count += 1;
        for index in self.needed(pieces) {
            let mentions = self.mentions.entry(index).or_default();
            mentions.loops.insert(self.count);
            mentions.around = around;
        }
    }

    /// Returns the variables that a loop over threads mentions, and those that we need to compute them again.
    fn needed<'p>(&self, pieces: impl IntoIterator<Item = &'p Piece>) -> Vec<usize> {
        let list = &self.variables.list;
        let mut needed = vec![false; list.len()];
        for piece in pieces {
            let meant = piece.words.iter().filter_map(|word| self.variables.find(word, piece.at));
            meant.for_each(|index| needed[index] = true);
        }
        for index in (0..list.len()).rev() {
            if let (true, Kind::Again, Some(value)) = (needed[index], list[index].kind, list[index].value()) {
                let inside = self.variables.waits.words(&self.source.text, value);
                let at = value.start_byte();
                let meant = inside.iter().filter_map(|word| self.variables.find(word, at));
                meant.for_each(|index| needed[index] = true);
            }
        }
        (0..list.len()).filter(|&index| needed[index]).collect()
    }

    /// Returns how a loop may go over threads, as flags of `gs_cpu_how`.
    fn how<'p>(&self, pieces: impl IntoIterator<Item = &'p Piece> + Clone, sets_index: bool) -> String {
        let words = [
            ("gs_cpu_sets_index", sets_index || pieces.clone().into_iter().any(|piece| piece.reads_index)),
            ("gs_cpu_by_warp", self.asks_for_warps(pieces.clone())),
            (LARGE, self.is_large(pieces.clone())),
            ("gs_cpu_any_order", Accesses::in_any_order(pieces.into_iter().map(|piece| &piece.accesses))),
        ];
        let how: Vec<_> = words.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word).collect();
        if how.is_empty() { "0".to_owned() } else { how.join(" | ") }
    }

    /// Returns true if a loop's body is so large that the compiler should see it only a few times.
    fn is_large<'p>(&self, pieces: impl IntoIterator<Item = &'p Piece>) -> bool {
        let length = |piece: &Piece| piece.text.len() + self.variables.waits.length(&piece.words);
        pieces.into_iter().map(length).sum::<usize>() > LARGE_TEXT
    }

    /// Returns true if a loop over threads asks for a thread's warp or lane, itself or in a shuffle.
    fn asks_for_warps<'p>(&self, pieces: impl IntoIterator<Item = &'p Piece> + Clone) -> bool {
        let of_warp = |index: &usize| matches!(self.variables.list[*index].course, Course::OfWarp(..));
        self.needed(pieces.clone()).iter().any(of_warp)
            || pieces.into_iter().any(|piece| piece.text.contains("gs_turn."))
    }

    /// Returns true if only one loop over threads uses the variable. That loop can then declare it.
    fn is_local(&self, index: usize) -> bool {
        let variable = &self.variables.list[index];
        variable.declaration.is_some()
            && !self.stored.contains(&index)
            && self
                .mentions
                .get(&index)
                .is_none_or(|mentions| mentions.loops.len() == 1 && mentions.around == variable.around)
    }

    /// Returns true if a loop can work on a copy of the variable. Something that holds its address would not see the
    /// copy.
    fn is_copied(&self, index: usize) -> bool {
        self.variables.list[index].extents.is_empty() && !self.variables.is_addressed(index)
    }

    /// Declares the array for a variable.
    fn declare(&mut self, index: usize) {
        let Variable { name, ty, extents, .. } = &self.variables.list[index];
        let space = if extents.is_empty() { "" } else { " " };
        let values = if self.twofold.contains(&index) { "twofold" } else { "values" };
        self.line(format!("gs_cpu_{values}<{ty}{space}{extents}> gs_of_{name};"));
    }

    /// Returns the declaration that you wrote, with or without the value.
    fn declaration(&self, variable: &Variable<'t>, with_value: bool) -> String {
        let text = &self.source.text;
        let Some(declaration) = variable.declaration else { return String::new() };
        let first = declaration.child_by_field_name("declarator").unwrap_or(variable.declarator);
        let declarator = match variable.declarator.child_by_field_name("declarator") {
            Some(inner) if !with_value && variable.value().is_some() => inner,
            _ => variable.declarator,
        };
        format!("{}{};", &text[declaration.start_byte()..first.start_byte()], &text[declarator.byte_range()])
    }

    /// Returns the declaration of a variable that each loop computes again.
    ///
    /// For example, `int i = blockIdx.x * blockDim.x + threadIdx.x` becomes `gs_first_i = blockIdx.x * blockDim.x + 0u,
    /// i = gs_first_i + gs_turn.x`. `gs_turn.x` is signed, so the sum must not overflow, and the compiler can see that
    /// neighbours have neighbouring indices. An unsigned sum could wrap around anywhere, so it would not dare to use
    /// vectors.
    fn again(&self, variable: &Variable<'t>) -> String {
        let text = &self.source.text;
        let (step, value) = match (&variable.course, variable.value()) {
            (Course::Grows(step), Some(value)) => (step, value),
            (Course::OfWarp(number, condition), Some(value)) => {
                let (ty, name, value) = (&variable.ty, &variable.name, &text[value.byte_range()]);
                return format!("const {ty} {name} = {condition} ? gs_turn.{number} : {value};");
            }
            _ => return self.declaration(variable, true),
        };
        let first = first_of(&text[step.clone()]);
        let (ty, name) = (&variable.ty, &variable.name);
        let (before, after) = (&text[value.start_byte()..step.start], &text[step.end..value.end_byte()]);
        format!("const {ty} gs_first_{name} = {before}{first}{after}, {name} = gs_first_{name} + gs_turn.x;")
    }

    fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// Writes a `#line`, so that errors in the next line name the line in your file.
    fn place(&mut self, at: usize) {
        self.line(self.source.line_directive(at, self.path));
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Loop(one) => self.one(one),
                Step::Common(piece) => {
                    self.place(piece.at);
                    self.line(&piece.text);
                }
                Step::Declare(index) => {
                    let variable = &self.variables.list[*index];
                    match variable.kind {
                        Kind::Uniform => {
                            self.place(variable.declarator.start_byte());
                            let declaration = self.declaration(variable, true);
                            self.line(declaration);
                        }
                        Kind::Own if !self.is_local(*index) => self.declare(*index),
                        Kind::Own | Kind::Again => {}
                    }
                }
                Step::Inside { head, body, tail } => {
                    self.place(head.at);
                    self.line(format!("{} {{", head.text));
                    self.steps(body);
                    self.line(format!("}} {tail}"));
                }
                Step::Branch { side, condition, negated, body, .. } => {
                    self.branch(*side, condition, *negated, body);
                }
                Step::Lanes { lanes, otherwise } => self.lanes(lanes, otherwise),
            }
        }
    }

    fn one(&mut self, one: &Loop) {
        let Loop { purpose, pieces, written, read, .. } = one;
        match purpose {
            Purpose::Rows(rows) => self.rows(Some(rows), one),
            Purpose::Few(few) => self.few(few, pieces, written),
            Purpose::Run if pieces.iter().any(|piece| !piece.row.is_empty()) => self.rows(None, one),
            _ => self.all(one),
        }
        let mut renewed: Vec<usize> = written.intersection(read).copied().collect();
        renewed.sort_unstable();
        for index in renewed {
            let Variable { name, scope, .. } = &self.variables.list[index];
            // A thread that does not take the branch reads its value again after it.
            let keeps = self.branch.is_some_and(|branch| scope.start < branch);
            self.line(format!("gs_threads.template renew<{keeps}>(gs_of_{name});"));
        }
    }

    /// Writes a loop over all threads.
    fn all(&mut self, Loop { purpose, pieces, written, read, .. }: &Loop) {
        let how = self.how(pieces, false);
        let turn = "const auto gs_turn";
        let turn_and_returns = "const auto gs_turn, uint8_t& gs_returns";
        let (result, over, arguments, tail) = match purpose {
            Purpose::Run | Purpose::Rows(_) | Purpose::Few(_) => (String::new(), "each", turn, "});"),
            // We must return once no thread is left, because a loop in the kernel might never end without threads.
            Purpose::Leave => {
                ("if (!".to_owned(), "each_but", turn_and_returns, "gs_returns = 0;\n})) return;")
            }
            Purpose::Guard => ("if (!".to_owned(), "each_but", turn_and_returns, "})) return;"),
            Purpose::Gather(number) => (format!("const auto gs_value_{number} = "), "gather", turn, "});"),
            Purpose::Vote(number) => (format!("const auto gs_vote_{number} = "), "vote", turn, "});"),
        };
        self.line(format!("{result}gs_cpu_{over}<{how}>(gs_threads, [&]({arguments}) GS_CPU_LOOP {{"));
        self.bind(&pieces.iter().collect::<Vec<_>>());
        let (before, after) = match purpose {
            Purpose::Gather(_) | Purpose::Vote(_) => ("return (", ");"),
            Purpose::Guard => ("gs_returns = bool", ";"),
            _ => ("", ""),
        };
        self.pieces(pieces, before, after);
        self.store(written, read);
        self.line(tail);
    }

    /// Writes the pieces of a loop, each with a text before and after it.
    fn pieces(&mut self, pieces: &[Piece], before: &str, after: &str) {
        for piece in pieces {
            self.place(piece.at);
            match piece.declares {
                None => {
                    self.line(format!("{before}{}{after}", piece.text));
                }
                Some(index) => self.initialise(index, piece),
            }
        }
    }

    /// Stores the variables that a loop changes.
    fn store(&mut self, written: &HashSet<usize>, read: &HashSet<usize>) {
        let mut written: Vec<usize> = written.iter().copied().collect();
        written.sort_unstable();
        for index in written {
            let variable = &self.variables.list[index];
            if variable.kind == Kind::Own && self.is_copied(index) && !self.is_local(index) {
                let place = if read.contains(&index) { "next" } else { "at" };
                self.line(format!("gs_of_{0}.{place}[gs_turn.thread] = {0};", variable.name));
            }
        }
    }

    /// Writes a loop over threads, row by row. We need rows if the kernel has a loop or an `if` around the threads of a
    /// row, or if the loop makes use of facts about a row.
    fn rows(&mut self, rows: Option<&Rows>, one: &Loop) {
        let Loop { pieces, written, read, .. } = one;
        let (head, counter) = rows.map_or((None, None), |rows| (Some(&rows.head), rows.counter.as_ref()));
        let how = self.how(pieces, head.is_some_and(|head| head.reads_index));
        self.line(format!("gs_cpu_each_row<{how}>(gs_threads, [&](const gs_cpu_row gs_turn) GS_CPU_LOOP {{"));
        self.line("const gs_cpu_row gs_row = gs_turn;");
        let facts = pieces
            .iter()
            .map(|piece| Piece { words: piece.row.words.clone(), ..Piece::bare(piece.at, String::new()) });
        let facts: Vec<_> = facts.collect();
        self.bind(&head.into_iter().chain(&facts).collect::<Vec<_>>());
        if let Some(head) = head {
            self.place(head.at);
            self.line(format!("{} {{", head.text));
        }
        let touched: BTreeSet<_> = pieces.iter().flat_map(|piece| &piece.row.touched).collect();
        let mut holds: BTreeSet<_> = pieces.iter().flat_map(|piece| &piece.row.conditions).collect();
        let mut guard = String::new();
        for touched in touched {
            self.line(format!("gs_row.behind({touched});"));
        }
        if let Some(counter) = counter {
            self.line(format!("gs_row.ahead({});", counter.ahead));
            holds.insert(&counter.holds);
            guard = format!("if (gs_within || {}) ", counter.condition);
        }
        if holds.is_empty() {
            self.line(format!("gs_row.each<{how}>([&](const auto gs_turn) GS_CPU_LOOP {{"));
        } else {
            let holds = holds.into_iter().map(String::as_str).collect::<Vec<_>>().join(" && ");
            self.line(format!(
                "gs_row.each_within<{how}>({holds}, [&](const auto gs_turn, const auto gs_within) GS_CPU_LOOP {{"
            ));
        }
        if let Some(counter) = counter {
            self.line(&counter.declaration);
        }
        self.bind(&pieces.iter().collect::<Vec<_>>());
        self.pieces(pieces, &guard, "");
        self.store(written, read);
        self.line(format!("}});\n{}}});", if head.is_some() { "}\n" } else { "" }));
    }

    /// Writes a loop over the few threads that fulfil a condition.
    fn few(&mut self, Few { condition, places }: &Few, pieces: &[Piece], written: &HashSet<usize>) {
        let how = self.how(pieces.iter().chain([condition]), false);
        if let Some(places) = places {
            let (over, places) = match places {
                Places::At { distance, every } => {
                    let every = every.as_deref().unwrap_or("0");
                    (format!("each_at<{how}>(gs_threads, {every}"), distance)
                }
                Places::Below(count) => (format!("each_below<{how}>(gs_threads"), count),
            };
            self.line(format!("gs_cpu_{over}, [&](const gs_cpu_row gs_turn) GS_CPU_LOOP {{"));
            self.bind(&[places]);
            self.place(places.at);
            self.line(format!("return {};", places.text));
        } else {
            self.line(format!(
                "gs_cpu_each_of_few<{how}>(gs_threads, [&](const auto gs_turn) GS_CPU_LOOP {{"
            ));
            self.holds(condition);
        }
        self.line("}, [&](const auto gs_turn) GS_CPU_LOOP {");
        let asked = places.as_ref().map(|_| condition);
        self.bind(&asked.into_iter().chain(pieces).collect::<Vec<_>>());
        if let Some(condition) = asked {
            self.place(condition.at);
            self.line(format!("if {}", condition.text));
        }
        self.pieces(pieces, "", "");
        self.store(written, &HashSet::new());
        self.line("});");
    }

    /// Writes C++ that returns a condition's value for one thread.
    fn holds(&mut self, condition: &Piece) {
        self.bind(&[condition]);
        self.place(condition.at);
        self.line(format!("return bool{};", condition.text));
    }

    /// Declares the variables that a loop mentions.
    fn bind(&mut self, pieces: &[&Piece]) {
        self.line("const uint3 threadIdx = gs_turn.index;");
        for index in self.needed(pieces.iter().copied()) {
            let variable = &self.variables.list[index];
            let name = &variable.name;
            match variable.kind {
                Kind::Uniform => {}
                Kind::Again => {
                    let declaration = self.again(variable);
                    self.place(variable.declarator.start_byte());
                    self.line(declaration);
                }
                // We store the copy at the end, whether or not a branch has changed it, because a store under a
                // condition prevents vectors.
                Kind::Own if !self.is_local(index) => {
                    let by = if self.is_copied(index) { "" } else { "&" };
                    self.line(format!("auto{by} {name} = gs_of_{name}.at[gs_turn.thread];"));
                }
                // The piece declares it, together with its first value.
                Kind::Own if pieces.iter().any(|piece| piece.declares == Some(index)) => {}
                Kind::Own => {
                    let declaration = self.declaration(variable, false);
                    self.line(declaration);
                }
            }
        }
    }

    /// Gives a variable its first value.
    fn initialise(&mut self, index: usize, piece: &Piece) {
        let variable = &self.variables.list[index];
        let name = &variable.name;
        let value = piece.text.trim();
        let direct = value.starts_with('(') || value.starts_with('{');
        let assigned = if direct { value.to_owned() } else { format!(" = {value}") };
        let line = if self.is_local(index) {
            let declaration = self.declaration(variable, false);
            let declaration = declaration.trim_end_matches(';');
            let equals = self.source.text[variable.declarator.byte_range()].contains('=');
            if direct && equals {
                format!("{declaration} = {value};")
            } else {
                format!("{declaration}{assigned};")
            }
        } else if !variable.extents.is_empty() {
            // GCC 12 fails if the extents are constants from outside of the lambda, so we take the type from the array.
            format!(
                "{{ const std::remove_reference_t<decltype({name})> gs_first{assigned}; std::memcpy(&{name}, &gs_first, \
                 sizeof {name}); }}"
            )
        } else {
            let parenthesised =
                value.starts_with('(') && !self.source.text[variable.declarator.byte_range()].contains('=');
            let value = if parenthesised { format!("{}{value}", variable.ty) } else { value.to_owned() };
            format!("{name} = {value};")
        };
        self.line(line);
    }

    /// Writes statements with vectors, and the ordinary steps for threads that do not fill whole warps.
    fn lanes(&mut self, lanes: &Lanes, otherwise: &[Step]) {
        let types: Vec<_> = lanes.types.iter().map(String::as_str).collect();
        self.line(format!(
            "if (!gs_cpu_in_lanes<{}>(gs_threads, [&](const auto& gs_turn) GS_CPU_LOOP {{\n\
             const auto threadIdx = gs_turn.index;",
            types.join(", ")
        ));
        for &index in &lanes.used {
            let Variable { name, kind, ty, .. } = &self.variables.list[index];
            match kind {
                Kind::Uniform => {}
                Kind::Again => lanes.again.get(&index).into_iter().for_each(|text| self.line(text)),
                Kind::Own if self.is_local(index) => {
                    self.line(format!("auto {name} = gs_turn.template as<{ty}>(0);"));
                }
                Kind::Own => self.line(format!("auto {name} = gs_turn.load(gs_of_{name}.at);")),
            }
        }
        for (at, text) in &lanes.statements {
            self.place(*at);
            self.line(text);
        }
        for &index in &lanes.written {
            let name = &self.variables.list[index].name;
            if !self.is_local(index) {
                self.line(format!("gs_turn.store(gs_of_{name}.at, {name});"));
            }
        }
        self.line("})) {");
        self.steps(otherwise);
        self.line("}");
    }

    /// Writes one side of a branch. The outermost branch has two forms, one for whole warps and one for any threads.
    /// Further inside we write only one, because each level would double the text that the compiler sees.
    fn branch(&mut self, side: usize, condition: &Piece, negated: bool, body: &[Step]) {
        let around = self.branch.replace(condition.at);
        // We decide who takes which side before the first side can change anything.
        let name = if negated { format!("gs_other_{side}") } else { format!("gs_side_{side}") };
        let (branch, turn) =
            (format!("gs_cpu_threads {name} = gs_cpu_branch"), "[&](const auto gs_turn) GS_CPU_LOOP");
        if negated {
            self.line(format!(
                "{branch}(gs_threads, {turn} {{ return !gs_side_{side}.runs[gs_turn.thread]; }});"
            ));
        } else {
            let how = self.how([condition], false);
            self.line(format!("{branch}<{how}>(gs_threads, {turn} {{"));
            self.holds(condition);
            self.line("});");
        }
        let (head, tail) = if around.is_none() {
            (format!("gs_cpu_enter({name}, [&](auto& gs_threads) GS_CPU_LOOP {{"), "});")
        } else {
            (format!("if ({name}.any()) {{\ngs_cpu_threads& gs_threads = {name};"), "}")
        };
        self.line(head);
        self.steps(body);
        self.line(tail);
        self.branch = around;
    }
}
