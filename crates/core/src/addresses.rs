//! The network addresses that Chandler may connect to because an object or a kubeconfig names them.
//!
//! The Helm driver has the same rules (`tools/helm/internal/address`); `addresses/cases.json` is the test of both.

mod ranges;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use self::ranges::{embedded_ipv4, ends_in_number, is_narrow, is_private, kind};

/// The environment variable that contains the policy for package tools, as JSON.
const VARIABLE: &str = "CHANDLER_ADDRESS_POLICY";

/// A range of addresses such as `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange(IpNet);

/// A text is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an address nor a range such as 10.0.0.0/8")]
pub struct AddressRangeError(String);

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let single = text.parse::<IpAddr>().map(IpNet::from);
        single.or_else(|_| text.parse()).map(Self).map_err(|_| AddressRangeError(text.to_owned()))
    }
}

impl Serialize for AddressRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Whether the certificate of a server is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerCertificate {
    Verified,
    /// A user has turned the verification off.
    Unverified,
}

impl ServerCertificate {
    /// Returns whether the certificate is verified, given the setting that turns it off.
    pub fn skipped(skip_verify: bool) -> Self {
        if skip_verify { Self::Unverified } else { Self::Verified }
    }
}

/// Decides which addresses may be connected to. Loopback, link-local and similar addresses are refused, so that a user who can
/// set the URL of a repository or write a kubeconfig cannot make Chandler connect to its own host or to the metadata service of
/// its cloud. `allowed` takes precedence over all refusals of addresses; metadata services and link-local addresses need a range
/// that is meant for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPolicy {
    pub allowed: Vec<AddressRange>,
    pub refused: Vec<AddressRange>,
    /// Whether addresses of private networks are refused.
    pub refuse_private: bool,
    /// Whether servers whose certificate is not verified are refused.
    pub refuse_unverified: bool,
    /// `HOST:PORT` of services of this installation, whose addresses are not checked.
    pub trusted: Vec<String>,
    /// The flag that adds to `allowed`, for messages.
    #[serde(skip)]
    pub flag: AllowFlag,
}

/// A flag that allows addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowFlag {
    /// `--allow-address`, for everything.
    #[default]
    Address,
    /// `--allow-source-address`, for sources only.
    SourceAddress,
}

impl fmt::Display for AllowFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "--allow-address",
            Self::SourceAddress => "--allow-source-address",
        })
    }
}

/// An address is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RefusedAddress {
    pub host: String,
    /// `None` means that a proxy resolves the name.
    pub address: Option<IpAddr>,
    kind: Kind,
    flag: AllowFlag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Loopback,
    LinkLocal,
    Unspecified,
    Multicast,
    Metadata,
    Configured,
    Private,
    Unverified,
    Notation,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback",
            Self::LinkLocal => "a link-local",
            Self::Unspecified => "an unspecified",
            Self::Multicast => "a multicast",
            Self::Metadata => "a cloud metadata",
            Self::Configured => "a refused",
            Self::Private => "a private",
            Self::Unverified => "an unverified",
            Self::Notation => "an unclear",
        })
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, kind, flag } = self;
        match (kind, address) {
            (Kind::Unverified, _) => write!(
                f,
                "the certificate of {host} would not be verified, which --refuse-unverified-tls forbids; give Chandler the \
                 certificate authority instead"
            ),
            (Kind::Notation, _) => {
                write!(f, "{host} is an address in an unusual notation; write it as four numbers with dots")
            }
            (_, None) => write!(f, "{host} has {kind} address"),
            (_, Some(address)) => write!(
                f,
                "{host} is at {address}, {kind} address; to allow it, start the manager with {flag} {address}"
            ),
        }
    }
}

impl AddressPolicy {
    /// Returns an error if `host`, which resolves to `address`, may not be connected to.
    pub fn check(
        &self,
        host: &str,
        address: IpAddr,
        certificate: ServerCertificate,
    ) -> Result<(), RefusedAddress> {
        let effective = embedded_ipv4(address);
        let covers = |range: &AddressRange| range.0.contains(&effective) || range.0.contains(&address);
        let by_default = kind(effective);
        let is_allowed = match by_default {
            Some(Kind::Metadata | Kind::LinkLocal) => {
                self.allowed.iter().any(|range| is_narrow(&range.0) && covers(range))
            }
            _ => self.allowed.iter().any(covers),
        };
        let kind = if is_allowed {
            None
        } else {
            by_default
                .or_else(|| self.refused.iter().any(covers).then_some(Kind::Configured))
                .or_else(|| (self.refuse_private && is_private(effective)).then_some(Kind::Private))
        };
        if let Some(kind) = kind {
            return Err(self.refusal(host, Some(effective), kind));
        }
        self.check_certificate(host, certificate)
    }

    /// Returns an error if the certificate of a server has to be verified, and is not.
    pub fn check_certificate(
        &self,
        host: &str,
        certificate: ServerCertificate,
    ) -> Result<(), RefusedAddress> {
        if self.refuse_unverified && certificate == ServerCertificate::Unverified {
            return Err(self.refusal(host, None, Kind::Unverified));
        }
        Ok(())
    }

    fn refusal(&self, host: &str, address: Option<IpAddr>, kind: Kind) -> RefusedAddress {
        RefusedAddress { host: host.to_owned(), address, kind, flag: self.flag }
    }

    /// Checks the host of a URL before it is resolved: a literal address. The address of a name is checked when the connection
    /// resolves it.
    pub fn check_host(&self, host: &str, certificate: ServerCertificate) -> Result<(), RefusedAddress> {
        let host = bare(host);
        host.parse().map_or(Ok(()), |address| self.check(host, address, certificate))
    }

    /// Checks the host of a URL whose name a proxy resolves: a literal address or `localhost`. Other addresses stay unknown.
    pub fn check_proxied_host(
        &self,
        host: &str,
        certificate: ServerCertificate,
    ) -> Result<(), RefusedAddress> {
        let host = bare(host);
        let lower = host.to_ascii_lowercase();
        if host.parse::<IpAddr>().is_ok() {
            return self.check_host(host, certificate);
        }
        if lower == "localhost" || lower.ends_with(".localhost") {
            return self.check(host, IpAddr::V4(Ipv4Addr::LOCALHOST), certificate);
        }
        if ends_in_number(host) {
            return Err(self.refusal(host, None, Kind::Notation));
        }
        self.check_certificate(host, certificate)
    }

    /// Returns whether a service belongs to this installation.
    pub fn trusts(&self, host: &str, port: u16) -> bool {
        self.trusted.iter().any(|trusted| {
            trusted.rsplit_once(':').is_some_and(|(name, number)| name == host && number == port.to_string())
        })
    }

    /// Returns the environment variable that makes package tools apply this policy.
    pub fn environment(&self) -> (String, String) {
        // An empty text, which is impossible here, means the default policy.
        (VARIABLE.to_owned(), serde_json::to_string(self).unwrap_or_default())
    }
}

/// Returns a host without the brackets of IPv6 and the dot of the root domain.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']']).trim_end_matches('.')
}

#[cfg(test)]
mod tests;
