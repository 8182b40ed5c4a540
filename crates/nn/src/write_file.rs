//! Writing a file whole or not at all.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Writes beside `path` and renames; what was there stays until the new file is whole.
///
/// A link is followed, and stays: the file that it leads to is replaced. An older file's permissions stay, and where they
/// forbid writing it is not replaced. A device or a pipe is not replaced but written to.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = follow(path)?;
    match fs::metadata(&target) {
        Ok(old) if old.is_file() => {
            // Replacing asks for the right to the folder alone; this asks for that to the file.
            drop(OpenOptions::new().write(true).open(&target)?);
            replace(&target, bytes, Some(old.permissions()))
        }
        Ok(old) if old.is_dir() => Err(io::Error::new(ErrorKind::IsADirectory, "is a directory")),
        Ok(_) => OpenOptions::new().write(true).open(&target)?.write_all(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => replace(&target, bytes, None),
        Err(error) => Err(error),
    }
}

/// Where a path leads, link by link. The last need not exist.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_path_buf();
    // As many as Linux follows.
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

fn replace(target: &Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let beside = beside(target);
    let written = (|| {
        let mut file = create(&beside, permissions.is_some())?;
        file.write_all(bytes)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        drop(file);
        fs::rename(&beside, target)
    })();
    if written.is_err() {
        // The first failure is the one to report.
        let _ = fs::remove_file(&beside);
    } else if let Some(folder) = target.parent().filter(|_| cfg!(unix)) {
        // The new name lasts through a power cut once the folder is on disk; not every file system can be asked for that.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    written
}

/// A new file; a private one where the permissions come later.
fn create(path: &Path, private: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    options.open(path)
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".taper-{}-{number}.tmp", std::process::id()))
}
