//! Charts in OCI registries.

use std::time::Duration;

use chandler_core::{digest::Digest, failure::innermost, release::PackageReference, version};
use futures::TryStreamExt as _;
use oci_client::{
    Client, Reference,
    client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol},
    manifest::OciDescriptor,
    secrets::RegistryAuth,
};

use crate::{Access, Resolved, SourceError, packages::Location, store::Store};

const SCHEME: &str = "oci://";
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const PACKAGE_LIMIT: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const TAGS_PER_PAGE: usize = 1000;
const MOST_TAGS: usize = 100_000;

/// Finds the version that `reference` means, and its layer.
pub async fn resolve(reference: &PackageReference, access: &Access) -> Result<Resolved, SourceError> {
    let repository = repository(reference)?;
    let auth = auth(&repository, access)?;
    let client = client(&repository, access)?;
    let tag = tag(&client, &repository, reference, &auth).await?;
    let image = Reference::with_tag(
        repository.registry().to_owned(),
        repository.repository().to_owned(),
        tag.clone(),
    );
    let (manifest, _) =
        client.pull_image_manifest(&image, &auth).await.map_err(|error| failed(&image, &error))?;
    let layer = manifest.layers.into_iter().find(|layer| layer.media_type == CHART_LAYER);
    let layer = layer.ok_or_else(|| SourceError::NotAPackage { reference: image.to_string() })?;
    let digest = Digest::parse(&layer.digest);
    let location = Location::Oci { image: Box::new(image), layer: Box::new(layer) };
    Ok(Resolved { version: untagged(&tag), digest, location })
}

/// Downloads a chart layer into the store.
pub async fn fetch(
    image: &Reference,
    layer: &OciDescriptor,
    access: &Access,
    store: &Store,
) -> Result<Digest, SourceError> {
    let auth = auth(image, access)?;
    let client = client(image, access)?;
    client.store_auth_if_needed(image.resolve_registry(), &auth).await;
    let too_large = || SourceError::TooLarge { url: image.to_string(), limit: PACKAGE_LIMIT };
    let mut stream = client.pull_blob_stream(image, layer).await.map_err(|error| failed(image, &error))?;
    let mut incoming = store.begin()?;
    let broken =
        |error: std::io::Error| SourceError::Get { url: image.to_string(), reason: error.to_string() };
    while let Some(chunk) = stream.stream.try_next().await.map_err(broken)? {
        if !incoming.write(&chunk, PACKAGE_LIMIT)? {
            return Err(too_large());
        }
    }
    let expected = Digest::parse(&layer.digest);
    incoming.keep(expected.as_ref())?.map_err(|actual| SourceError::DigestMismatch {
        url: image.to_string(),
        expected: layer.digest.clone(),
        actual: actual.to_string(),
    })
}

/// The tag of the wanted version. A pinned version needs no list.
async fn tag(
    client: &Client,
    repository: &Reference,
    reference: &PackageReference,
    auth: &RegistryAuth,
) -> Result<String, SourceError> {
    if let Some(exact) = reference.version.as_deref().filter(|version| is_exact(version)) {
        return Ok(tagged(exact));
    }
    let mut versions = Vec::new();
    let mut last: Option<String> = None;
    loop {
        let page = client
            .list_tags(repository, auth, Some(TAGS_PER_PAGE), last.as_deref())
            .await
            .map_err(|error| failed(repository, &error))?
            .tags;
        last = page.last().cloned();
        let complete = page.len() < TAGS_PER_PAGE;
        versions.extend(page.iter().map(|tag| untagged(tag)));
        if complete || versions.len() >= MOST_TAGS {
            break;
        }
    }
    let published = || versions.iter().map(String::as_str);
    let chosen = version::choose(reference.version.as_deref(), published());
    chosen.map(tagged).ok_or_else(|| SourceError::NoSuchVersion {
        url: reference.repository.clone(),
        name: reference.name.clone(),
        version: reference.version.clone().unwrap_or_else(|| "latest".to_owned()),
        newest: version::choose(None, published()).unwrap_or("none").to_owned(),
    })
}

fn is_exact(version: &str) -> bool {
    version::choose(Some(version), [version]).is_some()
        && !version.contains(['*', '^', '~', '<', '>', '=', ' ', ','])
}

/// Tags cannot hold a plus sign; Helm writes an underscore.
fn tagged(version: &str) -> String {
    version.replace('+', "_")
}

fn untagged(tag: &str) -> String {
    tag.replace('_', "+")
}

fn repository(reference: &PackageReference) -> Result<Reference, SourceError> {
    let bad = || SourceError::BadAddress { url: reference.repository.clone() };
    let rest = reference.repository.strip_prefix(SCHEME).ok_or_else(bad)?;
    format!("{}/{}", rest.trim_end_matches('/'), reference.name).parse().map_err(|_| bad())
}

fn auth(image: &Reference, access: &Access) -> Result<RegistryAuth, SourceError> {
    let login = access.login(image.registry())?;
    Ok(login.map_or(RegistryAuth::Anonymous, |(user, password)| RegistryAuth::Basic(user, password)))
}

fn client(image: &Reference, access: &Access) -> Result<Client, SourceError> {
    let extra_root_certificates = access
        .ca_pem
        .iter()
        .map(|data| Certificate { encoding: CertificateEncoding::Pem, data: data.clone() })
        .collect();
    let config = ClientConfig {
        protocol: ClientProtocol::Https,
        accept_invalid_certificates: access.insecure_skip_tls_verify,
        extra_root_certificates,
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(READ_TIMEOUT),
        user_agent: concat!("chandler/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Client::try_from(config).map_err(|_| SourceError::BadCertificate { url: image.to_string() })
}

fn failed(image: &Reference, error: &oci_client::errors::OciDistributionError) -> SourceError {
    SourceError::Get { url: image.to_string(), reason: innermost(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_tags() {
        assert_eq!(tagged("1.0.0+build.1"), "1.0.0_build.1");
        assert_eq!(untagged("1.0.0_build.1"), "1.0.0+build.1");
        for (version, exact) in [("1.2.3", true), ("v1.2.3", true), ("^1.2", false), (">=1, <2", false)] {
            assert_eq!(is_exact(version), exact, "{version}");
        }
    }

    #[test]
    fn repositories_join_the_chart() {
        let reference = |repository: &str| PackageReference {
            repository: repository.to_owned(),
            name: "hello".to_owned(),
            version: None,
        };
        let found = repository(&reference("oci://registry.example:5000/charts/")).unwrap();
        assert_eq!((found.registry(), found.repository()), ("registry.example:5000", "charts/hello"));
        assert!(repository(&reference("https://registry.example")).is_err());
    }
}
