//! Validation, defaults and updates of the kinds of extensions.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    path::{Path, PathBuf},
};

use chandler_api::extensions::{
    AddonReleaseSpec, ExtensionCatalogSpec, ExtensionInstanceSpec, ExtensionSpec, InstanceStatus, SourceSpec,
    SyncSpec,
};
use kube::api::{Patch, PatchParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    objects::{
        ADDON, CATALOG, CHART, EXTENSION, FLEET, GRANT, INSTANCE, POLICY, SOURCE, SYNC, TENANCY,
        is_cluster_scoped, object, without,
    },
    server::{Server, object_or_message},
    validation::check,
};

const RANGE: Option<&str> = Some("must be a range of versions such as");
const LOGO: Option<&str> =
    Some("spec.logo: Invalid value: \"string\": must be an https:// address, or an image");
const SIGNER: Option<&str> = Some("keys, or identities and trustedRoot, must be set");
const URL: Option<&str> = Some("must begin with https:// or oci:// and name a host");

async fn check_all(kind: &str, rows: Vec<(Value, Option<&str>)>) {
    let server = Server::shared().await;
    for (fields, error) in rows {
        check(&server, &object(kind, &fields), error).await;
    }
}

/// Returns the fields of an Extension with one version, whose fields are replaced by `fields`.
fn version(fields: &Value) -> Value {
    let mut version =
        json!({"version": "1.0.0", "source": {"repository": "https://charts.example", "chart": "hello"}});
    version.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"versions": [version]})
}

/// Returns the fields of a Source with this `git.ref`.
fn git(reference: &Value) -> Value {
    json!({"git": {"url": "https://git.example/fleet.git", "ref": reference}})
}

/// Returns the Markdown files below a folder.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = entries.flat_map(|path| if path.is_dir() { markdown(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Returns the objects of Chandler's kinds in the YAML blocks of a document. Blocks without `apiVersion` are parts of
/// objects.
fn objects_of(text: &str) -> Vec<Value> {
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let documents = blocks.flat_map(|block| block.split("\n---\n"));
    let objects = documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let is_ours = |object: &Value| {
        let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        group.is_some_and(|(group, _)| ["addons.cluster.x-k8s.io", "chandler.dev"].contains(&group))
    };
    objects.filter(is_ours).collect()
}

/// Returns whether the server has stored everything that was written: it prunes unknown fields.
fn contains_all(stored: &Value, written: &Value) -> bool {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => written
            .iter()
            .all(|(name, field)| stored.get(name).is_some_and(|stored| contains_all(stored, field))),
        (Value::Array(stored), Value::Array(written)) => {
            stored.len() == written.len()
                && stored.iter().zip(written).all(|(stored, item)| contains_all(stored, item))
        }
        (stored, written) => stored == written,
    }
}

#[tokio::test]
async fn the_objects_in_the_documentation_are_accepted() {
    let server = Server::shared().await;
    let mut kinds = BTreeSet::new();
    for path in markdown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")) {
        for mut object in objects_of(&std::fs::read_to_string(&path).unwrap()) {
            let kind = object["kind"].as_str().unwrap().to_owned();
            if !is_cluster_scoped(&kind) {
                object["metadata"]["namespace"] = json!("default");
            }
            let stored = server.dry_run_create(&object).await;
            let stored = stored.unwrap_or_else(|error| panic!("{}: {error}\n{object:#}", path.display()));
            assert!(
                contains_all(&stored["spec"], &object["spec"]),
                "{}: {stored:#}\n{object:#}",
                path.display()
            );
            kinds.insert(kind);
        }
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        [POLICY, TENANCY, EXTENSION, CATALOG, INSTANCE, FLEET, CHART, GRANT, SOURCE, SYNC],
        "the documentation contains all kinds that users write"
    );
}

