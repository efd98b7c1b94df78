//! Repositories that are dead, silent or slow, have a huge index, lead to internal addresses, or serve archives that hide charts.

use std::{convert::Infallible, fmt::Write as _, io, net::Ipv4Addr, time::Duration};

use anyhow::Result;
use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use chandler_sandbox::{
    hostile::{
        api_server::{Attack as Behavior, HostileServer, InternalServer},
        archive::{chart_yaml, entry, file, pack, zeros},
        repository::{endless, index, redirect, router},
    },
    https_server::HttpsServer,
};
use futures::stream;
use serde_json::{Value, json};

use crate::tenants::{
    attack::{Attack, ROUND, Site},
    objects::{self, CLUSTER_LABEL},
};

const CLUSTER: &str = "repositories";
/// An address at which nothing listens.
const NOTHING: &str = "https://127.0.0.1:1/charts";
/// An address of this machine that the manager may not use, unlike 127.0.0.1.
const REFUSED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SILENT_REPOSITORIES: usize = 20;
const SLOW_REPOSITORIES: usize = 8;
const HUGE_INDEXES: usize = 2;
/// Versions of one chart in a huge index, and the length of the description of each: 200 MB.
const HUGE_VERSIONS: usize = 40_000;
const HUGE_DESCRIPTION: usize = 5_000;
/// Versions that are sent at once.
const HUGE_CHUNK: usize = 100;
/// What the archive bomb unpacks to, in MiB. Its size is about a thousandth of that.
const BOMB_MIB: usize = 256;

/// The archives that the server offers.
#[derive(Clone)]
struct Archives {
    /// Hides a chart from programs that skip the content of a folder.
    hidden: Vec<u8>,
    bomb: Vec<u8>,
}

pub async fn attack(site: &Site<'_>) -> Result<Attack> {
    let silent = HostileServer::start(&site.dir.join("silent-repository"), Behavior::Silence).await?;
    let allowed = InternalServer::start(Ipv4Addr::LOCALHOST).await?;
    let refused = InternalServer::start(REFUSED).await?;
    let targets = [
        "https://169.254.169.254/latest/meta-data".to_owned(),
        format!("https://{}/index.yaml", refused.address()),
        format!("http://{}/index.yaml", allowed.address()),
    ];
    let redirects = targets.len();
    let archives = Archives { hidden: hidden_chart()?, bomb: zeros(BOMB_MIB)? };
    let respond = move |path: &str| respond(path, &targets, &archives);
    let server = HttpsServer::start(site.tenant.environment.authority(), router(respond)).await?;
    let objects = [
        dead_extension(site),
        silent_repositories(site, silent.port()),
        hostile_repositories(site, &server.url(), redirects),
    ];
    Ok(Attack {
        clusters: vec![site.own_cluster(CLUSTER)],
        objects: objects.concat(),
        running: vec![Box::new(silent), Box::new(server)],
        internal: vec![allowed, refused],
    })
}

/// Returns the response to a request. The first part of a path, such as `/redirect-1/index.yaml`, names the repository.
fn respond(path: &str, targets: &[String], archives: &Archives) -> Response {
    let (repository, file) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    let (kind, number) = repository.split_once('-').unwrap_or((repository, ""));
    let target = number.parse().ok().and_then(|number: usize| targets.get(number));
    match (kind, file, target) {
        ("slow", ..) => endless(b"#", Duration::from_millis(100)),
        ("huge", ..) => huge_index(),
        ("redirect", _, Some(target)) => redirect(target),
        ("hidden" | "bomb", "index.yaml", _) => index("web-1.0.0.tgz", ""),
        ("hidden", ..) => archives.hidden.clone().into_response(),
        ("bomb", ..) => archives.bomb.clone().into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Returns a chart with a folder that has content: another chart.
fn hidden_chart() -> io::Result<Vec<u8>> {
    let subchart = pack(&[chart_yaml()])?;
    let hidden = file("web/charts/hidden.tgz", &subchart);
    pack(&[chart_yaml(), entry(b'5', "web/charts/", &hidden)])
}

/// Returns an index that is generated while it is sent.
fn huge_index() -> Response {
    let versions = (0..HUGE_VERSIONS / HUGE_CHUNK).map(huge_versions);
    let text = std::iter::once("entries:\n  web:\n".to_owned()).chain(versions);
    Body::from_stream(stream::iter(text.map(Ok::<_, Infallible>))).into_response()
}

fn huge_versions(chunk: usize) -> String {
    let description = "x".repeat(HUGE_DESCRIPTION);
    (chunk * HUGE_CHUNK..(chunk + 1) * HUGE_CHUNK).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "  - {{version: 1.0.{number}, urls: [web.tgz], description: {description}}}");
        text
    })
}

