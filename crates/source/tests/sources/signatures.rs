//! Charts that have to be signed, in a real registry, with signatures of the real cosign.

use std::{sync::Arc, time::Duration};

use chandler_core::package_format::PackageFormat;
use chandler_sandbox::{
    assets::Assets,
    chart::Package,
    cosign::{Cosign, Form},
    registry::{LOGIN, Registry},
    repository::ChartRepository,
    testing,
};
use chandler_source::{Access, Packages, SignaturePolicy, Signers, SignersSpec};

use crate::world::{World, failure, get, reference};

struct Signed {
    world: World,
    registry: Registry,
    assets: &'static Assets,
}

impl Signed {
    async fn new() -> Self {
        let world = World::new();
        let assets = testing::assets().await.unwrap();
        let registry =
            Registry::start_guarded(assets, &world.authority, &world.path("registry")).await.unwrap();
        Self { world, registry, assets }
    }

    async fn push(&self, chart: &str) {
        let package = Package::pack(&self.world.chart(chart), None).unwrap();
        self.registry.push(&package).await.unwrap();
    }

    async fn cosign(&self, name: &str) -> Cosign {
        Cosign::new(self.assets, &self.world.path(name)).await.unwrap()
    }

    fn access(&self) -> Access {
        self.world.access_with(&[("username", LOGIN.0), ("password", LOGIN.1)])
    }

    async fn get(&self, packages: &Packages, chart: &str) -> Result<String, String> {
        let access = self.access();
        let reference = reference(&self.registry.url(), chart, Some("1.0.0"));
        let resolved = packages.resolve(&reference, &access).await.unwrap();
        let got = packages.fetch(&resolved, &access).await;
        if got.is_err() {
            assert!(
                packages
                    .stored(&reference, resolved.digest.as_ref().unwrap(), &resolved.format, None)
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
async fn only_what_the_right_key_signed_comes_out() {
    let signed = Signed::new().await;
    let (ours, theirs) = (signed.cosign("ours").await, signed.cosign("theirs").await);
    for chart in ["tagged", "bundled", "strange", "bare"] {
        signed.push(chart).await;
    }
    ours.sign(&signed.registry, "tagged", "1.0.0", Form::Tag).await.unwrap();
    ours.sign(&signed.registry, "bundled", "1.0.0", Form::Bundle).await.unwrap();
    theirs.sign(&signed.registry, "strange", "1.0.0", Form::Tag).await.unwrap();
    let packages = signed.world.packages();
    packages.demand_signatures(Ok(policy(&signed.registry.url(), ours.public_key())));
    for chart in ["tagged", "bundled"] {
        signed.get(&packages, chart).await.unwrap();
    }
    let strange = signed.get(&packages, "strange").await.unwrap_err();
    assert!(
        strange.contains("/charts/strange@sha256:") && strange.contains("none of the given keys"),
        "{strange}"
    );
    let bare = signed.get(&packages, "bare").await.unwrap_err();
    assert!(bare.contains("it is not signed; sign it with `cosign sign`"), "{bare}");
    theirs.sign(&signed.registry, "bare", "1.0.0", Form::Bundle).await.unwrap();
    ours.sign(&signed.registry, "bare", "1.0.0", Form::Bundle).await.unwrap();
    ours.sign(&signed.registry, "strange", "1.0.0", Form::Tag).await.unwrap();
    for chart in ["bare", "strange"] {
        // A failure is true for as long as it took to find out.
        let mut got = signed.get(&packages, chart).await;
        for _ in 0..100 {
            if got.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            got = signed.get(&packages, chart).await;
        }
        got.unwrap();
    }
    signed.registry.stop().await;
}

#[tokio::test]
async fn what_was_verified_is_not_asked_for_again_and_a_new_policy_is() {
    let signed = Signed::new().await;
    let (ours, theirs) = (signed.cosign("ours").await, signed.cosign("theirs").await);
    signed.push("web").await;
    ours.sign(&signed.registry, "web", "1.0.0", Form::Tag).await.unwrap();
    let packages = signed.world.packages();
    packages.demand_signatures(Ok(policy("*", ours.public_key())));
    signed.get(&packages, "web").await.unwrap();
    let web = reference(&signed.registry.url(), "web", Some("1.0.0"));
    let resolved = packages.resolve(&web, &signed.access()).await.unwrap();
    let url = signed.registry.url();
    signed.registry.stop().await;

    let digest = resolved.digest.clone().unwrap();
    packages.fetch(&resolved, &signed.world.access()).await.expect("nobody has to be asked");
    assert!(packages.stored(&web, &digest, &PackageFormat::default(), None).is_some());
    let spec = SignersSpec { keys: vec![theirs.public_key().to_owned()], ..SignersSpec::default() };
    let further = Arc::new(Signers::new(&spec).unwrap());
    assert!(
        packages.stored(&web, &digest, &PackageFormat::default(), Some(&further)).is_none(),
        "a catalog may demand more"
    );

    packages.demand_signatures(Ok(policy(&url, theirs.public_key())));
    assert!(
        packages.stored(&web, &digest, &PackageFormat::default(), None).is_none(),
        "another policy is another question"
    );
    assert!(packages.fetch(&resolved, &signed.world.access()).await.is_err());
    packages.demand_signatures(Err("ConfigMap x/y does not exist".to_owned()));
    let told = packages.fetch(&resolved, &signed.world.access()).await.unwrap_err().to_string();
    assert!(told.contains("nothing is installed") && told.contains("x/y does not exist"), "{told}");
    packages.demand_signatures(Ok(SignaturePolicy::default()));
    assert!(
        packages.stored(&web, &digest, &PackageFormat::default(), None).is_some(),
        "nothing is demanded any more"
    );
}

#[tokio::test]
async fn packages_of_https_repositories_are_refused_where_signatures_are_demanded() {
    let world = World::new();
    let assets = testing::assets().await.unwrap();
    let repository = ChartRepository::start(&world.authority, &world.path("served")).await.unwrap();
    repository.publish(&world.chart("web")).unwrap();
    let packages = world.packages();
    let key = Cosign::new(assets, &world.path("keys")).await.unwrap();
    packages.demand_signatures(Ok(policy(repository.url(), key.public_key())));
    let message = failure(get(&packages, repository.url(), &world.access()).await);
    assert!(
        message.starts_with("VerificationFailed") && message.contains("publish it in a registry"),
        "{message}"
    );
    packages.demand_signatures(Ok(policy("https://charts.example", key.public_key())));
    get(&packages, repository.url(), &world.access()).await.unwrap();
}
