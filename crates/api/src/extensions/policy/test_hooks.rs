//! What a policy says about the tests of a package.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::default_true;
use crate::addons::is_default;

/// How the tests of a package, such as Helm's test hooks, are run.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct TestPolicy {
    /// Whether they are run after each install and upgrade.
    #[serde(default = "default_true")]
    pub run: bool,
    /// What happens if one of them fails.
    #[serde(default)]
    pub on_failure: TestFailure,
    /// Whether the condition `Tested` contains the end of what a failed test has logged, at most 2 KiB. Logs may contain
    /// secrets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub logs: bool,
}

impl Default for TestPolicy {
    fn default() -> Self {
        Self { run: default_true(), on_failure: TestFailure::default(), logs: false }
    }
}

/// What happens if a test fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TestFailure {
    /// The release has failed: it is not ready, the tests are run again, and `remediation` applies.
    #[default]
    Fail,
    /// Only the condition `Tested` reports it.
    Ignore,
}
