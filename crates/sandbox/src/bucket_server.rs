//! An S3 server as a local process, with a certificate of the sandbox's authority: versitygw, which keeps buckets as
//! folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::assets::Binary;
use crate::certificates::{self, Authority};
use crate::plane::{NoFreePort, free_port};
use crate::process::{self, Child, GRACE_PERIOD, Spec};

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The access key and the secret key that the server requires.
pub const CREDENTIALS: (&str, &str) = ("canary-access-key", "canary-of-the-buckets");
/// The region of all buckets of the server.
pub const REGION: &str = "eu-central-1";

/// An error while running the S3 server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error(transparent)]
    Port(#[from] NoFreePort),
    #[error(transparent)]
    Process(#[from] process::Error),
    #[error("the S3 server did not respond within {} s", READY_TIMEOUT.as_secs())]
    NotReady,
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// A kind of request that the server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketRequest {
    List,
    Read,
}

/// A running S3 server. Its process ends when it is dropped or when this process ends.
pub struct BucketServer {
    url: String,
    authority: String,
    buckets: PathBuf,
    access_log: PathBuf,
    child: Child,
}

impl BucketServer {
    /// Starts the server without buckets. `program` is [`Binary::Versitygw`].
    pub async fn start(program: &Path, authority: &Authority, home: &Path) -> Result<Self, Error> {
        process::terminate_orphans(home);
        // Attributes of objects are files in a folder of their own, because not every file system has extended attributes.
        let [buckets, attributes, accounts] =
            ["buckets", "attributes", "accounts"].map(|name| home.join(name));
        for folder in [&buckets, &attributes, &accounts] {
            fs::create_dir_all(folder).map_err(|source| Error::Folder { path: folder.clone(), source })?;
        }
        let port = free_port()?;
        let (certificate, key) = authority.server(&[])?.write(home, "buckets")?;
        let access_log = home.join("requests.log");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let address = format!("127.0.0.1:{port}");
        let options = [
            ("--port", address.clone()),
            ("--region", REGION.to_owned()),
            ("--cert", text(&certificate)),
            ("--key", text(&key)),
            ("--access-log", text(&access_log)),
            // Without a folder of accounts, the response to an unknown access key differs from that of S3.
            ("--iam-dir", text(&accounts)),
        ];
        let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let backend = [
            "--quiet".to_owned(),
            "posix".to_owned(),
            "--sidecar".to_owned(),
            text(&attributes),
            text(&buckets),
        ];
        let child = Child::spawn(&Spec {
            name: Binary::Versitygw.file_name().to_owned(),
            program: program.to_owned(),
            args: options.chain(backend).collect(),
            env: vec![
                ("ROOT_ACCESS_KEY_ID".to_owned(), CREDENTIALS.0.to_owned()),
                ("ROOT_SECRET_ACCESS_KEY".to_owned(), CREDENTIALS.1.to_owned()),
            ],
            home: home.to_owned(),
        })?;
        if !child.accepts_connections(port, READY_TIMEOUT).await? {
            return Err(Error::NotReady);
        }
        let authority = authority.certificate().to_owned();
        Ok(Self { url: format!("https://{address}"), authority, buckets, access_log, child })
    }

    /// Returns the endpoint, such as `https://127.0.0.1:20123`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the certificate of the authority in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority
    }

    /// Returns the folder of a bucket. A bucket whose folder is moved away does not exist for the server.
    pub fn folder(&self, bucket: &str) -> PathBuf {
        self.buckets.join(bucket)
    }

    /// Returns the number of requests of a kind that the server has answered, whether they have succeeded or not.
    pub fn requests(&self, kind: BucketRequest) -> usize {
        let action = match kind {
            BucketRequest::List => " s3_ListObjectsV2 ",
            BucketRequest::Read => " s3_GetObject ",
        };
        let log = fs::read_to_string(&self.access_log).unwrap_or_default();
        log.lines().filter(|line| line.contains(action)).count()
    }

    pub async fn stop(self) {
        self.child.stop(GRACE_PERIOD).await;
    }
}
