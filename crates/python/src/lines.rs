//! The line of Python that asks for an operation, so that profiles, pictures of graphs, the studio, and
//! errors that are met later name the program's own lines.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Mutex, OnceLock},
};

use pyo3::{ffi, prelude::*, sync::PyOnceLock};
use taper::{
    Location,
    tensor_core::{hide_lines_of, lock},
};

/// How many code objects a thread remembers. A program that makes functions all the time begins anew.
const CODES: usize = 4096;

/// A code object, and the name of its file; none for a file of this package. Its address is the key, so it
/// is kept alive.
struct Code {
    _object: Py<PyAny>,
    file: Option<&'static str>,
}

thread_local! {
    static KNOWN: RefCell<HashMap<usize, Code>> = RefCell::new(HashMap::new());
}

/// The line of the innermost function that is outside of this package.
pub(crate) fn caller(py: Python<'_>) -> Option<Location> {
    let mut frame = current_frame(py)?;
    loop {
        let (code, line) = code_and_line(&frame);
        match file_of(&code) {
            Some(file) => return Some(Location::new(file, line)),
            None => frame = frame.getattr("f_back").ok().filter(|back| !back.is_none())?,
        }
    }
}

/// The frame of the Python function that runs in this thread.
#[allow(unsafe_code)]
fn current_frame(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: `py` shows that the interpreter's lock is held. The function gives a borrowed reference to an
    // object, or null while no function of Python runs, which `from_borrowed_ptr_or_opt` handles.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }
}

/// The code object of a frame, and the number of the line that it is at.
#[allow(unsafe_code)]
fn code_and_line<'py>(frame: &Bound<'py, PyAny>) -> (Bound<'py, PyAny>, u32) {
    let object = frame.as_ptr().cast();
    // SAFETY: `object` is a frame, since it is from `current_frame` or from a frame's `f_back`, and the lock
    // is held by `frame`. `PyFrame_GetCode` gives a new reference and never null.
    unsafe {
        let code = Bound::from_owned_ptr(frame.py(), ffi::PyFrame_GetCode(object).cast());
        (code, u32::try_from(ffi::PyFrame_GetLineNumber(object)).unwrap_or(0))
    }
}

fn file_of(code: &Bound<'_, PyAny>) -> Option<&'static str> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(code) = known.get(&code.as_ptr().addr()) {
            return code.file;
        }
        let name = code.getattr("co_filename").and_then(|name| name.extract::<String>());
        let file = name.ok().filter(|name| !is_own(code.py(), name)).map(|name| kept(&name));
        if known.len() >= CODES {
            known.clear();
        }
        known.insert(code.as_ptr().addr(), Code { _object: code.clone().unbind(), file });
        file
    })
}

/// Whether a file is one of this package.
fn is_own(py: Python<'_>, file: &str) -> bool {
    static FOLDER: PyOnceLock<String> = PyOnceLock::new();
    let folder = FOLDER.get_or_try_init(py, || {
        let file: String = py.import("taper")?.getattr("__file__")?.extract()?;
        Ok::<_, PyErr>(
            Path::new(&file).parent().map_or_else(String::new, |folder| folder.display().to_string()),
        )
    });
    folder.is_ok_and(|folder| {
        file.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with(['/', '\\']))
    })
}

/// The name of a file, which is kept once for as long as the process lives.
fn kept(name: &str) -> &'static str {
    static NAMES: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let mut names = lock(NAMES.get_or_init(Mutex::default));
    match names.get(name) {
        Some(known) => known,
        None => {
            let new: &'static str = Box::leak(name.into());
            names.insert(new);
            new
        }
    }
}

/// Errors name no line of this module's own Rust.
pub(crate) fn hide_own_lines() {
    hide_lines_of(file!());
}
