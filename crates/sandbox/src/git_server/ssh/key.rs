//! Keys of servers and users.

use std::fs;
use std::path::Path;

use russh::keys::{HashAlg, PrivateKey, PublicKey};
use tokio::process::Command;

use super::Error;

/// A key that `ssh-keygen` created.
#[derive(Clone)]
pub struct SshKey {
    /// The content of the file with the private key.
    pub private: String,
    /// The line of the public key, with its comment.
    pub public: String,
    pub(super) public_key: PublicKey,
}

impl SshKey {
    /// Creates a key of a type such as `ed25519` in a folder. `name` is the name of its file, and its comment. The key is encrypted
    /// unless the passphrase is empty.
    pub async fn create(folder: &Path, name: &str, kind: &str, passphrase: &str) -> Result<Self, Error> {
        let path = folder.join(name);
        let output = Command::new("ssh-keygen")
            .args(["-q", "-a", "1", "-t", kind, "-N", passphrase, "-C", name, "-f"])
            .arg(&path)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| Error::RunKeygen { source })?;
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            return Err(Error::Keygen { output: String::from_utf8_lossy(&text).into_owned() });
        }
        let private = read(&path)?;
        let public = read(&folder.join(format!("{name}.pub")))?;
        let public_key = PublicKey::from_openssh(&public).map_err(|source| Error::Key { source })?;
        Ok(Self { private, public, public_key })
    }

    /// Returns the fingerprint, such as `SHA256:…`.
    pub fn fingerprint(&self) -> String {
        self.public_key.fingerprint(HashAlg::Sha256).to_string()
    }

    pub(super) fn private_key(&self) -> Result<PrivateKey, Error> {
        PrivateKey::from_openssh(&self.private).map_err(|source| Error::Key { source })
    }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Folder { path: path.to_owned(), source })
}