/// Returns an Extension whose repository is dead, its instance, and a dead catalog.
fn dead_extension(site: &Site<'_>) -> Vec<Value> {
    let namespace = site.tenant.namespace;
    // Its repository has to be read, because its version states no range of Kubernetes versions.
    let version =
        json!({"version": format!("1.0.{ROUND}"), "source": {"repository": NOTHING, "chart": "dead"}});
    vec![
        objects::object("Extension", namespace, "dead", &json!({"versions": [version]})),
        site.instance("dead", CLUSTER, &json!({"extension": {"name": "dead"}})),
        objects::catalog(namespace, "dead", NOTHING, &json!({"interval": "1s"})),
    ]
}

fn silent_repositories(site: &Site<'_>, port: u16) -> Vec<Value> {
    (0..SILENT_REPOSITORIES)
        .map(|number| {
            let fields = json!({
                "repoURL": format!("https://127.0.0.1:{port}/{number}"), "chartName": "web", "version": "1.0.0",
                "tlsConfig": {"insecureSkipTLSVerify": true},
            });
            site.chart_proxy(&format!("silent-{number}"), (CLUSTER_LABEL, CLUSTER), &fields)
        })
        .collect()
}

/// Returns the placements of charts of the hostile server.
fn hostile_repositories(site: &Site<'_>, server: &str, redirects: usize) -> Vec<Value> {
    let numbered =
        |kind: &'static str, count: usize| (0..count).map(move |number| format!("{kind}-{number}"));
    let names = numbered("slow", SLOW_REPOSITORIES)
        .chain(numbered("huge", HUGE_INDEXES))
        .chain(numbered("redirect", redirects))
        .chain(["hidden", "bomb"].map(str::to_owned));
    names
        .map(|name| {
            // The huge indexes do not contain this version.
            let version = if name.starts_with("huge") { format!("9.0.{ROUND}") } else { "1.0.0".to_owned() };
            let fields =
                json!({"repoURL": format!("{server}/{name}"), "chartName": "web", "version": version});
            site.chart_proxy(&name, (CLUSTER_LABEL, CLUSTER), &fields)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_the_repository() {
        let targets = ["https://a.example/".to_owned(), "https://b.example/".to_owned()];
        let archives = Archives { hidden: vec![1], bomb: vec![2] };
        for (path, expected) in [
            ("/redirect-1/index.yaml", 302),
            ("/redirect-2/index.yaml", 404),
            ("/hidden/index.yaml", 200),
            ("/bomb/web-1.0.0.tgz", 200),
            ("/huge-0/index.yaml", 200),
            ("/other/index.yaml", 404),
            ("/", 404),
        ] {
            assert_eq!(respond(path, &targets, &archives).status().as_u16(), expected, "{path}");
        }
    }

    #[test]
    fn a_huge_index_has_200_megabytes() {
        let chunk = huge_versions(1);
        assert!(chunk.starts_with("  - {version: 1.0.100, urls: [web.tgz], description: x"), "{chunk:.80}");
        assert!(chunk.len() * (HUGE_VERSIONS / HUGE_CHUNK) > 200_000_000);
    }
}
