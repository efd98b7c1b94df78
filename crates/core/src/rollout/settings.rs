//! The rollout of a policy, parsed.

use std::{str::FromStr as _, time::Duration};

use chandler_api::{
    addons::Timeout,
    extensions::{RolloutPolicy, Wave},
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Member;
use crate::placement::{Selection, SelectionError};

/// The rollout of a policy.
#[derive(Clone, Debug)]
pub struct RolloutSettings {
    pub(super) limit: Limit,
    pub(super) waves: Vec<WaveSettings>,
    pub(super) stop_after_failures: u32,
    /// How long a release may take to become ready.
    pub timeout: Duration,
    /// How long the objects of a release have to be healthy.
    pub min_ready: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct WaveSettings {
    pub name: String,
    pub selection: Selection,
    pub soak: Duration,
}

/// How many releases are updated at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Number(usize),
    Percentage(usize),
}

/// A rollout that the schema accepts, but that is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RolloutSettingsError {
    #[error("wave {wave}: {source}")]
    Selector { wave: String, source: SelectionError },
    #[error("{field} {text:?} is invalid: {problem}; write it like 10m or 1h")]
    Duration { field: String, text: String, problem: String },
    #[error("maxConcurrent {0:?} is invalid: write a number or a percentage, such as 10%")]
    MaxConcurrent(String),
}

impl RolloutSettings {
    pub fn parse(policy: &RolloutPolicy) -> Result<Self, RolloutSettingsError> {
        let RolloutPolicy { max_concurrent, waves, stop_after_failures, timeout, min_ready } = policy;
        Ok(Self {
            limit: limit(max_concurrent)?,
            waves: waves.iter().map(wave).collect::<Result<_, _>>()?,
            stop_after_failures: *stop_after_failures,
            timeout: duration("timeout", timeout)?,
            min_ready: duration("minReady", min_ready)?,
        })
    }

    /// Returns how many of `total` clusters are updated at the same time.
    pub(super) fn concurrent(&self, total: usize) -> usize {
        let limit = match self.limit {
            Limit::Number(number) => number,
            Limit::Percentage(percentage) => total.saturating_mul(percentage).div_ceil(100),
        };
        limit.max(1)
    }

    /// Returns the index of the wave of a member. Those that no selector matches are the last one.
    pub(super) fn wave_of(&self, member: &Member<'_>) -> usize {
        let matches = |wave: &WaveSettings| wave.selection.matches(&member.cluster.name, member.labels);
        self.waves.iter().position(matches).unwrap_or(self.waves.len())
    }
}

fn wave(wave: &Wave) -> Result<WaveSettings, RolloutSettingsError> {
    let Wave { name, selector, soak } = wave;
    let selection = Selection::labels(selector, "selector")
        .map_err(|source| RolloutSettingsError::Selector { wave: name.clone(), source })?;
    let soak = duration(&format!("soak of wave {name}"), soak)?;
    Ok(WaveSettings { name: name.clone(), selection, soak })
}

fn limit(value: &IntOrString) -> Result<Limit, RolloutSettingsError> {
    let invalid = |text: &str| RolloutSettingsError::MaxConcurrent(text.to_owned());
    match value {
        IntOrString::Int(number) => {
            usize::try_from(*number).map(Limit::Number).map_err(|_| invalid(&number.to_string()))
        }
        IntOrString::String(text) => {
            let digits = text.strip_suffix('%').ok_or_else(|| invalid(text))?;
            digits.parse().map(Limit::Percentage).map_err(|_| invalid(text))
        }
    }
}

fn duration(field: &str, text: &Timeout) -> Result<Duration, RolloutSettingsError> {
    let invalid = |problem: String| RolloutSettingsError::Duration {
        field: field.to_owned(),
        text: text.0.clone(),
        problem,
    };
    let parsed = kube_core::Duration::from_str(&text.0).map_err(|error| invalid(error.to_string()))?;
    if parsed.is_negative() {
        return Err(invalid("it is negative".to_owned()));
    }
    Ok(Duration::from(parsed))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(policy: Value) -> Result<RolloutSettings, String> {
        let policy: RolloutPolicy = serde_json::from_value(policy).unwrap();
        RolloutSettings::parse(&policy).map_err(|error| error.to_string())
    }

    #[test]
    fn percentages_are_rounded_up() {
        let rows = [
            (json!(3), 100, 3),
            (json!("25%"), 40, 10),
            (json!("25%"), 41, 11),
            (json!("25%"), 1, 1),
            (json!("1%"), 0, 1),
            (json!("100%"), 40, 40),
            (json!(0), 40, 1),
        ];
        for (max_concurrent, total, expected) in rows {
            let settings = parse(json!({"maxConcurrent": max_concurrent})).unwrap();
            assert_eq!(settings.concurrent(total), expected, "{max_concurrent} of {total}");
        }
    }

    #[test]
    fn what_the_schema_cannot_check_is_refused() {
        let wave = |selector: Value, soak: &str| json!({"waves": [{"name": "a", "selector": selector, "soak": soak}]});
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]});
        let rows = [
            (wave(bad, "1m"), "wave a: selector is invalid"),
            (wave(json!({}), "-1m"), "soak of wave a \"-1m\" is invalid"),
            (json!({"timeout": "soon"}), "timeout \"soon\" is invalid"),
            (json!({"minReady": "-1s"}), "minReady \"-1s\" is invalid"),
            (json!({"maxConcurrent": "many"}), "maxConcurrent \"many\" is invalid"),
            (json!({"maxConcurrent": -1}), "maxConcurrent \"-1\" is invalid"),
        ];
        for (policy, expected) in rows {
            let error = parse(policy).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(parse(wave(json!({"matchLabels": {"tier": "canary"}}), "1h30m")).is_ok());
    }
}
