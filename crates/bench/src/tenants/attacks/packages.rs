//! Packages that are larger than the space of a namespace in the store.

use std::{fmt::Write as _, io, sync::Arc};

use anyhow::Result;
use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use chandler_sandbox::{
    hostile::{
        archive::{file, pack_uncompressed},
        repository::router,
    },
    https_server::HttpsServer,
};
use futures::stream;
use serde_json::json;

use crate::tenants::{
    attack::{Attack, Site},
    objects::CLUSTER_LABEL,
};

const CLUSTER: &str = "packages";
const PACKAGES: usize = 48;
/// The size of each. All together are three times as large as the quarter of the store that one namespace may use.
const PACKAGE_BYTES: usize = 32 << 20;

pub async fn attack(site: &Site<'_>) -> Result<Attack> {
    let noise: Arc<[u8]> = std::iter::repeat_with(|| fastrand::u8(..)).take(PACKAGE_BYTES).collect();
    let respond = move |path: &str| respond(path, &noise);
    let server = HttpsServer::start(site.tenant.environment.authority(), router(respond)).await?;
    let proxy = |number: usize| {
        let name = name(number);
        // A package that was refused is downloaded again anyway, so that these values do not have to change.
        let fields = json!({
            "repoURL": server.url(), "chartName": name, "version": "1.0.0", "valuesTemplate": "greeting: none\n",
        });
        site.chart_proxy(&name, (CLUSTER_LABEL, CLUSTER), &fields)
    };
    let objects = (0..PACKAGES).map(proxy).collect();
    let clusters = vec![site.own_cluster(CLUSTER)];
    Ok(Attack { clusters, objects, running: vec![Box::new(server)], ..Attack::default() })
}

fn name(number: usize) -> String {
    format!("large-{number}")
}

fn respond(path: &str, noise: &Arc<[u8]>) -> Response {
    if path == "/index.yaml" {
        return index().into_response();
    }
    let known = (0..PACKAGES).map(name).find(|name| path == format!("/{name}.tgz"));
    known.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |name| package(name, noise.clone()))
}

fn index() -> String {
    (0..PACKAGES).map(name).fold("entries:\n".to_owned(), |mut text, name| {
        let _ = writeln!(text, "  {name}:\n  - {{version: 1.0.0, urls: [{name}.tgz]}}");
        text
    })
}

/// Returns the response with a package. It is made on another thread, because it would delay the measurement here.
fn package(name: String, noise: Arc<[u8]>) -> Response {
    let made = async move {
        let packed = tokio::task::spawn_blocking(move || pack(&name, &noise)).await;
        packed.map_err(io::Error::other).flatten()
    };
    Body::from_stream(stream::once(made)).into_response()
}

fn pack(name: &str, noise: &[u8]) -> io::Result<Vec<u8>> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    pack_uncompressed(&[
        file(&format!("{name}/Chart.yaml"), metadata.as_bytes()),
        file(&format!("{name}/files/noise"), noise),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_of_the_index_is_served() {
        let noise: Arc<[u8]> = Arc::from([0; 8]);
        let index = index();
        for number in 0..PACKAGES {
            let file = format!("{}.tgz", name(number));
            assert!(index.contains(&format!("urls: [{file}]")), "{file}");
            assert_eq!(respond(&format!("/{file}"), &noise).status(), StatusCode::OK, "{file}");
        }
        assert_eq!(respond("/large-48.tgz", &noise).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn packages_differ_in_their_metadata() {
        let [first, second] = ["large-1", "large-2"].map(|name| pack(name, &[7; 1024]).unwrap());
        assert_eq!(first.len(), second.len());
        assert_ne!(first, second);
    }
}
