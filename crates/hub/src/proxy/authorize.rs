//! Decides whether a client of the proxy may reach a workload cluster. Pure.

use std::{fmt, sync::Arc, time::Duration};

use chandler_tunnel::{
    connect_request::{ConnectError, ConnectRequest},
    proxy_credentials::split_user,
};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::directory::{Directory, TunnelEntry};

/// Why the proxy refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{message}")]
    Request { status: u16, message: String },
    #[error(
        "the proxy needs the user <namespace>.<cluster> and its password; take them from the Cluster's kubeconfig"
    )]
    NoCredentials,
    // The same text if the Cluster has no tunnel: a client cannot find out which Clusters exist.
    #[error(
        "the proxy user or password is wrong, or the tunnel was revoked; read the Cluster's kubeconfig again"
    )]
    WrongPassword,
    #[error("this user may connect only to the control plane endpoint of its Cluster")]
    WrongAuthority,
    #[error("the Cluster has no control plane endpoint yet")]
    NoEndpoint,
    #[error("the hub has not listed the ClusterTunnels yet; retry")]
    NotListed,
    #[error("no agent is connected; {last_seen}")]
    NoAgent { last_seen: LastSeen },
    #[error("the tunnel has reached its limit of open streams; close some or retry")]
    StreamLimit,
    #[error("{message}")]
    Agent { message: String },
    #[error("the tunnel did not open a stream within {} s", .deadline.as_secs())]
    Timeout { deadline: Duration },
    #[error("the memory of the hub for buffers is exhausted; retry")]
    Overloaded,
}

/// When an agent was connected for the last time. `None` if none ever was, or if the status does not say it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSeen(pub Option<Timestamp>);

impl fmt::Display for LastSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "last seen {time:.0}"),
            None => f.write_str("none was seen so far, or it left a moment ago"),
        }
    }
}

impl Refusal {
    /// All values of [`Refusal::reason`].
    pub const REASONS: [&'static str; 11] = [
        "invalid_request",
        "no_credentials",
        "wrong_password",
        "wrong_authority",
        "no_endpoint",
        "not_listed",
        "no_agent",
        "stream_limit",
        "agent",
        "timeout",
        "overloaded",
    ];

    /// Returns the reason as a label of metrics.
    pub fn reason(&self) -> &'static str {
        let index = match self {
            Self::Request { .. } => 0,
            Self::NoCredentials => 1,
            Self::WrongPassword => 2,
            Self::WrongAuthority => 3,
            Self::NoEndpoint => 4,
            Self::NotListed => 5,
            Self::NoAgent { .. } => 6,
            Self::StreamLimit => 7,
            Self::Agent { .. } => 8,
            Self::Timeout { .. } => 9,
            Self::Overloaded => 10,
        };
        Self::REASONS[index]
    }

    /// Returns the status of the response.
    pub fn status(&self) -> u16 {
        match self {
            Self::Request { status, .. } => *status,
            Self::NoCredentials => 407,
            Self::WrongPassword | Self::WrongAuthority => 403,
            Self::NoEndpoint
            | Self::NotListed
            | Self::NoAgent { .. }
            | Self::StreamLimit
            | Self::Overloaded => 503,
            Self::Agent { .. } => 502,
            Self::Timeout { .. } => 504,
        }
    }

    /// Returns the refusal of a request that cannot be read, or `None` if the client waits for no response.
    pub fn of_request(error: &ConnectError) -> Option<Self> {
        Some(Self::Request { status: error.status()?, message: error.to_string() })
    }
}

/// The proxy's answer to a request, before it looks for an agent.
pub type Decision = Result<Arc<TunnelEntry>, Refusal>;

/// Returns the tunnel that a request may use. `verify` returns whether a password is that of a tunnel.
pub fn authorize(
    directory: &Directory,
    request: &ConnectRequest,
    verify: impl FnOnce(&TunnelEntry, &SecretString) -> bool,
) -> Decision {
    let credentials = request.credentials.as_ref().ok_or(Refusal::NoCredentials)?;
    let (namespace, cluster) = split_user(&credentials.user).ok_or(Refusal::NoCredentials)?;
    if !directory.is_listed() {
        return Err(Refusal::NotListed);
    }
    let entry = directory
        .of_cluster(namespace, cluster)
        .filter(|entry| verify(entry, &credentials.password))
        .ok_or(Refusal::WrongPassword)?;
    let endpoint = entry.endpoint.as_deref().ok_or(Refusal::NoEndpoint)?;
    let requested = host_and_port(&request.authority);
    if requested.is_none() || requested != host_and_port(endpoint) {
        return Err(Refusal::WrongAuthority);
    }
    Ok(entry.clone())
}

