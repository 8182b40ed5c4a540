//! Errors of commands, which are printed as one line on standard error.

use std::{error::Error, fmt::Display, fs, path::Path, process::ExitCode};

/// The result of a command, or of a part of it.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The exit code of a command, whose error is printed. A pipe that was closed, as in `taper devices | head`,
/// is no error.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Err(error) if !taper::is_closed_pipe(&*error) => {
            eprintln!("error: {}", line(&*error));
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// An error as one line. Places in the sources of this program, which errors of the library name, would not
/// help its users.
pub(crate) fn line(error: &(dyn Error + 'static)) -> String {
    let text = match error.downcast_ref::<taper::Error>() {
        Some(error) => error.kind().to_string(),
        None => error.to_string(),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// Adds the path of a file to an error of reading or writing it.
pub(crate) fn at<E: Display>(path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Outcome<String> {
    Ok(fs::read_to_string(path).map_err(at(path))?)
}

/// The lines of a file.
pub(crate) fn read_lines(path: &Path) -> Outcome<Vec<String>> {
    Ok(read_text(path)?.lines().map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_without_places_in_the_sources() {
        let error: Box<dyn Error> = "a file\n  has two lines\n\n".into();
        assert_eq!(line(&*error), "a file; has two lines");
        let error = taper::device("cuda:0").unwrap_err();
        assert!(error.to_string().contains(file!()), "{error}");
        let line = line(&error);
        assert!(line.contains("wgpu") && !line.contains(file!()), "{line}");
    }
}
