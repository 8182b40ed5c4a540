//! The source line to which an operation is ascribed: the caller's, unless other code (such as a
//! gradient rule) builds it on behalf of another line.

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{PoisonError, RwLock},
};

use super::{location::Location, on_drop::OnDrop};

thread_local! {
    static ORIGIN: Cell<Option<Location>> = const { Cell::new(None) };
    /// The operation whose gradient rule runs.
    static GRADIENT_RULE: Cell<Option<ForwardOperation>> = const { Cell::new(None) };
}

/// Until it is dropped, tensors built and errors met on this thread are ascribed to one line. See
/// [`caller_line`].
#[derive(Debug)]
#[must_use = "lines are ascribed until this is dropped"]
pub struct CallerLine {
    previous: Option<Location>,
    /// It restores the state of its own thread.
    of_thread: PhantomData<*const ()>,
}

impl CallerLine {
    fn set(origin: Option<Location>) -> CallerLine {
        CallerLine { previous: ORIGIN.replace(origin), of_thread: PhantomData }
    }
}

impl Drop for CallerLine {
    fn drop(&mut self) {
        ORIGIN.set(self.previous);
    }
}

/// Ascribes every tensor built and every error met to the line that called the caller, until the result is
/// dropped. `#[track_caller]` alone loses that line in closures, in methods of traits, and in functions
/// without the attribute, so a public function that has such parts begins with `let _line = caller_line();`.
/// An outer function's line is kept: it is the user's.
#[track_caller]
pub fn caller_line() -> CallerLine {
    CallerLine::set(Some(here()))
}

/// Runs `f` with every tensor built in it ascribed to `location`: a gradient is ascribed to the line of
/// its forward operation.
pub fn with_location<R>(location: Location, f: impl FnOnce() -> R) -> R {
    let _line = CallerLine::set(Some(location));
    f()
}

/// An operation whose gradient rule runs: the id of its tensor, and its name.
#[derive(Clone, Copy)]
pub(crate) struct ForwardOperation {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
}

/// Runs `f`, the gradient rule of an operation with this line. Tensors built in it belong to both.
pub(crate) fn in_gradient_rule<R>(
    operation: ForwardOperation,
    location: Location,
    f: impl FnOnce() -> R,
) -> R {
    let before = GRADIENT_RULE.replace(Some(operation));
    let _restore = OnDrop::new(|| GRADIENT_RULE.set(before));
    with_location(location, f)
}

/// The operation whose gradient rule runs on this thread.
pub(crate) fn gradient_rule() -> Option<ForwardOperation> {
    GRADIENT_RULE.get()
}

/// Runs `f`, a user's code that the library calls, with tensors and errors ascribed to their own lines in it.
pub fn with_own_lines<R>(f: impl FnOnce() -> R) -> R {
    let _line = CallerLine::set(None);
    f()
}

/// [`caller_line`] for the time of a closure.
#[track_caller]
pub fn at_caller<R>(f: impl FnOnce() -> R) -> R {
    with_location(here(), f)
}

/// The line to which tensors built now are ascribed.
#[track_caller]
pub(crate) fn here() -> Location {
    // Not `unwrap_or_else(Location::caller)`: the standard library would be the caller.
    match ORIGIN.get() {
        Some(location) => location,
        None => Location::caller(),
    }
}

/// The source folders of libraries that called [`hide_lines_of`].
static LIBRARIES: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());

/// From now on errors name no line of a library, but at most the line of the code that called it. `root`
/// is the value of `file!()` in the root of the library's sources. Taper does this for its own crates; a
/// library of layers on top of it may do the same.
///
/// ```
/// tensor_core::hide_lines_of(file!());
/// ```
pub fn hide_lines_of(root: &'static str) {
    let folder = folder(root);
    let mut libraries = LIBRARIES.write().unwrap_or_else(PoisonError::into_inner);
    // A root without a folder would hide every file.
    if !folder.is_empty() && !libraries.contains(&folder) {
        libraries.push(folder);
    }
}

/// The folder of a file, with the separator at its end.
const fn folder(file: &str) -> &str {
    let mut end = file.len();
    while end > 0 && !matches!(file.as_bytes()[end - 1], b'/' | b'\\') {
        end -= 1;
    }
    file.split_at(end).0
}

/// The line, unless it is in this crate, in a library that [hides its lines](hide_lines_of), or in the
/// standard library calling a closure: a user can do nothing with such a line.
pub(crate) fn outside(location: Location) -> Option<Location> {
    // The source folder of this crate: the parent of the folder of this file.
    const OWN: &str = {
        let (own, _) = folder(file!()).split_at(folder(file!()).len() - 1);
        folder(own)
    };
    let file = location.file();
    let libraries = LIBRARIES.read().unwrap_or_else(PoisonError::into_inner);
    let hidden = libraries.iter().chain([&OWN]).any(|folder| file.starts_with(folder));
    (!hidden && !is_standard(file)).then_some(location)
}

/// Whether `file` is a source file of the standard library.
fn is_standard(file: &str) -> bool {
    let file = file.replace('\\', "/");
    file.starts_with("/rustc/")
        || ["core", "alloc", "std"].iter().any(|name| file.contains(&format!("/library/{name}/src/")))
}

#[cfg(test)]
mod tests {
    use super::{Location, folder, is_standard, outside};

    #[test]
    fn a_line_of_the_standard_library_is_no_users_line() {
        // The standard library is the caller of a function passed to it.
        let unit = [()].first().copied();
        let handed_on = unit.map(tracked).unwrap_or(Location::caller());
        assert!(is_standard(handed_on.file()), "{handed_on}");
        assert!(outside(handed_on).is_none());
        assert!(!is_standard("src/main.rs") && !is_standard("/home/me/library/src/main.rs"));
    }

    #[track_caller]
    fn tracked((): ()) -> Location {
        Location::caller()
    }

    #[test]
    fn lines_of_this_crate_are_hidden_and_folders_end_with_their_separator() {
        assert!(outside(Location::caller()).is_none());
        assert_eq!(folder("crates/nn/src/lib.rs"), "crates/nn/src/");
        assert_eq!(folder("crates\\nn\\src\\lib.rs"), "crates\\nn\\src\\");
        assert_eq!(folder("main.rs"), "");
    }
}
