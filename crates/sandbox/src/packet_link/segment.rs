//! TCP segments in IPv4 packets.

use std::net::{Ipv4Addr, SocketAddrV4};

const TCP: u8 = 6;
const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// An IPv4 packet that resets a TCP connection.
pub(super) type Reset = [u8; IP_HEADER + TCP_HEADER];

/// What a link has to know about a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    /// The number of the byte that the sender expects next.
    expected: u32,
    flags: u8,
}

impl Segment {
    /// Returns `None` if the packet is not the begin of a TCP segment over IPv4.
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let header = usize::from(first & 0x0f) * 4;
        let offset = u16::from_be_bytes(array(packet, 6)?) & 0x1fff;
        if first >> 4 != 4 || header < IP_HEADER || *packet.get(9)? != TCP || offset != 0 {
            return None;
        }
        let segment = packet.get(header..)?;
        let address = |ip: usize, port: usize| {
            let port = u16::from_be_bytes(array(segment, port)?);
            Some(SocketAddrV4::new(Ipv4Addr::from(array::<4>(packet, ip)?), port))
        };
        Some(Self {
            from: address(12, 0)?,
            to: address(16, 2)?,
            expected: u32::from_be_bytes(array(segment, 8)?),
            flags: *segment.get(13)?,
        })
    }

    /// Returns whether it is the first segment of a connection.
    pub(super) fn opens_connection(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    /// Returns the packet with which the other side resets the connection. `None` if this segment does not say which byte its
    /// sender expects, or is a reset itself.
    pub(super) fn reset(&self) -> Option<Reset> {
        if self.flags & (RST | ACK) != ACK {
            return None;
        }
        let mut packet = [0; IP_HEADER + TCP_HEADER];
        let (ip, tcp) = packet.split_at_mut(IP_HEADER);
        // Version 4 and a header of five words; the time to live is 64.
        (ip[0], ip[8], ip[9]) = (0x45, 64, TCP);
        // Both headers.
        ip[3] = 40;
        ip[12..16].copy_from_slice(&self.to.ip().octets());
        ip[16..20].copy_from_slice(&self.from.ip().octets());
        let checksum_of_ip = checksum(sum(ip));
        ip[10..12].copy_from_slice(&checksum_of_ip);

        tcp[0..2].copy_from_slice(&self.to.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&self.from.port().to_be_bytes());
        // The receiver accepts a reset only with the number that it expects.
        tcp[4..8].copy_from_slice(&self.expected.to_be_bytes());
        // A header of five words.
        (tcp[12], tcp[13]) = (0x50, RST);
        // The checksum also covers both addresses, the protocol and the length.
        let checksum_of_tcp = checksum(sum(&ip[12..20]) + u32::from(TCP) + 20 + sum(tcp));
        tcp[16..18].copy_from_slice(&checksum_of_tcp);
        Some(packet)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Returns the sum of all 16-bit words. The number of bytes is even.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

/// Returns the checksum of the internet protocols (RFC 1071) for a sum of words.
fn checksum(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    [high, low]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a packet from one port of 192.0.2.1 to another of 192.0.2.2, or back.
    pub(in super::super) fn packet(ports: (u16, u16), is_back: bool, flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[3], packet[9]) = (0x45, 40, TCP);
        let (from, to) = if is_back { (2, 1) } else { (1, 2) };
        packet[12..16].copy_from_slice(&[192, 0, 2, from]);
        packet[16..20].copy_from_slice(&[192, 0, 2, to]);
        let (source, destination) = if is_back { (ports.1, ports.0) } else { ports };
        packet[20..22].copy_from_slice(&source.to_be_bytes());
        packet[22..24].copy_from_slice(&destination.to_be_bytes());
        packet[28..32].copy_from_slice(&0xfeed_f00d_u32.to_be_bytes());
        packet[33] = flags;
        packet
    }

    pub(in super::super) const OPEN: u8 = SYN;
    pub(in super::super) const DATA: u8 = ACK;

    #[test]
    fn only_tcp_over_ipv4_has_segments() {
        let segment = packet((5000, 8443), false, ACK);
        assert!(Segment::parse(&segment).is_some());
        let changed = |at: usize, value: u8| {
            let mut packet = segment.clone();
            packet[at] = value;
            Segment::parse(&packet)
        };
        // Another version, another protocol, a later fragment, a header that is too short.
        for (at, value) in [(0, 0x65), (9, 17), (7, 1), (0, 0x41)] {
            assert_eq!(changed(at, value), None, "{value} at {at}");
        }
        for length in [0, 10, 20, 33] {
            assert_eq!(Segment::parse(&segment[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_reset_comes_from_the_other_side_with_the_expected_number() {
        let segment = Segment::parse(&packet((5000, 8443), false, ACK)).unwrap();
        let reset = segment.reset().unwrap();
        let parsed = Segment::parse(&reset).unwrap();
        assert_eq!((parsed.from, parsed.to, parsed.flags), (segment.to, segment.from, RST));
        assert_eq!(reset[24..28], 0xfeed_f00d_u32.to_be_bytes());
        // The sum over data with a correct checksum is all ones.
        assert_eq!(checksum(sum(&reset[..20])), [0, 0]);
        assert_eq!(checksum(sum(&reset[12..20]) + 6 + 20 + sum(&reset[20..])), [0, 0]);
    }

    #[test]
    fn resets_and_first_segments_are_not_reset() {
        for flags in [RST, RST | ACK, SYN] {
            let segment = Segment::parse(&packet((5000, 8443), false, flags)).unwrap();
            assert_eq!(segment.reset(), None, "flags {flags:#x}");
        }
    }
}
