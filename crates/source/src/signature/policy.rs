//! The signature policy of the platform, which applies to every package.

use std::sync::Arc;

use reqwest::Url;
use serde::Deserialize;

use super::{
    ExpectedIdentity, Signers, SignersError, SignersSpec,
    source_prefix::{SourceLocation, SourcePrefix, SourcePrefixError},
};

/// Defines which sources must be signed, and by which signers. The most specific rule for a source applies.
#[derive(Clone, Debug, Default)]
pub struct SignaturePolicy {
    rules: Vec<(SourcePrefix, Requirement)>,
}

/// The required signatures of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Requirement {
    #[default]
    NotRequired,
    SignedBy(Arc<Signers>),
}

/// The policy cannot be loaded, so that no package may be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature policy in {location} is invalid or cannot be read: {reason}")]
pub struct PolicyUnavailable {
    /// Where the policy is stored.
    pub location: String,
    pub reason: String,
}

/// A policy is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("it is not a signature policy in YAML: {0}")]
    Syntax(String),
    #[error("rule {number}: {error}")]
    Rule { number: usize, error: RuleError },
    #[error("two rules have the source {0}")]
    DuplicateSource(String),
}

/// A rule of a policy is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("it has no sources")]
    NoSources,
    #[error("it has both unsigned and signers")]
    UnsignedAndSigned,
    #[error(transparent)]
    Source(#[from] SourcePrefixError),
    #[error(transparent)]
    Signers(#[from] SignersError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    sources: Vec<String>,
    #[serde(default)]
    unsigned: bool,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    identities: Vec<ExpectedIdentity>,
    #[serde(default)]
    trusted_root: Option<String>,
}

impl SignaturePolicy {
    /// Parses a policy in YAML.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let document: Document =
            serde_saphyr::from_str(text).map_err(|error| PolicyError::Syntax(error.to_string()))?;
        let mut rules: Vec<(SourcePrefix, Requirement)> = Vec::new();
        for (position, rule) in document.rules.into_iter().enumerate() {
            let invalid = |error: RuleError| PolicyError::Rule { number: position + 1, error };
            let sources = rule.sources.clone();
            if sources.is_empty() {
                return Err(invalid(RuleError::NoSources));
            }
            let requirement = rule.requirement().map_err(invalid)?;
            for source in sources {
                let prefix: SourcePrefix =
                    source.parse().map_err(|error: SourcePrefixError| invalid(error.into()))?;
                if rules.iter().any(|(other, _)| *other == prefix) {
                    return Err(PolicyError::DuplicateSource(source));
                }
                rules.push((prefix, requirement.clone()));
            }
        }
        Ok(Self { rules })
    }

    /// Returns the requirement for a chart. `base_url` is the URL of its repository in a registry, or of its Helm repository.
    pub(crate) fn requirement(&self, scheme: &str, base_url: &Url) -> Requirement {
        let location = SourceLocation::from_base_url(scheme, base_url);
        let matching = self
            .rules
            .iter()
            .filter_map(|(prefix, requirement)| Some((prefix.specificity(&location)?, requirement)));
        let most_specific = matching.max_by_key(|(specificity, _)| *specificity);
        most_specific.map(|(_, requirement)| requirement.clone()).unwrap_or_default()
    }
}

impl Rule {
    fn requirement(self) -> Result<Requirement, RuleError> {
        let Self { sources: _, unsigned, keys, identities, trusted_root } = self;
        match Signers::new(&SignersSpec { keys, identities, trusted_root }) {
            Err(SignersError::Empty) if unsigned => Ok(Requirement::NotRequired),
            Ok(_) if unsigned => Err(RuleError::UnsignedAndSigned),
            Ok(signers) => Ok(Requirement::SignedBy(Arc::new(signers))),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = include_str!("testing/key.pem");

    fn indented(text: &str) -> String {
        text.lines().flat_map(|line| ["      ", line, "\n"]).collect()
    }

    fn policy(rules: &[(&str, bool)]) -> String {
        let rule = |(source, signed): &(&str, bool)| {
            let requirement = if *signed {
                format!("  keys:\n  - |\n{}", indented(KEY))
            } else {
                "  unsigned: true\n".to_owned()
            };
            format!("- sources: ['{source}']\n{requirement}")
        };
        format!("rules:\n{}", rules.iter().map(rule).collect::<String>())
    }

    fn is_required(policy: &SignaturePolicy, scheme: &str, base_url: &str) -> bool {
        policy.requirement(scheme, &base_url.parse().unwrap()) != Requirement::NotRequired
    }

    #[test]
    fn the_most_specific_rule_applies() {
        let policy = SignaturePolicy::parse(&policy(&[
            ("oci://registry.example/team", true),
            ("oci://registry.example/team/open", false),
            ("oci://docker.io/acme", true),
            ("https://charts.example/signed", true),
        ]))
        .unwrap();
        let rows = [
            ("oci", "https://registry.example/v2/team/web/", true),
            ("oci", "https://registry.example:443/v2/team/web/", true),
            ("oci", "https://REGISTRY.example/v2/team/web/", true),
            ("oci", "https://registry.example./v2/team/web/", true),
            ("oci", "https://registry.example/v2/team/open/web/", false),
            ("oci", "https://registry.example/v2/team/opener/", true),
            ("oci", "https://registry.example/v2/teams/web/", false),
            ("oci", "https://registry.example:5000/v2/team/web/", false),
            ("oci", "https://registry.example.evil.example/v2/team/web/", false),
            ("oci", "https://registry-1.docker.io/v2/acme/web/", true),
            ("oci", "https://index.docker.io/v2/acme/web/", true),
            ("https", "https://charts.example/signed/", true),
            ("https", "https://charts.example/other/", false),
            ("https", "https://registry.example/team/", false),
        ];
        for (scheme, base_url, required) in rows {
            assert_eq!(is_required(&policy, scheme, base_url), required, "{base_url}");
        }
    }

    #[test]
    fn wildcard_applies_to_all_sources() {
        let all = SignaturePolicy::parse(&policy(&[("*", true), ("https://charts.example", false)])).unwrap();
        assert!(is_required(&all, "oci", "https://anywhere.example/v2/web/"));
        assert!(is_required(&all, "https", "https://anywhere.example/"));
        assert!(!is_required(&all, "https", "https://charts.example/stable/"));
        assert!(!is_required(&SignaturePolicy::default(), "oci", "https://anywhere.example/v2/web/"));
    }

    #[test]
    fn invalid_policies_are_rejected() {
        let duplicate = policy(&[("oci://a.example/x", true), ("oci://A.example/x/", false)]);
        let both = policy(&[("*", true)]) + "  unsigned: true\n";
        let rows = [
            ("rules: [{sources: ['*'], keyz: []}]", "keyz"),
            ("nonsense", "not a signature policy in YAML"),
            ("rules: [{sources: ['*']}]", "rule 1: neither keys nor identities"),
            ("rules: [{sources: [], unsigned: true}]", "has no sources"),
            ("rules: [{sources: ['registry.example'], unsigned: true}]", "neither * nor"),
            ("rules: [{sources: ['http://registry.example'], unsigned: true}]", "neither * nor"),
            ("rules: [{sources: ['oci://user@registry.example'], unsigned: true}]", "neither * nor"),
            (duplicate.as_str(), "two rules have the source"),
            (both.as_str(), "both unsigned and signers"),
        ];
        for (policy, text) in rows {
            let error = SignaturePolicy::parse(policy).unwrap_err().to_string();
            assert!(error.contains(text), "{error} does not contain {text}");
        }
    }
}
