//! The certificate authority of a sandbox.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// An error while creating or reading a certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot create a certificate: {0}")]
    Create(#[from] rcgen::Error),
    #[error("cannot use {}: {source}; remove its folder to create new certificates", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// A certificate and its private key, both in PEM.
#[derive(Clone)]
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority. Its files are in a folder, so that clients still trust it after a restart.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the authority in the folder. Creates it if it does not exist.
    pub fn open(folder: &Path, name: &str) -> Result<Self, Error> {
        let certificate_path = folder.join("ca.pem");
        let key_path = folder.join("ca.key");
        if !certificate_path.is_file() {
            let pair = create_authority(name)?;
            write_private(&key_path, &pair.key)?;
            write_private(&certificate_path, &pair.certificate)?;
        }
        let certificate = read(&certificate_path)?;
        let key = KeyPair::from_pem(&read(&key_path)?)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key)?;
        Ok(Self { certificate, issuer })
    }

    /// Returns the authority's certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a server on this machine.
    pub fn server(&self, extra_names: &[&str]) -> Result<CertificatePair, Error> {
        let names: Vec<String> =
            ["localhost", "127.0.0.1"].iter().chain(extra_names).map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = distinguished_name("localhost", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Issues a client certificate for a Kubernetes user and its groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<CertificatePair, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Issues a client certificate that expires, as those of a kubeadm control plane do.
    pub fn expiring_client(
        &self,
        user: &str,
        groups: &[&str],
        lifetime: Duration,
    ) -> Result<CertificatePair, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        // Cluster API's certificates are valid from the same time as that of their authority, so only the end is set.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        params.not_after = date_time_ymd(1970, 1, 1) + now + lifetime;
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<CertificatePair, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl CertificatePair {
    /// Writes `NAME.pem` and `NAME.key`.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf), Error> {
        let certificate = folder.join(format!("{name}.pem"));
        let key = folder.join(format!("{name}.key"));
        write_private(&certificate, &self.certificate)?;
        write_private(&key, &self.key)?;
        Ok((certificate, key))
    }
}

/// Creates a certificate for a server on this machine as `openssl req -x509` does: it signs itself, and is a certificate
/// authority.
pub fn self_signed_server() -> Result<CertificatePair, Error> {
    let mut params = CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned))?;
    params.distinguished_name = distinguished_name("localhost", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Writes `NAME.key` and `NAME.pub`, the keys for ServiceAccount tokens, unless they exist.
pub fn write_signing_key(folder: &Path, name: &str) -> Result<(), Error> {
    let private = folder.join(format!("{name}.key"));
    if private.is_file() {
        return Ok(());
    }
    let key = KeyPair::generate()?;
    write_private(&folder.join(format!("{name}.pub")), &key.public_key_pem())?;
    write_private(&private, &key.serialize_pem())
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn create_authority(name: &str) -> Result<CertificatePair, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn distinguished_name(common_name: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name
}
