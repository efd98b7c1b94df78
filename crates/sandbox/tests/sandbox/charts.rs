use std::path::{Path, PathBuf};
use std::process::Command;

use chandler_sandbox::assets::Binary;
use chandler_sandbox::certificates::Authority;
use chandler_sandbox::chart::Package;
use chandler_sandbox::registry::Registry;
use chandler_sandbox::repository::ChartRepository;
use chandler_sandbox::testing;

fn write_chart(folder: &Path) -> PathBuf {
    let chart = folder.join("chart");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: web\nversion: 1.0.0\n").unwrap();
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n";
    std::fs::write(chart.join("templates/config.yaml"), template).unwrap();
    chart
}

/// Returns the version that helm resolves from the index or the registry's tags.
async fn resolved_version(home: &Path, args: &[&str], ca: &str) -> String {
    let authority = home.join("trusted.pem");
    std::fs::write(&authority, ca).unwrap();
    let mut command = Command::new(testing::assets().await.unwrap().path(Binary::Helm));
    command.args(["show", "chart"]).args(args).arg("--ca-file").arg(&authority).env_clear().env("HOME", home);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let version = text.lines().find_map(|line| line.strip_prefix("version: "));
    version.unwrap().to_owned()
}

#[tokio::test]
async fn helm_reads_the_chart_repository() {
    let home = testing::fresh_dir("repository").await.unwrap();
    let chart = write_chart(&home);
    let authority = Authority::open(&home.join("pki"), "test").unwrap();
    let repository = ChartRepository::start(&authority, &home.join("served")).await.unwrap();
    repository.publish(&chart).unwrap();
    let args = ["web", "--repo", repository.url()];
    assert_eq!(resolved_version(&home, &args, repository.ca_pem()).await, "1.0.0");

    repository.publish_version(&chart, "1.1.0").unwrap();

    assert_eq!(resolved_version(&home, &args, repository.ca_pem()).await, "1.1.0");
    let requests = repository.requests();
    assert_eq!(requests["/index.yaml"], 2, "{requests:?}");
    assert_eq!(requests["/web-1.1.0.tgz"], 1, "{requests:?}");
}

#[tokio::test]
async fn helm_reads_the_registry() {
    let home = testing::fresh_dir("registry").await.unwrap();
    let chart = write_chart(&home);
    let authority = Authority::open(&home.join("pki"), "test").unwrap();
    let registry = Registry::start(testing::assets().await.unwrap(), &authority, &home).await.unwrap();
    registry.push(&Package::pack(&chart, Some("3.2.1")).unwrap()).await.unwrap();
    let reference = format!("{}/web", registry.url());
    assert_eq!(resolved_version(&home, &[&reference], registry.ca_pem()).await, "3.2.1");
    registry.stop().await;
}
