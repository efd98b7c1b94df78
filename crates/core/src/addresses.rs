//! The network addresses that Chandler may connect to because an object or a kubeconfig names them.
//!
//! The Helm driver has the same rules (`tools/helm/internal/address`); `addresses/cases.json` is the test of both.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// Metadata services of clouds that do not have link-local addresses.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254)),
];

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
/// its cloud. `allowed` takes precedence over all refusals.
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
}

/// An address is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RefusedAddress {
    pub host: String,
    /// `None` means that a proxy resolves the name.
    pub address: Option<IpAddr>,
    kind: Kind,
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
        })
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, kind } = self;
        if *kind == Kind::Unverified {
            write!(
                f,
                "the certificate of {host} would not be verified, which --refuse-unverified-tls forbids; give Chandler the \
                 certificate authority instead"
            )?;
            return address.map_or(Ok(()), |address| write!(f, ", or {}", Advice(address)));
        }
        let Some(address) = *address else { return write!(f, "{host} has {kind} address") };
        write!(f, "{host} is at {address}, {kind} address; to allow it, {}", Advice(address))
    }
}

/// How an operator allows an address.
struct Advice(IpAddr);

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start the manager with --allow-address {}", self.0)
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
        if contains(&self.allowed, effective) || contains(&self.allowed, address) {
            return Ok(());
        }
        let is_configured = contains(&self.refused, effective) || contains(&self.refused, address);
        let kind = kind(effective)
            .or_else(|| is_configured.then_some(Kind::Configured))
            .or_else(|| (self.refuse_private && is_private(effective)).then_some(Kind::Private))
            .or_else(|| self.unverified(certificate));
        kind.map_or(Ok(()), |kind| {
            Err(RefusedAddress { host: host.to_owned(), address: Some(effective), kind })
        })
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
        self.unverified(certificate)
            .map_or(Ok(()), |kind| Err(RefusedAddress { host: host.to_owned(), address: None, kind }))
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

    fn unverified(&self, certificate: ServerCertificate) -> Option<Kind> {
        let refused = self.refuse_unverified && certificate == ServerCertificate::Unverified;
        refused.then_some(Kind::Unverified)
    }
}

/// Returns a host without the brackets of IPv6 and the dot of the root domain.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']']).trim_end_matches('.')
}

fn contains(ranges: &[AddressRange], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.0.contains(&address))
}

fn kind(address: IpAddr) -> Option<Kind> {
    if METADATA.contains(&address) {
        return Some(Kind::Metadata);
    }
    match address {
        IpAddr::V4(v4) if v4.is_loopback() => Some(Kind::Loopback),
        IpAddr::V4(v4) if v4.is_link_local() => Some(Kind::LinkLocal),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some(Kind::Unspecified),
        IpAddr::V4(v4) if v4.is_multicast() || v4.is_broadcast() => Some(Kind::Multicast),
        IpAddr::V6(v6) if v6.is_loopback() => Some(Kind::Loopback),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(Kind::LinkLocal),
        IpAddr::V6(v6) if v6.is_unspecified() => Some(Kind::Unspecified),
        IpAddr::V6(v6) if v6.is_multicast() => Some(Kind::Multicast),
        _ => None,
    }
}

/// Returns whether an address is of a private network, or of the network between a provider and its customers.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64,
        IpAddr::V6(v6) => v6.is_unique_local() || v6.segments()[0] & 0xffc0 == 0xfec0,
    }
}

/// Returns the IPv4 address that is embedded in an IPv6 address (mapped, compatible, NAT64, 6to4), or the address itself.
fn embedded_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let [first, second, third, .., high, low] = v6.segments();
    let joined = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => joined(high, low),
        _ if first == 0x2002 => joined(second, third),
        _ => address,
    }
}

#[cfg(test)]
mod tests;
