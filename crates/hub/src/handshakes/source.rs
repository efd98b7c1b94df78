//! Where a connection comes from.

use std::net::{IpAddr, Ipv6Addr};

/// The bits of an IPv6 address that name its network. A client has all addresses of its network.
const IPV6_NETWORK: u128 = u128::MAX << 64;

/// An IPv4 address, or the /64 network of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // A socket for both protocols shows IPv4 addresses as a part of IPv6.
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into()),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_client_are_one_source() {
        let rows = [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
        ];
        for (one, other, expected) in rows {
            let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
            assert_eq!(source(one) == source(other), expected, "{one} {other}");
        }
    }
}
