//! Charts in OCI registries.

use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use chandler_core::digest::Digest;
use chandler_sandbox::{
    chart::Package,
    registry::{CREDENTIALS, Registry},
    testing,
};
use serde_json::json;

use crate::support::{
    env::{TestEnv, failure, get, reference},
    server::{Server, not_found, redirect},
};

#[tokio::test]
async fn charts_are_fetched_from_a_registry_with_credentials() {
    let env = TestEnv::new();
    let assets = testing::assets().await.unwrap();
    let registry =
        Registry::start_with_authentication(assets, &env.authority, &env.path("registry")).await.unwrap();
    let chart = env.chart("web");
    for version in ["1.0.0", "1.1.0+build.2", "2.0.0-rc.1"] {
        registry.push(&Package::pack(&chart, Some(version)).unwrap()).await.unwrap();
    }
    let docker = format!(
        r#"{{"auths": {{"{}": {{"username": "{}", "password": "{}"}}}}}}"#,
        registry.host(),
        CREDENTIALS.0,
        CREDENTIALS.1
    );
    let access = env.access_with(&[("config.json", &docker)]);
    let packages = env.packages();
    for (requested, version) in [(Some("1.0.0"), "1.0.0"), (None, "1.1.0+build.2"), (Some("~1.0"), "1.0.0")] {
        let resolved =
            packages.resolve(&reference(&registry.url(), "web", requested), &access).await.unwrap();
        assert_eq!(resolved.version, version);
        let stored = packages.fetch(&resolved, &access).await.unwrap();
        assert_eq!(Some(stored.digest.clone()), resolved.digest);
    }
    let message = failure(get(&packages, &registry.url(), &env.access()).await);
    assert!(message.contains("401") && message.contains("check the credentials"), "{message}");
    let missing = packages.resolve(&reference(&registry.url(), "absent", Some("1.0.0")), &access).await;
    assert!(missing.unwrap_err().to_string().contains("404"));
    registry.stop().await;
}

/// Responds like a registry with the chart `web`, unless `override_response` returns a response.
fn registry(
    chart: Vec<u8>,
    override_response: impl Fn(&str, &HeaderMap) -> Option<Response> + Clone + Send + Sync + 'static,
) -> impl Fn(&str, &HeaderMap) -> Response + Clone + Send + Sync + 'static {
    move |path, headers| {
        if let Some(response) = override_response(path, headers) {
            return response;
        }
        let digest = Digest::of(&chart);
        let layer = json!({
            "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
            "digest": digest.as_str(), "size": chart.len(),
        });
        match path {
            "/v2/charts/web/manifests/1.0.0" => json!({"layers": [layer]}).to_string().into_response(),
            path if path.starts_with("/v2/charts/web/blobs/") => chart.clone().into_response(),
            _ => not_found(),
        }
    }
}

fn manifest(layer: &serde_json::Value) -> Response {
    json!({"layers": [layer]}).to_string().into_response()
}

fn url(server: &Server) -> String {
    format!("{}/charts", server.url().replace("https://", "oci://"))
}

fn chart(env: &TestEnv) -> Vec<u8> {
    Package::pack(&env.chart("web"), None).unwrap().bytes
}

