//! The filter of a catalog: tenants cannot use charts beside those that it includes, which are downloaded with the credentials of the
//! platform.

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted};
use chandler_sandbox::{
    certificates::Authority,
    repository::{Authentication, ChartRepository},
    testing,
};
use serde_json::json;

use super::tenants::{PLATFORM, Tenant, apply_catalog, platform_source, publish_settings, wait_not_ready};

const FILTER: &str = "its filter is include: settings, web-*; exclude: web-private; versions: 1.x";

#[tokio::test]
async fn a_chart_outside_of_the_filter_is_not_downloaded() {
    let test = SelfHosted::new("catalog-filters").await;
    let folder = testing::fresh_dir("catalog-filters-private").await.unwrap();
    let authority = Authority::open(&folder, "catalog-filters").unwrap();
    let login = Authentication::Basic { user: "platform".to_owned(), password: "CANARY-login".to_owned() };
    let repository =
        ChartRepository::start_with_authentication(&authority, &folder.join("charts"), login).await.unwrap();
    publish_settings(&repository, "settings", &["1.0.0", "1.1.0", "2.0.0"]).await;
    publish_settings(&repository, "private", &["1.0.0"]).await;
    publish_settings(&repository, "web-private", &["1.0.0"]).await;
    test.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": PLATFORM},
        "stringData": {"username": "platform", "password": "CANARY-login"},
    }))
    .await;
    let filter = json!({"include": ["settings", "web-*"], "exclude": ["web-private"], "versions": "1.x"});
    let credentials = json!({"name": "login", "key": "config.json"});
    apply_catalog(&test, "charts", &repository, json!({"filter": filter, "credentials": credentials})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let _manager = Manager::from_process(test.management.start_manager());

    // Directly.
    for (instance, chart, version, refused) in [
        ("private", "private", Some("1.0.0"), "chart \"private\""),
        ("unpinned", "web-private", None, "chart \"web-private\""),
        ("newer", "settings", Some("2.0.0"), "version 2.0.0 of chart \"settings\""),
        ("newest", "settings", Some(">=2"), "a version >=2 of chart \"settings\""),
    ] {
        red.apply_instance(instance, json!({"source": platform_source("charts", chart, version)})).await;
        let message = red.wait_refused(instance, refused).await;
        assert!(message.contains(&format!("ExtensionCatalog {PLATFORM}/charts does not offer {refused}")));
        assert!(message.contains(FILTER), "{message}");
    }
    // By an Extension, of which the index is read.
    let version = |version: &str, chart: &str| json!({"version": version, "source": platform_source("charts", chart, None)});
    red.apply("Extension", "hidden", json!({"versions": [version("1.0.0", "private")]})).await;
    let (_, message) = wait_not_ready(&test, "red", "hidden").await;
    assert!(message.contains("chart \"private\"") && message.contains(FILTER), "{message}");
    // By an Extension, of which it is not.
    let mut stated = version("1.0.0", "private");
    stated["kubernetes"] = json!("*");
    red.apply("Extension", "stated", json!({"versions": [stated]})).await;
    red.apply_instance("stated", json!({"extension": {"name": "stated"}})).await;
    let message = red.wait_refused("stated", "chart \"private\"").await;
    assert!(message.contains(FILTER), "{message}");

    // What the filter includes can be used: without a version, the newest of these.
    blue.apply_instance("settings", json!({"source": platform_source("charts", "settings", None)})).await;
    let release = blue.wait_ready("settings").await;
    assert_eq!(release.status.unwrap().package.unwrap().version, "1.1.0");
    let requests = repository.requests();
    let is_refused = |path: &&String| path.contains("private") || path.contains("2.0.0");
    assert_eq!(requests.keys().filter(is_refused).collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(requests.keys().any(|path| path.contains("settings-1.1.0")), "{requests:?}");
}
