//! What the requests of the manager to the management cluster show.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

/// A request of the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// When the API server received it.
    pub at: Timestamp,
    pub is_write: bool,
    pub is_watch: bool,
    pub resource: String,
    pub subresource: String,
    pub name: String,
}

impl LoggedRequest {
    pub fn is_lease(&self) -> bool {
        self.resource == "leases"
    }

    /// Returns whether an idle manager sends it: it renews the Lease, and opens its watches again every five minutes.
    pub fn is_idle(&self) -> bool {
        self.is_lease() || self.is_watch
    }

    pub fn is_status_write(&self) -> bool {
        self.is_write && self.subresource == "status"
    }

    /// Returns the cluster whose kubeconfig it reads.
    pub fn kubeconfig_of(&self) -> Option<&str> {
        let is_read = !self.is_write && self.resource == "secrets";
        self.name.strip_suffix("-kubeconfig").filter(|_| is_read)
    }
}

/// Returns how many requests match a predicate.
pub fn count(requests: &[LoggedRequest], predicate: impl Fn(&LoggedRequest) -> bool) -> u64 {
    requests.iter().fold(0, |sum, request| sum + u64::from(predicate(request)))
}

/// Returns when the last request was received, apart from renewals of the Lease.
pub fn last(requests: &[LoggedRequest]) -> Option<Timestamp> {
    requests.iter().filter(|request| !request.is_lease()).map(|request| request.at).max()
}

/// Returns by how much the longest gap between two writes of the Lease exceeds its period. `requests` is ordered by time
/// and of one process. `None` means that the Lease was not renewed.
pub fn longest_lease_delay(requests: &[LoggedRequest], period: Duration) -> Option<Duration> {
    let renewals: Vec<_> =
        requests.iter().filter(|request| request.is_lease() && request.is_write).map(|r| r.at).collect();
    longest_delay(&renewals, period)
}

/// Returns by how much the longest gap between two points in time exceeds a period. `None` means that there are not two.
pub fn longest_delay(ordered: &[Timestamp], period: Duration) -> Option<Duration> {
    let gaps = ordered.windows(2).filter_map(|pair| match pair {
        [earlier, later] => Duration::try_from(later.duration_since(*earlier)).ok(),
        _ => None,
    });
    gaps.map(|gap| gap.saturating_sub(period)).max()
}

/// Returns the highest number of status writes of one placement in one window of time.
pub fn most_status_writes(requests: &[LoggedRequest], from: Timestamp, window: Duration) -> u64 {
    let mut counts: BTreeMap<(&str, u128), u64> = BTreeMap::new();
    let writes =
        requests.iter().filter(|request| request.resource == "helmchartproxies" && request.is_status_write());
    for write in writes {
        let Ok(since) = Duration::try_from(write.at.duration_since(from)) else { continue };
        let index = since.as_nanos() / window.as_nanos().max(1);
        *counts.entry((write.name.as_str(), index)).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(millis: i64, resource: &str, subresource: &str, name: &str) -> LoggedRequest {
        LoggedRequest {
            at: Timestamp::from_millisecond(millis).unwrap(),
            is_write: true,
            is_watch: false,
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_late_renewal_counts_beyond_the_period() {
        let lease = |millis| request(millis, "leases", "", "chandler");
        let period = Duration::from_secs(5);
        let read = LoggedRequest { is_write: false, ..lease(9_000) };
        let requests = [lease(0), lease(5_010), read, lease(10_260), lease(11_000)];
        assert_eq!(longest_lease_delay(&requests, period), Some(Duration::from_millis(250)));
        assert_eq!(longest_lease_delay(&requests[..1], period), None);
    }

    #[test]
    fn status_writes_are_counted_per_placement_and_window() {
        let write = |millis, name| request(millis, "helmchartproxies", "status", name);
        let other = request(2, "helmreleaseproxies", "status", "a");
        let spec = request(3, "helmchartproxies", "", "a");
        let requests =
            [write(1, "a"), other, spec, write(9_999, "b"), write(10_001, "a"), write(12_000, "a")];
        let window = Duration::from_secs(10);
        assert_eq!(most_status_writes(&requests, Timestamp::UNIX_EPOCH, window), 2);
        assert_eq!(most_status_writes(&[], Timestamp::UNIX_EPOCH, window), 0);
    }

    #[test]
    fn an_idle_manager_renews_its_lease_and_its_watches() {
        let list = LoggedRequest { is_write: false, ..request(1, "clusters", "", "") };
        let watch = LoggedRequest { is_watch: true, ..list.clone() };
        assert!(request(1, "leases", "", "chandler").is_idle() && watch.is_idle() && !list.is_idle());
    }

    #[test]
    fn reads_of_kubeconfigs_are_recognized() {
        let read = LoggedRequest { is_write: false, ..request(1, "secrets", "", "c-00001-kubeconfig") };
        let ca = LoggedRequest { name: "charts-ca".to_owned(), ..read.clone() };
        let write = LoggedRequest { is_write: true, ..read.clone() };
        let rows = [(read, Some("c-00001")), (ca, None), (write, None)];
        for (request, expected) in rows {
            assert_eq!(request.kubeconfig_of(), expected, "{request:?}");
        }
    }

    #[test]
    fn the_lease_does_not_count_as_work() {
        let requests = [request(1, "clusters", "", "a"), request(2, "leases", "", "chandler")];
        assert_eq!(last(&requests), Timestamp::from_millisecond(1).ok());
    }
}
