package cluster

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/failure"
)

// checkedDialer returns a dialer that checks each address after its name was resolved, right before it connects.
func checkedDialer(policy address.Policy, unverified bool) *net.Dialer {
	dialer := uncheckedDialer()
	dialer.ControlContext = func(_ context.Context, _, hostAndPort string, _ syscall.RawConn) error {
		resolved, err := netip.ParseAddrPort(hostAndPort)
		if err != nil {
			return err
		}
		return check(resolved.Addr(), policy, unverified)
	}
	return dialer
}

// checkLiteral checks a server that a proxy connects to. The driver does not know the address of a name.
func checkLiteral(server string, policy address.Policy, unverified bool) error {
	parsed, err := url.Parse(server)
	if err != nil {
		return err
	}
	literal, err := netip.ParseAddr(parsed.Hostname())
	if err != nil {
		return nil //nolint:nilerr // a name
	}
	return check(literal, policy, unverified)
}

func check(resolved netip.Addr, policy address.Policy, unverified bool) error {
	if err := policy.Check(resolved, unverified); err != nil {
		return failure.Wrap(failure.Unreachable, err, "the address of the cluster's API server or proxy is not allowed: %v", err)
	}
	return nil
}

func uncheckedDialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
}

// contextDialer returns a function that connects to allowed addresses and to services of the installation.
func contextDialer(policy address.Policy, unverified bool) func(context.Context, string, string) (net.Conn, error) {
	checked, unchecked := checkedDialer(policy, unverified), uncheckedDialer()
	return func(ctx context.Context, network, hostAndPort string) (net.Conn, error) {
		if policy.Trusts(hostAndPort) {
			return unchecked.DialContext(ctx, network, hostAndPort)
		}
		return checked.DialContext(ctx, network, hostAndPort)
	}
}
