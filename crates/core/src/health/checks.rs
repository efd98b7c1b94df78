//! What users say about the health of objects of some kinds: expressions in the health checks of an AddonPolicy.

use std::sync::Arc;

use chandler_api::extensions::HealthCheck;
use serde_json::Value;

use super::{
    ObjectState,
    condition::{explain, find},
    kinds::{group, has_status},
    object::{being_deleted, observed},
};
use crate::expression::{Budget, EvaluationError, Expression};

/// How many steps the expressions of a check may take together, for one object. They take up to about a millisecond.
const MAX_STEPS: u32 = 20_000;

/// The checks of a policy. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthChecks {
    checks: Arc<[Arc<Check>]>,
    invalid: Option<Arc<str>>,
}

/// The check of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    group: String,
    kind: String,
    in_progress: Option<Expression>,
    failed: Option<Expression>,
    current: Expression,
}

impl HealthChecks {
    /// Reads the checks of a policy. One that is invalid is left out: the rules of Chandler apply to its kind.
    pub fn compile(checks: &[HealthCheck]) -> Self {
        let (mut valid, mut invalid): (Vec<Arc<Check>>, Vec<String>) = (Vec::new(), Vec::new());
        for (number, check) in checks.iter().enumerate() {
            let is_known = |known: &&Arc<Check>| known.is_for(&check.api_version, &check.kind);
            let compiled = match valid.iter().find(is_known) {
                Some(_) => Err(": there is another check for this kind".to_owned()),
                None => Check::compile(check),
            };
            match compiled {
                Ok(check) => valid.push(Arc::new(check)),
                Err(error) => invalid.push(format!("health.checks[{number}]{error}")),
            }
        }
        let invalid = (!invalid.is_empty())
            .then(|| format!("the policy is invalid: {}; these checks are ignored", invalid.join("; ")));
        Self { checks: valid.into(), invalid: invalid.map(Into::into) }
    }

    /// Returns the check of a kind.
    pub fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<Check>> {
        self.checks.iter().find(|check| check.is_for(api_version, kind))
    }

    pub fn is_empty(&self) -> bool {
        self.checks.is_empty()
    }

    /// Returns which checks are invalid and why, for users.
    pub fn invalid(&self) -> Option<&str> {
        self.invalid.as_deref()
    }
}

impl Check {
    /// Reads a check. The error begins with the name of the field.
    fn compile(check: &HealthCheck) -> Result<Self, String> {
        let HealthCheck { api_version, kind, in_progress, failed, current } = check;
        if !has_status(api_version, kind) {
            return Err(format!(
                ": Chandler only reads the metadata of a {kind}, so there is nothing to check"
            ));
        }
        let parse = |field: &str, source: &str| {
            Expression::parse(source).map_err(|error| format!(".{field}: {error}"))
        };
        let optional = |field: &str, source: &Option<String>| {
            source.as_deref().map(|source| parse(field, source)).transpose()
        };
        Ok(Self {
            group: group(api_version).to_owned(),
            kind: kind.clone(),
            in_progress: optional("inProgress", in_progress)?,
            failed: optional("failed", failed)?,
            current: parse("current", current)?,
        })
    }

    /// The version does not matter, so that a check still applies to a chart that uses a newer one.
    fn is_for(&self, api_version: &str, kind: &str) -> bool {
        self.group == group(api_version) && self.kind == kind
    }

    /// Returns the state of an object. As in Flux, its controller has to have seen the last change, and the first expression
    /// that is true counts.
    ///
    /// An object without a status, of which an expression needs a field, is `Unknown`: nothing is concluded from missing
    /// information. With a status, the expression is wrong or the controller has not reported the field yet: the message names the error.
    pub fn state(&self, object: &Value) -> ObjectState {
        if let Some(state) = being_deleted(object).or_else(|| observed(object, false)) {
            return state;
        }
        let mut budget = Budget::new(MAX_STEPS);
        let expressions = [
            ("inProgress", self.in_progress.as_ref()),
            ("failed", self.failed.as_ref()),
            ("current", Some(&self.current)),
        ];
        for (field, expression) in expressions {
            let Some(expression) = expression else { continue };
            match (field, expression.is_true(object, &mut budget)) {
                (_, Ok(false)) => {}
                ("current", Ok(true)) => return ObjectState::Healthy,
                ("failed", Ok(true)) => {
                    return ObjectState::Failed(reason(object, "its health check `failed` is true"));
                }
                (_, Ok(true)) => {
                    return ObjectState::Progressing(reason(object, "its health check `inProgress` is true"));
                }
                (_, Err(error)) => return unevaluated(object, field, &error),
            }
        }
        ObjectState::Progressing(reason(object, "its health check `current` is not true"))
    }
}

fn unevaluated(object: &Value, field: &str, error: &EvaluationError) -> ObjectState {
    if object["status"].is_null() && *error != EvaluationError::OutOfBudget {
        return ObjectState::Unknown;
    }
    ObjectState::Progressing(format!("its health check `{field}` cannot be evaluated: {error}"))
}

/// Adds what the object itself says about it, if it does.
fn reason(object: &Value, what: &str) -> String {
    match find(object, "Ready").filter(|condition| condition["status"] != "True") {
        Some(condition) => explain(what, condition),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests;