#[tokio::test]
async fn tokens_are_requested_from_the_realm_and_not_sent_to_other_hosts() {
    let env = TestEnv::new();
    let bytes = chart(&env);
    let storage = Server::start(&env.authority, move |_, _| bytes.clone().into_response()).await;
    let realm = Server::start(&env.authority, |_, headers| {
        match headers.get("authorization").map(axum::http::HeaderValue::as_bytes) {
            // user:word
            Some(b"Basic dXNlcjp3b3Jk") => json!({"token": "granted"}).to_string().into_response(),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    })
    .await;
    let challenge = format!(
        r#"Bearer realm="{}/token",service="registry",scope="repository:charts/web:pull""#,
        realm.url()
    );
    let blobs = format!("{}/blob", storage.url());
    let respond = registry(chart(&env), move |path, headers| {
        let granted = headers.get("authorization").is_some_and(|value| value == "Bearer granted");
        if !granted {
            let header = [("www-authenticate", challenge.clone())];
            return Some((StatusCode::UNAUTHORIZED, header).into_response());
        }
        path.contains("/blobs/").then(|| redirect(&blobs))
    });
    let server = Server::start(&env.authority, respond).await;
    let access = env.access_with(&[("username", "user"), ("password", "word")]);
    get(&env.packages(), &url(&server), &access).await.unwrap();
    assert_eq!(realm.requests()[0].0, "/token?service=registry&scope=repository%3Acharts%2Fweb%3Apull");
    assert_eq!(storage.requests(), [("/blob".to_owned(), None)]);
    let sent: Vec<_> = server.requests().into_iter().filter_map(|(_, sent)| sent).collect();
    assert!(
        sent.iter().all(|sent| sent == "Bearer granted"),
        "the registry itself never receives the password"
    );
}

#[tokio::test]
async fn identity_tokens_are_exchanged_at_the_realm_and_not_sent_along_redirects() {
    let env = TestEnv::new();
    let other =
        Server::start(&env.authority, |_, _| json!({"access_token": "x"}).to_string().into_response()).await;
    for redirected in [false, true] {
        let target = other.url();
        let realm = Server::start(&env.authority, move |_, _| {
            if redirected {
                (StatusCode::TEMPORARY_REDIRECT, [("location", target.clone())]).into_response()
            } else {
                json!({"access_token": "granted"}).to_string().into_response()
            }
        })
        .await;
        let challenge = format!(
            r#"Bearer realm="{}/oauth2/token",service="registry",scope="repository:charts/web:pull""#,
            realm.url()
        );
        let respond = registry(chart(&env), move |_, headers| {
            let granted = headers.get("authorization").is_some_and(|value| value == "Bearer granted");
            let header = [("www-authenticate", challenge.clone())];
            (!granted).then(|| (StatusCode::UNAUTHORIZED, header).into_response())
        });
        let server = Server::start(&env.authority, respond).await;
        let auths = json!({server.address.to_string(): {"auth": "MDAwOg==", "identitytoken": "long lived"}});
        let access = env.access_with(&[("config.json", &json!({"auths": auths}).to_string())]);
        let got = get(&TestEnv::new().packages(), &url(&server), &access).await;
        assert_eq!(got.is_err(), redirected);
        assert_eq!(realm.requests()[0], ("/oauth2/token".to_owned(), None));
        let form = "service=registry&scope=repository%3Acharts%2Fweb%3Apull&grant_type=refresh_token\
                    &client_id=chandler&refresh_token=long+lived";
        assert_eq!(realm.bodies()[0], form);
    }
    assert!(other.requests().is_empty(), "no other server receives the identity token");
}

#[tokio::test]
async fn challenges_of_other_hosts_are_ignored() {
    let env = TestEnv::new();
    let attacker = Server::start(&env.authority, |_, _| {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic")]).into_response()
    })
    .await;
    let target = format!("{}/blob", attacker.url());
    let respond = registry(chart(&env), move |path, _| path.contains("/blobs/").then(|| redirect(&target)));
    let server = Server::start(&env.authority, respond).await;
    let access = env.access_with(&[("username", "user"), ("password", "canary")]);
    let message = failure(get(&env.packages(), &url(&server), &access).await);
    assert!(message.contains("401"), "{message}");
    assert_eq!(attacker.requests(), [("/blob".to_owned(), None)]);
}

#[tokio::test]
async fn invalid_manifests_are_rejected() {
    let env = TestEnv::new();
    let bytes = chart(&env);
    let layer = |digest: &str, size: u64| json!({"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": digest, "size": size});
    let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
    let rows = [
        (manifest(&layer(Digest::of("x").as_str(), size)), "corrupted or replaced"),
        (manifest(&layer(digest.as_str(), size + 1)), "bytes, expected"),
        (manifest(&layer(digest.as_str(), 1 << 40)), "larger than the limit"),
        (manifest(&layer("sha512:00", size)), "not a sha256"),
        (manifest(&layer("../../../etc", size)), "not a sha256"),
        (manifest(&json!({"mediaType": "image", "digest": digest.as_str(), "size": 1})), "no chart layer"),
        (json!({"manifests": []}).to_string().into_response(), "no chart layer"),
        ("nonsense".into_response(), "cannot be read"),
        (
            ([("docker-content-digest", Digest::of("x").to_string())], "{}").into_response(),
            "corrupted or replaced",
        ),
    ];
    for (manifest, text) in rows {
        let (parts, body) = manifest.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let respond = registry(bytes.clone(), move |path, _| {
            let response = (parts.status, parts.headers.clone(), body.clone()).into_response();
            path.contains("/manifests/").then_some(response)
        });
        let server = Server::start(&env.authority, respond).await;
        let message = failure(get(&TestEnv::new().packages(), &url(&server), &env.access()).await);
        assert!(message.contains(text), "{message:?} does not contain {text:?}");
    }
}
