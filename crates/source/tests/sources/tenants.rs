//! Namespaces share repositories, the store and memory, but not their private packages, logins and quotas.

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use chandler_core::{digest::Digest, login_hosts::LoginHosts, package_format::PackageFormat};
use chandler_sandbox::chart::Package;
use chandler_source::{Access, Packages, SourceError, SourceOptions, SourceQuotas};

use crate::support::{
    env::{TestEnv, failure, get, options, reference},
    server::{Server, index, not_found, redirect},
};

const LOGIN: [(&str, &str); 2] = [("username", "user"), ("password", "canary")];

fn of(namespace: &str, access: Access) -> Access {
    Access { namespace: namespace.to_owned(), ..access }
}

/// Serves a package to those with an `Authorization` header.
async fn private_repository(env: &TestEnv, package: &Package) -> Server {
    let (digest, bytes) = (Digest::of(&package.bytes), package.bytes.clone());
    let respond = move |path: &str, headers: &HeaderMap| -> Response {
        if !headers.contains_key("authorization") {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        if path.ends_with("index.yaml") {
            return index("web-1.0.0.tgz", Some(digest.hex()));
        }
        bytes.clone().into_response()
    };
    Server::start(&env.authority, respond).await
}

#[tokio::test]
async fn the_digest_of_a_private_package_is_not_enough_to_get_it() {
    let env = TestEnv::new();
    let package = Package::pack(&env.chart("web"), None).unwrap();
    let private = private_repository(&env, &package).await;
    let digest = Digest::of(&package.bytes).hex().to_owned();
    let evil = Server::start(&env.authority, move |path: &str, _: &HeaderMap| {
        if path.ends_with("index.yaml") { index("web-1.0.0.tgz", Some(&digest)) } else { not_found() }
    })
    .await;
    let owner = of("owner", env.access_with(&LOGIN));
    let attacker = of("attacker", env.access());
    for restarted in [false, true] {
        let packages = env.packages();
        get(&packages, &private.url(), &owner).await.unwrap();
        let refused = failure(get(&packages, &evil.url(), &attacker).await);
        assert!(refused.contains("HTTP 404"), "restarted: {restarted}: {refused}");
        let stored = |namespace: &str, url: &str| {
            let reference = reference(url, "web", Some("1.0.0"));
            let digest = Digest::of(&package.bytes);
            packages.stored(namespace, &reference, &digest, &PackageFormat::default(), None).is_some()
        };
        assert!(stored("owner", &private.url()));
        assert!(!stored("attacker", &private.url()) && !stored("attacker", &evil.url()));
    }
    let archives = private.requests().iter().filter(|(path, _)| path.contains(".tgz")).count();
    assert_eq!(archives, 1, "the owner has downloaded it once, also after a restart");
    let friend = of("friend", env.access_with(&LOGIN));
    let packages = env.packages();
    for _ in 0..2 {
        get(&packages, &private.url(), &friend).await.expect("its own login");
    }
}

#[tokio::test]
async fn namespaces_share_a_public_package() {
    let env = TestEnv::new();
    let package = Package::pack(&env.chart("web"), None).unwrap();
    let (digest, bytes) = (Digest::of(&package.bytes), package.bytes.clone());
    let server = Server::start(&env.authority, move |path: &str, _: &HeaderMap| {
        if path.ends_with("index.yaml") {
            index("web-1.0.0.tgz", Some(digest.hex()))
        } else {
            bytes.clone().into_response()
        }
    })
    .await;
    let packages = env.packages();
    for namespace in ["one", "two", "three"] {
        get(&packages, &server.url(), &of(namespace, env.access())).await.unwrap();
    }
    assert_eq!(server.requests().len(), 2, "one index and one package: {:?}", server.requests());
    let [store, index] = packages.quota_usage();
    assert_eq!(store.used.iter().map(|(namespace, _)| &**namespace).collect::<Vec<_>>(), ["one"]);
    assert_eq!(index.used.iter().map(|(namespace, _)| &**namespace).collect::<Vec<_>>(), ["one"]);
}

#[tokio::test]
async fn a_login_is_sent_only_to_the_hosts_of_its_secret() {
    let env = TestEnv::new();
    let package = Package::pack(&env.chart("web"), None).unwrap();
    let private = private_repository(&env, &package).await;
    let evil = Server::start(&env.authority, |_: &str, _: &HeaderMap| not_found()).await;
    let bound = |hosts: &str| {
        let mut access = of("team", env.access_with(&LOGIN));
        let hosts = LoginHosts::parse("shared/login", hosts);
        access.credentials = access.credentials.map(|credentials| credentials.limited_to(Some(hosts)));
        access
    };
    let packages = env.packages();
    let access = bound(&private.address.to_string());
    get(&packages, &private.url(), &access).await.unwrap();
    for url in [evil.url(), format!("oci://{}/charts", evil.address), private.url_by_name()] {
        let refused = failure(get(&packages, &url, &access).await);
        assert!(refused.starts_with("GetCredentialsFailed: "), "{refused}");
        assert!(
            refused.contains("Secret shared/login") && refused.contains("chandler.dev/hosts"),
            "{refused}"
        );
    }
    assert!(evil.requests().is_empty(), "not even a request without the login");

    let target = format!("{}/index.yaml", evil.url());
    let redirecting = Server::start(&env.authority, move |_: &str, _: &HeaderMap| redirect(&target)).await;
    let access = bound(&redirecting.address.to_string());
    failure(get(&packages, &redirecting.url(), &access).await);
    let followed = evil.requests();
    assert!(followed.iter().all(|(_, login)| login.is_none()) && followed.len() == 1, "{followed:?}");
}

#[tokio::test]
async fn the_token_service_of_a_registry_needs_to_be_listed_too() {
    let env = TestEnv::new();
    let evil = Server::start(&env.authority, |_: &str, _: &HeaderMap| not_found()).await;
    let realm = format!("Bearer realm=\"{}/token\"", evil.url());
    let registry = Server::start(&env.authority, move |_: &str, _: &HeaderMap| {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", realm.clone())]).into_response()
    })
    .await;
    let mut access = of("team", env.access_with(&LOGIN));
    let hosts = LoginHosts::parse("shared/login", &registry.address.to_string());
    access.credentials = access.credentials.map(|credentials| credentials.limited_to(Some(hosts)));
    let refused = failure(get(&env.packages(), &format!("oci://{}/charts", registry.address), &access).await);
    assert!(refused.contains(&format!("is not sent to {}", evil.address)), "{refused}");
    assert!(evil.requests().is_empty(), "{:?}", evil.requests());
}

fn with_quotas(env: &TestEnv, quotas: SourceQuotas) -> Packages {
    env.packages_with(SourceOptions { quotas, ..options() })
}

#[tokio::test]
async fn a_namespace_at_its_quota_does_not_keep_others_from_their_packages() {
    let env = TestEnv::new();
    let package = Package::pack(&env.chart("web"), None).unwrap();
    let private = private_repository(&env, &package).await;
    let large = Server::start(&env.authority, |path: &str, _: &HeaderMap| {
        if path.ends_with("index.yaml") {
            index("web-1.0.0.tgz", None)
        } else {
            vec![0; 1 << 20].into_response()
        }
    })
    .await;
    let packages =
        with_quotas(&env, SourceQuotas { store_per_namespace: 1 << 19, ..SourceQuotas::default() });
    let attacker = of("attacker", env.access());
    for _ in 0..2 {
        let refused = failure(get(&packages, &large.url(), &attacker).await);
        assert!(refused.starts_with("QuotaExceeded: namespace attacker"), "{refused}");
        assert!(refused.contains("--store-quota-per-namespace"), "{refused}");
    }
    get(&packages, &private.url(), &of("other", env.access_with(&LOGIN))).await.expect("others go on");
    let [store, _] = packages.quota_usage();
    assert!(store.refusals > 0);
    let used: u64 =
        store.used.iter().filter(|(namespace, _)| namespace == "attacker").map(|(_, bytes)| bytes).sum();
    assert!(used < 4096, "only its index is kept: {used}");
}

#[tokio::test]
async fn indexes_of_a_namespace_are_removed_from_memory_beyond_its_quota() {
    let env = TestEnv::new();
    let server = Server::start(&env.authority, |_: &str, _: &HeaderMap| index("web-1.0.0.tgz", None)).await;
    let quotas =
        SourceQuotas { index_per_namespace: 600 << 10, index_total: 4 << 20, ..SourceQuotas::default() };
    let packages = with_quotas(&env, quotas);
    let resolve = async |namespace: &str, path: &str| {
        let url = format!("{}/{path}", server.url());
        packages.resolve(&reference(&url, "web", None), &of(namespace, env.access())).await.unwrap();
    };
    resolve("other", "kept").await;
    for number in 0..10 {
        resolve("many", &number.to_string()).await;
    }
    let [_, index] = packages.quota_usage();
    let used = |wanted: &str| index.used.iter().find(|(namespace, _)| namespace == wanted).unwrap().1;
    assert!(used("many") <= quotas.index_per_namespace && used("other") > 0, "{index:?}");
    let before = server.requests().len();
    resolve("other", "kept").await;
    resolve("many", "9").await;
    assert_eq!(server.requests().len(), before, "they are still cached");
    resolve("many", "0").await;
    assert_eq!(server.requests().len(), before + 1, "it was removed");

    let small = with_quotas(&env, SourceQuotas { index_per_namespace: 1 << 10, ..SourceQuotas::default() });
    let refused = small.resolve(&reference(&server.url(), "web", None), &of("many", env.access())).await;
    assert!(matches!(refused, Err(SourceError::QuotaExceeded { .. })), "{refused:?}");
}
