//! The options for parsing YAML that users write.

use serde_saphyr::{Budget, DuplicateKeyPolicy, Options, options, options::NonFiniteFloatPolicy};

/// Returns the options for a text whose maps and lists are nested at most `max_depth` deep.
pub(crate) fn strict_options(max_depth: usize, duplicate_keys: DuplicateKeyPolicy) -> Options {
    let mut budget = Budget::default();
    budget.max_depth = max_depth;
    options! {
        budget: Some(budget),
        with_snippet: false,
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
    }
}
