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
		return refusal(policy.Check(resolved.Addr(), unverified))
	}
	return dialer
}

// checkProxied checks a server that a proxy connects to. The driver does not know the address of a name. What a service of the
// installation connects to, it decides itself.
func checkProxied(proxy *url.URL, server string, policy address.Policy, unverified bool) error {
	if policy.Trusts(proxy.Host) {
		return refusal(policy.CheckCertificate(unverified))
	}
	parsed, err := url.Parse(server)
	if err != nil {
		return err
	}
	return refusal(policy.CheckProxiedHost(parsed.Hostname(), unverified))
}

// refusal returns the failure for an error of the policy.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	return failure.Wrap(failure.Unreachable, err, "the cluster's API server or proxy is not allowed: %v", err)
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
