//! Limits how often agents join. Pure: the caller passes the time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chandler_tunnel::TunnelId;

/// Refused requests per second. Beyond them, responses do not name the reason. Requests with a valid token or certificate do not count:
/// otherwise anyone could keep all agents out.
const FAILURES: Limit = Limit { burst: 10, interval: Duration::from_millis(100) };
/// Joins per minute of one tunnel. They count only after the token or certificate is verified: otherwise anyone could
/// keep the agents of a tunnel out.
const PER_TUNNEL: Limit = Limit { burst: 5, interval: Duration::from_secs(12) };

/// Reports of refused joins per minute of one tunnel: each of them is a request to the API server.
const REPORTED_REFUSALS: Limit = Limit { burst: 5, interval: Duration::from_secs(12) };

/// `burst` requests at once, and one more per `interval`.
#[derive(Clone, Copy)]
struct Limit {
    burst: u32,
    interval: Duration,
}

/// A request may come only after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    pub retry_after: Duration,
}

/// When a limit is unused again. The time beyond now is the used part of the burst.
#[derive(Clone, Copy)]
struct Usage(Instant);

impl Usage {
    fn take(&mut self, limit: Limit, now: Instant) -> Result<(), TooMany> {
        let unused_at = self.0.max(now) + limit.interval;
        let excess = unused_at.duration_since(now).saturating_sub(limit.interval * limit.burst);
        if !excess.is_zero() {
            return Err(TooMany { retry_after: excess });
        }
        self.0 = unused_at;
        Ok(())
    }
}

/// Counts the joins.
pub struct JoinLimits {
    failures: Usage,
    /// Like `failures`, of clients with a certificate that TLS has verified: their responses name the reason.
    certified_failures: Usage,
    tunnels: HashMap<TunnelId, Usage>,
    refusals: HashMap<TunnelId, Usage>,
}

impl JoinLimits {
    pub fn new(now: Instant) -> Self {
        let (tunnels, refusals) = (HashMap::new(), HashMap::new());
        Self { failures: Usage(now), certified_failures: Usage(now), tunnels, refusals }
    }

    /// Counts a refused request.
    pub fn failure(&mut self, now: Instant) -> Result<(), TooMany> {
        self.failures.take(FAILURES, now)
    }

    /// Counts a refused request of a client with a certificate that TLS has verified.
    pub fn certified_failure(&mut self, now: Instant) -> Result<(), TooMany> {
        self.certified_failures.take(FAILURES, now)
    }

    /// Returns whether a refused join of a tunnel is reported.
    pub fn reports_refusal(&mut self, id: TunnelId, now: Instant) -> bool {
        self.refusals.retain(|_, usage| usage.0 > now);
        self.refusals.entry(id).or_insert(Usage(now)).take(REPORTED_REFUSALS, now).is_ok()
    }

    /// Counts a verified request of a tunnel.
    pub fn tunnel(&mut self, id: TunnelId, now: Instant) -> Result<(), TooMany> {
        self.tunnels.retain(|_, usage| usage.0 > now);
        self.tunnels.entry(id).or_insert(Usage(now)).take(PER_TUNNEL, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> TunnelId {
        digit.to_string().repeat(32).parse().unwrap()
    }

    #[test]
    fn ten_refused_requests_per_second() {
        let start = Instant::now();
        let mut limits = JoinLimits::new(start);
        for request in 0..10 {
            assert_eq!(limits.failure(start), Ok(()), "request {request}");
        }
        let refused = limits.failure(start).unwrap_err();
        assert_eq!(refused.retry_after, Duration::from_millis(100));
        assert_eq!(limits.failure(start + refused.retry_after), Ok(()));
        assert!(limits.failure(start + refused.retry_after).is_err());
        let later = start + Duration::from_secs(5);
        let accepted = (0..100).filter(|_| limits.failure(later).is_ok()).count();
        assert_eq!(accepted, 10, "unused requests do not add up");
    }

    #[test]
    fn clients_without_a_certificate_do_not_limit_those_with_one() {
        let start = Instant::now();
        let mut limits = JoinLimits::new(start);
        while limits.failure(start).is_ok() {}
        let accepted = (0..100).filter(|_| limits.certified_failure(start).is_ok()).count();
        assert_eq!(accepted, 10);
        assert_eq!(limits.tunnel(id('a'), start), Ok(()), "nor agents that join");
    }

    #[test]
    fn five_refusals_per_minute_and_tunnel_are_reported() {
        let start = Instant::now();
        let mut limits = JoinLimits::new(start);
        let reported = (0..100).filter(|_| limits.reports_refusal(id('a'), start)).count();
        assert_eq!(reported, 5);
        assert!(limits.reports_refusal(id('b'), start), "another tunnel is reported");
        assert!(limits.reports_refusal(id('a'), start + Duration::from_secs(12)));
        assert_eq!(limits.tunnel(id('a'), start), Ok(()), "refusals do not limit joins");
    }

    #[test]
    fn five_joins_per_minute_and_tunnel() {
        let start = Instant::now();
        let mut limits = JoinLimits::new(start);
        for join in 0..5 {
            assert_eq!(limits.tunnel(id('a'), start), Ok(()), "join {join}");
        }
        let refused = limits.tunnel(id('a'), start).unwrap_err();
        assert_eq!(refused.retry_after, Duration::from_secs(12));
        assert_eq!(limits.tunnel(id('b'), start), Ok(()), "another tunnel is not limited");
        assert_eq!(limits.tunnel(id('a'), start + Duration::from_secs(12)), Ok(()));
        assert_eq!(limits.tunnel(id('c'), start + Duration::from_mins(10)), Ok(()));
        assert_eq!(limits.tunnels.len(), 1, "unused tunnels are forgotten");
    }
}
