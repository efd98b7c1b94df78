//! What objects and Secrets contain: values, schemas, expressions, ranges, signatures, kubeconfigs, and dependencies; and the
//! requests of hooks.

use std::collections::BTreeMap;

use anyhow::Context as _;
use chandler_core::{
    expression::{Budget, Expression},
    extension::{AnnouncedUpgrade, RequestedVersions},
    identity::ClusterKey,
    parameters::{Schema, from_yaml},
    resolution::{
        Candidate, Cluster, Published, Range, Requirement, Universe, VersionName, VersionRequest, resolve,
    },
};
use chandler_hooks::{Hook, HookRequest};
use chandler_sandbox::hostile::chart::doubling_schema;
use chandler_source::{ExpectedIdentity, SignaturePolicy, Signers, SignersSpec};
use chandler_workload::target_from_kubeconfig;
use serde_json::{Value, json};

use super::{alias_bomb, input, nested_lists};
use crate::{Attempt, Input, Lab, refusal};

/// The steps that the checks of one object may take.
const STEPS: u32 = 100_000;

pub(super) const INPUTS: &[Input] = &[
    input(
        "values",
        "aliases",
        "YAML in which a few lines stand for billions of values",
        "not valid YAML",
        values_aliases,
    ),
    input("values", "nested", "100,000 nested lists", "not valid YAML", values_nested),
    input("values", "not a map", "a list of a million items", "is not valid YAML", values_list),
    input("schema", "remote", "is at a URL", "is invalid", schema_remote),
    input(
        "schema",
        "references",
        "40 definitions that each refer twice to the next one",
        "too often",
        schema_references,
    ),
    input("schema", "nested", "nested 200 times", "nested too deeply", schema_nested),
    input("schema", "pattern", "a pattern that compiles to gigabytes", "is invalid", schema_pattern),
    input("expression", "nested", "500 nested sums", "nested too deeply", expression_nested),
    input("expression", "loops", "four loops over a list of 1,000 items", "too many steps", expression_loops),
    input("range", "long", "a range of 1 MiB", "is not a version range", range_long),
    input(
        "range",
        "overflow",
        "numbers that are larger than 64 bits",
        "is not a version range",
        range_overflow,
    ),
    input(
        "signature",
        "policy",
        "a policy in which a few lines stand for billions of values",
        "not a signature policy",
        policy_aliases,
    ),
    input("signature", "key", "a key of 768 KiB that is no key", "a public key is invalid", signature_key),
    input(
        "signature",
        "root",
        "a trusted root with 100,000 nested lists",
        "the trusted root is invalid",
        signature_root,
    ),
    input("signature", "source", "a rule for a source with a login", "neither * nor", signature_source),
    input("kubeconfig", "program", "runs a program", "an exec plugin", kubeconfig_exec),
    input("kubeconfig", "file", "reads the manager's token", "a token file", kubeconfig_file),
    input("kubeconfig", "impersonation", "acts as another user", "impersonates", kubeconfig_impersonation),
    input("kubeconfig", "without TLS", "a server without TLS", "not an https address", kubeconfig_http),
    input("kubeconfig", "proxy", "a proxy that is a local file", "proxy-url", kubeconfig_proxy),
    input("kubeconfig", "nested", "100,000 nested lists", "not valid YAML", kubeconfig_nested),
    input("hook", "nested", "a request with 100,000 nested lists", "invalid type", hook_nested),
    input("hook", "no cluster", "a request without a Cluster", "missing field", hook_without_cluster),
    input("hook", "long name", "a Cluster whose name has 4 MiB", "is too long", hook_long_name),
    input("hook", "annotations", "a Cluster with 300,000 annotations", "missing field", hook_annotations),
    input(
        "hook",
        "endless upgrade",
        "announces an upgrade over 18,446,744,073,709,551,581 minor versions",
        "is not a version of Kubernetes",
        hook_endless,
    ),
    input(
        "hook",
        "unwanted upgrade",
        "announces an upgrade over 4 billion minor versions that the Cluster does not want",
        "waiting until Chandler sees",
        hook_unwanted,
    ),
    input(
        "hook",
        "wanted upgrade",
        "a Cluster whose owner wants an upgrade over 4 billion minor versions",
        "more than 10 minor versions",
        hook_too_many_minors,
    ),
    input(
        "graph",
        "chain",
        "a chain of 300 extensions whose last one does not exist",
        "too complex",
        graph_chain,
    ),
    input(
        "graph",
        "cycle",
        "100 extensions in a cycle, of which the last one needs a newer version of the first one",
        "e0 is requested",
        graph_cycle,
    ),
];

