//! Atomic file writing. A killed process may leave a temporary file beside the target; the next process
//! that writes in the folder removes it. A temporary file is locked as long as its writer lives.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The prefix and suffix of temporary files.
const PREFIX: &str = ".taper-";
const SUFFIX: &str = ".tmp";

/// Writes a temporary file beside `path` by `content`, and renames it; an existing file stays until the
/// new one is complete. `failed` converts errors of the file system.
///
/// Links are followed and kept: the file that they lead to is replaced. An existing file's permissions
/// are kept, and if they forbid writing, it is not replaced. A device or a pipe is written to directly.
/// Temporary files of killed processes in the folder are removed.
///
/// # Errors
/// An error of `content` or of the file system. The file is then unchanged.
pub fn write_whole<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    content: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let target = follow(path).map_err(&failed)?;
    let open = || OpenOptions::new().write(true).open(&target).map_err(&failed);
    match fs::metadata(&target) {
        Ok(old) if old.is_file() => {
            // Replacing a file needs permission only for the folder; this checks the permission for the
            // file.
            drop(open()?);
            replace(&target, failed, content, Some(old.permissions()))
        }
        Ok(old) if old.is_dir() => Err(failed(io::Error::new(ErrorKind::IsADirectory, "is a directory"))),
        Ok(_) => content(&mut open()?),
        Err(error) if error.kind() == ErrorKind::NotFound => replace(&target, failed, content, None),
        Err(error) => Err(failed(error)),
    }
}

/// The target of a path after following all links. The last one need not exist.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_path_buf();
    // Linux follows up to 40 links.
    for _ in 0..40 {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                let next = fs::read_link(&target)?;
                target = target.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
            }
            Ok(_) => return Ok(target),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(target),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many links, or links that lead to each other"))
}

fn replace<E>(
    target: &Path,
    failed: impl Fn(io::Error) -> E,
    content: impl FnOnce(&mut File) -> Result<(), E>,
    permissions: Option<Permissions>,
) -> Result<(), E> {
    sweep(folder_of(target));
    let (mut file, beside) = create(target, permissions.is_some()).map_err(&failed)?;
    let written = (|| {
        content(&mut file)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions).map_err(&failed)?;
        }
        file.sync_all().map_err(&failed)?;
        // Outside of Unix an open file cannot be renamed. On Unix its lock protects it from `sweep`
        // until it is renamed.
        #[cfg(not(unix))]
        drop(file);
        fs::rename(&beside, target).map_err(&failed)
    })();
    if written.is_err() {
        // The first failure is the one to report.
        let _ = fs::remove_file(&beside);
    } else if cfg!(unix) {
        // The new name survives a power failure once the folder is on disk; not every file system
        // supports that.
        let _ = File::open(folder_of(target)).and_then(|folder| folder.sync_all());
    }
    written
}

/// A new file beside `target`, locked by this process, and its path. With `private` only the owner can
/// access it until the final permissions are set.
fn create(target: &Path, private: bool) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = target.with_file_name(format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id()));
        let file = match options.open(&path) {
            Ok(file) => file,
            // A killed process with this number left the file, and it is not swept yet.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            // Another process, which is sweeping, has the lock.
            Err(TryLockError::WouldBlock) => {}
            Ok(()) if !path.exists() => {}
            // Some file systems have no locks; `sweep` removes nothing there.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((file, path)),
        }
    }
}

/// Removes the incomplete files of killed processes in a folder: temporary files that no process has
/// locked. Files that cannot be removed stay.
pub fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with(PREFIX) && name.ends_with(SUFFIX) && is_old_enough(&entry)) {
            continue;
        }
        let path = entry.path();
        // Opened for writing, because some systems require it for a lock.
        if let Ok(file) = OpenOptions::new().write(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// On Unix the lock alone tells whether a file's writer lives.
#[cfg(unix)]
fn is_old_enough(_: &fs::DirEntry) -> bool {
    true
}

/// Elsewhere a file is unlocked for a moment before it is renamed, so only a file that is an hour old is
/// known to have no writer.
#[cfg(not(unix))]
fn is_old_enough(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() >= 3600))
}

/// The folder of a file; for a bare name, the current folder.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn temporary(folder: &Path) -> Vec<String> {
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(PREFIX)).collect()
    }

    #[test]
    fn files_of_dead_writers_are_removed_and_those_of_living_ones_stay() {
        let folder = std::env::temp_dir().join(format!("taper-write-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| {
            write_whole(&folder.join(name), |error| error, |file| file.write_all(text.as_bytes()))
        };
        // Files of killed processes, one of them with this process's number.
        for name in [".taper-1-0.tmp".to_string(), format!(".taper-{}-0.tmp", std::process::id())] {
            fs::write(folder.join(name), "half").unwrap();
        }
        fs::write(folder.join(".taper-notes"), "stays").unwrap();
        // Files of a live process with this one's number, in another container.
        let names = (0..64).map(|k| folder.join(format!(".taper-{}-{k}.tmp", std::process::id())));
        let alive: Vec<File> = names
            .map(|path| {
                let file = File::create(path).unwrap();
                file.lock().unwrap();
                file
            })
            .collect();
        write("a", "first").unwrap();
        assert_eq!(temporary(&folder).len(), 64 + 1);
        drop(alive);
        // A file that is written while others are.
        let outer = write_whole(
            &folder.join("b"),
            |error| error,
            |file| {
                write("a", "second")?;
                assert_eq!(temporary(&folder).len(), 1 + 1);
                file.write_all(b"outer")
            },
        );
        outer.unwrap();
        assert_eq!(temporary(&folder), [".taper-notes"]);
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "second");
        assert_eq!(fs::read_to_string(folder.join("b")).unwrap(), "outer");
        fs::remove_dir_all(&folder).unwrap();
    }
}
