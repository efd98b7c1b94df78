//! Signs charts with the cosign CLI.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

use crate::assets::{Assets, Binary};
use crate::registry::{CREDENTIALS, Registry};

/// An error while signing a chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot run cosign: {source}")]
    Run { source: io::Error },
    #[error("cosign {command} failed: {output}")]
    Failed { command: String, output: String },
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// How a signature is stored in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureFormat {
    /// An image with the tag `sha256-….sig`, as in cosign 2.
    Tag,
    /// A bundle that refers to the chart's manifest, as in cosign 3.
    Bundle,
}

/// The cosign CLI with a key pair.
#[derive(Debug)]
pub struct Cosign {
    program: PathBuf,
    home: PathBuf,
    public_key: String,
}

impl Cosign {
    /// Generates the key pair in `home`.
    pub async fn new(assets: &Assets, home: &Path) -> Result<Self, Error> {
        let folder = |source| Error::Folder { path: home.to_owned(), source };
        tokio::fs::create_dir_all(home).await.map_err(folder)?;
        let mut cosign = Self {
            program: assets.path(Binary::Cosign).to_owned(),
            home: home.to_owned(),
            public_key: String::new(),
        };
        cosign.run(&["generate-key-pair"]).await?;
        cosign.public_key = tokio::fs::read_to_string(home.join("cosign.pub")).await.map_err(folder)?;
        Ok(cosign)
    }

    /// Returns the public key in PEM.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// Signs a version of a chart, without a transparency log.
    pub async fn sign(
        &self,
        registry: &Registry,
        chart: &str,
        version: &str,
        format: SignatureFormat,
    ) -> Result<(), Error> {
        let image = format!("{}/charts/{chart}:{version}", registry.host());
        let authority = registry.ca_file().to_string_lossy().into_owned();
        let bundle = format!("--new-bundle-format={}", format == SignatureFormat::Bundle);
        let (user, password) = CREDENTIALS;
        let arguments = [
            "sign",
            "--yes",
            "--key=cosign.key",
            "--tlog-upload=false",
            "--use-signing-config=false",
            &bundle,
            "--registry-cacert",
            &authority,
            "--registry-username",
            user,
            "--registry-password",
            password,
            &image,
        ];
        self.run(&arguments).await?;
        Ok(())
    }

    /// Runs a cosign command in the folder with the keys.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output, Error> {
        let output = Command::new(&self.program)
            .args(arguments)
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            // The password of the private key; without it, cosign prompts.
            .env("COSIGN_PASSWORD", "")
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| Error::Run { source })?;
        if output.status.success() {
            return Ok(output);
        }
        let command = arguments.first().copied().unwrap_or_default().to_owned();
        Err(Error::Failed { command, output: String::from_utf8_lossy(&output.stderr).into_owned() })
    }
}
