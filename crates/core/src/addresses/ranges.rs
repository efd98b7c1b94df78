//! Which addresses belong to which networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Kind;

/// Metadata services of clouds that do not have link-local addresses.
const METADATA: [IpNet; 7] = [
    v4([100, 100, 100, 200], 32),
    v4([168, 63, 129, 16], 32),
    v4([192, 0, 0, 192], 32),
    v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0], 32),
    v6([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254], 128),
    v6([0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
    v6([0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042], 128),
];

const LINK_LOCAL: [IpNet; 2] = [v4([169, 254, 0, 0], 16), v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)];

/// Private networks, the network between a provider and its customers, and networks that are not part of the Internet.
const PRIVATE: [IpNet; 9] = [
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    v4([100, 64, 0, 0], 10),
    v4([192, 0, 0, 0], 24),
    v4([198, 18, 0, 0], 15),
    v4([240, 0, 0, 0], 4),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
];

const fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), prefix))
}

const fn v6(segments: [u16; 8], prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_segments(segments), prefix))
}

fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Returns why an address is refused by default.
pub fn kind(address: IpAddr) -> Option<Kind> {
    if is_in(&METADATA, address) {
        return Some(Kind::Metadata);
    }
    if is_in(&LINK_LOCAL, address) {
        return Some(Kind::LinkLocal);
    }
    match address {
        IpAddr::V4(v4) if v4.is_loopback() => Some(Kind::Loopback),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some(Kind::Unspecified),
        IpAddr::V4(v4) if v4.is_multicast() || v4.is_broadcast() => Some(Kind::Multicast),
        IpAddr::V6(v6) if v6.is_loopback() => Some(Kind::Loopback),
        IpAddr::V6(v6) if v6.is_unspecified() => Some(Kind::Unspecified),
        IpAddr::V6(v6) if v6.is_multicast() => Some(Kind::Multicast),
        _ => None,
    }
}

/// Returns whether an address is of a private network.
pub fn is_private(address: IpAddr) -> bool {
    is_in(&PRIVATE, address)
}

/// Returns whether a range names a single address, or link-local ones only. A wider range that contains a metadata service was
/// not meant for it.
pub fn is_narrow(range: &IpNet) -> bool {
    range.prefix_len() == range.max_prefix_len()
        || LINK_LOCAL.iter().any(|link_local| link_local.contains(range))
}

/// Returns the IPv4 address that is embedded in an IPv6 address (mapped, translated, compatible, NAT64, 6to4, Teredo, ISATAP),
/// or the address itself.
pub fn embedded_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let joined = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0x2001, 0, _, _, _, _, high, low] => joined(!high, !low),
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..]
        | [_, _, _, _, 0 | 0x0200, 0x5efe, high, low] => joined(high, low),
        _ => address,
    }
}

/// Returns whether a proxy would take a host for an IPv4 address, such as `127.1` or `0x7f000001`.
pub fn ends_in_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    !last.is_empty() && last.chars().all(|c| c.is_ascii_digit()) || hexadecimal.is_some_and(is_hexadecimal)
}
