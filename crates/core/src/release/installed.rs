//! The installed version of a release whose version is chosen again.

use super::{Desired, ReleaseKind};

/// Returns the installed version of an existing release if it is one of the package of `wanted`, which names no version.
pub fn installed_version(existing: &impl ReleaseKind, wanted: &Desired) -> Option<String> {
    let installed = existing.desired().ok()?;
    let is_same = installed.package.name == wanted.package.name
        && installed.package.repository == wanted.package.repository
        && installed.access.catalog == wanted.access.catalog
        && installed.access.folder.is_none();
    let package = existing.status()?.package.as_ref().filter(|_| is_same)?;
    Some(package.version.clone())
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::AddonRelease;
    use serde_json::{Value, json};

    use super::*;

    fn release(source: &Value, installed: Option<&str>) -> AddonRelease {
        let package = installed.map(|version| json!({"reference": "", "version": version, "digest": ""}));
        serde_json::from_value(json!({
            "metadata": {"name": "web-blue", "namespace": "fleet"},
            "spec": {
                "cluster": "blue", "source": source,
                "release": {"name": "web", "namespace": "web"},
            },
            "status": {"package": package},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_version_of_the_same_package_counts_as_installed() {
        let wanted =
            release(&json!({"catalog": {"name": "charts"}, "chart": "web"}), None).desired().unwrap();
        let pinned = json!({"catalog": {"name": "charts"}, "chart": "web", "version": "2.3.0"});
        let other_chart = json!({"catalog": {"name": "charts"}, "chart": "db", "version": "2.3.0"});
        let other_catalog = json!({"catalog": {"name": "own"}, "chart": "web", "version": "2.3.0"});
        let repository = json!({"repository": "https://charts.example", "chart": "web", "version": "2.3.0"});
        let rows = [
            ("pinned by a rollout", &pinned, Some("2.3.0"), Some("2.3.0")),
            ("pinned to another version", &pinned, Some("2.2.0"), Some("2.2.0")),
            ("never resolved", &pinned, None, None),
            ("another chart", &other_chart, Some("2.3.0"), None),
            ("another catalog", &other_catalog, Some("2.3.0"), None),
            ("a repository", &repository, Some("2.3.0"), None),
        ];
        for (case, source, installed, expected) in rows {
            let found = installed_version(&release(source, installed), &wanted);
            assert_eq!(found.as_deref(), expected, "{case}");
        }
    }
}
