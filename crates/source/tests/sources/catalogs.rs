//! Catalogs of real repositories and registries.

use std::{os::unix::fs::MetadataExt as _, time::Duration};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use chandler_core::{catalog::Selection, digest::Digest, failure::Failure};
use chandler_sandbox::{
    chart::{self, Package},
    registry::{CREDENTIALS, Registry},
    repository::ChartRepository,
    testing,
};
use chandler_source::{Access, Catalog, CatalogRequest, Packages};
use serde_json::{Value, json};

use crate::support::{
    env::{TestEnv, options},
    server::{Server, not_found},
};

fn selection(filter: Value) -> Selection {
    Selection::new(Some(&serde_json::from_value(filter).unwrap())).unwrap()
}

fn all() -> Selection {
    Selection::new(None).unwrap()
}

fn request<'a>(url: &'a str, access: &'a Access, selection: &'a Selection) -> CatalogRequest<'a> {
    CatalogRequest { key: "catalog", url, access, selection }
}

/// Returns the names and newest versions of the charts that match.
fn found(catalog: &Catalog, text: &str) -> Vec<(String, String)> {
    let found = catalog.search(text).unwrap().into_iter();
    found.map(|chart| (chart.name, chart.newest.version)).collect()
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
}

/// Returns packages without a cache.
fn uncached_packages(env: &TestEnv) -> Packages {
    let mut options = options();
    options.limits.cache_ttl = Duration::ZERO;
    env.packages_with(options)
}

fn write_described_chart(env: &TestEnv, name: &str) -> std::path::PathBuf {
    let metadata = format!(
        "apiVersion: v2\nname: {name}\nversion: 1.0.0\nappVersion: \"1.10\"\nkubeVersion: '>=1.30'\n\
         description: Serves the {name}\nkeywords: [http, Proxy]\n"
    );
    chart::write(&env.path(name), &[("Chart.yaml", &metadata), ("templates/x.yaml", "kind: ConfigMap\n")])
        .unwrap()
}

async fn repository(env: &TestEnv) -> ChartRepository {
    let repository = ChartRepository::start(&env.authority, &env.path("served")).await.unwrap();
    for version in ["1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1"] {
        repository.publish_version(&write_described_chart(env, "web"), version).unwrap();
    }
    repository.publish(&env.chart("db")).unwrap();
    repository.publish(&env.chart("db-old")).unwrap();
    repository
}

#[tokio::test]
async fn a_repository_can_be_listed_and_searched() {
    let env = TestEnv::new();
    let repository = repository(&env).await;
    let (packages, access, all) = (uncached_packages(&env), env.access(), all());
    let catalog = packages.read_catalog(request(repository.url(), &access, &all)).await.unwrap();
    assert_eq!(catalog.packages(), 3);
    assert_eq!(found(&catalog, ""), pairs(&[("db", "1.0.0"), ("db-old", "1.0.0"), ("web", "1.10.0")]));
    for text in ["web", "PROXY", "serves http"] {
        assert_eq!(found(&catalog, text), pairs(&[("web", "1.10.0")]), "{text}");
    }
    assert_eq!(found(&catalog, "nothing like it"), []);
    let web = catalog.chart("web").unwrap().unwrap();
    let newest = &web.summary.newest;
    assert_eq!(
        (newest.app_version.as_deref(), newest.kube_version.as_deref()),
        (Some("1.10"), Some(">=1.30"))
    );
    let versions: Vec<_> = web.versions.iter().map(|version| version.version.as_str()).collect();
    assert_eq!(versions, ["1.10.0", "1.9.0", "1.0.0"], "newest first, without pre-releases");
    assert!(catalog.chart("absent").unwrap().is_none());
}

#[tokio::test]
async fn a_filter_excludes_charts_and_versions() {
    let env = TestEnv::new();
    let repository = repository(&env).await;
    let (packages, access) = (uncached_packages(&env), env.access());
    let rows = [
        (json!({"include": ["db*"], "exclude": ["*-old"]}), pairs(&[("db", "1.0.0")])),
        (json!({"versions": ">=2.0.0-0"}), pairs(&[("web", "2.0.0-rc.1")])),
        (json!({"include": ["w*b"], "versions": "1.9.x"}), pairs(&[("web", "1.9.0")])),
    ];
    for (filter, expected) in rows {
        let selection = selection(filter);
        let catalog = packages.read_catalog(request(repository.url(), &access, &selection)).await.unwrap();
        assert_eq!(found(&catalog, ""), expected);
    }
}