fn values_aliases(lab: &Lab) -> Attempt {
    let text = alias_bomb();
    lab.begin(None);
    refusal(from_yaml("the values", &text))
}

fn values_nested(lab: &Lab) -> Attempt {
    let text = format!("a: {}", nested_lists(100_000));
    lab.begin(None);
    refusal(from_yaml("the values", &text))
}

fn values_list(lab: &Lab) -> Attempt {
    let text = "- x\n".repeat(1_000_000);
    lab.begin(None);
    refusal(from_yaml("the values", &text))
}

fn schema(lab: &Lab, schema: &Value, parameters: &Value) -> Attempt {
    lab.begin(None);
    let parameters = parameters.as_object().context("parameters are a map")?;
    refusal(Schema::new(schema).and_then(|schema| schema.violations(parameters)))
}

fn schema_remote(lab: &Lab) -> Attempt {
    schema(lab, &json!({"$ref": "http://169.254.169.254/latest/meta-data"}), &json!({}))
}

fn schema_references(lab: &Lab) -> Attempt {
    schema(lab, &doubling_schema(), &json!({"a": 1}))
}

fn schema_nested(lab: &Lab) -> Attempt {
    let nested = (0..200).fold(json!(true), |inner, _| json!({"not": inner}));
    schema(lab, &nested, &json!({}))
}

fn schema_pattern(lab: &Lab) -> Attempt {
    let pattern = json!({"properties": {"a": {"pattern": "((a{1000}){1000}){1000}"}}});
    schema(lab, &pattern, &json!({"a": "a"}))
}

fn expression_nested(lab: &Lab) -> Attempt {
    let text = format!("{}1 == 1", "1+".repeat(500));
    lab.begin(None);
    refusal(Expression::parse(&text))
}

fn expression_loops(lab: &Lab) -> Attempt {
    let text = "spec.a.all(a, spec.a.all(b, spec.a.all(c, spec.a.all(d, a + b + c + d >= 0))))";
    let object = json!({"spec": {"a": (0..1000).collect::<Vec<u32>>()}});
    let expression = Expression::parse(text)?;
    lab.begin(None);
    refusal(expression.is_true(&object, &mut Budget::new(STEPS)))
}

fn range_long(lab: &Lab) -> Attempt {
    let text = ">=1.0.0 ".repeat(128 << 10);
    lab.begin(None);
    refusal(text.parse::<Range>())
}

fn range_overflow(_: &Lab) -> Attempt {
    refusal(">=99999999999999999999.0.0 <99999999999999999999999999".parse::<Range>())
}

fn policy_aliases(lab: &Lab) -> Attempt {
    let text = alias_bomb() + "rules: *a11\n";
    lab.begin(None);
    refusal(SignaturePolicy::parse(&text))
}

fn signature_key(lab: &Lab) -> Attempt {
    let key = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", "AAAA".repeat(256 << 10));
    let spec = SignersSpec { keys: vec![key], ..SignersSpec::default() };
    lab.begin(None);
    refusal(Signers::new(&spec))
}

fn signature_root(lab: &Lab) -> Attempt {
    let identities = vec![ExpectedIdentity::default()];
    let trusted_root = Some(nested_lists(100_000));
    let spec = SignersSpec { identities, trusted_root, ..SignersSpec::default() };
    lab.begin(None);
    refusal(Signers::new(&spec))
}

fn signature_source(_: &Lab) -> Attempt {
    refusal(SignaturePolicy::parse("rules: [{sources: ['oci://user@registry.example'], unsigned: true}]"))
}

fn kubeconfig(lab: &Lab, cluster: &str, user: &str) -> Attempt {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    );
    lab.begin(None);
    refusal(target_from_kubeconfig(&ClusterKey::new("fleet", "blue"), &text))
}

const HTTPS: &str = "server: 'https://b:6443'";

fn kubeconfig_exec(lab: &Lab) -> Attempt {
    kubeconfig(lab, HTTPS, "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}")
}

