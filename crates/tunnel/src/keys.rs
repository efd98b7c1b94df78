//! The keys of an installation, as the Secret [`KEYS_SECRET`] stores them: one file per key.

use std::{collections::BTreeMap, fs, io, net::IpAddr, path::Path};

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    authority::{AuthorityError, CertificateAndKey, CertificateAuthority, CertificateFacts, belong_together},
    identity::Installation,
    random::RandomError,
    signing::SigningKey,
};

/// Name of the Secret in the namespace of Chandler.
pub const KEYS_SECRET: &str = "chandler-tunnel-keys";

pub const INSTALLATION: &str = "installation";
pub const CA_CERTIFICATE: &str = "ca.crt";
pub const CA_KEY: &str = "ca.key";
pub const SIGNING_KEY: &str = "signing.key";
pub const HUB_CERTIFICATE: &str = "hub.crt";
pub const HUB_KEY: &str = "hub.key";

/// Every key of the Secret.
pub const FILES: [&str; 6] = [INSTALLATION, CA_CERTIFICATE, CA_KEY, SIGNING_KEY, HUB_CERTIFICATE, HUB_KEY];

/// Why the keys cannot be read or generated. The messages contain nothing of the keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{file} is missing")]
    Missing { file: &'static str },
    #[error("{file} is invalid")]
    Invalid { file: &'static str },
    #[error("{file} cannot be read: {source}")]
    Read { file: &'static str, source: io::Error },
    #[error("{HUB_CERTIFICATE} was not issued for this installation; let the manager renew it")]
    ForeignHubCertificate,
    #[error("{file}: {source}")]
    Certificate { file: &'static str, source: AuthorityError },
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The names that the certificate of a hub has to contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubNames(Vec<String>);

impl HubNames {
    /// Returns the hosts of the addresses (`HOST:PORT`) at which agents reach the hub, and the names of its Services.
    pub fn new(addresses: &[String], namespace: &str) -> Self {
        let hosts = addresses.iter().map(|address| canonical(host_of(address)));
        let services = [service_name(namespace), format!("*.chandler-hub-peers.{namespace}.svc")].into_iter();
        let mut names = Vec::new();
        for name in hosts.chain(services) {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        Self(names)
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// Returns a name as certificates spell it.
fn canonical(name: &str) -> String {
    name.parse().map_or_else(|_| name.to_ascii_lowercase(), |address: IpAddr| address.to_string())
}

/// Returns the host of `HOST:PORT`, without the brackets of an IPv6 address.
pub fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Returns the name of the hub's Service, which is also the name that peers verify.
pub fn service_name(namespace: &str) -> String {
    format!("chandler-hub.{namespace}.svc")
}

/// The keys of an installation. The `Debug` output contains none of them.
#[derive(Debug)]
pub struct TunnelKeys {
    pub installation: Installation,
    pub authority: CertificateAuthority,
    pub signing: SigningKey,
    /// The certificate that the hub serves.
    pub hub: CertificateAndKey,
}

impl TunnelKeys {
    pub fn generate(names: &HubNames, now: Timestamp) -> Result<Self, KeysError> {
        let installation = Installation::random()?;
        let authority = CertificateAuthority::generate(installation, now)
            .map_err(|source| KeysError::Certificate { file: CA_CERTIFICATE, source })?;
        let hub = issue_hub(&authority, installation, names, now)?;
        Ok(Self { installation, authority, signing: SigningKey::generate()?, hub })
    }

    /// Reads the content of the Secret, and verifies that the keys belong together.
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, KeysError> {
        let text = |file| read_text(files, file);
        let installation =
            text(INSTALLATION)?.trim_end().parse().map_err(|_| KeysError::Invalid { file: INSTALLATION })?;
        let authority = CertificateAuthority::from_pem(text(CA_CERTIFICATE)?, &text(CA_KEY)?.into())
            .map_err(|source| KeysError::Certificate { file: CA_CERTIFICATE, source })?;
        let signing = SigningKey::from_hex(text(SIGNING_KEY)?.trim_end())
            .map_err(|_| KeysError::Invalid { file: SIGNING_KEY })?;
        let hub = CertificateAndKey {
            certificate: text(HUB_CERTIFICATE)?.to_owned(),
            key: SecretString::from(text(HUB_KEY)?),
        };
        let keys = Self { installation, authority, signing, hub };
        let error = |source| KeysError::Certificate { file: HUB_CERTIFICATE, source };
        if !belong_together(&keys.hub.certificate, &keys.hub.key).map_err(error)? {
            return Err(error(AuthorityError::KeyMismatch));
        }
        if !keys.hub_facts()?.is_hub_of(installation) {
            return Err(KeysError::ForeignHubCertificate);
        }
        Ok(keys)
    }

    /// Reads the files of a mounted Secret.
    pub fn from_dir(dir: &Path) -> Result<Self, KeysError> {
        let mut files = BTreeMap::new();
        for file in FILES {
            let content = fs::read(dir.join(file)).map_err(|source| KeysError::Read { file, source })?;
            files.insert(file.to_owned(), content);
        }
        Self::from_files(&files)
    }

    /// Returns the content of the Secret.
    pub fn to_files(&self) -> BTreeMap<String, Vec<u8>> {
        [
            (INSTALLATION, self.installation.to_string()),
            (CA_CERTIFICATE, self.authority.certificate_pem().to_owned()),
            (CA_KEY, self.authority.key_pem().expose_secret().to_owned()),
            (SIGNING_KEY, self.signing.to_hex().expose_secret().to_owned()),
            (HUB_CERTIFICATE, self.hub.certificate.clone()),
            (HUB_KEY, self.hub.key.expose_secret().to_owned()),
        ]
        .map(|(file, content)| (file.to_owned(), content.into_bytes()))
        .into()
    }

    /// Returns the certificates that agents trust, in PEM.
    pub fn ca_bundle(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// Returns whether the hub's certificate lacks a name, or has less than a third of its life left.
    pub fn hub_renewal_due(&self, names: &HubNames, now: Timestamp) -> Result<bool, KeysError> {
        let facts = self.hub_facts()?;
        let lacks_name = names.as_slice().iter().any(|name| !facts.names.contains(name));
        Ok(lacks_name || now >= facts.renew_hub_at())
    }

    /// Issues a new certificate for the hub, with a new key.
    pub fn renew_hub(&mut self, names: &HubNames, now: Timestamp) -> Result<(), KeysError> {
        self.hub = issue_hub(&self.authority, self.installation, names, now)?;
        Ok(())
    }

    /// Reads the hub's certificate.
    pub fn hub_facts(&self) -> Result<CertificateFacts, KeysError> {
        CertificateFacts::from_pem(&self.hub.certificate)
            .map_err(|source| KeysError::Certificate { file: HUB_CERTIFICATE, source })
    }
}

fn issue_hub(
    authority: &CertificateAuthority,
    installation: Installation,
    names: &HubNames,
    now: Timestamp,
) -> Result<CertificateAndKey, KeysError> {
    authority
        .issue_hub(installation, names.as_slice(), now)
        .map_err(|source| KeysError::Certificate { file: HUB_CERTIFICATE, source })
}

fn read_text<'a>(files: &'a BTreeMap<String, Vec<u8>>, file: &'static str) -> Result<&'a str, KeysError> {
    let content = files.get(file).ok_or(KeysError::Missing { file })?;
    std::str::from_utf8(content).map_err(|_| KeysError::Invalid { file })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn names(addresses: &[&str]) -> HubNames {
        let addresses: Vec<_> = addresses.iter().map(|address| (*address).to_owned()).collect();
        HubNames::new(&addresses, "chandler")
    }

    #[test]
    fn names_are_the_hosts_of_the_addresses_and_the_services() {
        let services = ["chandler-hub.chandler.svc", "*.chandler-hub-peers.chandler.svc"];
        for (addresses, hosts) in [
            (&[][..], &[][..]),
            (&["hub.example:443", "hub.example:8443"], &["hub.example"]),
            (&["10.0.0.1:443", "[fd00:0::1]:443", "Hub:1"], &["10.0.0.1", "fd00::1", "hub"]),
        ] {
            assert_eq!(names(addresses).as_slice(), [hosts, &services].concat());
        }
    }

    #[test]
    fn stored_keys_are_read_back() {
        let keys = TunnelKeys::generate(&names(&["hub.example:443"]), now()).unwrap();
        let files = keys.to_files();
        assert!(FILES.iter().all(|file| files.contains_key(*file)));
        let read = TunnelKeys::from_files(&files).unwrap();
        assert_eq!(read.to_files(), files);
        assert!(!format!("{keys:?}").contains("PRIVATE"));
    }

    #[test]
    fn incomplete_or_mixed_keys_are_refused() {
        let generate = || TunnelKeys::generate(&names(&["hub.example:443"]), now()).unwrap().to_files();
        let (files, other) = (generate(), generate());
        for file in FILES {
            let mut without = files.clone();
            without.remove(file);
            assert!(TunnelKeys::from_files(&without).is_err(), "without {file}");
            let mut garbage = files.clone();
            garbage.insert(file.to_owned(), vec![0xff]);
            assert!(TunnelKeys::from_files(&garbage).is_err(), "{file} is garbage");
        }
        for file in [INSTALLATION, CA_KEY, HUB_CERTIFICATE, HUB_KEY] {
            let mut mixed = files.clone();
            mixed.insert(file.to_owned(), other[file].clone());
            assert!(TunnelKeys::from_files(&mixed).is_err(), "{file} of another installation");
        }
    }

    #[test]
    fn hub_certificate_is_renewed_for_a_missing_name_or_its_age() {
        let one = names(&["hub.example:443"]);
        let two = names(&["hub.example:443", "10.0.0.1:443"]);
        let mut keys = TunnelKeys::generate(&one, now()).unwrap();
        assert!(!keys.hub_renewal_due(&one, now() + DAY * 59).unwrap());
        assert!(keys.hub_renewal_due(&one, now() + DAY * 61).unwrap());
        assert!(keys.hub_renewal_due(&two, now()).unwrap());

        let before = keys.to_files();
        keys.renew_hub(&two, now() + DAY).unwrap();
        assert!(!keys.hub_renewal_due(&two, now() + DAY).unwrap());
        let after = TunnelKeys::from_files(&keys.to_files()).unwrap().to_files();
        for file in FILES {
            let changed = [HUB_CERTIFICATE, HUB_KEY].contains(&file);
            assert_eq!(before[file] != after[file], changed, "{file}");
        }
    }
}