#[tokio::test]
async fn an_unchanged_index_is_not_downloaded_again_even_by_another_process() {
    let env = TestEnv::new();
    let repository = repository(&env).await;
    let (access, all) = (env.access(), all());
    let url = repository.url();
    let first = uncached_packages(&env).read_catalog(request(url, &access, &all)).await.unwrap();
    for _ in 0..2 {
        let again = uncached_packages(&env).read_catalog(request(url, &access, &all)).await.unwrap();
        assert_eq!((again.digest(), again.packages()), (first.digest(), 3));
    }
    let requests = repository.requests();
    assert_eq!((requests["/index.yaml"], requests["304"]), (3, 2), "{requests:?}");
    repository.publish(&env.chart("new")).unwrap();
    let changed = uncached_packages(&env).read_catalog(request(url, &access, &all)).await.unwrap();
    assert_eq!(changed.packages(), 4);
    assert_ne!(changed.digest(), first.digest());
    assert_eq!(
        repository.requests()["/index.yaml"],
        4,
        "the changed index is read from the conditional response"
    );
}

#[tokio::test]
async fn a_stored_catalog_stays_available_when_the_repository_is_down() {
    let env = TestEnv::new();
    let repository = repository(&env).await;
    let (packages, access, all) = (uncached_packages(&env), env.access(), all());
    let url = repository.url().to_owned();
    packages.read_catalog(request(&url, &access, &all)).await.unwrap();
    drop(repository);
    assert!(packages.read_catalog(request(&url, &access, &all)).await.is_err());
    let stored = env.packages().stored_catalog(request(&url, &access, &all)).unwrap();
    assert_eq!(stored.packages(), 3);
    let other = selection(json!({"include": ["db"]}));
    assert!(packages.stored_catalog(request(&url, &access, &other)).is_none(), "another selection");
    assert!(packages.stored_catalog(request("https://other.example", &access, &all)).is_none());
    packages.remove_catalog("catalog");
    assert!(packages.stored_catalog(request(&url, &access, &all)).is_none());
    assert_eq!(stored.search("").unwrap().len(), 3, "an open catalog stays readable");
}

