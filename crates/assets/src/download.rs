//! Official builds of programs, which save most of the time of a first run. What cannot be downloaded is built.
//!
//! Each file is checked against the checksum of its publisher, and the program against the version that it prints.

mod curl;
mod publishers;
mod release;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};

use self::publishers::{GITHUB, Published};
pub(crate) use self::release::Release;
use crate::progress::ProgressReporter;
use crate::{Binary, KubernetesVersion};

/// With this environment variable, programs are always built.
pub const BUILD_VARIABLE: &str = "CHANDLER_BUILD";
/// Names a server to download from instead of the publishers, which has their files below the names of their hosts.
pub const MIRROR_VARIABLE: &str = "CHANDLER_DOWNLOAD_MIRROR";
/// A program prints its version within this time.
const VERSION_LIMIT: Duration = Duration::from_secs(30);
const BUSY_RETRY: Duration = Duration::from_millis(20);
/// No list of checksums is longer.
const MAX_CHECKSUMS: u64 = 1 << 20;

/// Why a program is built instead of downloaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("curl cannot be started ({source}): install it to download programs instead of building them")]
    NoCurl { source: io::Error },
    #[error("the host cannot be reached ({said})")]
    Unreachable { said: String },
    #[error("the download failed ({said})")]
    Download { said: String },
    #[error("{} contains no checksum of {file}", checksums)]
    NoChecksum { checksums: String, file: String },
    #[error("the checksum is {found}, but its publisher names {expected}")]
    Checksum { found: String, expected: String },
    #[error("it is not in the archive")]
    NotInArchive,
    #[error("it prints `{found}` instead of the version `{expected}`")]
    Version { found: String, expected: String },
    #[error("a file cannot be read or written ({source})")]
    File { source: io::Error },
}

impl From<io::Error> for Failure {
    fn from(source: io::Error) -> Self {
        Self::File { source }
    }
}

/// Downloads programs.
pub(crate) struct Downloads<'p> {
    progress: &'p dyn ProgressReporter,
    /// Where unfinished files are.
    directory: PathBuf,
    mirror: Option<String>,
    /// The hosts that are not asked again.
    silent: HashSet<&'static str>,
}

/// Returns whether the user wants official builds.
pub(crate) fn is_allowed() -> bool {
    env::var_os(BUILD_VARIABLE).is_none_or(|value| value.is_empty() || value == "0")
}

impl<'p> Downloads<'p> {
    /// Returns `None` if the user wants to build all programs.
    pub(crate) fn new(directory: PathBuf, progress: &'p dyn ProgressReporter) -> Option<Self> {
        if !is_allowed() {
            return None;
        }
        let mirror = env::var(MIRROR_VARIABLE).ok().filter(|mirror| !mirror.is_empty());
        Some(Self { progress, directory, mirror, silent: HashSet::new() })
    }

    /// Downloads a program to `target`. Returns whether it is there: if not, a line says why, and it has to be built.
    pub(crate) async fn get(&mut self, binary: Binary, kubernetes: KubernetesVersion, target: &Path) -> bool {
        let Some(published) = Published::of(binary, kubernetes) else { return false };
        if self.silent.contains(published.host) {
            return false;
        }
        let step = format!("downloading {} from {}", binary.title(kubernetes), self.server(published.host));
        self.progress.begin(&step, None);
        let result = self.try_get(binary, &published, target).await;
        self.report(&step, &binary.title(kubernetes), published.host, result)
    }

    /// Downloads the files of a release of Chandler into `target`. Returns whether they are there: if not, a line says why, and
    /// they have to be built.
    pub(crate) async fn get_release(&mut self, release: &Release, target: &Path) -> bool {
        let title = format!("Chandler {}", release.tag);
        let step = format!("downloading {title} from {}", self.server(GITHUB));
        self.progress.begin(&step, None);
        let result = self.try_get_release(release, target).await;
        self.report(&step, &title, GITHUB, result)
    }

    /// Shows the end of a step. Returns whether it has succeeded.
    fn report(&mut self, step: &str, title: &str, host: &'static str, result: Result<(), Failure>) -> bool {
        let Err(failure) = result else {
            self.progress.finish(step);
            return true;
        };
        self.progress.abandon(step);
        if matches!(failure, Failure::Unreachable { .. } | Failure::NoCurl { .. }) {
            self.silent.insert(host);
        }
        let server = self.server(host);
        self.progress.note(&format!("{title} is built instead of downloaded from {server}: {failure}"));
        false
    }

    async fn try_get_release(&self, release: &Release, target: &Path) -> Result<(), Failure> {
        self.remove_unfinished();
        let result = async {
            let unpacked = self.directory.join("unpacked");
            for archive in release.archives() {
                let file = self.directory.join(file_name(&archive));
                self.download(GITHUB, &archive, &release.path("SHA256SUMS"), &file).await?;
                let unpacked = unpacked.clone();
                in_background(move || {
                    Ok(tar::Archive::new(GzDecoder::new(File::open(file)?)).unpack(unpacked)?)
                })
                .await?;
            }
            for program in ["chandler", "chandler-sandbox"] {
                let version = format!("{program} {}", release.version());
                check_version(&unpacked.join(program), &["--version"], &version).await?;
            }
            Ok(fs::rename(unpacked, target)?)
        };
        let result = result.await;
        self.remove_unfinished();
        result
    }

