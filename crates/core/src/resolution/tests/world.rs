//! Universes in few words.

use std::collections::BTreeMap;

use semver::Version;

use crate::resolution::{Candidate, Cluster, Needed, Published, Universe, VersionName, Wanted};

pub fn name(text: &str) -> VersionName {
    VersionName::parse(text).unwrap()
}

/// A version in words: `1.0.0 k8s=<1.31 needs=other@^1 uses=third@* channel=edge platform=2.x deprecated withdrawn`.
pub fn candidate(text: &str) -> Candidate {
    let mut words = text.split_whitespace();
    let mut candidate = Candidate::new(name(words.next().unwrap()));
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let need = |optional| {
            let (extension, range) = value.split_once('@').unwrap();
            Needed {
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

/// `name` or `name@range`, with `!` at the end if what it needs has to be asked for.
pub fn wanted(text: &str) -> Wanted {
    let (text, install_dependencies) = text.strip_suffix('!').map_or((text, true), |text| (text, false));
    let (extension, range) = text.split_once('@').unwrap_or((text, "*"));
    Wanted {
        extension: extension.to_owned(),
        range: range.parse().unwrap(),
        channel: None,
        install_dependencies,
    }
}

pub fn wants(texts: &[&str]) -> Vec<Wanted> {
    texts.iter().map(|text| wanted(text)).collect()
}

/// A cluster with Kubernetes 1.34.2 on which `name@version` run.
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
