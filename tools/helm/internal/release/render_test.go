package release

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/operation"
)

func TestCRDsAreRenderedIfApplyWritesThem(t *testing.T) {
	const (
		create  = toolv1.CrdPolicy_CRD_POLICY_UNSPECIFIED
		skip    = toolv1.CrdPolicy_CRD_POLICY_SKIP
		replace = toolv1.CrdPolicy_CRD_POLICY_CREATE_REPLACE
	)
	cases := map[string]struct {
		policy  toolv1.CrdPolicy
		upgrade bool
		want    bool
	}{
		"install":            {create, false, true},
		"upgrade":            {create, true, false},
		"skipped":            {skip, false, false},
		"replaced":           {replace, false, true},
		"upgrade, replacing": {replace, true, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := rendersCRDs(c.policy, c.upgrade); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestListsAreFlattened(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"object":     {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", []string{"v1 ConfigMap a"}},
		"list":       {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]}", []string{"v1 Secret a"}},
		"typed list": {"{apiVersion: v1, kind: SecretList, items: [{metadata: {name: a}}]}", []string{"v1 Secret a"}},
		"nested lists": {
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]}, " +
				"{apiVersion: v1, kind: SecretList, items: [{metadata: {name: b}}, {metadata: {name: c}}]}]}",
			[]string{"v1 Secret a", "v1 Secret b", "v1 Secret c"},
		},
		"no list":    {"{apiVersion: example.com/v1, kind: Menu, metadata: {name: a}, items: [{kind: Dish}]}", []string{"example.com/v1 Menu a"}},
		"empty list": {"{apiVersion: v1, kind: List, items: []}", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := decodeDocuments([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, object := range objects {
				items, err := flatten(object)
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range items {
					got = append(got, item.GetAPIVersion()+" "+item.GetKind()+" "+item.GetName())
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestRenderingStartsFromCopiesOfTheRevisions(t *testing.T) {
	set := operation.NewSet()
	running, err := set.Begin(context.Background(), operation.Options{
		Base: http.DefaultTransport, ReadOnly: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer running.End()
	named := func(version int, status rcommon.Status) *rspb.Release {
		return &rspb.Release{
			Name: "web", Namespace: "apps", Version: version, Info: &rspb.Info{Status: status},
			Chart: &helmchart.Chart{Metadata: &helmchart.Metadata{Name: "web", Version: "1.0.0"}},
		}
	}
	pending := named(2, rcommon.StatusPendingUpgrade)
	revisions := []*rspb.Release{pending, named(1, rcommon.StatusDeployed)}
	stored, err := renderStorage("apps", revisions, running.Log.Handler())
	if err != nil {
		t.Fatal(err)
	}
	found, err := stored.Last("web")
	if err != nil {
		t.Fatal(err)
	}
	last, ok := found.(*rspb.Release)
	if !ok || last.Version != 2 || last.Info.Status != rcommon.StatusFailed {
		t.Errorf("got %+v", found)
	}
	if pending.Info.Status != rcommon.StatusPendingUpgrade {
		t.Error("the revision that was read has changed")
	}
	if _, err := stored.Deployed("web"); err != nil {
		t.Error(err)
	}
}

func TestAnOperationThatReadsRejectsWrites(t *testing.T) {
	set := operation.NewSet()
	var sent int
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, errors.New("sent")
	})
	running, err := set.Begin(context.Background(), operation.Options{
		Base: base, ReadOnly: true, Log: slog.New(slog.DiscardHandler), RequestTimeout: operation.DefaultRequestTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer running.End()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet} {
		request, err := http.NewRequestWithContext(context.Background(), method, "https://blue/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := running.Transport.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s succeeded", method)
		}
	}
	if sent != 1 {
		t.Errorf("%d requests were sent, want only the GET", sent)
	}
}
