//! Who has proved that it can read a package: `proofs/<name of the package's file>`.
//!
//! A digest is not a secret, so that naming it must not be enough to get a private package. A package is handed out to a namespace
//! that has got it from the same source before, or to a source with the same URL and login. All others have to download it
//! themselves.

use std::{
    collections::HashSet,
    io::Write as _,
    path::{Path, PathBuf},
};

use chandler_core::digest::Digest;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Store, failed, lock};
use crate::{SourceError, access_digest::AccessDigest};

/// With more namespaces than this, those that came first have to prove again that they can read a package.
const MAX_NAMESPACES: usize = 1024;
/// With more logins than this, all have to prove again that they can read a package.
const MAX_LOGINS: usize = 1024;

/// A source from which a namespace wants a package.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace that owns the source.
    pub(super) namespace: String,
    /// Digest of namespace and URL.
    in_namespace: String,
    /// The URL and the login. `None` if the login is not known.
    login: Option<(String, AccessDigest)>,
}

impl Claim {
    pub(crate) fn new(namespace: &str, url: &str, login: Option<AccessDigest>) -> Self {
        let in_namespace = Digest::of(format!("{namespace}\n{url}")).hex().to_owned();
        let login = login.map(|login| (url.to_owned(), login));
        Self { namespace: namespace.to_owned(), in_namespace, login }
    }
}

/// Who has proved that it can read a package.
#[derive(Clone, Debug, Default)]
pub(super) struct Proofs {
    namespaces: Vec<String>,
    /// They are not stored: a file must not help to guess a password.
    logins: HashSet<(String, AccessDigest)>,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Record {
    namespace: String,
    proofs: Vec<String>,
}

impl Proofs {
    /// Returns whether the package may be handed out.
    fn include(&self, claim: &Claim) -> bool {
        self.has_namespace(claim) || claim.login.as_ref().is_some_and(|login| self.logins.contains(login))
    }

    fn has_namespace(&self, claim: &Claim) -> bool {
        self.namespaces.contains(&claim.in_namespace)
    }

    /// Remembers that the namespace may read the package.
    fn add_namespace(&mut self, claim: &Claim) {
        if self.has_namespace(claim) {
            return;
        }
        if self.namespaces.len() >= MAX_NAMESPACES {
            self.namespaces.remove(0);
        }
        self.namespaces.push(claim.in_namespace.clone());
    }

    /// Remembers a download: the login may read the package, whichever namespace uses it.
    fn add_download(&mut self, claim: &Claim) {
        self.add_namespace(claim);
        if let Some(login) = &claim.login {
            if self.logins.len() >= MAX_LOGINS {
                self.logins.clear();
            }
            self.logins.insert(login.clone());
        }
    }
}

impl Store {
    /// Returns whether a package may be handed out, and remembers the namespace. Its login has proved nothing: it may be another one than
    /// that of the download.
    pub(super) fn is_proven(&self, path: &Path, claim: &Claim) -> bool {
        let mut ledger = lock(&self.ledger);
        let Some(file) = ledger.get_mut(path) else { return false };
        let Some(proofs) = file.proofs.as_mut().filter(|proofs| proofs.include(claim)) else { return false };
        let is_new = !proofs.has_namespace(claim);
        proofs.add_namespace(claim);
        if is_new && let Err(error) = self.write_proofs(path, &file.namespace, proofs) {
            tracing::debug!(%error, "cannot store who may read a package; it is downloaded again after a restart");
        }
        true
    }

    /// Adds a proof to those of a package, and stores them.
    pub(super) fn proofs_with(
        &self,
        path: &Path,
        namespace: &str,
        known: Option<Proofs>,
        claim: &Claim,
    ) -> Result<Proofs, SourceError> {
        let mut proofs = known.unwrap_or_default();
        proofs.add_download(claim);
        self.write_proofs(path, namespace, &proofs)?;
        Ok(proofs)
    }