    async fn try_get(&self, binary: Binary, published: &Published, target: &Path) -> Result<(), Failure> {
        self.remove_unfinished();
        let file = self.directory.join(binary.file_name());
        let result = async {
            self.download(published.host, &published.path, &published.checksums, &file).await?;
            let program = unpack(file, published.member.clone()).await?;
            check_version(&program, published.version_arguments, &published.version).await?;
            Ok(fs::rename(program, target)?)
        };
        let result = result.await;
        self.remove_unfinished();
        result
    }

    /// Removes what an earlier process may have left, too.
    fn remove_unfinished(&self) {
        // What is left is downloaded again.
        let _ = fs::remove_dir_all(&self.directory);
    }

    /// Downloads a file and compares it with its checksum.
    async fn download(&self, host: &str, path: &str, checksums: &str, file: &Path) -> Result<(), Failure> {
        fs::create_dir_all(&self.directory)?;
        // First, because it is small: an unreachable host is noticed at once.
        let list = self.directory.join("checksums");
        curl::download(&self.url(host, checksums), &list, |_| {}).await?;
        let expected = read_checksum(&list, checksums, file_name(path))?;
        let show = |bytes: u64| self.progress.advance(&format!("{} MiB", bytes >> 20));
        match curl::download(&self.url(host, path), file, show).await {
            // The host has answered before.
            Err(Failure::Unreachable { said }) => return Err(Failure::Download { said }),
            result => result?,
        }
        let file = file.to_owned();
        let found = in_background(move || checksum(&file)).await?;
        if found == expected { Ok(()) } else { Err(Failure::Checksum { found, expected }) }
    }

    /// Returns the name of the server that is asked for the files of a host.
    fn server<'s>(&'s self, host: &'s str) -> &'s str {
        self.mirror.as_deref().map_or(host, host_of)
    }

    fn url(&self, host: &str, path: &str) -> String {
        match &self.mirror {
            Some(mirror) => format!("{}/{host}{path}", mirror.trim_end_matches('/')),
            None => format!("https://{host}{path}"),
        }
    }
}

fn read_checksum(list: &Path, checksums: &str, file: &str) -> Result<String, Failure> {
    let no_checksum = || Failure::NoChecksum { checksums: checksums.to_owned(), file: file.to_owned() };
    if fs::metadata(list)?.len() > MAX_CHECKSUMS {
        return Err(no_checksum());
    }
    let text = fs::read(list)?;
    find_checksum(&String::from_utf8_lossy(&text), file).ok_or_else(no_checksum)
}

/// Finds the checksum of a file: in a list as `sha256sum` prints it, or alone.
fn find_checksum(text: &str, file: &str) -> Option<String> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = lines.find_map(|fields| match fields[..] {
        [checksum] => Some(checksum),
        [checksum, name] if name.trim_start_matches('*') == file => Some(checksum),
        _ => None,
    })?;
    let is_checksum = found.len() == 64 && found.chars().all(|digit| digit.is_ascii_hexdigit());
    is_checksum.then(|| found.to_ascii_lowercase())
}

/// Returns host and port of a URL: its login must not be printed.
fn host_of(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split('/').next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn checksum(file: &Path) -> Result<String, Failure> {
    let (mut file, mut hash, mut buffer) = (File::open(file)?, Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crate::digest::hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Returns an executable program: the file, or a member of the archive that it is.
async fn unpack(file: PathBuf, member: Option<String>) -> Result<PathBuf, Failure> {
    in_background(move || {
        let program = match member {
            Some(member) => extract(&file, &member)?,
            None => file,
        };
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(program)
    })
    .await
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| io::Error::other(error.to_string()))?
}

/// Extracts one file of a compressed tar archive next to it.
fn extract(archive: &Path, member: &str) -> Result<PathBuf, Failure> {
    let target = archive.with_extension("extracted");
    let mut tar = tar::Archive::new(GzDecoder::new(File::open(archive)?));
    for entry in tar.entries()? {
        let mut entry = entry?;
        if entry.path()?.as_os_str() == member {
            io::copy(&mut entry, &mut File::create(&target)?)?;
            return Ok(target);
        }
    }
    Err(Failure::NotInArchive)
}

/// Runs a program, and compares the first line that it prints.
async fn check_version(program: &Path, arguments: &[&str], expected: &str) -> Result<(), Failure> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let run = async {
        loop {
            match command.output().await {
                // Another thread is about to start a program, which has inherited the file for a moment.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                output => return output,
            }
            tokio::time::sleep(BUSY_RETRY).await;
        }
    };
    let output = tokio::time::timeout(VERSION_LIMIT, run).await;
    let printed = output.map_or_else(|_| Ok(Vec::new()), |output| output.map(|output| output.stdout))?;
    let printed = String::from_utf8_lossy(&printed);
    let found = printed.lines().next().unwrap_or_default().trim();
    let version = || Failure::Version { found: found.to_owned(), expected: expected.to_owned() };
    if found == expected { Ok(()) } else { Err(version()) }
}
