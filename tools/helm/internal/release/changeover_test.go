package release

import (
	"testing"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
)

func TestMayBeClientSide(t *testing.T) {
	revision := func(method string, status rcommon.Status) *rspb.Release {
		return &rspb.Release{ApplyMethod: method, Info: &rspb.Info{Status: status}}
	}
	cases := map[string]struct {
		revisions []*rspb.Release
		want      bool
	}{
		"none":                  {nil, false},
		"made by Helm 3":        {[]*rspb.Release{revision("", rcommon.StatusDeployed)}, true},
		"made client-side":      {[]*rspb.Release{revision("csa", rcommon.StatusDeployed)}, true},
		"made server-side":      {[]*rspb.Release{revision("ssa", rcommon.StatusDeployed)}, false},
		"server-side, failed":   {[]*rspb.Release{revision("ssa", rcommon.StatusFailed)}, false},
		"changed over":          {[]*rspb.Release{revision("ssa", rcommon.StatusDeployed), revision("", rcommon.StatusSuperseded)}, false},
		"change-over failed":    {[]*rspb.Release{revision("ssa", rcommon.StatusFailed), revision("", rcommon.StatusDeployed)}, true},
		"failed after it":       {[]*rspb.Release{revision("ssa", rcommon.StatusFailed), revision("ssa", rcommon.StatusDeployed), revision("", rcommon.StatusSuperseded)}, false},
		"back to client-side":   {[]*rspb.Release{revision("csa", rcommon.StatusDeployed), revision("ssa", rcommon.StatusSuperseded)}, true},
		"nothing was ever good": {[]*rspb.Release{revision("ssa", rcommon.StatusFailed), revision("", rcommon.StatusFailed)}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := mayBeClientSide(c.revisions); got != c.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestCurrentIsWhatHelmComparesWith(t *testing.T) {
	failed := &rspb.Release{Version: 3, Info: &rspb.Info{Status: rcommon.StatusFailed}}
	deployed := &rspb.Release{Version: 2, Info: &rspb.Info{Status: rcommon.StatusDeployed}}
	if got := current([]*rspb.Release{failed, deployed}); got.Version != 2 {
		t.Errorf("got revision %d", got.Version)
	}
	if got := current([]*rspb.Release{failed}); got.Version != 3 {
		t.Errorf("got revision %d", got.Version)
	}
}
