//! The interval that a spec asks for.

use std::{str::FromStr as _, time::Duration};

use chandler_api::addons::Timeout;

use crate::failure::{Category, Failure};

/// Returns the interval that `spec.interval` asks for.
pub fn interval(text: &Timeout) -> Result<Duration, Failure> {
    let text = &text.0;
    let invalid = |problem: String| {
        Failure::new(Category::InvalidSpec, format!("spec.interval {problem}; write it like 10m or 1h"))
    };
    let interval = kube_core::Duration::from_str(text)
        .map_err(|error| invalid(format!("{text:?} is invalid: {error}")))?;
    let negative = interval.is_negative();
    let positive = Some(Duration::from(interval)).filter(|one| !negative && !one.is_zero());
    positive.ok_or_else(|| invalid(format!("is {text}, but must be greater than zero")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_positive_durations() {
        let read = |text: &str| interval(&Timeout(text.to_owned()));
        assert_eq!(read("1h").unwrap(), Duration::from_hours(1));
        assert_eq!(read("90s").unwrap(), Duration::from_secs(90));
        for bad in ["", "0s", "-1h", "soon"] {
            assert!(read(bad).unwrap_err().message.contains("spec.interval"), "{bad}");
        }
    }
}
