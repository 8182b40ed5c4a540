//! Writing a file whole or not at all.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Writes beside `path` what `content` writes, and renames; what was there stays until the new file is whole. `failed` makes an error of one
/// of the file system.
///
/// A link is followed, and stays: the file that it leads to is replaced. An older file's permissions stay, and where they
/// forbid writing it is not replaced. A device or a pipe is not replaced but written to.
pub(crate) fn write_whole<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    content: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let target = follow(path).map_err(&failed)?;
    let open = || OpenOptions::new().write(true).open(&target).map_err(&failed);
    match fs::metadata(&target) {
        Ok(old) if old.is_file() => {
            // Replacing asks for the right to the folder alone; this asks for that to the file.
            drop(open()?);
            replace(&target, failed, content, Some(old.permissions()))
        }
        Ok(old) if old.is_dir() => Err(failed(io::Error::new(ErrorKind::IsADirectory, "is a directory"))),
        Ok(_) => content(&mut open()?),
        Err(error) if error.kind() == ErrorKind::NotFound => replace(&target, failed, content, None),
        Err(error) => Err(failed(error)),
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

fn replace<E>(
    target: &Path,
    failed: impl Fn(io::Error) -> E,
    content: impl FnOnce(&mut File) -> Result<(), E>,
    permissions: Option<Permissions>,
) -> Result<(), E> {
    let beside = beside(target);
    let written = (|| {
        let mut file = create(&beside, permissions.is_some()).map_err(&failed)?;
        content(&mut file)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions).map_err(&failed)?;
        }
        file.sync_all().map_err(&failed)?;
        drop(file);
        fs::rename(&beside, target).map_err(&failed)
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
