//! The folder in which the agent keeps its key, its certificates and the list of hubs.
//!
//! Files are replaced as a whole: a crash or a full disk leaves the old content. Only the owner can read them.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// No file of the agent is nearly as long.
const MAX_BYTES: u64 = 1 << 20;

const KEY: &str = "key.pem";
const HUBS: &str = "hubs.json";
const CERTIFICATE: &str = "crt";

/// Why a file of the agent cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot create {}: {source}; set `stateDir` to a folder on a writable disk", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is not a file of the agent: it has more than {MAX_BYTES} bytes, or is not UTF-8", path.display())]
    Content { path: PathBuf },
}

/// The folder of the agent.
#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Creates the folder if it does not exist, and removes the permissions of other users.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Folder { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(failed)?;
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE)).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Returns the private key in PEM. `None` means that there is none yet.
    pub fn key(&self) -> Result<Option<String>, StateError> {
        self.read(KEY)
    }

    pub fn set_key(&self, pem: &str) -> Result<(), StateError> {
        self.write(KEY, pem)
    }

    /// Returns the certificate chains in PEM, one per installation that the agent has joined.
    pub fn certificates(&self) -> Result<Vec<String>, StateError> {
        let failed = |source| StateError::Read { path: self.path.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = PathBuf::from(entry.map_err(failed)?.file_name());
            if path.extension().is_some_and(|extension| extension == CERTIFICATE) {
                names.push(path);
            }
        }
        names.sort();
        let read = names.iter().map(|name| self.read(&name.to_string_lossy()));
        Ok(read.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Replaces the certificate chain of an installation.
    pub fn set_certificate(&self, installation: &str, pem: &str) -> Result<(), StateError> {
        self.write(&format!("{installation}.{CERTIFICATE}"), pem)
    }

    /// Returns the list of hubs in JSON that arrived through the tunnel. `None` means that none has arrived.
    pub fn hubs(&self) -> Result<Option<String>, StateError> {
        self.read(HUBS)
    }

    pub fn set_hubs(&self, json: &str) -> Result<(), StateError> {
        self.write(HUBS, json)
    }

    fn read(&self, name: &str) -> Result<Option<String>, StateError> {
        let path = self.path.join(name);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Read { path, source }),
            Ok(metadata) if metadata.len() > MAX_BYTES => return Err(StateError::Content { path }),
            Ok(_) => {}
        }
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(StateError::Content { path }),
            Err(source) => Err(StateError::Read { path, source }),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), StateError> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!(".{name}.new"));
        self.replace(&path, &temporary, text).map_err(|source| {
            // The error of the write counts; a file that is left over is overwritten by the next one.
            let _ = fs::remove_file(&temporary);
            StateError::Write { path, source }
        })
    }

    fn replace(&self, path: &Path, temporary: &Path, text: &str) -> io::Result<()> {
        match fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A new file, because the mode applies only to those.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(temporary, path)?;
        // The new name is part of the folder.
        File::open(&self.path)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_can_read_the_folder_and_its_files() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        let state = StateDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        state.set_key("key").unwrap();
        state.set_certificate("one", "certificate").unwrap();
        state.set_hubs("{}").unwrap();
        for name in ["key.pem", "one.crt", "hubs.json"] {
            assert_eq!(mode(&path.join(name)), 0o600, "{name}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        StateDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700, "permissions of a folder that someone else has made");
    }

    #[test]
    fn files_are_replaced_as_a_whole() {
        let temporary = tempfile::tempdir().unwrap();
        let state = StateDir::open(temporary.path()).unwrap();
        assert_eq!(state.key().unwrap(), None);
        assert_eq!(state.hubs().unwrap(), None);
        // What a crash has left over.
        fs::write(temporary.path().join(".hubs.json.new"), "part").unwrap();
        state.set_hubs("a long first list").unwrap();
        state.set_hubs("a list").unwrap();
        assert_eq!(state.hubs().unwrap().as_deref(), Some("a list"));
        let names: Vec<_> = fs::read_dir(temporary.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn there_is_one_certificate_per_installation() {
        let temporary = tempfile::tempdir().unwrap();
        let state = StateDir::open(temporary.path()).unwrap();
        assert_eq!(state.certificates().unwrap(), [] as [String; 0]);
        state.set_key("key").unwrap();
        for (installation, pem) in [("b", "2"), ("a", "1"), ("b", "3")] {
            state.set_certificate(installation, pem).unwrap();
        }
        assert_eq!(state.certificates().unwrap(), ["1", "3"]);
    }

    #[test]
    fn other_files_are_not_read() {
        let temporary = tempfile::tempdir().unwrap();
        let state = StateDir::open(temporary.path()).unwrap();
        fs::write(temporary.path().join("key.pem"), [0xff, 0xfe]).unwrap();
        assert!(matches!(state.key(), Err(StateError::Content { .. })));
        let long = File::create(temporary.path().join("hubs.json")).unwrap();
        long.set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(state.hubs(), Err(StateError::Content { .. })));
    }
}
