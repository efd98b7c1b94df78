//! Decides how often a kubeconfig is read again to find renewed credentials.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use chandler_core::{
    jitter::jitter,
    target::{Target, TargetAuth},
};
use jiff::Timestamp;

/// Tokens may live for a few minutes only, and many do not say how long.
const TOKEN_CHECK: Duration = Duration::from_mins(4);
/// Client certificates and passwords live long.
const OTHER_CHECK: Duration = Duration::from_hours(1);
const SHORTEST_CHECK: Duration = Duration::from_secs(15);

/// Returns how long to wait before the kubeconfig is read again: long enough to cost little, short enough to find a renewed
/// token before the current one expires. `seed` identifies the cluster.
pub fn check_after(target: &Target, now: Timestamp, seed: &str) -> Duration {
    let check = match &target.auth {
        Some(TargetAuth::BearerToken(token)) => match expiry(token) {
            Some(expiry) => remaining(expiry, now).div_f64(2.0).clamp(SHORTEST_CHECK, OTHER_CHECK),
            None => TOKEN_CHECK,
        },
        _ => OTHER_CHECK,
    };
    check.mul_f64(0.9 + 0.1 * jitter(seed))
}

fn remaining(expiry: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(expiry.duration_since(now)).unwrap_or_default()
}

/// Returns when a JSON web token expires. The signature is not verified: the API server does that.
fn expiry(token: &str) -> Option<Timestamp> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use chandler_core::{identity::ClusterKey, target::TargetTls};

    use super::*;

    fn target(auth: Option<TargetAuth>) -> Target {
        Target {
            cluster: ClusterKey::new("fleet", "blue"),
            server: "https://blue".to_owned(),
            tls: TargetTls::default(),
            auth,
            proxy: None,
            request_timeout: Duration::from_secs(30),
            boundary: chandler_core::tenancy::Boundary::default(),
        }
    }

    #[test]
    fn the_kubeconfig_is_read_again_before_a_token_expires() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let jwt = |seconds: i64| {
            let claims = format!(r#"{{"exp":{}}}"#, 1_000_000 + seconds);
            Some(TargetAuth::BearerToken(format!("h.{}.s", BASE64_URL_SAFE_NO_PAD.encode(claims))))
        };
        let opaque = Some(TargetAuth::BearerToken("opaque".to_owned()));
        let rows = [
            (None, 3600),
            (opaque, 240),
            (jwt(900), 450),
            (jwt(86_400), 3600),
            (jwt(10), 15),
            (jwt(-60), 15),
        ];
        for (auth, seconds) in rows {
            let check = check_after(&target(auth), now, "fleet/blue").as_secs_f64();
            let most = f64::from(seconds);
            assert!((most * 0.9..=most).contains(&check), "{check} of {seconds}");
        }
    }
}
