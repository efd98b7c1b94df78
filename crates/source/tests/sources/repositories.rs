//! Helm repositories over https.

use chandler_core::{digest::Digest, package_format::PackageFormat};
use chandler_sandbox::{
    chart::Package,
    repository::{Authentication, ChartRepository},
};
use chandler_source::Access;
use futures::future::join_all;

use crate::support::{
    env::{TestEnv, failure, get, options, reference},
    server::{Server, index, not_found, redirect},
};

async fn start_repository(env: &TestEnv, guard: Authentication) -> ChartRepository {
    let served = env.path("served");
    let repository =
        ChartRepository::start_with_authentication(&env.authority, &served, guard).await.unwrap();
    repository.publish(&env.chart("web")).unwrap();
    repository
}

fn basic() -> Authentication {
    Authentication::Basic { user: "user".to_owned(), password: "word".to_owned() }
}

#[tokio::test]
async fn basic_auth_from_secret_keys_docker_config_or_url() {
    let env = TestEnv::new();
    let repository = start_repository(&env, basic()).await;
    let host = repository.url().trim_start_matches("https://");
    let docker = format!(r#"{{"auths": {{"{host}": {{"username": "user", "password": "word"}}}}}}"#);
    let accesses = [
        env.access_with(&[("username", "user"), ("password", "word\n")]),
        env.access_with(&[("config.json", &docker)]),
    ];
    for access in accesses {
        get(&env.packages(), repository.url(), &access).await.unwrap();
    }
    let with_credentials = repository.url().replace("https://", "https://user:word@");
    get(&env.packages(), &with_credentials, &env.access()).await.unwrap();

    let other = r#"{"auths": {"other.example": {"username": "user", "password": "word"}}}"#;
    for refused in [
        env.access(),
        env.access_with(&[("config.json", other)]),
        env.access_with(&[("username", "user"), ("password", "wrong")]),
    ] {
        let message = failure(get(&env.packages(), repository.url(), &refused).await);
        assert!(message.contains("401") && message.contains("check the credentials"), "{message}");
    }
}

#[tokio::test]
async fn bearer_tokens_are_sent() {
    let env = TestEnv::new();
    let repository = start_repository(&env, Authentication::Bearer("token".to_owned())).await;
    get(&env.packages(), repository.url(), &env.access_with(&[("bearerToken", "token")])).await.unwrap();
    let wrong = env.access_with(&[("bearerToken", "canary")]);
    let message = failure(get(&env.packages(), repository.url(), &wrong).await);
    assert!(message.contains("401") && !message.contains("canary"), "{message}");
}

#[tokio::test]
async fn client_certificates_are_sent() {
    let env = TestEnv::new();
    let repository = start_repository(&env, Authentication::ClientCertificate).await;
    let pair = env.authority.client("chandler", &[]).unwrap();
    let access = env.access_with(&[("tls.crt", &pair.certificate), ("tls.key", &pair.key)]);
    get(&env.packages(), repository.url(), &access).await.unwrap();
    assert!(get(&env.packages(), repository.url(), &env.access()).await.is_err());
    let broken = env.access_with(&[("tls.crt", "no"), ("tls.key", "pem")]);
    let message = failure(get(&env.packages(), repository.url(), &broken).await);
    assert!(message.starts_with("InvalidSpec") && message.contains("tls.crt"), "{message}");
}

#[tokio::test]
async fn server_certificates_are_verified_unless_skipped() {
    let env = TestEnv::new();
    let repository = start_repository(&env, Authentication::Anonymous).await;
    get(&env.packages(), repository.url(), &env.access()).await.unwrap();
    let skipped = Access { insecure_skip_tls_verify: true, ..Access::default() };
    get(&env.packages(), repository.url(), &skipped).await.unwrap();
    let message = failure(get(&env.packages(), repository.url(), &Access::default()).await);
    assert!(message.starts_with("SourceUnavailable") && message.contains("certificate"), "{message}");
    let invalid = Access { ca_pem: Some(b"nonsense".to_vec()), ..Access::default() };
    let message = failure(get(&env.packages(), repository.url(), &invalid).await);
    assert!(message.starts_with("InvalidSpec") && message.contains("not valid PEM"), "{message}");
}

#[tokio::test]
async fn a_server_certificate_that_is_its_own_authority_is_accepted_if_configured() {
    let env = TestEnv::new();
    let repository = ChartRepository::start_self_signed(&env.path("served")).await.unwrap();
    repository.publish(&env.chart("web")).unwrap();
    let trusting = Access { ca_pem: Some(repository.ca_pem().as_bytes().to_vec()), ..Access::default() };
    get(&env.packages(), repository.url(), &trusting).await.unwrap();
    for access in [env.access(), Access::default()] {
        let message = failure(get(&TestEnv::new().packages(), repository.url(), &access).await);
        assert!(message.starts_with("SourceUnavailable") && message.contains("certificate"), "{message}");
    }
}

#[tokio::test]
async fn concurrent_callers_share_requests() {
    let env = TestEnv::new();
    let repository = start_repository(&env, Authentication::Anonymous).await;
    let (packages, access) = (env.packages(), env.access());
    let results = join_all((0..50).map(|_| get(&packages, repository.url(), &access))).await;
    assert!(results.iter().all(Result::is_ok));
    let requests = repository.requests();
    assert_eq!((requests["/index.yaml"], requests["/web-1.0.0.tgz"]), (1, 1), "{requests:?}");
}

#[tokio::test]
async fn an_unchanged_index_is_not_downloaded_again() {
    let env = TestEnv::new();
    let repository = start_repository(&env, Authentication::Anonymous).await;
    let mut options = options();
    options.limits.cache_ttl = std::time::Duration::ZERO;
    let (packages, access) = (env.packages_with(options), env.access());
    let newest = || async {
        packages.resolve(&reference(repository.url(), "web", None), &access).await.unwrap().version
    };
    for _ in 0..3 {
        assert_eq!(newest().await, "1.0.0");
    }
    let requests = repository.requests();
    assert_eq!((requests["/index.yaml"], requests["304"]), (3, 2), "{requests:?}");
    repository.publish_version(&env.chart("web"), "1.1.0").unwrap();
    assert_eq!(newest().await, "1.1.0");
}

#[tokio::test]
async fn archives_have_to_match_the_published_digest() {
    let env = TestEnv::new();
    let package = Package::pack(&env.chart("web"), None).unwrap();
    let bytes = package.bytes.clone();
    let respond = move |path: &str, _: &axum::http::HeaderMap| match path {
        "/index.yaml" => index("web.tgz", Some(Digest::of("another").hex())),
        _ => axum::response::IntoResponse::into_response(bytes.clone()),
    };
    let server = Server::start(&env.authority, respond).await;
    let message = failure(get(&env.packages(), &server.url(), &env.access()).await);
    assert!(message.starts_with("InvalidPackage") && message.contains("corrupted or replaced"), "{message}");
    let web = reference(&server.url(), "web", Some("1.0.0"));
    assert!(
        env.packages()
            .stored(
                &env.access().namespace,
                &web,
                &Digest::of(&package.bytes),
                &PackageFormat::default(),
                None
            )
            .is_none()
    );
}

#[tokio::test]
async fn concurrent_callers_share_downloads_without_a_digest() {
    let env = TestEnv::new();
    let bytes = Package::pack(&env.chart("web"), None).unwrap().bytes;
    let respond = move |path: &str, _: &axum::http::HeaderMap| match path {
        "/index.yaml" => index("web.tgz", None),
        _ => axum::response::IntoResponse::into_response(bytes.clone()),
    };
    let server = Server::start(&env.authority, respond).await;
    let (packages, access, url) = (env.packages(), env.access(), server.url());
    let results = join_all((0..20).map(|_| get(&packages, &url, &access))).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(server.requests().len(), 2, "{:?}", server.requests());
}

#[tokio::test]
async fn credentials_are_only_sent_to_the_repository() {
    let env = TestEnv::new();
    let bytes = Package::pack(&env.chart("web"), None).unwrap().bytes;
    let deliver =
        move |_: &str, _: &axum::http::HeaderMap| axum::response::IntoResponse::into_response(bytes.clone());
    let other = Server::start(&env.authority, deliver).await;
    let (by_index, by_redirect) = (format!("{}/index", other.url()), format!("{}/moved", other.url()));
    let home = Server::start(&env.authority, move |path, _| match path {
        "/a/index.yaml" => index(&by_index, None),
        "/b/index.yaml" => index("web.tgz", None),
        "/b/web.tgz" => redirect(&by_redirect),
        _ => not_found(),
    })
    .await;
    let access = env.access_with(&[("username", "user"), ("password", "canary")]);
    for path in ["a", "b"] {
        get(&env.packages(), &format!("{}/{path}", home.url()), &access).await.unwrap();
    }
    assert!(home.requests().iter().all(|(_, sent)| sent.is_some()), "{:?}", home.requests());
    let seen = other.requests();
    assert_eq!(seen, [("/index".to_owned(), None), ("/moved".to_owned(), None)]);
}

#[tokio::test]
async fn client_certificates_are_only_sent_to_the_repository() {
    let env = TestEnv::new();
    // The other server requests a client certificate and would accept this one.
    let other = start_repository(&env, Authentication::ClientCertificate).await;
    let target = format!("{}/web-1.0.0.tgz", other.url());
    let home = Server::start(&env.authority, move |_, _| index(&target, None)).await;
    let pair = env.authority.client("chandler", &[]).unwrap();
    let access = env.access_with(&[("tls.crt", &pair.certificate), ("tls.key", &pair.key)]);
    assert!(get(&env.packages(), other.url(), &access).await.is_ok());
    let before = other.requests();
    let other_env = TestEnv::new();
    let message = failure(get(&other_env.packages(), &home.url(), &access).await);
    assert!(message.starts_with("SourceUnavailable"), "{message}");
    assert_eq!(home.requests().len(), 1, "the repository itself was reached: {:?}", home.requests());
    assert_eq!(other.requests(), before, "the other server did not receive the certificate");
}