#[tokio::test]
async fn every_object_in_the_guide_for_extension_authors_is_accepted() {
    let server = Server::shared().await;
    let guide = [
        include_str!("../../../../../docs/guides/writing-an-extension.md"),
        include_str!("../../../../../docs/concepts/parameters.md"),
    ]
    .concat();
    let blocks: Vec<_> =
        guide.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(blocks.len() > 4, "{blocks:?}");
    for document in blocks.iter().flat_map(|block| block.split("---\n")) {
        let mut object: Value = serde_saphyr::from_str(document).unwrap();
        if !object["apiVersion"].as_str().unwrap().starts_with("chandler.dev/") {
            continue;
        }
        object["metadata"]["namespace"] = json!("default");
        check(&server, &object, None).await;
    }
}

#[tokio::test]
async fn required_fields_are_enforced() {
    let server = Server::shared().await;
    for (kind, field, error) in [
        (CATALOG, "url", "exactly one of url, source must be set"),
        (EXTENSION, "versions", "versions must list at least one version, unless followKubernetes is set"),
        (INSTANCE, "extension", "exactly one of extension, source must be set"),
        (INSTANCE, "clusters", "spec.clusters: Required value"),
        (ADDON, "cluster", "spec.cluster: Required value"),
        (ADDON, "release", "spec.release: Required value"),
        (ADDON, "source", "spec.source: Required value"),
        (SOURCE, "git", "exactly one of git, oci, bucket must be set"),
        (SYNC, "source", "spec.source: Required value"),
        (SYNC, "serviceAccountName", "spec.serviceAccountName: Required value"),
    ] {
        check(&server, &without(kind, field), Some(error)).await;
    }
}

#[tokio::test]
async fn version_ranges_use_the_syntax_of_helm() {
    let good = [
        "1.14.2",
        "v1.14.2",
        "^1.2",
        "~1.2.3",
        "~>1.2",
        "1.x",
        "1.2.*",
        "*",
        ">=1.30 <1.35",
        ">= 1.30, < 1.35",
        ">=1.19.0-0",
        "=1.2.3",
        "!=1.2.3",
        "=>1.2",
        "=<1.2",
        "1.30 - 1.34",
        "1.x || >=3.0.0 <4.0.0",
        "^1||^2",
        "1.2.3-rc.1+build.5",
    ];
    let bad =
        ["", " ", "latest", ">=", ">=1.30 <", "1.2.3.4", "1.2 ||", "|| 1.2", "1.2 | 1.3", "a.b", ">>1.2"];
    let rows = good.iter().map(|text| (text, None)).chain(bad.iter().map(|text| (text, RANGE)));
    let server = Server::shared().await;
    for (text, error) in rows {
        for (kind, changes) in [
            (INSTANCE, json!({"version": text})),
            (EXTENSION, version(&json!({"kubernetes": text}))),
            (EXTENSION, version(&json!({"platform": text}))),
            (EXTENSION, version(&json!({"dependencies": [{"extension": "other", "range": text}]}))),
            (CATALOG, json!({"filter": {"versions": text}})),
            (SOURCE, git(&json!({"semver": text}))),
        ] {
            check(&server, &object(kind, &changes), error).await;
        }
    }
}

#[tokio::test]
async fn sync_fields_are_validated() {
    let path = |path: &str| json!({"source": {"sourceRef": {"name": "git"}, "path": path}});
    let confirm = |confirm: Value| json!({"prune": {"enabled": true, "confirm": confirm}});
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "name": "team"});
    let relative = Some("must be relative to the root of the Source");
    check_all(
        SYNC,
        vec![
            (path("clusters/eu"), None),
            (path("./clusters/"), None),
            (path("a..b"), None),
            (path("/clusters"), relative),
            (path("clusters/../secrets"), relative),
            (json!({"serviceAccountName": "a:b"}), Some("spec.serviceAccountName")),
            (json!({"interval": "often"}), Some("must be a duration")),
            (json!({"dependsOn": ["a", "a"]}), Some("Duplicate value")),
            (json!({"deletionPolicy": "Delete"}), Some("Unsupported value")),
            (json!({"prune": {"enabled": true}, "force": true, "suspend": true}), None),
            (confirm(json!({"revision": "3f1a354", "objects": [object]})), None),
            (confirm(json!({"revision": "3f1a354", "objects": []})), Some("should have at least 1 items")),
            (confirm(json!({"objects": [object]})), Some("spec.prune.confirm.revision: Required value")),
        ],
    )
    .await;
}

