package cluster

import (
	"testing"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

func TestOnlyObjectsOfReleasesAreAccessedAsAnotherUser(t *testing.T) {
	target := &toolv1.Target{
		Server:      "https://blue.example",
		Impersonate: &toolv1.Impersonate{User: "system:serviceaccount:team:deployer"},
		ObjectRules: []*toolv1.ObjectRule{{Name: "AddonTenancy team"}},
	}
	session := (&Cluster{config: restConfig(target)}).Session(nil, target)
	if got := session.Config().Impersonate.UserName; got != "system:serviceaccount:team:deployer" {
		t.Errorf("objects are accessed as %q", got)
	}
	if got := session.OwnConfig().Impersonate.UserName; got != "" {
		t.Errorf("records are accessed as %q", got)
	}
	if got := session.ObjectRules(); len(got) != 1 || got[0].GetName() != "AddonTenancy team" {
		t.Errorf("got %v", got)
	}
}

func TestUsersShareTheConnectionsOfACluster(t *testing.T) {
	key := func(user string) string {
		key, err := cacheKey(&toolv1.Target{Server: "https://blue.example", Impersonate: &toolv1.Impersonate{User: user}})
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	if key("a") != key("b") {
		t.Error("two users have two clusters")
	}
}
