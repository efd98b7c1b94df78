package address

import (
	"encoding/json"
	"net/netip"
	"os"
	"testing"
)

// The cases of the manager's own policy.
const cases = "../../../../crates/core/src/addresses/cases.json"

func TestTheDriverAndTheManagerAgree(t *testing.T) {
	text, err := os.ReadFile(cases)
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name             string
		Policy           Policy
		Unverified       bool
		Refused, Allowed []netip.Addr

		// Hosts that a proxy resolves.
		RefusedHosts, AllowedHosts []string
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Fatal("no cases")
	}
	for _, row := range rows {
		for _, address := range row.Refused {
			if row.Policy.Check(address, row.Unverified) == nil {
				t.Errorf("%s: %s is allowed", row.Name, address)
			}
		}
		for _, address := range row.Allowed {
			if err := row.Policy.Check(address, row.Unverified); err != nil {
				t.Errorf("%s: %v", row.Name, err)
			}
		}
		for _, host := range row.RefusedHosts {
			if row.Policy.CheckProxiedHost(host, row.Unverified) == nil {
				t.Errorf("%s: %s is allowed", row.Name, host)
			}
		}
		for _, host := range row.AllowedHosts {
			if err := row.Policy.CheckProxiedHost(host, row.Unverified); err != nil {
				t.Errorf("%s: %v", row.Name, err)
			}
		}
	}
}

func TestPolicyOfTheEnvironment(t *testing.T) {
	t.Setenv(variable, `{"allowed":["127.0.0.1/32"],"refused":[],"refusePrivate":true,"refuseUnverified":false,"trusted":["hub:1"]}`)
	policy, err := FromEnvironment()
	if err != nil || !policy.RefusePrivate || !policy.Trusts("hub:1") || policy.Trusts("hub:2") {
		t.Errorf("%+v, %v", policy, err)
	}
	if err := policy.Check(netip.MustParseAddr("127.0.0.1"), false); err != nil {
		t.Error(err)
	}
	t.Setenv(variable, "nonsense")
	if _, err := FromEnvironment(); err == nil {
		t.Error("an invalid policy is ignored")
	}
	t.Setenv(variable, "")
	policy, err = FromEnvironment()
	if err != nil || policy.Check(netip.MustParseAddr("127.0.0.1"), false) == nil {
		t.Errorf("%+v, %v", policy, err)
	}
}
