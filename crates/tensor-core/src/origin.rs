//! Whose source line an operation is built for: the caller's, unless someone (a gradient rule) builds it for another.

use std::{cell::Cell, panic::Location};

thread_local! {
    static ORIGIN: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Runs `f` with every tensor built in it ascribed to `location`: a gradient blames the line of the operation it is of.
pub fn with_location<R>(location: &'static Location<'static>, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<&'static Location<'static>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ORIGIN.set(self.0);
        }
    }
    let _restore = Restore(ORIGIN.replace(Some(location)));
    f()
}

/// Runs `f` with every tensor built in it, and every error met, ascribed to the line that called the caller: for a function of a library
/// that hands closures on, which hide that line.
#[track_caller]
pub fn at_caller<R>(f: impl FnOnce() -> R) -> R {
    with_location(here(), f)
}

/// The line that what is built now belongs to.
#[track_caller]
pub(crate) fn here() -> &'static Location<'static> {
    // Not `unwrap_or_else(Location::caller)`: called by the standard library, it would name a line there.
    match ORIGIN.get() {
        Some(location) => location,
        None => Location::caller(),
    }
}

/// The line, unless it is in one of the library's own crates or in the standard library, which called a
/// function that it was handed: a user can do nothing with such a line.
pub(crate) fn outside(location: &'static Location<'static>) -> Option<&'static Location<'static>> {
    let file = location.file();
    (!is_ours(file, file!()) && !is_standard(file)).then_some(location)
}

/// Whether `file` is a source of the standard library.
fn is_standard(file: &str) -> bool {
    let file = file.replace('\\', "/");
    file.starts_with("/rustc/")
        || ["core", "alloc", "std"].iter().any(|name| file.contains(&format!("/library/{name}/src/")))
}

/// Whether `file` is a source of the library, `this` being the path of this file: the crates lie beside each other, in a
/// registry with their versions.
fn is_ours(file: &str, this: &str) -> bool {
    const CRATES: [&str; 12] = [
        "taper",
        "tensor-core",
        "backend-cpu",
        "backend-wgpu",
        "autograd",
        "inspect",
        "linalg",
        "nn",
        "optim",
        "data",
        "distributed",
        "distributions",
    ];
    let slashes = |path: &str| path.replace('\\', "/");
    let (file, this) = (slashes(file), slashes(this));
    let Some(at) = this.rfind("tensor-core") else { return false };
    let Some((name, inside)) = file.strip_prefix(&this[..at]).and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let is = |known: &str| {
        name.strip_prefix(known).is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix('-').is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    inside.starts_with("src/") && CRATES.iter().any(|known| is(known))
}

#[cfg(test)]
mod tests {
    use super::{is_ours, is_standard, outside};

    #[test]
    fn a_line_of_the_standard_library_is_no_users_line() {
        // A function that is handed on is called from there.
        let unit = [()].first().copied();
        let handed_on = unit.map(tracked).unwrap_or(std::panic::Location::caller());
        assert!(is_standard(handed_on.file()), "{handed_on}");
        assert!(outside(handed_on).is_none());
        assert!(!is_standard("src/main.rs") && !is_standard("/home/me/library/src/main.rs"));
    }

    #[track_caller]
    fn tracked((): ()) -> &'static std::panic::Location<'static> {
        std::panic::Location::caller()
    }

    #[test]
    fn the_library_s_own_lines_are_known() {
        let here = "crates/tensor-core/src/origin.rs";
        assert!(is_ours("crates/nn/src/init.rs", here));
        assert!(is_ours("crates\\nn\\src\\init.rs", "crates\\tensor-core\\src\\origin.rs"));
        assert!(!is_ours("crates/taper/tests/errors.rs", here));
        assert!(!is_ours("crates/nn/tests/layers.rs", here));
        assert!(!is_ours("src/main.rs", here));
        let registry = "/home/u/.cargo/registry/src/index-1/tensor-core-0.1.0/src/origin.rs";
        assert!(is_ours("/home/u/.cargo/registry/src/index-1/nn-0.1.0/src/init.rs", registry));
        assert!(!is_ours("/home/u/.cargo/registry/src/index-1/nn-extra-0.1.0/src/init.rs", registry));
        assert!(!is_ours("src/main.rs", registry));
    }
}