#[tokio::test]
async fn catalog_fields_are_validated() {
    let oci = |filter: Value| json!({"url": "oci://registry.example/charts", "filter": filter});
    let signed_by = |identity: Value| {
        let root = json!({"name": "sigstore", "key": "trusted_root.json"});
        json!({"verify": {"verifier": "Cosign", "identities": [identity], "trustedRoot": root}})
    };
    check_all(
        CATALOG,
        vec![
            (json!({"url": "http://charts.example"}), URL),
            (oci(json!({"include": ["hello"]})), None),
            (oci(json!({"include": ["hello*"]})), None),
            (oci(json!({"exclude": ["hello"]})), None),
            (json!({"url": "oci://registry.example/charts"}), None),
            (json!({"namespaces": {}}), None),
            (json!({"namespaces": {"matchLabels": {"tier": "gold"}}}), None),
            (json!({"namespaces": ["gold"]}), Some("spec.namespaces in body must be of type object")),
            (json!({"filter": {"include": ["he*"], "exclude": ["hello"], "versions": ">=1.0.0"}}), None),
            (json!({"filter": {"include": ["he", "he"]}}), Some("Duplicate value")),
            (json!({"interval": "10m"}), None),
            (
                json!({"interval": "often"}),
                Some("spec.interval: Invalid value: \"string\": must be a duration"),
            ),
            (json!({"credentials": {"name": "login", "key": ".dockerconfigjson"}}), None),
            (json!({"credentials": {"name": "login"}}), Some("spec.credentials.key: Required value")),
            (json!({"verify": {"verifier": "Cosign", "keys": {"name": "keys"}}}), None),
            (json!({"verify": {"verifier": "Cosign"}}), SIGNER),
            (signed_by(json!({"issuer": "https://a.example", "subject": "b"})), None),
            (signed_by(json!({"issuerRegExp": ".*", "subjectRegExp": ".*"})), None),
            (
                signed_by(json!({"issuer": "https://a.example"})),
                Some("exactly one of subject, subjectRegExp"),
            ),
            (signed_by(json!({"subject": "b"})), Some("exactly one of issuer, issuerRegExp")),
            (
                json!({"verify": {"verifier": "Cosign", "identities": [{"issuer": "a", "subject": "b"}]}}),
                SIGNER,
            ),
            (json!({"verify": {"verifier": "Nobody", "keys": {"name": "keys"}}}), Some("Unsupported value")),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_catalog_has_a_url_or_a_source() {
    let server = Server::shared().await;
    let folder = |path: &str| json!({"source": {"sourceRef": {"name": "git"}, "path": path}});
    let access = |field: &str, value: Value| {
        let mut fields = folder("charts");
        fields[field] = value;
        fields
    };
    let (relative, in_source) =
        (Some("must be relative to the root of the Source"), Some("with source, set them in the Source"));
    let secret = json!({"name": "login", "key": "config.json"});
    let rows = [
        (folder("charts"), None),
        (json!({"source": {"sourceRef": {"name": "git", "scope": "Platform"}}}), None),
        (json!({"source": {"path": "charts"}}), Some("spec.source.sourceRef: Required value")),
        (folder("/charts"), relative),
        (folder("charts/../secrets"), relative),
        (access("url", json!("https://charts.example")), Some("exactly one of url, source must be set")),
        (access("credentials", secret.clone()), in_source),
        (access("certificateAuthority", secret), in_source),
        (access("verify", json!({"verifier": "Cosign", "keys": {"name": "keys"}})), in_source),
        (access("filter", json!({"include": ["web"]})), None),
    ];
    for (fields, expected) in rows {
        let mut catalog = without(CATALOG, "url");
        catalog["spec"] = fields;
        check(&server, &catalog, expected).await;
    }
}

#[tokio::test]
async fn source_fields_are_validated() {
    let url = |url: &str| json!({"git": {"url": url}});
    let (https, login) = (
        Some("must begin with https:// or ssh://user@ and name a host"),
        Some("must not contain a user name"),
    );
    let (scp, key) =
        (Some("write git@host:path as ssh://git@host/path"), Some("an ssh:// URL requires credentials"));
    let (secret, ssh) = (json!({"name": "key"}), json!({"url": "ssh://git@git.example/a"}));
    let authority = json!({"name": "ca", "key": "ca.crt"});
    let with_key = |url: &str| json!({"git": {"url": url}, "credentials": secret});
    let verify = |fields: Value| json!({"git": {"url": "https://git.example/a", "verify": fields}});
    let (one, name) =
        (Some("exactly one of branch, tag, semver, commit"), Some("must be the name of a branch or tag"));
    let id = Some("must be the full id of a commit");
    check_all(
        SOURCE,
        vec![
            (url("https://git.example:8443/a/b"), None),
            (url("http://git.example/a"), https),
            (url("git@git.example:a/b"), scp),
            (url("https://token@git.example/a"), login),
            (with_key("ssh://git@git.example/a"), None),
            (with_key("ssh://git@[::1]:2222/~anna/a.git"), None),
            (with_key("ssh://git.example/a"), https),
            (with_key("ssh://git@git.example"), https),
            (with_key("ssh://git@git.example:a/b"), https),
            (with_key("ssh://git:word@git.example/a"), login),
            (url("ssh://git@git.example/a"), key),
            (json!({"git": ssh, "credentials": secret, "certificateAuthority": authority}), key),
            (json!({"credentials": {"name": "login", "key": ".dockerconfigjson"}}), None),
            (json!({"credentials": {"name": "login", "key": ""}}), Some("spec.credentials.key")),
            (json!({"credentials": {"key": "config.json"}}), Some("spec.credentials.name: Required value")),
            (git(&json!({"branch": "feature/x_1"})), None),
            (git(&json!({"tag": "v1.2.0+build"})), None),
            (git(&json!({"commit": "0123456789012345678901234567890123456789"})), None),
            (git(&json!({})), one),
            (git(&json!({"branch": "main", "tag": "v1"})), one),
            (git(&json!({"branch": "refs/heads/main"})), name),
            (git(&json!({"branch": "a b"})), name),
            (git(&json!({"tag": "a..b"})), name),
            (git(&json!({"tag": "a*"})), name),
            (git(&json!({"commit": "abc1234"})), id),
            (json!({"interval": "30s", "suspend": true, "ignore": ["docs", "*.md"]}), None),
            (json!({"interval": "often"}), Some("must be a duration such as")),
            (json!({"receiver": {"secret": {"name": "hook", "key": "token"}}}), None),
            (json!({"receiver": {}}), Some("spec.receiver.secret: Required value")),
            (json!({"ignore": ["docs", "docs"]}), Some("Duplicate value")),
            (json!({"ignore": [""]}), Some("spec.ignore[0]")),
            (verify(json!({"keys": {"name": "keys"}})), None),
            (verify(json!({"mode": "TagAndCommit", "keys": {"name": "keys"}})), None),
            (verify(json!({"mode": "Commit"})), Some("spec.git.verify.keys: Required value")),
            (verify(json!({"mode": "Push", "keys": {"name": "keys"}})), Some("Unsupported value")),
        ],
    )
    .await;
}

#[tokio::test]
async fn artifact_sources_are_validated() {
    let (registry, both) = (
        Some("must name a registry and a repository, without a tag"),
        Some("exactly one of git, oci, bucket"),
    );
    let one = Some("exactly one of tag, semver, digest");
    let cosign = json!({"verifier": "Cosign", "keys": {"name": "keys"}});
    let url = |url: &str| json!({"oci": {"url": url}});
    let reference = |fields: Value| json!({"oci": {"url": "oci://registry.example/a", "ref": fields}});
    let rows = [
        (url("oci://registry.example:5000/a/b"), None),
        (url("https://registry.example/a"), registry),
        (url("oci://registry.example"), registry),
        (url("oci://registry.example/a:v1"), registry),
        (url("oci://user@registry.example/a"), registry),
        (reference(json!({"tag": "v1.2.0_build"})), None),
        (reference(json!({"semver": ">=1.0.0"})), None),
        (reference(json!({"digest": format!("sha256:{}", "0".repeat(64))})), None),
        (reference(json!({"tag": "a:b"})), Some("must be a tag such as v1.2.0")),
        (reference(json!({"digest": "sha256:00"})), Some("must be a digest")),
        (reference(json!({})), one),
        (reference(json!({"tag": "a", "semver": "1.x"})), one),
        (json!({"oci": {"url": "oci://registry.example/a", "verify": cosign}}), None),
        (json!({"oci": {"url": "oci://registry.example/a"}, "git": {"url": "https://git.example/a"}}), both),
    ];
    let server = Server::shared().await;
    for (fields, error) in rows {
        let mut source = without(SOURCE, "git");
        source["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        check(&server, &source, error).await;
    }
}

#[tokio::test]
async fn bucket_sources_are_validated() {
    let bucket = |fields: Value| {
        let mut bucket = json!({"provider": "S3", "endpoint": "https://s3.example", "name": "fleet"});
        bucket.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"bucket": bucket})
    };
    let rows = [
        (bucket(json!({"region": "eu-central-1", "prefix": "clusters/prod"})), None),
        (bucket(json!({"provider": "GCS"})), None),
        (bucket(json!({"provider": "Azure"})), None),
        (bucket(json!({"provider": "Other"})), Some("Unsupported value")),
        (bucket(json!({"endpoint": "http://s3.example"})), Some("must begin with https://")),
        (bucket(json!({"name": "Fleet/x"})), Some("must be the name of a bucket")),
        (bucket(json!({"prefix": "/a"})), Some("must be relative")),
        (bucket(json!({"prefix": "a/../b"})), Some("must be relative")),
    ];
    let server = Server::shared().await;
    for (fields, error) in rows {
        let mut source = without(SOURCE, "git");
        source["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        check(&server, &source, error).await;
    }
}

#[tokio::test]
async fn extension_fields_are_validated() {
    let follow = |fields: Value| json!({"versions": [], "followKubernetes": fields});
    check_all(
        EXTENSION,
        vec![
            (json!({"logo": "https://example.com/logo.svg"}), None),
            (json!({"logo": "data:image/png;base64,iVBORw0KGgo="}), None),
            (json!({"logo": "data:image/svg+xml;base64,PHN2Zy8+"}), None),
            (json!({"logo": "http://example.com/logo.svg"}), LOGO),
            (json!({"logo": "data:text/html;base64,PHN2Zy8+"}), LOGO),
            (json!({"logo": "data:image/png;base64,<svg>"}), LOGO),
            (json!({"logo": "javascript:alert(1)"}), LOGO),
            (json!({"documentationURL": "https://example.com"}), None),
            (json!({"documentationURL": "example.com"}), Some("must begin with https:// and name a host")),
            (json!({"lifecycle": "Independent"}), None),
            (json!({"lifecycle": "Sometimes"}), Some("spec.lifecycle: Unsupported value")),
            (json!({"kubernetesUpgrade": {"when": "BeforeControlPlane", "block": false}}), None),
            (
                json!({"kubernetesUpgrade": {"when": "Never"}}),
                Some("spec.kubernetesUpgrade.when: Unsupported value"),
            ),
            (json!({"onClusterDelete": "Uninstall"}), None),
            (json!({"install": {"default": {"matchLabels": {"tier": "gold"}}, "enforced": true}}), None),
            (json!({"install": {"enforced": true}}), Some("spec.install.default: Required value")),
            (json!({"versions": []}), Some("versions must list at least one version")),
            (follow(json!({"repository": "oci://registry.example/extensions", "chart": "hello"})), None),
            (follow(json!({"catalog": {"name": "all", "scope": "Platform"}, "chart": "hello"})), None),
            (
                follow(json!({"chart": "hello"})),
                Some("exactly one of repository, catalog, sourceRef must be set"),
            ),
            (follow(json!({"sourceRef": {"name": "apps"}, "path": "cni"})), None),
            (follow(json!({"repository": "http://registry.example", "chart": "hello"})), URL),
            (version(&json!({"version": "one"})), Some("must be a version such as 1.14.2")),
            (version(&json!({"version": "v1.34"})), None),
            (version(&json!({"source": {"sourceRef": {"name": "apps", "scope": "Platform"}}})), None),
            (
                version(&json!({"source": {"sourceRef": {"name": "apps"}, "path": "a", "chart": "hello"}})),
                Some("chart must be set for a repository or catalog, and path only for a sourceRef"),
            ),
            (
                version(
                    &json!({"source": {"repository": "https://charts.example", "chart": "a", "path": "b"}}),
                ),
                Some("chart must be set for a repository or catalog, and path only for a sourceRef"),
            ),
            (
                version(&json!({"source": {"chart": "hello"}})),
                Some("exactly one of repository, catalog, sourceRef must be set"),
            ),
            (
                version(
                    &json!({"parameters": {"schema": {"type": "object"}, "defaults": {"a": {"b": [1]}}}}),
                ),
                None,
            ),
            (version(&json!({"parameters": {"defaults": "a: b"}})), Some("must be of type object")),
            (version(&json!({"dependencies": [{"extension": "other", "optional": true}]})), None),
            (
                version(&json!({"dependencies": [{"extension": "other"}, {"extension": "other"}]})),
                Some("Duplicate value"),
            ),
        ],
    )
    .await;
    let mut twice = object(EXTENSION, &json!({}));
    let first = twice["spec"]["versions"][0].clone();
    twice["spec"]["versions"].as_array_mut().unwrap().push(first);
    check(&Server::shared().await, &twice, Some("Duplicate value")).await;
}

#[tokio::test]
async fn instance_fields_are_validated() {
    let inline = json!({"repository": "https://charts.example", "chart": "hello", "version": "1.0.0"});
    let from = |fields: Value| json!({"parametersFrom": [fields], "serviceAccountName": "reader"});
    let list = json!({"apiVersion": "v1", "kind": "Secret", "selector": {"matchLabels": {"user": "{{ .Cluster.metadata.name }}"}}});
    let field = json!({"apiVersion": "v1", "kind": "User", "name": "all", "path": "/spec/sshKeys"});
    check_all(
        INSTANCE,
        vec![
            (json!({"extension": null, "source": inline}), None),
            (json!({"source": inline}), Some("exactly one of extension, source must be set")),
            (
                json!({"extension": null, "source": inline, "version": "^1"}),
                Some("with source, write source.version"),
            ),
            (json!({"extension": {"name": "hello", "catalog": "all", "scope": "Platform"}}), None),
            (json!({"extension": {"name": "hello", "scope": "Elsewhere"}}), Some("Unsupported value")),
            (json!({"clusters": {"selector": {}}}), None),
            (json!({"clusters": {"selector": {"matchLabels": {"a": "b"}}}}), None),
            (json!({"clusters": {}}), Some("exactly one of name, selector must be set")),
            (json!({"clusters": {"name": "blue", "selector": {}}}), Some("exactly one of name, selector")),
            (json!({"clusters": {"name": ""}}), Some("spec.clusters.name")),
            (json!({"dependencies": "Require"}), None),
            (json!({"dependencies": "Ignore"}), Some("spec.dependencies: Unsupported value")),
            (json!({"channel": "edge"}), None),
            (json!({"parameters": {"replicas": 3, "list": [1, "two"]}, "parametersTemplate": "a: b"}), None),
            (json!({"parameters": "a: b"}), Some("must be of type object")),
            (from(json!({"secret": {"name": "s", "key": "k"}, "parameter": "auth.password"})), None),
            (from(json!({"configMap": {"name": "s", "key": "k", "optional": true}})), None),
            (from(json!({"object": field})), None),
            (from(json!({})), Some("exactly one of secret, configMap, object, objects must be set")),
            (
                from(json!({"secret": {"name": "s", "key": "k"}, "object": field})),
                Some("exactly one of secret, configMap, object, objects must be set"),
            ),
            (json!({"parametersFrom": [{"object": field}]}), Some("serviceAccountName must be set")),
            (from(json!({"objects": list, "template": "users: {{ .Objects | len }}"})), None),
            (from(json!({"objects": list})), Some("template must be set with objects")),
            (json!({"options": {"timeout": "soon"}}), Some("must be a duration such as")),
            (json!({"release": {"name": "x".repeat(54)}}), Some("spec.release.name: Too long")),
            (json!({"policyRef": {"name": "careful"}}), None),
            (json!({"policyRef": {"name": "careful", "scope": "Platform"}}), None),
            (json!({"policyRef": {"name": "careful", "scope": "Elsewhere"}}), Some("Unsupported value")),
            (json!({"policyRef": {"scope": "Platform"}}), Some("spec.policyRef.name: Required value")),
        ],
    )
    .await;
}

#[tokio::test]
async fn addon_release_fields_are_validated() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let folder = json!({"sourceRef": {"name": "apps"}, "path": "cni"});
    check_all(
        ADDON,
        vec![
            (json!({"values": "a: b"}), None),
            (json!({"valuesSecret": {"name": "values", "digest": digest}}), None),
            (json!({"valuesSecret": {"name": "values", "digest": "abc"}}), Some("spec.valuesSecret.digest")),
            (
                json!({"values": "a: b", "valuesSecret": {"name": "values", "digest": digest}}),
                Some("only one of values, valuesSecret may be set"),
            ),
            (json!({"dependsOn": ["one", "two"], "extension": "hello", "version": "1.0.0"}), None),
            (json!({"dependsOn": ["one", "one"]}), Some("Duplicate value")),
            (json!({"options": {"maxHistory": -1}}), Some("spec.options.maxHistory")),
            (json!({"source": folder, "pinned": {"revision": "c1", "digest": digest}}), None),
            (
                json!({"source": folder, "pinned": {"revision": "c1", "digest": "abc"}}),
                Some("spec.pinned.digest"),
            ),
            (json!({"source": folder}), Some("pinned must be set exactly if source.sourceRef is set")),
            (
                json!({"pinned": {"revision": "c1", "digest": digest}}),
                Some("pinned must be set exactly if source.sourceRef is set"),
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn cluster_and_release_of_an_addon_release_are_immutable() {
    let server = Server::shared().await;
    let created = server.create(&object(ADDON, &json!({}))).await.unwrap();
    for (change, error) in [
        (json!({"cluster": "green"}), Some("spec.cluster: Invalid value: \"string\": is immutable")),
        (
            json!({"release": {"namespace": "other"}}),
            Some("spec.release: Invalid value: \"object\": is immutable"),
        ),
        (json!({"version": "2.0.0", "source": {"version": "2.0.0"}, "values": "a: b"}), None),
    ] {
        match (server.patch(&created, json!({"spec": change})).await, error) {
            (Ok(_), None) => {}
            (Err(message), Some(expected)) => assert!(message.contains(expected), "{change}\n{message}"),
            (result, _) => panic!("{change}\n{result:?}\nexpected: {error:?}"),
        }
    }
}

#[tokio::test]
async fn unset_fields_get_their_defaults() {
    let server = Server::shared().await;
    let options = json!({"wait": true, "timeout": "10m", "createNamespace": true, "maxHistory": 10});
    let rows = [
        (CATALOG, json!({"interval": "1h"})),
        (
            EXTENSION,
            json!({
                "lifecycle": "Kubernetes", "onClusterDelete": "Skip",
                "kubernetesUpgrade": {"when": "AfterControlPlane", "block": true},
            }),
        ),
        (
            INSTANCE,
            json!({
                "extension": {"name": "hello", "scope": "Namespace"}, "dependencies": "Install", "release": {},
                "options": options,
            }),
        ),
        (ADDON, json!({"options": options})),
        (SOURCE, json!({"interval": "1m"})),
        (
            SYNC,
            json!({
                "source": {"sourceRef": {"name": "git", "scope": "Namespace"}}, "interval": "10m",
                "prune": {"enabled": false}, "deletionPolicy": "Orphan",
            }),
        ),
    ];
    for (kind, defaults) in rows {
        let written = object(kind, &json!({}));
        let created = server.dry_run_create(&written).await.unwrap();
        assert_eq!(created["spec"], object(kind, &defaults)["spec"], "{kind}");
        match kind {
            CATALOG => assert_same::<ExtensionCatalogSpec>(&written, &created),
            EXTENSION => assert_same::<ExtensionSpec>(&written, &created),
            INSTANCE => assert_same::<ExtensionInstanceSpec>(&written, &created),
            SOURCE => assert_same::<SourceSpec>(&written, &created),
            SYNC => assert_same::<SyncSpec>(&written, &created),
            _ => assert_same::<AddonReleaseSpec>(&written, &created),
        }
    }
}

/// Checks that the Rust types use the same defaults as the API server. Otherwise the controller would see a difference in
/// its own objects and write them again and again.
fn assert_same<S: DeserializeOwned + Serialize + PartialEq + Debug>(written: &Value, created: &Value) {
    let [unset, filled]: [S; 2] =
        [written, created].map(|object| serde_json::from_value(object["spec"].clone()).unwrap());
    assert_eq!(unset, filled);
    assert_eq!(serde_json::to_value(&filled).unwrap(), created["spec"]);
}

#[tokio::test]
async fn the_status_of_an_instance_extends_the_status_of_a_placement() {
    let server = Server::shared().await;
    let created = server.create(&object(INSTANCE, &json!({}))).await.unwrap();
    let status = json!({
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "Conflict", "message": "none fits",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "matchingClusters": [{"name": "blue", "namespace": "default"}],
        "readyClusters": "0/1", "observedGeneration": 1, "versions": "1.0.0",
        "resolution": [{"cluster": "blue", "version": "1.0.0", "kubernetes": "1.34.2", "message": "it runs"}],
    });
    let name = created["metadata"]["name"].as_str().unwrap();
    let patch = Patch::Merge(json!({"status": status}));
    let stored =
        object_or_message(server.api(INSTANCE).patch_status(name, &PatchParams::default(), &patch).await)
            .unwrap();
    assert_eq!(stored["status"], status, "nothing is pruned");
    let read: InstanceStatus = serde_json::from_value(stored["status"].clone()).unwrap();
    assert_eq!(read.placement.ready_clusters.as_deref(), Some("0/1"));
    assert_eq!(serde_json::to_value(&read).unwrap(), status);
}
