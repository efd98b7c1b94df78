//! Short notations for universes, requests and clusters.

use std::collections::BTreeMap;

use semver::Version;

use crate::resolution::{Candidate, Cluster, Published, Requirement, Universe, VersionName, VersionRequest};

pub fn name(text: &str) -> VersionName {
    VersionName::parse(text).unwrap()
}

/// Parses a version such as `1.0.0 k8s=<1.31 needs=other@^1 uses=third@* channel=edge platform=2.x deprecated
/// withdrawn refused`.
pub fn candidate(text: &str) -> Candidate {
    let mut words = text.split_whitespace();
    let mut candidate = Candidate::new(name(words.next().unwrap()));
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let need = |optional| {
            let (extension, range) = value.split_once('@').unwrap();
            Requirement {
                extension: extension.to_owned(),
                range: range.replace('_', " ").parse().unwrap(),
                optional,
            }
        };
        match key {
            "k8s" => candidate.kubernetes = Some(value.replace('_', " ").parse().unwrap()),
            "platform" => candidate.platform = Some(value.parse().unwrap()),
            "needs" => candidate.dependencies.push(need(false)),
            "uses" => candidate.dependencies.push(need(true)),
            "channel" => candidate.channel = Some(value.to_owned()),
            "deprecated" => candidate.deprecated = true,
            "withdrawn" => candidate.withdrawn = true,
            "refused" => candidate.not_offered = Some("its filter is 1.x".to_owned()),
            other => panic!("{other}"),
        }
    }
    candidate
}

pub fn published(versions: &[&str]) -> Published {
    Published { versions: versions.iter().map(|text| candidate(text)).collect(), ..Published::default() }
}

pub fn universe(extensions: &[(&str, &[&str])]) -> Universe {
    let known = extensions.iter().map(|(name, versions)| ((*name).to_owned(), published(versions)));
    Universe { extensions: known.collect() }
}

/// Parses `name` or `name@range`, with `!` at the end if dependencies have to be requested explicitly.
pub fn request(text: &str) -> VersionRequest {
    let (text, install_dependencies) = text.strip_suffix('!').map_or((text, true), |text| (text, false));
    let (extension, range) = text.split_once('@').unwrap_or((text, "*"));
    VersionRequest {
        extension: extension.to_owned(),
        range: range.parse().unwrap(),
        channel: None,
        install_dependencies,
    }
}

pub fn requests(texts: &[&str]) -> Vec<VersionRequest> {
    texts.iter().map(|text| request(text)).collect()
}

/// A cluster with Kubernetes 1.34.2 and these running extensions, each as `name@version`.
pub fn cluster(running: &[&str]) -> Cluster {
    let running = running.iter().map(|text| text.split_once('@').unwrap());
    Cluster {
        kubernetes: Version::new(1, 34, 2),
        platform: Some(Version::new(2, 28, 0)),
        running: running
            .map(|(extension, version)| (extension.to_owned(), name(version)))
            .collect::<BTreeMap<_, _>>(),
    }
}
