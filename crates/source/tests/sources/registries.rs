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

use crate::{
    server::{Server, not_found, redirect},
    world::{World, failure, get, reference},
};

#[tokio::test]
async fn a_real_registry_with_a_login() {
    let world = World::new();
    let assets = testing::assets().await.unwrap();
    let registry =
        Registry::start_with_authentication(assets, &world.authority, &world.path("registry")).await.unwrap();
    let chart = world.chart("web");
    for version in ["1.0.0", "1.1.0+build.2", "2.0.0-rc.1"] {
        registry.push(&Package::pack(&chart, Some(version)).unwrap()).await.unwrap();
    }
    let docker = format!(
        r#"{{"auths": {{"{}": {{"username": "{}", "password": "{}"}}}}}}"#,
        registry.host(),
        CREDENTIALS.0,
        CREDENTIALS.1
    );
    let access = world.access_with(&[("config.json", &docker)]);
    let packages = world.packages();
    for (wanted, found) in [(Some("1.0.0"), "1.0.0"), (None, "1.1.0+build.2"), (Some("~1.0"), "1.0.0")] {
        let resolved = packages.resolve(&reference(&registry.url(), "web", wanted), &access).await.unwrap();
        assert_eq!(resolved.version, found);
        let stored = packages.fetch(&resolved, &access).await.unwrap();
        assert_eq!(Some(stored.digest.clone()), resolved.digest);
    }
    let message = failure(get(&packages, &registry.url(), &world.access()).await);
    assert!(message.contains("401") && message.contains("check the credentials"), "{message}");
    let missing = packages.resolve(&reference(&registry.url(), "absent", Some("1.0.0")), &access).await;
    assert!(missing.unwrap_err().to_string().contains("404"));
    registry.stop().await;
}

/// A registry that answers a pull of `web` as it should, but for what `change` says.
fn registry(
    chart: Vec<u8>,
    change: impl Fn(&str, &HeaderMap) -> Option<Response> + Clone + Send + Sync + 'static,
) -> impl Fn(&str, &HeaderMap) -> Response + Clone + Send + Sync + 'static {
    move |path, headers| {
        if let Some(changed) = change(path, headers) {
            return changed;
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

fn chart(world: &World) -> Vec<u8> {
    Package::pack(&world.chart("web"), None).unwrap().bytes
}

#[tokio::test]
async fn tokens_are_fetched_where_the_registry_says_and_blobs_from_elsewhere_get_none() {
    let world = World::new();
    let bytes = chart(&world);
    let storage = Server::start(&world.authority, move |_, _| bytes.clone().into_response()).await;
    let realm = Server::start(&world.authority, |_, headers| {
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
    let answer = registry(chart(&world), move |path, headers| {
        let granted = headers.get("authorization").is_some_and(|value| value == "Bearer granted");
        if !granted {
            let header = [("www-authenticate", challenge.clone())];
            return Some((StatusCode::UNAUTHORIZED, header).into_response());
        }
        path.contains("/blobs/").then(|| redirect(&blobs))
    });
    let server = Server::start(&world.authority, answer).await;
    let access = world.access_with(&[("username", "user"), ("password", "word")]);
    get(&world.packages(), &url(&server), &access).await.unwrap();
    assert_eq!(realm.seen()[0].0, "/token?service=registry&scope=repository%3Acharts%2Fweb%3Apull");
    assert_eq!(storage.seen(), [("/blob".to_owned(), None)]);
    let sent: Vec<_> = server.seen().into_iter().filter_map(|(_, sent)| sent).collect();
    assert!(sent.iter().all(|sent| sent == "Bearer granted"), "the registry itself never sees the password");
}

#[tokio::test]
async fn identity_tokens_are_exchanged_where_the_registry_says_and_not_along_redirects() {
    let world = World::new();
    let elsewhere =
        Server::start(&world.authority, |_, _| json!({"access_token": "x"}).to_string().into_response())
            .await;
    for redirected in [false, true] {
        let target = elsewhere.url();
        let realm = Server::start(&world.authority, move |_, _| {
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
        let answer = registry(chart(&world), move |_, headers| {
            let granted = headers.get("authorization").is_some_and(|value| value == "Bearer granted");
            let header = [("www-authenticate", challenge.clone())];
            (!granted).then(|| (StatusCode::UNAUTHORIZED, header).into_response())
        });
        let server = Server::start(&world.authority, answer).await;
        let auths = json!({server.address.to_string(): {"auth": "MDAwOg==", "identitytoken": "long lived"}});
        let access = world.access_with(&[("config.json", &json!({"auths": auths}).to_string())]);
        let got = get(&World::new().packages(), &url(&server), &access).await;
        assert_eq!(got.is_err(), redirected);
        assert_eq!(realm.seen()[0], ("/oauth2/token".to_owned(), None));
        let form = "service=registry&scope=repository%3Acharts%2Fweb%3Apull&grant_type=refresh_token\
                    &client_id=chandler&refresh_token=long+lived";
        assert_eq!(realm.bodies()[0], form);
    }
    assert!(elsewhere.seen().is_empty(), "nobody else sees the identity token");
}

#[tokio::test]
async fn only_the_registry_may_ask_for_credentials() {
    let world = World::new();
    let thief = Server::start(&world.authority, |_, _| {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic")]).into_response()
    })
    .await;
    let target = format!("{}/blob", thief.url());
    let answer = registry(chart(&world), move |path, _| path.contains("/blobs/").then(|| redirect(&target)));
    let server = Server::start(&world.authority, answer).await;
    let access = world.access_with(&[("username", "user"), ("password", "canary")]);
    let message = failure(get(&world.packages(), &url(&server), &access).await);
    assert!(message.contains("401"), "{message}");
    assert_eq!(thief.seen(), [("/blob".to_owned(), None)]);
}

#[tokio::test]
async fn manifests_that_lie_are_caught() {
    let world = World::new();
    let bytes = chart(&world);
    let layer = |digest: &str, size: u64| json!({"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": digest, "size": size});
    let (good, size) = (Digest::of(&bytes), bytes.len() as u64);
    let lies = [
        (manifest(&layer(Digest::of("x").as_str(), size)), "damaged or exchanged"),
        (manifest(&layer(good.as_str(), size + 1)), "bytes, but"),
        (manifest(&layer(good.as_str(), 1 << 40)), "larger than the limit"),
        (manifest(&layer("sha512:00", size)), "not a sha256"),
        (manifest(&layer("../../../etc", size)), "not a sha256"),
        (manifest(&json!({"mediaType": "image", "digest": good.as_str(), "size": 1})), "no chart layer"),
        (json!({"manifests": []}).to_string().into_response(), "no chart layer"),
        ("nonsense".into_response(), "cannot be read"),
        (
            ([("docker-content-digest", Digest::of("x").to_string())], "{}").into_response(),
            "damaged or exchanged",
        ),
    ];
    for (lie, hint) in lies {
        let (parts, body) = lie.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let answer = registry(bytes.clone(), move |path, _| {
            let told = (parts.status, parts.headers.clone(), body.clone()).into_response();
            path.contains("/manifests/").then_some(told)
        });
        let server = Server::start(&world.authority, answer).await;
        let message = failure(get(&World::new().packages(), &url(&server), &world.access()).await);
        assert!(message.contains(hint), "{message:?} does not say {hint:?}");
    }
}