#[tokio::test]
async fn credentials_in_the_url_are_not_written_to_the_store() {
    let env = TestEnv::new();
    let server = Server::start(&env.authority, |_, _| "entries: {}".into_response()).await;
    let (access, all) = (env.access(), all());
    let url = server.url().replace("https://", "https://user:canary@");
    let catalog = env.packages().read_catalog(request(&url, &access, &all)).await.unwrap();
    assert_eq!(catalog.packages(), 0);
    let files = std::fs::read_dir(env.path("store").join("catalogs")).unwrap();
    let texts: Vec<_> = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert!(!texts.is_empty(), "the catalog was not stored");
    for text in texts {
        assert!(text.contains("127.0.0.1") && !text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn entries_with_unusual_fields_are_accepted() {
    let env = TestEnv::new();
    let text = "entries:\n  web:\n  - {version: 1.0.0, urls: [x], description: null, keywords: null, appVersion: 1.10}\n  \
                db:\n  - {version: 2.0.0, urls: [x], keywords: [null, sql], kubeVersion: '', deprecated: true, annotations: null}\n  \
                - version: 1.0.0\n    urls: [x]\n    annotations: {other: [{a: b}], chandler.dev/channel: 1.10}\n";
    let server = Server::start(&env.authority, move |_, _| text.into_response()).await;
    let (access, all) = (env.access(), all());
    let catalog = env.packages().read_catalog(request(&server.url(), &access, &all)).await.unwrap();
    let charts = catalog.search("").unwrap();
    assert_eq!(charts[0].keywords, ["sql"]);
    assert!(charts[0].newest.deprecated && charts[0].newest.kube_version.is_none());
    let old = &catalog.chart("db").unwrap().unwrap().versions[1];
    assert_eq!(old.annotations, [("chandler.dev/channel".to_owned(), "1.10".to_owned())].into());
    assert_eq!(
        charts[1].newest.app_version.as_deref(),
        Some("1.10"),
        "parsed as text, although it looks like a number"
    );
}

#[tokio::test]
async fn charts_of_a_registry_are_read_by_name() {
    let env = TestEnv::new();
    let assets = testing::assets().await.unwrap();
    let registry = Registry::start(assets, &env.authority, &env.path("registry")).await.unwrap();
    let web = write_described_chart(&env, "web");
    for version in ["1.0.0", "1.1.0+build.2", "2.0.0-rc.1"] {
        registry.push(&Package::pack(&web, Some(version)).unwrap()).await.unwrap();
    }
    registry.push(&Package::pack(&env.chart("db"), None).unwrap()).await.unwrap();
    let (packages, access, url) = (uncached_packages(&env), env.access(), registry.url());
    let named = selection(json!({"include": ["web", "db"]}));
    let catalog = packages.read_catalog(request(&url, &access, &named)).await.unwrap();
    assert_eq!(found(&catalog, ""), pairs(&[("db", "1.0.0"), ("web", "1.1.0+build.2")]));
    let first = &catalog.search("proxy").unwrap()[0];
    assert_eq!(
        (&*first.description, first.newest.kube_version.as_deref()),
        ("Serves the web", Some(">=1.30"))
    );
    assert_eq!(catalog.chart("web").unwrap().unwrap().versions.len(), 2);
    let again = packages.read_catalog(request(&url, &access, &named)).await.unwrap();
    assert_eq!(again.digest(), catalog.digest());
    registry.push(&Package::pack(&web, Some("1.2.0")).unwrap()).await.unwrap();
    let changed = packages.read_catalog(request(&url, &access, &named)).await.unwrap();
    assert_eq!(found(&changed, "web"), pairs(&[("web", "1.2.0")]));
    assert_ne!(changed.digest(), catalog.digest());
    let absent = selection(json!({"include": ["absent"]}));
    let error = packages.read_catalog(request(&url, &access, &absent)).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
    registry.stop().await;
}

#[tokio::test]
async fn patterns_filter_the_listed_repositories_of_a_registry() {
    let env = TestEnv::new();
    let assets = testing::assets().await.unwrap();
    let registry =
        Registry::start_with_authentication(assets, &env.authority, &env.path("registry")).await.unwrap();
    for name in ["web", "web-old", "db"] {
        registry
            .push(&Package::pack(&write_described_chart(&env, name), Some("1.0.0")).unwrap())
            .await
            .unwrap();
    }
    let (user, password) = CREDENTIALS;
    let access = env.access_with(&[("username", user), ("password", password)]);
    let (packages, url) = (uncached_packages(&env), registry.url());
    let rows = [
        (json!({}), pairs(&[("db", "1.0.0"), ("web", "1.0.0"), ("web-old", "1.0.0")])),
        (json!({"include": ["web*"], "exclude": ["*-old"]}), pairs(&[("web", "1.0.0")])),
        (json!({"include": ["d*", "web"]}), pairs(&[("db", "1.0.0"), ("web", "1.0.0")])),
        (json!({"versions": ">=2"}), vec![]),
    ];
    for (filter, expected) in rows {
        let selection = selection(filter);
        let catalog = packages.read_catalog(request(&url, &access, &selection)).await.unwrap();
        assert_eq!(found(&catalog, ""), expected);
    }
    let refused = packages.read_catalog(request(&url, &env.access(), &all())).await.unwrap_err();
    assert!(refused.to_string().contains("(HTTP 401)"), "{refused}");
    registry.stop().await;
}

/// Responds like a registry with two versions of the chart `web`, an image `app`, and a deleted repository.
fn mixed_registry(path: &str) -> Response {
    let config = |version: &str| {
        json!({"name": "web", "version": version, "kubeVersion": format!(">={version}"), "annotations": {
            "chandler.dev/channel": "edge", "other": "x",
        }})
        .to_string()
    };
    let manifest = |media_type: &str, digest: &str| {
        json!({"layers": [], "config": {"mediaType": media_type, "digest": digest, "size": 1}})
            .to_string()
            .into_response()
    };
    let of_chart = |version: &str| {
        manifest("application/vnd.cncf.helm.config.v1+json", Digest::of(config(version)).as_str())
    };
    match path {
        "/v2/_catalog?n=1000" => {
            let page = json!({"repositories": ["charts/app", "charts/gone", "other/web"]}).to_string();
            ([("link", "</v2/_catalog?n=1000&last=x>; rel=\"next\"")], page).into_response()
        }
        "/v2/_catalog?n=1000&last=x" => {
            json!({"repositories": ["charts/team/web", "charts/web", "charts"]}).to_string().into_response()
        }
        "/v2/charts/web/tags/list?n=1000" => {
            json!({"tags": ["1.0.0", "latest", "1.1.0", "0.9.0"]}).to_string().into_response()
        }
        "/v2/charts/app/tags/list?n=1000" => json!({"tags": ["1.0.0"]}).to_string().into_response(),
        "/v2/charts/web/manifests/1.1.0" => of_chart("1.1.0"),
        "/v2/charts/web/manifests/1.0.0" => of_chart("1.0.0"),
        "/v2/charts/app/manifests/1.0.0" => {
            manifest("application/vnd.oci.image.config.v1+json", Digest::of("x").as_str())
        }
        _ => ["1.0.0", "1.1.0"]
            .map(config)
            .into_iter()
            .find(|config| path.ends_with(Digest::of(config).as_str()))
            .map_or_else(not_found, IntoResponse::into_response),
    }
}

/// Returns the inode of the stored catalog, which changes when it is written again.
fn catalog_inode(env: &TestEnv) -> u64 {
    let files = std::fs::read_dir(env.path("store").join("catalogs")).unwrap();
    let numbers: Vec<_> = files.map(|file| file.unwrap().metadata().unwrap().ino()).collect();
    assert_eq!(numbers.len(), 1);
    numbers[0]
}

#[tokio::test]
async fn artifacts_that_are_not_charts_are_skipped_and_versions_are_read_once() {
    let env = TestEnv::new();
    let server = Server::start(&env.authority, |path, _| mixed_registry(path)).await;
    let url = format!("{}/charts", server.url().replace("https://", "oci://"));
    let (access, all) = (env.access(), all());
    let catalog = uncached_packages(&env).read_catalog(request(&url, &access, &all)).await.unwrap();
    assert_eq!(found(&catalog, ""), pairs(&[("web", "1.1.0")]));
    let web = catalog.chart("web").unwrap().unwrap();
    let versions: Vec<_> =
        web.versions.iter().map(|one| (&*one.version, one.kube_version.as_deref().unwrap())).collect();
    assert_eq!(versions, [("1.1.0", ">=1.1.0"), ("1.0.0", ">=1.0.0")], "0.9.0 is deleted");
    let annotations = [("chandler.dev/channel".to_owned(), "edge".to_owned())].into();
    assert!(web.versions.iter().all(|version| version.annotations == annotations));

    let blob_requests =
        |server: &Server| server.requests().iter().filter(|(path, _)| path.contains("/blobs/")).count();
    assert_eq!(blob_requests(&server), 2);
    let inode = catalog_inode(&env);
    let again = uncached_packages(&env).read_catalog(request(&url, &access, &all)).await.unwrap();
    assert_eq!((again.digest(), blob_requests(&server)), (catalog.digest(), 2));
    assert_eq!(catalog_inode(&env), inode, "an unchanged catalog is not written again");

    let image = selection(json!({"include": ["app"]}));
    let error = uncached_packages(&env).read_catalog(request(&url, &access, &image)).await.unwrap_err();
    assert!(
        error.to_string().contains("is not a Helm chart"),
        "a named repository has to be a chart: {error}"
    );
}

#[tokio::test]
async fn a_registry_that_does_not_list_requires_names() {
    let env = TestEnv::new();
    let rows = [
        (
            StatusCode::NOT_FOUND,
            "InvalidSpec",
            "(HTTP 404): set the names of the charts in spec.filter.include",
        ),
        (StatusCode::SERVICE_UNAVAILABLE, "SourceUnavailable", "Chandler retries later"),
    ];
    for (status, category, text) in rows {
        let server = Server::start(&env.authority, move |_, _| status.into_response()).await;
        let url = server.url().replace("https://", "oci://");
        let result = uncached_packages(&env).read_catalog(request(&url, &env.access(), &all())).await;
        let failure = Failure::from(result.unwrap_err());
        assert_eq!(failure.category.as_str(), category);
        assert!(failure.message.contains(text), "{failure}");
    }
}
