//! Folders in the user's XDG base directories.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// Returns the folder `name` of Chandler in the user's state directory.
pub fn state_folder(name: &str) -> Result<PathBuf> {
    let state = base("XDG_STATE_HOME", ".local/state")
        .context("there is no home directory: choose a folder with --dir")?;
    Ok(state.join("chandler").join(name))
}

/// Returns the folder `name` of Chandler in the user's cache directory.
pub fn cache_folder(name: &str) -> Result<PathBuf> {
    let cache = base("XDG_CACHE_HOME", ".cache").context("there is no home directory: set XDG_CACHE_HOME")?;
    Ok(cache.join("chandler").join(name))
}

/// Returns the directory that an XDG variable names, or its default below the home directory.
fn base(variable: &str, default: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(default)))
}
