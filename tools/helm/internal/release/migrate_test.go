package release

import (
	"testing"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
)

func TestNeedsMigration(t *testing.T) {
	revision := func(method string, status rcommon.Status) *rspb.Release {
		return &rspb.Release{ApplyMethod: method, Info: &rspb.Info{Status: status}}
	}
	cases := map[string]struct {
		revisions []*rspb.Release
		want      bool
	}{
		"none":                   {nil, false},
		"created by Helm 3":      {[]*rspb.Release{revision("", rcommon.StatusDeployed)}, true},
		"client-side":            {[]*rspb.Release{revision("csa", rcommon.StatusDeployed)}, true},
		"server-side":            {[]*rspb.Release{revision("ssa", rcommon.StatusDeployed)}, false},
		"server-side, failed":    {[]*rspb.Release{revision("ssa", rcommon.StatusFailed)}, false},
		"migrated":               {[]*rspb.Release{revision("ssa", rcommon.StatusDeployed), revision("", rcommon.StatusSuperseded)}, false},
		"migration failed":       {[]*rspb.Release{revision("ssa", rcommon.StatusFailed), revision("", rcommon.StatusDeployed)}, true},
		"failed after migration": {[]*rspb.Release{revision("ssa", rcommon.StatusFailed), revision("ssa", rcommon.StatusDeployed), revision("", rcommon.StatusSuperseded)}, false},
		"back to client-side":    {[]*rspb.Release{revision("csa", rcommon.StatusDeployed), revision("ssa", rcommon.StatusSuperseded)}, true},
		"no complete revision":   {[]*rspb.Release{revision("ssa", rcommon.StatusFailed), revision("", rcommon.StatusFailed)}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := needsMigration(c.revisions); got != c.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestBaseRevision(t *testing.T) {
	failed := &rspb.Release{Version: 3, Info: &rspb.Info{Status: rcommon.StatusFailed}}
	deployed := &rspb.Release{Version: 2, Info: &rspb.Info{Status: rcommon.StatusDeployed}}
	if got := baseRevision([]*rspb.Release{failed, deployed}); got.Version != 2 {
		t.Errorf("got revision %d", got.Version)
	}
	if got := baseRevision([]*rspb.Release{failed}); got.Version != 3 {
		t.Errorf("got revision %d", got.Version)
	}
}