/// Splits `host:port`. The host is in lower case and without the brackets of an IPv6 address.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok()?;
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use chandler_tunnel::connect_request::BasicCredentials;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn entry(digit: char, cluster: &str, endpoint: Option<&str>) -> TunnelEntry {
        TunnelEntry {
            id: digit.to_string().repeat(32).parse().unwrap(),
            epoch: 1,
            namespace: "fleet".to_owned(),
            cluster: cluster.to_owned(),
            name: cluster.to_owned(),
            endpoint: endpoint.map(ToOwned::to_owned),
            last_seen: None,
            hubs: Vec::new(),
            created: None,
        }
    }

    /// The password of a cluster is `secret-` and its name.
    fn verify(entry: &TunnelEntry, password: &SecretString) -> bool {
        password.expose_secret() == format!("secret-{}", entry.cluster)
    }

    fn decide(directory: &Directory, authority: &str, user: &str, password: &str) -> Decision {
        let credentials = BasicCredentials { user: user.to_owned(), password: password.into() };
        let request = ConnectRequest { authority: authority.to_owned(), credentials: Some(credentials) };
        authorize(directory, &request, verify)
    }

    #[test]
    fn decides_by_credentials_then_authority() {
        let directory = Directory::of([
            entry('a', "blue", Some("10.0.0.10:6443")),
            entry('b', "red.eu", Some("API.example.com:443")),
            entry('c', "six", Some("[fd00::1]:6443")),
            entry('d', "unborn", None),
        ]);
        let (blue, red, six) = ("secret-blue", "secret-red.eu", "secret-six");
        let rows = [
            ("right", "10.0.0.10:6443", "fleet.blue", blue, Ok("blue")),
            ("a name with a dot", "api.example.com:443", "fleet.red.eu", red, Ok("red.eu")),
            ("an IPv6 address", "[fd00::1]:6443", "fleet.six", six, Ok("six")),
            ("a user without a dot", "10.0.0.10:6443", "blue", blue, Err(Refusal::NoCredentials)),
            ("another password", "10.0.0.10:6443", "fleet.blue", red, Err(Refusal::WrongPassword)),
            ("no password", "10.0.0.10:6443", "fleet.blue", "", Err(Refusal::WrongPassword)),
            ("unknown Cluster", "10.0.0.10:6443", "fleet.green", blue, Err(Refusal::WrongPassword)),
            ("another endpoint", "api.example.com:443", "fleet.blue", blue, Err(Refusal::WrongAuthority)),
            ("another port", "10.0.0.10:22", "fleet.blue", blue, Err(Refusal::WrongAuthority)),
            ("both are wrong", "10.0.0.10:22", "fleet.blue", red, Err(Refusal::WrongPassword)),
            ("no endpoint", "10.0.0.10:6443", "fleet.unborn", "secret-unborn", Err(Refusal::NoEndpoint)),
        ];
        for (case, authority, user, password, expected) in rows {
            let decision = decide(&directory, authority, user, password);
            assert_eq!(decision.map(|entry| entry.cluster.clone()), expected.map(str::to_owned), "{case}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_judge() {
        let before_list = decide(&Directory::unlisted(), "10.0.0.10:6443", "fleet.blue", "secret-blue");
        assert_eq!(before_list, Err(Refusal::NotListed), "nothing is concluded from a missing list");
        let directory = Directory::of([entry('a', "blue", Some("10.0.0.10:6443"))]);
        let request = ConnectRequest { authority: "10.0.0.10:6443".to_owned(), credentials: None };
        assert_eq!(authorize(&directory, &request, verify), Err(Refusal::NoCredentials));
    }

    #[test]
    fn refusals_have_their_status_and_name_the_last_time_an_agent_was_seen() {
        let time = Timestamp::from_second(1_800_000_000).unwrap();
        let rows = [
            (Refusal::NoCredentials, 407, "user"),
            (Refusal::WrongPassword, 403, "wrong"),
            (Refusal::WrongAuthority, 403, "endpoint"),
            (Refusal::NoAgent { last_seen: LastSeen(Some(time)) }, 503, "last seen 2027-01-15T08:00:00Z"),
            (Refusal::NoAgent { last_seen: LastSeen(None) }, 503, "no agent is connected; none was seen"),
            (Refusal::StreamLimit, 503, "limit"),
            (Refusal::Agent { message: "refused".to_owned() }, 502, "refused"),
            (Refusal::Timeout { deadline: Duration::from_secs(4) }, 504, "4 s"),
        ];
        for (refusal, status, text) in rows {
            assert_eq!(refusal.status(), status, "{refusal:?}");
            assert!(refusal.to_string().contains(text), "{refusal}");
            assert!(Refusal::REASONS.contains(&refusal.reason()));
        }
    }
}
