// Package address decides which addresses the driver may connect to. The rules are those of crates/core/src/addresses.rs,
// and both have the same tests.
package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
)

// variable is the environment variable with the policy as JSON. Without it, the default policy applies.
const variable = "CHANDLER_ADDRESS_POLICY"

// metadata are the addresses of metadata services of clouds that are not link-local.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("fd00:ec2::/32"),
	netip.MustParsePrefix("fd20:ce::254/128"),
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"),
	netip.MustParsePrefix("fd00:42::42/128"),
}

var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// private are the ranges of private networks, of the network between a provider and its customers, and of networks that are
// not part of the Internet.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

// Ranges of IPv4 addresses, and of IPv6 addresses that embed IPv4 addresses.
var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	compatible  = netip.MustParsePrefix("::/96")
	translated  = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64  = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour   = netip.MustParsePrefix("2002::/16")
	teredo      = netip.MustParsePrefix("2001::/32")
	broadcast   = netip.MustParseAddr("255.255.255.255")
)

// number matches a last label that makes a host an IPv4 address, such as those of 127.1 and 0x7f000001.
var number = regexp.MustCompile(`^([0-9]+|0[xX][0-9a-fA-F]*)$`)

// Policy decides which addresses may be connected to. Allowed takes precedence over all refusals of addresses; metadata
// services and link-local addresses need a range that is meant for them.
type Policy struct {
	Allowed          []netip.Prefix `json:"allowed"`
	Refused          []netip.Prefix `json:"refused"`
	RefusePrivate    bool           `json:"refusePrivate"`
	RefuseUnverified bool           `json:"refuseUnverified"`
	// Trusted are HOST:PORT of services of the installation, whose addresses are not checked.
	Trusted []string `json:"trusted"`
}

// FromEnvironment returns the policy that the manager has set.
func FromEnvironment() (Policy, error) {
	var policy Policy
	text := os.Getenv(variable)
	if text == "" {
		return policy, nil
	}
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		return policy, fmt.Errorf("%s is invalid: %w", variable, err)
	}
	return policy, nil
}

// Trusts returns whether HOST:PORT is a service of the installation.
func (p Policy) Trusts(hostAndPort string) bool { return slices.Contains(p.Trusted, hostAndPort) }

// RefusedError reports an address that may not be connected to.
type RefusedError struct {
	Address netip.Addr
	kind    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %s; to allow it, start the manager with --allow-address %s", e.Address, e.kind, e.Address)
}

// Check returns an error if the address may not be connected to. Unverified means that the server's certificate is not
// verified.
func (p Policy) Check(address netip.Addr, unverified bool) error {
	address = address.WithZone("")
	effective := embeddedIPv4(address)
	kind := kindOf(effective)
	allowed := p.Allowed
	if kind == metadataKind || kind == linkLocalKind {
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(one netip.Prefix) bool { return !isNarrow(one) })
	}
	switch {
	case contains(allowed, effective) || contains(allowed, address):
		return p.CheckCertificate(unverified)
	case kind != "":
	case contains(p.Refused, effective) || contains(p.Refused, address):
		kind = "a refused address"
	case p.RefusePrivate && contains(private, effective):
		kind = "a private address"
	default:
		return p.CheckCertificate(unverified)
	}
	return &RefusedError{Address: effective, kind: kind}
}

// CheckCertificate returns an error if the certificate of a server has to be verified, and is not.
func (p Policy) CheckCertificate(unverified bool) error {
	if p.RefuseUnverified && unverified {
		return errors.New("the server's certificate would not be verified, which --refuse-unverified-tls forbids; " +
			"give Chandler the certificate authority instead")
	}
	return nil
}

// CheckProxiedHost checks the host of a server that a proxy connects to: a literal address or localhost. Other addresses stay
// unknown.
func (p Policy) CheckProxiedHost(host string, unverified bool) error {
	host = strings.ToLower(strings.TrimRight(strings.Trim(host, "[]"), "."))
	if literal, err := netip.ParseAddr(host); err == nil {
		return p.Check(literal, unverified)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return p.Check(netip.AddrFrom4([4]byte{127, 0, 0, 1}), unverified)
	}
	if number.MatchString(host[strings.LastIndex(host, ".")+1:]) {
		return fmt.Errorf("%s is an address in an unusual notation; write it as four numbers with dots", host)
	}
	return p.CheckCertificate(unverified)
}

// isNarrow returns whether a range names a single address, or link-local ones only. A wider range that contains a metadata
// service was not meant for it.
func isNarrow(one netip.Prefix) bool {
	return one.IsSingleIP() || slices.ContainsFunc(linkLocal, func(link netip.Prefix) bool {
		return link.Contains(one.Addr()) && link.Bits() <= one.Bits()
	})
}

// Why addresses are refused that no wide range allows.
const (
	metadataKind  = "a cloud metadata address"
	linkLocalKind = "a link-local address"
)

func contains(ranges []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(one netip.Prefix) bool { return one.Contains(address) })
}

// kindOf returns why an address is refused by default, or an empty text.
func kindOf(address netip.Addr) string {
	switch {
	case contains(metadata, address):
		return metadataKind
	case address.IsLoopback():
		return "a loopback address"
	case contains(linkLocal, address):
		return linkLocalKind
	case address.IsUnspecified(), thisNetwork.Contains(address):
		return "an unspecified address"
	case address.IsMulticast(), address == broadcast:
		return "a multicast address"
	}
	return ""
}

// embeddedIPv4 returns the IPv4 address that is embedded in an IPv6 address (mapped, translated, compatible, NAT64, 6to4, Teredo,
// ISATAP), or the address itself.
func embeddedIPv4(address netip.Addr) netip.Addr {
	if address.Is4() || address.Is4In6() {
		return address.Unmap()
	}
	bytes := address.As16()
	switch {
	case address.IsUnspecified(), address.IsLoopback():
		return address
	case compatible.Contains(address), translated.Contains(address), nat64.Contains(address), localNAT64.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[12:]))
	case sixToFour.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	case teredo.Contains(address):
		return netip.AddrFrom4([4]byte{^bytes[12], ^bytes[13], ^bytes[14], ^bytes[15]})
	case isISATAP(bytes):
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return address
}

// isISATAP returns whether the interface identifier of an address is one of ISATAP, which ends with an IPv4 address.
func isISATAP(bytes [16]byte) bool {
	identifier := [4]byte(bytes[8:12])
	return identifier == [4]byte{0, 0, 0x5e, 0xfe} || identifier == [4]byte{2, 0, 0x5e, 0xfe}
}
