//! Request counts from the metric `apiserver_request_total`.

use std::collections::BTreeMap;

/// The labels by which requests are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`…
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
}

/// A snapshot of an API server's request counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestCounts {
    counts: BTreeMap<RequestKey, u64>,
}

impl RequestCounts {
    pub(crate) fn parse(metrics: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in metrics.lines() {
            if let Some((key, count)) = parse_line(line) {
                *counts.entry(key).or_default() += count;
            }
        }
        Self { counts }
    }

    /// Returns the requests since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self
            .counts
            .iter()
            .map(|(key, count)| {
                let before = earlier.counts.get(key).copied().unwrap_or(0);
                (key.clone(), count.saturating_sub(before))
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        Self { counts }
    }

    /// Returns the counts whose key matches a predicate.
    #[must_use]
    pub fn filter(&self, predicate: impl Fn(&RequestKey) -> bool) -> Self {
        let counts = self
            .counts
            .iter()
            .filter(|(key, _)| predicate(key))
            .map(|(key, count)| (key.clone(), *count))
            .collect();
        Self { counts }
    }

    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RequestKey, u64)> {
        self.counts.iter().map(|(key, count)| (key, *count))
    }
}

fn parse_line(line: &str) -> Option<(RequestKey, u64)> {
    let rest = line.strip_prefix("apiserver_request_total{")?;
    let (labels, value) = rest.rsplit_once("} ")?;
    let label = |name: &str| {
        labels
            .split("\",")
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""))
            .map(|value| value.trim_end_matches('"').to_owned())
    };
    let key = RequestKey {
        verb: label("verb")?,
        group: label("group")?,
        resource: label("resource")?,
        subresource: label("subresource")?,
    };
    Some((key, parse_count(value)?))
}

/// Parses a count. Prometheus prints large ones as `1.234e+06`.
fn parse_count(text: &str) -> Option<u64> {
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let (mantissa, exponent) = text.split_once("e+")?;
    let exponent: usize = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    format!("{whole}{fraction:0<exponent$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# TYPE apiserver_request_total counter
apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 5
apiserver_request_total{code=\"404\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 2
apiserver_request_total{code=\"0\",component=\"apiserver\",dry_run=\"\",group=\"apps\",resource=\"deployments\",scope=\"cluster\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 1.5e+06
";

    #[test]
    fn counts_are_summed_over_codes() {
        let counts = RequestCounts::parse(METRICS);
        assert_eq!(counts.filter(|key| key.resource == "pods").total(), 7);
        assert_eq!(counts.filter(|key| key.verb == "WATCH").total(), 1_500_000);
    }

    #[test]
    fn a_difference_contains_only_new_requests() {
        let earlier = RequestCounts::parse(METRICS);
        let later = RequestCounts::parse(&METRICS.replace("} 5", "} 9"));
        let new = later.since(&earlier);
        assert_eq!(new.total(), 4);
        assert_eq!(new.iter().count(), 1);
    }
}