fn kubeconfig_file(lab: &Lab) -> Attempt {
    kubeconfig(lab, HTTPS, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token")
}

fn kubeconfig_impersonation(lab: &Lab) -> Attempt {
    kubeconfig(lab, HTTPS, "token: t, as: admin")
}

fn kubeconfig_http(lab: &Lab) -> Attempt {
    kubeconfig(lab, "server: 'http://b:6443'", "token: t")
}

fn kubeconfig_proxy(lab: &Lab) -> Attempt {
    kubeconfig(lab, &format!("{HTTPS}, proxy-url: 'file:///etc/passwd'"), "token: t")
}

fn kubeconfig_nested(lab: &Lab) -> Attempt {
    kubeconfig(lab, &format!("{HTTPS}, extensions: {}", nested_lists(100_000)), "token: t")
}

fn hook_nested(lab: &Lab) -> Attempt {
    let body = format!("{{\"cluster\": {}}}", nested_lists(100_000));
    lab.begin(None);
    refusal(HookRequest::parse(Hook::BeforeClusterDelete, body.as_bytes()))
}

fn hook_without_cluster(_: &Lab) -> Attempt {
    refusal(HookRequest::parse(Hook::BeforeClusterDelete, b"{}"))
}

fn hook_long_name(lab: &Lab) -> Attempt {
    let name = "b".repeat(4 << 20);
    let body = json!({"cluster": {"metadata": {"namespace": "fleet", "name": name}}}).to_string();
    lab.begin(None);
    refusal(HookRequest::parse(Hook::BeforeClusterDelete, body.as_bytes()))
}

fn hook_annotations(lab: &Lab) -> Attempt {
    let annotations: BTreeMap<_, _> = (0..300_000).map(|number| (number.to_string(), "")).collect();
    let metadata = json!({"namespace": "fleet", "name": "blue", "annotations": annotations});
    let body = json!({"cluster": {"metadata": metadata}}).to_string();
    drop((annotations, metadata));
    lab.begin(None);
    refusal(HookRequest::parse(Hook::BeforeClusterUpgrade, body.as_bytes()))
}

/// Reads a request that announces an upgrade of a Cluster whose topology has this version, and looks for its steps.
fn hook_upgrade(lab: &Lab, topology: &str, to: &str) -> Attempt {
    let (cluster, from) = (json!({"spec": {"topology": {"version": topology}}}), "v1.34.4");
    let body = json!({
        "cluster": {"metadata": {"namespace": "fleet", "name": "blue"}},
        "fromKubernetesVersion": from, "toKubernetesVersion": to,
    });
    lab.begin(None);
    HookRequest::parse(Hook::BeforeClusterUpgrade, body.to_string().as_bytes())?;
    let announced = AnnouncedUpgrade::Whole { from, to };
    refusal(RequestedVersions::new(&cluster, None).steps(announced))
}

fn hook_endless(lab: &Lab) -> Attempt {
    hook_upgrade(lab, "v1.34.4", "v1.18446744073709551615.0")
}

fn hook_unwanted(lab: &Lab) -> Attempt {
    hook_upgrade(lab, "v1.34.4", "v1.4294967295.0")
}

fn hook_too_many_minors(lab: &Lab) -> Attempt {
    hook_upgrade(lab, "v1.4294967295.0", "v1.4294967295.0")
}

/// Resolves extensions of which each has 20 versions, `1.0.0` to `1.19.0`. `needs` returns the number and the range of what a
/// minor version of an extension needs.
fn graph(lab: &Lab, count: usize, needs: fn(usize, u32) -> (usize, String)) -> Attempt {
    let mut universe = Universe::default();
    for number in 0..count {
        let mut versions = Vec::new();
        for minor in 0..20 {
            let name = VersionName::parse(&format!("1.{minor}.0")).context("a version")?;
            let mut candidate = Candidate::new(name);
            let (needed, range) = needs(number, minor);
            candidate.dependencies.push(Requirement {
                extension: format!("e{needed}"),
                range: range.parse()?,
                optional: false,
            });
            versions.push(candidate);
        }
        universe.extensions.insert(format!("e{number}"), Published { versions, ..Published::default() });
    }
    let request = VersionRequest {
        extension: "e0".to_owned(),
        range: Range::any(),
        channel: None,
        install_dependencies: true,
    };
    let cluster =
        Cluster { kubernetes: semver::Version::new(1, 34, 0), platform: None, running: BTreeMap::new() };
    lab.begin(None);
    Ok(resolve(&universe, &[request], &cluster).err().map(|conflict| conflict.to_string()))
}

fn graph_chain(lab: &Lab) -> Attempt {
    graph(lab, 300, |number, _| (number + 1, ">=1.0.0".to_owned()))
}

fn graph_cycle(lab: &Lab) -> Attempt {
    graph(lab, 100, |number, minor| {
        if number == 99 {
            (0, format!(">=1.{}.0", minor + 1))
        } else {
            (number + 1, format!(">=1.{minor}.0"))
        }
    })
}
