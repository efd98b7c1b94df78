//! When a tunnel is reconciled again without an event. Kubeconfig Secrets are not watched: Chandler
//! may read Secrets by name only.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{KubeconfigState, TunnelCluster};

/// While the kubeconfig Secret does not exist, or is about to be replaced.
const SOON: Duration = Duration::from_secs(5);
/// While Cluster API does not reach the cluster. That may be all clusters, for as long as the hub is down.
const NOT_REACHED: Duration = Duration::from_secs(30);
/// How long after the predicted date a rotation is expected: Cluster API compares the date at least every ten minutes.
const ROTATION_WINDOW: Duration = Duration::from_mins(30);

/// Cluster API replaces a kubeconfig when its client certificate is valid for less than this: half of the year for which
/// it issues one. The start of the certificate says nothing: Cluster API takes it from the certificate authority.
const ROTATION_BEFORE_EXPIRY: SignedDuration = SignedDuration::from_hours(365 * 12);

/// Returns when Cluster API will replace a kubeconfig whose client certificate ends at `not_after`.
pub fn predicted_rotation(not_after: Timestamp) -> Timestamp {
    not_after.checked_sub(ROTATION_BEFORE_EXPIRY).unwrap_or(not_after)
}

/// Returns the time until a tunnel is reconciled again. `resync` is the interval without a reason to expect a change.
pub fn next_check(
    cluster: &TunnelCluster,
    kubeconfig: &KubeconfigState,
    resync: Duration,
    now: Timestamp,
) -> Duration {
    let rotation = match kubeconfig {
        KubeconfigState::Waiting | KubeconfigState::NoEndpoint | KubeconfigState::NoManagementCa => {
            return SOON;
        }
        KubeconfigState::Proxied { rotation } => *rotation,
        KubeconfigState::Refused(_) => None,
    };
    let wait = rotation.map_or(resync, |rotation| until_rotation(rotation, resync, now));
    // A rotation of the kubeconfig removes its proxy, so Cluster API may fail to reach the cluster after it.
    if cluster.reached == Some(false) { wait.min(NOT_REACHED) } else { wait }
}

fn until_rotation(rotation: Timestamp, resync: Duration, now: Timestamp) -> Duration {
    if let Ok(left) = Duration::try_from(rotation.duration_since(now)) {
        return left.clamp(SOON, resync.max(SOON));
    }
    let over = Duration::try_from(now.duration_since(rotation)).unwrap_or_default();
    if over < ROTATION_WINDOW { SOON } else { resync }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::KubeconfigRefusal;

    const RESYNC: Duration = Duration::from_mins(10);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_rotation_is_predicted_half_a_year_before_the_certificate_ends() {
        assert_eq!(
            predicted_rotation("2027-07-02T12:00:00Z".parse().unwrap()).to_string(),
            "2027-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_tunnel_is_checked_soon_if_its_kubeconfig_may_have_changed() {
        let proxied = |rotation: Option<i64>| KubeconfigState::Proxied { rotation: rotation.map(at) };
        let refused = KubeconfigState::Refused(KubeconfigRefusal::Insecure);
        // State, whether Cluster API reaches the cluster, seconds. It is 10000 now.
        let rows = [
            (KubeconfigState::Waiting, None, 5),
            (KubeconfigState::NoEndpoint, Some(true), 5),
            (KubeconfigState::NoManagementCa, Some(true), 5),
            (refused.clone(), Some(true), 600),
            (refused, Some(false), 30),
            (proxied(None), Some(true), 600),
            (proxied(None), None, 600),
            (proxied(None), Some(false), 30),
            (proxied(Some(9_000)), Some(false), 5),
            (proxied(Some(100_000)), Some(true), 600),
            (proxied(Some(10_100)), Some(true), 100),
            (proxied(Some(10_001)), Some(true), 5),
            (proxied(Some(9_000)), Some(true), 5),
            (proxied(Some(8_000)), Some(true), 600),
        ];
        for (number, (kubeconfig, reached, seconds)) in rows.into_iter().enumerate() {
            let cluster = TunnelCluster { reached, ..TunnelCluster::default() };
            let next = next_check(&cluster, &kubeconfig, RESYNC, at(10_000));
            assert_eq!(next, Duration::from_secs(seconds), "row {number}");
        }
    }
}
