//! Places that pieces take turns in, so that a few of them are under way at any time.

/// Puts pieces into `depth` places, one after another, by calling `submit` until it returns false, because there was no further
/// piece. Calls `finish` for each piece in order, before its place is used again. Both get the piece's number.
///
/// We only make a place when it is first needed, so a short run needs few.
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
