//! Required signatures, with a real registry and cosign.

use std::{sync::Arc, time::Duration};

use chandler_core::package_format::PackageFormat;
use chandler_sandbox::{
    assets::Assets,
    chart::Package,
    cosign::{Cosign, SignatureFormat},
    registry::{CREDENTIALS, Registry},
    repository::ChartRepository,
    testing,
};
use chandler_source::{Access, Packages, PolicyUnavailable, SignaturePolicy, Signers, SignersSpec};

use crate::support::env::{TestEnv, failure, get, reference};

struct SigningEnv {
    env: TestEnv,
    registry: Registry,
    assets: &'static Assets,
}

impl SigningEnv {
    async fn new() -> Self {
        let env = TestEnv::new();
        let assets = testing::assets().await.unwrap();
        let registry =
            Registry::start_with_authentication(assets, &env.authority, &env.path("registry")).await.unwrap();
        Self { env, registry, assets }
    }

    async fn push(&self, chart: &str) {
        let package = Package::pack(&self.env.chart(chart), None).unwrap();
        self.registry.push(&package).await.unwrap();
    }

    async fn cosign(&self, name: &str) -> Cosign {
        Cosign::new(self.assets, &self.env.path(name)).await.unwrap()
    }

    fn access(&self) -> Access {
        self.env.access_with(&[("username", CREDENTIALS.0), ("password", CREDENTIALS.1)])
    }

    async fn get(&self, packages: &Packages, chart: &str) -> Result<String, String> {
        let access = self.access();
        let reference = reference(&self.registry.url(), chart, Some("1.0.0"));
        let resolved = packages.resolve(&reference, &access).await.unwrap();
        let got = packages.fetch(&resolved, &access).await;
        if got.is_err() {
            assert!(
                packages
                    .stored(
                        &access.namespace,
                        &reference,
                        resolved.digest.as_ref().unwrap(),
                        &resolved.format,
                        None
                    )
                    .is_none()
            );
        }
        got.map(|stored| stored.digest.to_string()).map_err(|error| error.to_string())
    }
}

fn policy(source: &str, key: &str) -> SignaturePolicy {
    let key = key.replace('\n', "\\n");
    SignaturePolicy::parse(&format!("rules: [{{sources: ['{source}'], keys: [\"{key}\"]}}]")).unwrap()
}

#[tokio::test]
async fn only_packages_signed_with_the_required_key_are_fetched() {
    let signed = SigningEnv::new().await;
    let (ours, theirs) = (signed.cosign("ours").await, signed.cosign("theirs").await);
    for chart in ["tagged", "bundled", "untrusted", "unsigned"] {
        signed.push(chart).await;
    }
    ours.sign(&signed.registry, "tagged", "1.0.0", SignatureFormat::Tag).await.unwrap();
    ours.sign(&signed.registry, "bundled", "1.0.0", SignatureFormat::Bundle).await.unwrap();
    theirs.sign(&signed.registry, "untrusted", "1.0.0", SignatureFormat::Tag).await.unwrap();
    let packages = signed.env.packages();
    packages.set_signature_policy(Ok(policy(&signed.registry.url(), ours.public_key())));
    for chart in ["tagged", "bundled"] {
        signed.get(&packages, chart).await.unwrap();
    }
    let untrusted = signed.get(&packages, "untrusted").await.unwrap_err();
    assert!(
        untrusted.contains("/charts/untrusted@sha256:") && untrusted.contains("none of the given keys"),
        "{untrusted}"
    );
    let unsigned = signed.get(&packages, "unsigned").await.unwrap_err();
    assert!(unsigned.contains("it is not signed; sign it with `cosign sign`"), "{unsigned}");
    theirs.sign(&signed.registry, "unsigned", "1.0.0", SignatureFormat::Bundle).await.unwrap();
    ours.sign(&signed.registry, "unsigned", "1.0.0", SignatureFormat::Bundle).await.unwrap();
    ours.sign(&signed.registry, "untrusted", "1.0.0", SignatureFormat::Tag).await.unwrap();
    for chart in ["unsigned", "untrusted"] {
        // A failure is cached for as long as it took to occur.
        let mut result = signed.get(&packages, chart).await;
        for _ in 0..100 {
            if result.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            result = signed.get(&packages, chart).await;
        }
        result.unwrap();
    }
    signed.registry.stop().await;
}

#[tokio::test]
async fn verified_packages_are_only_verified_again_for_a_new_policy() {
    let signed = SigningEnv::new().await;
    let (ours, theirs) = (signed.cosign("ours").await, signed.cosign("theirs").await);
    signed.push("web").await;
    ours.sign(&signed.registry, "web", "1.0.0", SignatureFormat::Tag).await.unwrap();
    let packages = signed.env.packages();
    packages.set_signature_policy(Ok(policy("*", ours.public_key())));
    signed.get(&packages, "web").await.unwrap();
    let web = reference(&signed.registry.url(), "web", Some("1.0.0"));
    let resolved = packages.resolve(&web, &signed.access()).await.unwrap();
    let url = signed.registry.url();
    signed.registry.stop().await;

    let digest = resolved.digest.clone().unwrap();
    packages.fetch(&resolved, &signed.env.access()).await.expect("no request is needed");
    assert!(packages.stored("", &web, &digest, &PackageFormat::default(), None).is_some());
    let spec = SignersSpec { keys: vec![theirs.public_key().to_owned()], ..SignersSpec::default() };
    let additional = Arc::new(Signers::new(&spec).unwrap());
    assert!(
        packages.stored("", &web, &digest, &PackageFormat::default(), Some(&additional)).is_none(),
        "a catalog may require more signers"
    );

    packages.set_signature_policy(Ok(policy(&url, theirs.public_key())));
    assert!(
        packages.stored("", &web, &digest, &PackageFormat::default(), None).is_none(),
        "not verified for the new policy"
    );
    assert!(packages.fetch(&resolved, &signed.env.access()).await.is_err());
    let unavailable =
        PolicyUnavailable { location: "ConfigMap x/y".to_owned(), reason: "it does not exist".to_owned() };
    packages.set_signature_policy(Err(unavailable));
    let message = packages.fetch(&resolved, &signed.env.access()).await.unwrap_err().to_string();
    for part in ["nothing is installed", "x/y", "it does not exist"] {
        assert!(message.contains(part), "{message}");
    }
    packages.set_signature_policy(Ok(SignaturePolicy::default()));
    assert!(
        packages.stored("", &web, &digest, &PackageFormat::default(), None).is_some(),
        "no signature is required"
    );
}

#[tokio::test]
async fn packages_of_https_repositories_are_rejected_if_signatures_are_required() {
    let env = TestEnv::new();
    let assets = testing::assets().await.unwrap();
    let repository = ChartRepository::start(&env.authority, &env.path("served")).await.unwrap();
    repository.publish(&env.chart("web")).unwrap();
    let packages = env.packages();
    let key = Cosign::new(assets, &env.path("keys")).await.unwrap();
    packages.set_signature_policy(Ok(policy(repository.url(), key.public_key())));
    let message = failure(get(&packages, repository.url(), &env.access()).await);
    assert!(
        message.starts_with("VerificationFailed") && message.contains("publish it in an OCI registry"),
        "{message}"
    );
    packages.set_signature_policy(Ok(policy("https://charts.example", key.public_key())));
    get(&packages, repository.url(), &env.access()).await.unwrap();
}
