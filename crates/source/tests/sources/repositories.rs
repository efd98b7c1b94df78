//! Helm repositories over https.

use chandler_core::{digest::Digest, package_format::PackageFormat};
use chandler_sandbox::{
    chart::Package,
    repository::{ChartRepository, Guard},
};
use chandler_source::Access;
use futures::future::join_all;

use crate::{
    server::{Server, index, not_found, redirect},
    world::{World, failure, get, options, reference},
};

async fn guarded(world: &World, guard: Guard) -> ChartRepository {
    let served = world.path("served");
    let repository = ChartRepository::start_guarded(&world.authority, &served, guard).await.unwrap();
    repository.publish(&world.chart("web")).unwrap();
    repository
}

fn basic() -> Guard {
    Guard::Basic { user: "user".to_owned(), password: "word".to_owned() }
}

#[tokio::test]
async fn basic_authentication_from_keys_docker_configuration_or_address() {
    let world = World::new();
    let repository = guarded(&world, basic()).await;
    let host = repository.url().trim_start_matches("https://");
    let docker = format!(r#"{{"auths": {{"{host}": {{"username": "user", "password": "word"}}}}}}"#);
    let accesses = [
        world.access_with(&[("username", "user"), ("password", "word\n")]),
        world.access_with(&[("config.json", &docker)]),
    ];
    for access in accesses {
        get(&world.packages(), repository.url(), &access).await.unwrap();
    }
    let with_login = repository.url().replace("https://", "https://user:word@");
    get(&world.packages(), &with_login, &world.access()).await.unwrap();

    let elsewhere = r#"{"auths": {"other.example": {"username": "user", "password": "word"}}}"#;
    for refused in [
        world.access(),
        world.access_with(&[("config.json", elsewhere)]),
        world.access_with(&[("username", "user"), ("password", "wrong")]),
    ] {
        let message = failure(get(&world.packages(), repository.url(), &refused).await);
        assert!(message.contains("401") && message.contains("check the credentials"), "{message}");
    }
}

#[tokio::test]
async fn bearer_tokens() {
    let world = World::new();
    let repository = guarded(&world, Guard::Bearer("token".to_owned())).await;
    get(&world.packages(), repository.url(), &world.access_with(&[("bearerToken", "token")])).await.unwrap();
    let wrong = world.access_with(&[("bearerToken", "canary")]);
    let message = failure(get(&world.packages(), repository.url(), &wrong).await);
    assert!(message.contains("401") && !message.contains("canary"), "{message}");
}

#[tokio::test]
async fn client_certificates() {
    let world = World::new();
    let repository = guarded(&world, Guard::Certificate).await;
    let pair = world.authority.client("chandler", &[]).unwrap();
    let access = world.access_with(&[("tls.crt", &pair.certificate), ("tls.key", &pair.key)]);
    get(&world.packages(), repository.url(), &access).await.unwrap();
    assert!(get(&world.packages(), repository.url(), &world.access()).await.is_err());
    let broken = world.access_with(&[("tls.crt", "no"), ("tls.key", "pem")]);
    let message = failure(get(&world.packages(), repository.url(), &broken).await);
    assert!(message.starts_with("InvalidSpec") && message.contains("tls.crt"), "{message}");
}

#[tokio::test]
async fn trust_is_the_authoritys_or_waived() {
    let world = World::new();
    let repository = guarded(&world, Guard::Open).await;
    get(&world.packages(), repository.url(), &world.access()).await.unwrap();
    let waived = Access { insecure_skip_tls_verify: true, ..Access::default() };
    get(&world.packages(), repository.url(), &waived).await.unwrap();
    let message = failure(get(&world.packages(), repository.url(), &Access::default()).await);
    assert!(message.starts_with("SourceUnavailable") && message.contains("certificate"), "{message}");
    let nonsense = Access { ca_pem: Some(b"nonsense".to_vec()), ..Access::default() };
    let message = failure(get(&world.packages(), repository.url(), &nonsense).await);
    assert!(message.starts_with("InvalidSpec") && message.contains("not valid PEM"), "{message}");
}

#[tokio::test]
async fn many_ask_once() {
    let world = World::new();
    let repository = guarded(&world, Guard::Open).await;
    let (packages, access) = (world.packages(), world.access());
    let asked = join_all((0..50).map(|_| get(&packages, repository.url(), &access))).await;
    assert!(asked.iter().all(Result::is_ok));
    let requests = repository.requests();
    assert_eq!((requests["/index.yaml"], requests["/web-1.0.0.tgz"]), (1, 1), "{requests:?}");
}

#[tokio::test]
async fn an_index_that_has_not_changed_is_not_sent_again() {
    let world = World::new();
    let repository = guarded(&world, Guard::Open).await;
    let mut options = options();
    options.limits.fresh = std::time::Duration::ZERO;
    let (packages, access) = (world.packages_with(options), world.access());
    let newest = || async {
        packages.resolve(&reference(repository.url(), "web", None), &access).await.unwrap().version
    };
    for _ in 0..3 {
        assert_eq!(newest().await, "1.0.0");
    }
    let requests = repository.requests();
    assert_eq!((requests["/index.yaml"], requests["304"]), (3, 2), "{requests:?}");
    repository.publish_version(&world.chart("web"), "1.1.0").unwrap();
    assert_eq!(newest().await, "1.1.0");
}

#[tokio::test]
async fn a_published_digest_is_kept_to() {
    let world = World::new();
    let package = Package::pack(&world.chart("web"), None).unwrap();
    let bytes = package.bytes.clone();
    let answer = move |path: &str, _: &axum::http::HeaderMap| match path {
        "/index.yaml" => index("web.tgz", Some(Digest::of("another").hex())),
        _ => axum::response::IntoResponse::into_response(bytes.clone()),
    };
    let server = Server::start(&world.authority, answer).await;
    let message = failure(get(&world.packages(), &server.url(), &world.access()).await);
    assert!(message.starts_with("InvalidPackage") && message.contains("damaged or exchanged"), "{message}");
    let wanted = reference(&server.url(), "web", Some("1.0.0"));
    assert!(
        world
            .packages()
            .stored(&wanted, &Digest::of(&package.bytes), &PackageFormat::default(), None)
            .is_none()
    );
}

#[tokio::test]
async fn without_a_digest_many_still_download_once() {
    let world = World::new();
    let bytes = Package::pack(&world.chart("web"), None).unwrap().bytes;
    let answer = move |path: &str, _: &axum::http::HeaderMap| match path {
        "/index.yaml" => index("web.tgz", None),
        _ => axum::response::IntoResponse::into_response(bytes.clone()),
    };
    let server = Server::start(&world.authority, answer).await;
    let (packages, access, url) = (world.packages(), world.access(), server.url());
    let asked = join_all((0..20).map(|_| get(&packages, &url, &access))).await;
    assert!(asked.iter().all(Result::is_ok));
    assert_eq!(server.seen().len(), 2, "{:?}", server.seen());
}

#[tokio::test]
async fn credentials_go_to_the_repository_and_nowhere_else() {
    let world = World::new();
    let bytes = Package::pack(&world.chart("web"), None).unwrap().bytes;
    let deliver =
        move |_: &str, _: &axum::http::HeaderMap| axum::response::IntoResponse::into_response(bytes.clone());
    let elsewhere = Server::start(&world.authority, deliver).await;
    let (by_index, by_redirect) =
        (format!("{}/index", elsewhere.url()), format!("{}/moved", elsewhere.url()));
    let home = Server::start(&world.authority, move |path, _| match path {
        "/a/index.yaml" => index(&by_index, None),
        "/b/index.yaml" => index("web.tgz", None),
        "/b/web.tgz" => redirect(&by_redirect),
        _ => not_found(),
    })
    .await;
    let access = world.access_with(&[("username", "user"), ("password", "canary")]);
    for path in ["a", "b"] {
        get(&world.packages(), &format!("{}/{path}", home.url()), &access).await.unwrap();
    }
    assert!(home.seen().iter().all(|(_, sent)| sent.is_some()), "{:?}", home.seen());
    let seen = elsewhere.seen();
    assert_eq!(seen, [("/index".to_owned(), None), ("/moved".to_owned(), None)]);
}

#[tokio::test]
async fn certificates_are_shown_to_the_repository_and_nowhere_else() {
    let world = World::new();
    // Elsewhere asks for a certificate and would accept ours.
    let elsewhere = guarded(&world, Guard::Certificate).await;
    let target = format!("{}/web-1.0.0.tgz", elsewhere.url());
    let home = Server::start(&world.authority, move |_, _| index(&target, None)).await;
    let pair = world.authority.client("chandler", &[]).unwrap();
    let access = world.access_with(&[("tls.crt", &pair.certificate), ("tls.key", &pair.key)]);
    assert!(get(&world.packages(), elsewhere.url(), &access).await.is_ok());
    let before = elsewhere.requests();
    let world_without_it = World::new();
    let message = failure(get(&world_without_it.packages(), &home.url(), &access).await);
    assert!(message.starts_with("SourceUnavailable"), "{message}");
    assert_eq!(home.seen().len(), 1, "the repository itself was reached: {:?}", home.seen());
    assert_eq!(elsewhere.requests(), before, "nobody elsewhere was shown the certificate");
}
