//! The network addresses that sources may have.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;

/// Metadata services of clouds that do not have link-local addresses.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
];

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

/// Decides which addresses may be connected to. Loopback, link-local and similar addresses are refused, so that a user who can
/// set the URL of a repository cannot make the manager connect to its own host or to the metadata service of its cloud.
/// `allowed` takes precedence over `refused`.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    pub allowed: Vec<AddressRange>,
    pub refused: Vec<AddressRange>,
}

/// The address of a source is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is at {address}, {kind} address; to allow it, start the manager with --allow-source-address {address}"
)]
pub struct RefusedAddress {
    pub host: String,
    pub address: IpAddr,
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
        })
    }
}

impl AddressPolicy {
    /// Returns an error if `host`, which resolves to `address`, may not be connected to.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), RefusedAddress> {
        let effective = embedded_ipv4(address);
        if contains(&self.allowed, effective) || contains(&self.allowed, address) {
            return Ok(());
        }
        let kind = kind(effective).or_else(|| {
            (contains(&self.refused, effective) || contains(&self.refused, address))
                .then_some(Kind::Configured)
        });
        kind.map_or(Ok(()), |kind| Err(RefusedAddress { host: host.to_owned(), address: effective, kind }))
    }
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
mod tests {
    use super::*;

    fn refused(policy: &AddressPolicy, address: &str) -> bool {
        policy.check("host", address.parse().unwrap()).is_err()
    }

    #[test]
    fn loopback_and_metadata_addresses_are_refused_in_every_notation() {
        let policy = AddressPolicy::default();
        let refused_by_default = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "255.255.255.255",
            "224.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "2002:7f00:1::1",
        ];
        for address in refused_by_default {
            assert!(refused(&policy, address), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "93.184.216.34", "2606:2800::1", "fd12::1"] {
            assert!(!refused(&policy, address), "{address}");
        }
    }

    #[test]
    fn allowed_and_refused_ranges_change_the_defaults() {
        let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let policy = AddressPolicy {
            allowed: ranges(&["127.0.0.1", "10.1.0.0/16"]),
            refused: ranges(&["10.0.0.0/8"]),
        };
        for (address, expected) in [
            ("127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("127.0.0.2", true),
            ("10.2.0.1", true),
            ("10.1.0.1", false),
        ] {
            assert_eq!(refused(&policy, address), expected, "{address}");
        }
        assert!("10.0.0.0/33".parse::<AddressRange>().is_err());
    }

    #[test]
    fn error_message_contains_the_flag_that_allows_the_address() {
        let error = AddressPolicy::default().check("localhost", "127.0.0.1".parse().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "localhost is at 127.0.0.1, a loopback address; to allow it, start the manager with \
             --allow-source-address 127.0.0.1"
        );
    }
}
