package release

import (
	"testing"

	rspb "helm.sh/helm/v4/pkg/release/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

func TestApplyMethod(t *testing.T) {
	const (
		auto   = toolv1.ApplyMethod_APPLY_METHOD_UNSPECIFIED
		server = toolv1.ApplyMethod_APPLY_METHOD_SERVER_SIDE
		client = toolv1.ApplyMethod_APPLY_METHOD_CLIENT_SIDE
		prefer = toolv1.ApplyMethod_APPLY_METHOD_PREFER_SERVER_SIDE
	)
	cases := map[string]struct {
		options *toolv1.ApplyOptions
		last    string
		upgrade bool
		want    bool
		fails   bool
	}{
		"new":                           {&toolv1.ApplyOptions{Method: auto}, "", false, true, false},
		"follows server-side":           {&toolv1.ApplyOptions{Method: auto}, "ssa", true, true, false},
		"follows client-side":           {&toolv1.ApplyOptions{Method: auto}, "csa", true, false, false},
		"an old release is client-side": {&toolv1.ApplyOptions{Method: auto}, "", true, false, false},
		"client-side requested":         {&toolv1.ApplyOptions{Method: client}, "ssa", true, false, false},
		"server-side requested":         {&toolv1.ApplyOptions{Method: server}, "csa", true, true, false},
		"server-side preferred":         {&toolv1.ApplyOptions{Method: prefer}, "csa", true, true, false},
		"conflicts, server-side":        {&toolv1.ApplyOptions{ForceConflicts: true}, "ssa", true, true, false},
		"conflicts, client-side":        {&toolv1.ApplyOptions{ForceConflicts: true}, "csa", true, false, true},
		"replace, client-side":          {&toolv1.ApplyOptions{ForceReplace: true}, "csa", true, false, false},
		"replace, server-side":          {&toolv1.ApplyOptions{ForceReplace: true}, "", false, false, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			method, err := newApplyMethod(c.options, useServerSide(c.options, c.upgrade, &rspb.Release{ApplyMethod: c.last}))
			if got := method.serverSide; got != c.want || (err != nil) != c.fails {
				t.Fatalf("got %+v, %v", method, err)
			}
			if err != nil && failure.Classify(err).Category != failure.InvalidValues {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestFieldConflicts(t *testing.T) {
	const (
		fail   = toolv1.FieldConflicts_FIELD_CONFLICTS_FAIL
		force  = toolv1.FieldConflicts_FIELD_CONFLICTS_FORCE
		ignore = toolv1.FieldConflicts_FIELD_CONFLICTS_IGNORE_FIELDS
	)
	for name, c := range map[string]struct {
		options    *toolv1.ApplyOptions
		serverSide bool
		want       applyMethod
	}{
		"fail":                {&toolv1.ApplyOptions{FieldConflicts: fail}, true, applyMethod{serverSide: true}},
		"force":               {&toolv1.ApplyOptions{FieldConflicts: force}, true, applyMethod{serverSide: true, forceConflicts: true}},
		"ignore":              {&toolv1.ApplyOptions{FieldConflicts: ignore}, true, applyMethod{serverSide: true, ignoreConflicts: true}},
		"force wins":          {&toolv1.ApplyOptions{FieldConflicts: ignore, Force: true}, true, applyMethod{serverSide: true, forceConflicts: true}},
		"force, client-side":  {&toolv1.ApplyOptions{FieldConflicts: force}, false, applyMethod{}},
		"ignore, client-side": {&toolv1.ApplyOptions{FieldConflicts: ignore}, false, applyMethod{}},
	} {
		if got, err := newApplyMethod(c.options, c.serverSide); got != c.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestForce(t *testing.T) {
	options := &toolv1.ApplyOptions{Force: true}
	for serverSide, want := range map[bool]applyMethod{
		true:  {serverSide: true, forceConflicts: true},
		false: {forceReplace: true},
	} {
		if got, err := newApplyMethod(options, serverSide); got != want || err != nil {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}
