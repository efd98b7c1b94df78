//! The hosts that a login may be sent to: annotation `chandler.dev/hosts` of its Secret.

/// The annotation of a Secret with the hosts that its login may be sent to, separated by commas.
pub const HOSTS_ANNOTATION: &str = "chandler.dev/hosts";

/// Host names of Docker Hub, which is one registry with several hosts.
const DOCKER_HUB: [&str; 4] = ["docker.io", "index.docker.io", "registry-1.docker.io", "auth.docker.io"];

/// The hosts that the login of a Secret may be sent to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoginHosts {
    /// Namespace and name of the Secret, for messages.
    secret: String,
    hosts: Vec<String>,
}

impl LoginHosts {
    /// Parses the annotation of a Secret, such as `charts.example, registry.example:5000`. An entry without a port allows the
    /// default port of https or ssh. Entries that are not hosts allow nothing.
    pub fn parse(secret: impl Into<String>, annotation: &str) -> Self {
        let hosts = annotation.split(',').map(canonical).filter(|host| !host.is_empty()).collect();
        Self { secret: secret.into(), hosts }
    }

    /// Namespace and name of the Secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns whether the login may be sent to a host. `port` is `None` for the default port.
    pub fn allow(&self, host: &str, port: Option<u16>) -> bool {
        let wanted = canonical(&authority(host, port));
        !host.is_empty() && self.hosts.contains(&wanted)
    }
}

/// Returns the host, and the port unless it is the default port.
fn authority(host: &str, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn canonical(host: &str) -> String {
    let host = host.trim().to_ascii_lowercase();
    let host = host.strip_suffix(":443").unwrap_or(&host);
    if DOCKER_HUB.contains(&host) { DOCKER_HUB[0].to_owned() } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_hosts_are_allowed() {
        let hosts =
            LoginHosts::parse("shared/login", "Charts.Example, registry.example:5000,docker.io ,[::1]:443");
        assert_eq!(hosts.secret(), "shared/login");
        let rows = [
            ("charts.example", None, true),
            ("CHARTS.example", None, true),
            ("charts.example", Some(8443), false),
            ("evil.charts.example", None, false),
            ("charts.example.evil", None, false),
            ("registry.example", None, false),
            ("registry.example", Some(5000), true),
            ("registry-1.docker.io", None, true),
            ("auth.docker.io", None, true),
            ("[::1]", None, true),
            ("", None, false),
        ];
        for (host, port, expected) in rows {
            assert_eq!(hosts.allow(host, port), expected, "{host} {port:?}");
        }
        for nothing in ["", " , ", "*"] {
            assert!(!LoginHosts::parse("a/b", nothing).allow("charts.example", None), "{nothing:?}");
        }
    }
}
