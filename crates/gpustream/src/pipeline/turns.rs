//! Places that pieces take turns in, so that a few of them are under way at any time.

/// Calls `submit` to put pieces into `depth` places, one after the other, until it returns that there was none, and
/// calls `finish` for each piece, in order, before its place is used again. Both get the piece's number.
///
/// Places are made when they are first needed, so that a short run needs few.
pub(super) fn take_turns<S, E>(
    depth: usize,
    mut make: impl FnMut() -> Result<S, E>,
    mut submit: impl FnMut(usize, &mut S) -> Result<bool, E>,
    mut finish: impl FnMut(usize, &mut S) -> Result<(), E>,
) -> Result<(), E> {
    let mut places = Vec::new();
    let mut submitted = 0;
    let mut finished = 0;
    loop {
        if places.len() < depth {
            places.push(make()?);
        }
        let place = &mut places[submitted % depth];
        if submitted - finished == depth {
            finish(finished, place)?;
            finished += 1;
        }
        if !submit(submitted, place)? {
            break;
        }
        submitted += 1;
    }
    (finished..submitted).try_for_each(|index| finish(index, &mut places[index % depth]))
}
