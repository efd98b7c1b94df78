package release

import (
	"testing"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

func TestDeployedInputsAreNotAppliedAgain(t *testing.T) {
	const (
		install = toolv1.ApplyAction_APPLY_ACTION_INSTALL
		upgrade = toolv1.ApplyAction_APPLY_ACTION_UPGRADE
	)
	cases := map[string]struct {
		action    toolv1.ApplyAction
		recover   bool
		digest    string
		last      rcommon.Status
		label     string
		unchanged bool
	}{
		"upgrade":                              {upgrade, false, "same", rcommon.StatusDeployed, "same.3", true},
		"install":                              {install, false, "same", rcommon.StatusDeployed, "same.3", true},
		"recovered by another manager":         {upgrade, true, "same", rcommon.StatusDeployed, "same.3", true},
		"other inputs":                         {upgrade, false, "other", rcommon.StatusDeployed, "same.3", false},
		"label copied from an older revision":  {upgrade, false, "same", rcommon.StatusDeployed, "same.2", false},
		"revision of another client":           {upgrade, false, "same", rcommon.StatusDeployed, "", false},
		"no digest":                            {upgrade, false, "", rcommon.StatusDeployed, "", false},
		"failed":                               {upgrade, false, "same", rcommon.StatusFailed, "same.3", false},
		"interrupted":                          {upgrade, true, "same", rcommon.StatusPendingUpgrade, "same.3", false},
		"interrupted uninstall":                {upgrade, true, "same", rcommon.StatusUninstalling, "same.3", false},
		"install over the history of the same": {install, false, "same", rcommon.StatusUninstalled, "same.3", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			last := &rspb.Release{Version: 3, Info: &rspb.Info{Status: c.last}, Labels: map[string]string{inputLabel: c.label}}
			spec := ApplySpec{Action: c.action, Recover: c.recover, InputDigest: c.digest}
			got, err := (&Release{name: "a", namespace: "b"}).plan(spec, last)
			if err != nil {
				t.Fatal(err)
			}
			if got.unchanged != c.unchanged {
				t.Fatalf("got %+v", got)
			}
		})
	}
}

// Without it, a release whose hook is not allowed could not be replaced after its uninstall was interrupted.
func TestAnUninstallIsFinishedWithTheOptionsOfTheRelease(t *testing.T) {
	last := &rspb.Release{Version: 3, Info: &rspb.Info{Status: rcommon.StatusUninstalling}}
	spec := ApplySpec{
		Action: toolv1.ApplyAction_APPLY_ACTION_INSTALL, Recover: true, Options: &toolv1.ApplyOptions{DisableHooks: true},
	}
	got, err := (&Release{name: "a", namespace: "b"}).plan(spec, last)
	if want := (applyPlan{finishUninstall: true, disableHooks: true}); got != want || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPlan(t *testing.T) {
	const (
		install  = toolv1.ApplyAction_APPLY_ACTION_INSTALL
		upgrade  = toolv1.ApplyAction_APPLY_ACTION_UPGRADE
		conflict = failure.Conflict
	)
	cases := map[string]struct {
		action  toolv1.ApplyAction
		recover bool
		last    rcommon.Status
		want    applyPlan
		fails   toolv1.FailureCategory
	}{
		"install, no release":           {install, false, "", applyPlan{}, 0},
		"upgrade, no release":           {upgrade, false, "", applyPlan{}, conflict},
		"install, deployed":             {install, false, rcommon.StatusDeployed, applyPlan{}, conflict},
		"install, failed":               {install, false, rcommon.StatusFailed, applyPlan{}, conflict},
		"install, uninstalled":          {install, false, rcommon.StatusUninstalled, applyPlan{}, 0},
		"upgrade, uninstalled":          {upgrade, false, rcommon.StatusUninstalled, applyPlan{}, conflict},
		"upgrade, deployed":             {upgrade, false, rcommon.StatusDeployed, applyPlan{upgrade: true}, 0},
		"upgrade, failed":               {upgrade, false, rcommon.StatusFailed, applyPlan{upgrade: true}, 0},
		"install, pending":              {install, false, rcommon.StatusPendingInstall, applyPlan{}, conflict},
		"upgrade, pending":              {upgrade, false, rcommon.StatusPendingUpgrade, applyPlan{}, conflict},
		"install recovers":              {install, true, rcommon.StatusPendingInstall, applyPlan{upgrade: true, unlock: true}, 0},
		"upgrade recovers":              {upgrade, true, rcommon.StatusPendingUpgrade, applyPlan{upgrade: true, unlock: true}, 0},
		"upgrade recovers a rollback":   {upgrade, true, rcommon.StatusPendingRollback, applyPlan{upgrade: true, unlock: true}, 0},
		"install, uninstalling":         {install, false, rcommon.StatusUninstalling, applyPlan{}, conflict},
		"install finishes an uninstall": {install, true, rcommon.StatusUninstalling, applyPlan{finishUninstall: true}, 0},
		"no action":                     {0, false, "", applyPlan{}, failure.Internal},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var last *rspb.Release
			if c.last != "" {
				last = &rspb.Release{Version: 3, Info: &rspb.Info{Status: c.last}}
			}
			got, err := (&Release{name: "a", namespace: "b"}).plan(ApplySpec{Action: c.action, Recover: c.recover}, last)
			if got != c.want {
				t.Fatalf("got %+v, want %+v", got, c.want)
			}
			if (err != nil) != (c.fails != 0) || err != nil && failure.Classify(err).Category != c.fails {
				t.Fatalf("got %v", err)
			}
		})
	}
}
