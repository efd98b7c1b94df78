//! What the platform demands of every package, whoever asks for it.

use std::sync::Arc;

use reqwest::Url;
use serde::Deserialize;

use super::{
    BadSigners, Signers, SignersSpec, WantedIdentity,
    source_prefix::{BadSource, Place, SourcePrefix},
};

/// Which sources have to be signed, and by whom. Of several rules the one that says most about a source counts.
#[derive(Clone, Debug, Default)]
pub struct SignaturePolicy {
    rules: Vec<(SourcePrefix, Demand)>,
}

/// What is demanded of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Demand {
    #[default]
    Nothing,
    Signed(Arc<Signers>),
}

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error("it is not written as a policy is: {0}")]
    Unreadable(String),
    #[error("rule {number}: {why}")]
    Rule { number: usize, why: BadRule },
    #[error("two rules are for {0}; say it once")]
    Twice(String),
}

/// Why a rule of a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    #[error("it names no sources")]
    NoSources,
    #[error("it says unsigned, and who has to sign")]
    UnsignedAndSigned,
    #[error(transparent)]
    Source(#[from] BadSource),
    #[error(transparent)]
    Signers(#[from] BadSigners),
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
    identities: Vec<WantedIdentity>,
    #[serde(default)]
    trusted_root: Option<String>,
}

impl SignaturePolicy {
    /// Reads YAML.
    pub fn parse(text: &str) -> Result<Self, BadPolicy> {
        let document: Document =
            serde_saphyr::from_str(text).map_err(|error| BadPolicy::Unreadable(error.to_string()))?;
        let mut rules: Vec<(SourcePrefix, Demand)> = Vec::new();
        for (at, rule) in document.rules.into_iter().enumerate() {
            let bad = |why: BadRule| BadPolicy::Rule { number: at + 1, why };
            let sources = rule.sources.clone();
            if sources.is_empty() {
                return Err(bad(BadRule::NoSources));
            }
            let demand = rule.demand().map_err(bad)?;
            for source in sources {
                let prefix: SourcePrefix = source.parse().map_err(|error: BadSource| bad(error.into()))?;
                if rules.iter().any(|(known, _)| *known == prefix) {
                    return Err(BadPolicy::Twice(source));
                }
                rules.push((prefix, demand.clone()));
            }
        }
        Ok(Self { rules })
    }

    /// What is demanded of a chart: `home` is its repository in a registry, or the Helm repository it is from.
    pub(crate) fn demand(&self, scheme: &str, home: &Url) -> Demand {
        let place = Place::of_home(scheme, home);
        let fitting =
            self.rules.iter().filter_map(|(prefix, demand)| Some((prefix.closeness(&place)?, demand)));
        fitting.max_by_key(|(closeness, _)| *closeness).map(|(_, demand)| demand.clone()).unwrap_or_default()
    }
}

impl Rule {
    fn demand(self) -> Result<Demand, BadRule> {
        let Self { sources: _, unsigned, keys, identities, trusted_root } = self;
        match Signers::new(&SignersSpec { keys, identities, trusted_root }) {
            Err(BadSigners::Nobody) if unsigned => Ok(Demand::Nothing),
            Ok(_) if unsigned => Err(BadRule::UnsignedAndSigned),
            Ok(signers) => Ok(Demand::Signed(Arc::new(signers))),
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
            let demand = if *signed {
                format!("  keys:\n  - |\n{}", indented(KEY))
            } else {
                "  unsigned: true\n".to_owned()
            };
            format!("- sources: ['{source}']\n{demand}")
        };
        format!("rules:\n{}", rules.iter().map(rule).collect::<String>())
    }

    fn is_demanded(policy: &SignaturePolicy, scheme: &str, home: &str) -> bool {
        policy.demand(scheme, &home.parse().unwrap()) != Demand::Nothing
    }

    #[test]
    fn the_rule_that_says_most_counts() {
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
        for (scheme, home, demanded) in rows {
            assert_eq!(is_demanded(&policy, scheme, home), demanded, "{home}");
        }
    }

    #[test]
    fn all_means_all() {
        let all = SignaturePolicy::parse(&policy(&[("*", true), ("https://charts.example", false)])).unwrap();
        assert!(is_demanded(&all, "oci", "https://anywhere.example/v2/web/"));
        assert!(is_demanded(&all, "https", "https://anywhere.example/"));
        assert!(!is_demanded(&all, "https", "https://charts.example/stable/"));
        assert!(!is_demanded(&SignaturePolicy::default(), "oci", "https://anywhere.example/v2/web/"));
    }

    #[test]
    fn what_is_no_policy_is_told() {
        let twice = policy(&[("oci://a.example/x", true), ("oci://A.example/x/", false)]);
        let both = policy(&[("*", true)]) + "  unsigned: true\n";
        let rows = [
            ("rules: [{sources: ['*'], keyz: []}]", "keyz"),
            ("nonsense", "not written as a policy"),
            ("rules: [{sources: ['*']}]", "rule 1: neither keys nor identities"),
            ("rules: [{sources: [], unsigned: true}]", "names no sources"),
            ("rules: [{sources: ['registry.example'], unsigned: true}]", "neither * nor"),
            ("rules: [{sources: ['http://registry.example'], unsigned: true}]", "neither * nor"),
            ("rules: [{sources: ['oci://user@registry.example'], unsigned: true}]", "neither * nor"),
            (twice.as_str(), "say it once"),
            (both.as_str(), "says unsigned"),
        ];
        for (text, hint) in rows {
            let why = SignaturePolicy::parse(text).unwrap_err().to_string();
            assert!(why.contains(hint), "{why} does not say {hint}");
        }
    }
}
