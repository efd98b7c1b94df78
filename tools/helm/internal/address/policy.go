// Package address decides which addresses the driver may connect to. The rules are those of crates/core/src/addresses.rs,
// and both have the same tests.
package address

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
)

// variable is the environment variable with the policy as JSON. Without it, the default policy applies.
const variable = "CHANDLER_ADDRESS_POLICY"

// metadata are the addresses of metadata services of clouds that are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd20:ce::254"),
}

// private are the ranges of private networks, and of the network between a provider and its customers.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fec0::/10"),
}

// Ranges of IPv4 addresses, and of IPv6 addresses that embed IPv4 addresses.
var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	compatible  = netip.MustParsePrefix("::/96")
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour   = netip.MustParsePrefix("2002::/16")
	broadcast   = netip.MustParseAddr("255.255.255.255")
)

// Policy decides which addresses may be connected to. Allowed takes precedence over all refusals.
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
	if contains(p.Allowed, effective) || contains(p.Allowed, address) {
		return nil
	}
	kind := kindOf(effective)
	switch {
	case kind != "":
	case contains(p.Refused, effective) || contains(p.Refused, address):
		kind = "a refused address"
	case p.RefusePrivate && contains(private, effective):
		kind = "a private address"
	case p.RefuseUnverified && unverified:
		kind = "a server whose certificate would not be verified"
	default:
		return nil
	}
	return &RefusedError{Address: effective, kind: kind}
}

func contains(ranges []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(one netip.Prefix) bool { return one.Contains(address) })
}

// kindOf returns why an address is refused by default, or an empty text.
func kindOf(address netip.Addr) string {
	switch {
	case slices.Contains(metadata, address):
		return "a cloud metadata address"
	case address.IsLoopback():
		return "a loopback address"
	case address.IsLinkLocalUnicast():
		return "a link-local address"
	case address.IsUnspecified(), thisNetwork.Contains(address):
		return "an unspecified address"
	case address.IsMulticast(), address == broadcast:
		return "a multicast address"
	}
	return ""
}

// embeddedIPv4 returns the IPv4 address that is embedded in an IPv6 address (mapped, compatible, NAT64, 6to4), or the address
// itself.
func embeddedIPv4(address netip.Addr) netip.Addr {
	if address.Is4() || address.Is4In6() {
		return address.Unmap()
	}
	bytes := address.As16()
	switch {
	case address.IsUnspecified(), address.IsLoopback():
		return address
	case compatible.Contains(address), nat64.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[12:]))
	case sixToFour.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return address
}
