//! Where things are kept between runs.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// A folder in the user's state directory.
pub fn state_folder(name: &str) -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))
        .context("there is no home directory: name a folder with --dir")?;
    Ok(state.join("chandler").join(name))
}

/// A folder in the user's cache directory.
pub fn cache_folder(name: &str) -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .context("there is no home directory: set XDG_CACHE_HOME")?;
    Ok(cache.join("chandler").join(name))
}