    /// Reads the owner and the proofs of a package. Without a file, or if it is damaged, all have to prove that they can read it.
    pub(super) fn read_proofs(&self, package: &Path) -> (String, Proofs) {
        let text = self.proofs_path(package).and_then(|path| std::fs::read(path).ok());
        let record = text.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        let Some(Record { namespace, proofs }) = record else {
            return (String::new(), Proofs::default());
        };
        (namespace, Proofs { namespaces: proofs, logins: HashSet::new() })
    }

    pub(super) fn remove_proofs(&self, package: &Path) {
        if let Some(path) = self.proofs_path(package) {
            // The file may not exist.
            let _ = std::fs::remove_file(path);
        }
    }

    fn write_proofs(&self, package: &Path, namespace: &str, proofs: &Proofs) -> Result<(), SourceError> {
        let Some(path) = self.proofs_path(package) else { return Ok(()) };
        let record = Record { namespace: namespace.to_owned(), proofs: proofs.namespaces.clone() };
        let mut file = NamedTempFile::new_in(&self.proofs).map_err(failed)?;
        file.write_all(&serde_json::to_vec(&record).map_err(failed)?).map_err(failed)?;
        file.persist(path).map_err(failed)?;
        Ok(())
    }

    fn proofs_path(&self, package: &Path) -> Option<PathBuf> {
        Some(self.proofs.join(package.file_name()?))
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::package_format::PackageFormat;

    use super::*;
    use crate::{Access, access::UrlLogin, archive::testing::chart};

    const URL: &str = "https://charts.example/private/";

    fn claim(namespace: &str, url: &str, password: Option<&str>) -> Claim {
        let with_login = password.map(|password| format!("https://user:{password}@charts.example"));
        let login = with_login
            .and_then(|url| UrlLogin::of(&url.parse().ok()?)?.add_to(&Access::default()).credentials);
        Claim::new(namespace, url, Some(AccessDigest::from(login.as_ref())))
    }

    #[test]
    fn a_package_is_handed_out_to_those_who_have_got_it_themselves() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let (package, format) = (chart("web"), PackageFormat::default());
        let digest = Digest::of(&package);
        let download = |claim: Claim| {
            let mut writer = store.create(claim).unwrap();
            writer.write(&package).unwrap();
            writer.commit_here(URL, Some(&digest), &format).unwrap();
        };
        download(claim("owner", URL, Some("word")));
        let gets = |store: &Store, claim: &Claim| store.get_proven(&digest, &format, claim).is_some();
        let rows = [
            ("the owner", claim("owner", URL, Some("word")), true),
            ("the owner, after a change of the password", claim("owner", URL, Some("changed")), true),
            ("the owner, without reading the Secret", Claim::new("owner", URL, None), true),
            ("another source of the owner", Claim::new("owner", "https://public.example/", None), false),
            ("the same login", claim("friend", URL, Some("word")), true),
            ("a friend is remembered", Claim::new("friend", URL, None), true),
            ("another login", claim("attacker", URL, Some("wrong")), false),
            ("another login of the owner", claim("attacker", URL, Some("changed")), false),
            ("no login", claim("attacker", URL, None), false),
            ("another source", claim("attacker", "https://evil.example/", None), false),
        ];
        for (what, claim, expected) in &rows {
            assert_eq!(gets(&store, claim), *expected, "{what}");
        }
        let restarted = Store::open(directory.path()).unwrap();
        for (what, claim, expected) in &rows {
            assert_eq!(gets(&restarted, claim), *expected, "{what}, after a restart");
        }
        assert!(!gets(&restarted, &claim("third", URL, Some("word"))), "logins are not stored");
        let record = std::fs::read_dir(&store.proofs).unwrap().next().unwrap().unwrap();
        std::fs::remove_file(record.path()).unwrap();
        assert!(
            !gets(&Store::open(directory.path()).unwrap(), &rows[0].1),
            "nothing is concluded from no file"
        );

        let friend = claim("mirror", "https://mirror.example/", None);
        assert!(!gets(&store, &friend));
        download(friend.clone());
        assert!(gets(&store, &friend), "it has the package");
    }
}
