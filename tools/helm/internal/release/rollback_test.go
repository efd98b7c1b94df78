package release

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// revision returns a revision with the given digests in its labels.
func revision(version int, status rcommon.Status, inputs, rolledBack string) *rspb.Release {
	labels := map[string]string{}
	for label, digest := range map[string]string{inputLabel: inputs, rolledBackLabel: rolledBack} {
		if digest != "" {
			labels[label], _ = digestLabel(digest, version)
		}
	}
	return &rspb.Release{
		Name: "web", Namespace: "apps", Version: version, Labels: labels, Info: &rspb.Info{Status: status},
		Chart: &helmchart.Chart{Metadata: &helmchart.Metadata{Name: "web", Version: "1.0.0"}},
	}
}

// tested returns the revision after a test of it has ended.
func tested(phase rspb.HookPhase, release *rspb.Release) *rspb.Release {
	release.Hooks = []*rspb.Hook{{
		Name: "test", Events: []rspb.HookEvent{rspb.HookTest}, LastRun: rspb.HookExecution{Phase: phase},
	}}
	return release
}

func dated(age time.Duration, release *rspb.Release) *rspb.Release {
	release.Info.LastDeployed = time.Now().Add(-age)
	return release
}

func TestPlanRollback(t *testing.T) {
	const (
		deployed   = rcommon.StatusDeployed
		superseded = rcommon.StatusSuperseded
		failed     = rcommon.StatusFailed
	)
	// The request rolls "new" back to "old".
	plain := RollbackSpec{InputDigest: "old", RolledBackDigest: "new"}
	with := func(change func(*RollbackSpec)) RollbackSpec {
		spec := plain
		change(&spec)
		return spec
	}
	requested := with(func(s *RollbackSpec) { s.RollBackDeployed = true })
	type list = []*rspb.Release
	cases := map[string]struct {
		spec      RollbackSpec
		revisions list
		target    int
		plan      rollbackPlan
		fails     bool
	}{
		"failed upgrade":   {plain, list{revision(2, failed, "new", ""), revision(1, deployed, "old", "")}, 1, rollbackPlan{}, false},
		"several failures": {plain, list{revision(3, failed, "new", ""), revision(2, failed, "new", ""), revision(1, deployed, "old", "")}, 1, rollbackPlan{}, false},
		"interrupted after the last revision was superseded": {
			with(func(s *RollbackSpec) { s.Recover = true }),
			list{revision(3, rcommon.StatusPendingRollback, "old", "new"), revision(2, failed, "new", ""), revision(1, superseded, "old", "")},
			1, rollbackPlan{unlock: true}, false,
		},
		"interrupted, without recover": {plain, list{revision(3, rcommon.StatusPendingRollback, "old", "new"), revision(1, deployed, "old", "")}, 0, rollbackPlan{}, true},
		"interrupted, another client":  {with(func(s *RollbackSpec) { s.Recover = true }), list{dated(time.Hour, revision(2, rcommon.StatusPendingUpgrade, "", "")), revision(1, deployed, "old", "")}, 1, rollbackPlan{unlock: true}, false},
		"run by another client":        {with(func(s *RollbackSpec) { s.Recover = true }), list{dated(time.Minute, revision(2, rcommon.StatusPendingUpgrade, "", "")), revision(1, deployed, "old", "")}, 0, rollbackPlan{}, true},
		"run by another client for long": {
			with(func(s *RollbackSpec) {
				s.Recover, s.Options = true, &toolv1.RollbackOptions{Timeout: durationpb.New(time.Hour)}
			}),
			list{dated(30*time.Minute, revision(2, rcommon.StatusPendingUpgrade, "", "")), revision(1, deployed, "old", "")},
			0, rollbackPlan{}, true,
		},
		"own one, just now":             {with(func(s *RollbackSpec) { s.Recover = true }), list{dated(0, revision(2, rcommon.StatusPendingUpgrade, "new", "")), revision(1, deployed, "old", "")}, 1, rollbackPlan{unlock: true}, false},
		"failed rollback":               {plain, list{revision(3, failed, "old", "new"), revision(2, failed, "new", ""), revision(1, deployed, "old", "")}, 1, rollbackPlan{}, false},
		"repeated":                      {plain, list{revision(3, deployed, "old", "new"), revision(2, failed, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{unchanged: true}, false},
		"failed before a revision":      {plain, list{revision(2, deployed, "old", ""), revision(1, superseded, "older", "")}, 0, rollbackPlan{markOnly: true}, false},
		"another one failed later":      {plain, list{revision(3, deployed, "old", "older"), revision(1, superseded, "old", "")}, 0, rollbackPlan{markOnly: true}, false},
		"succeeded meanwhile":           {plain, list{revision(2, deployed, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{}, true},
		"deployed, requested by a user": {requested, list{revision(2, deployed, "new", ""), revision(1, superseded, "old", "")}, 1, rollbackPlan{}, false},
		"others deployed, requested":    {requested, list{revision(3, deployed, "other", ""), revision(1, superseded, "old", "")}, 1, rollbackPlan{}, false},
		"requested again":               {requested, list{revision(3, deployed, "old", "new"), revision(2, superseded, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{unchanged: true}, false},
		"requested before a revision":   {requested, list{revision(2, deployed, "old", ""), revision(1, superseded, "older", "")}, 0, rollbackPlan{markOnly: true}, false},
		"tests have failed":             {plain, list{tested(rspb.HookPhaseFailed, revision(2, deployed, "new", "")), revision(1, superseded, "old", "")}, 1, rollbackPlan{}, false},
		"tests have succeeded":          {plain, list{tested(rspb.HookPhaseSucceeded, revision(2, deployed, "new", "")), revision(1, superseded, "old", "")}, 0, rollbackPlan{}, true},
		"deployed by another client":    {plain, list{revision(3, deployed, "", ""), revision(2, failed, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{}, true},
		"deployed with other inputs":    {plain, list{revision(3, deployed, "other", ""), revision(2, failed, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{}, true},
		"newest with these inputs":      {plain, list{revision(4, failed, "new", ""), revision(3, superseded, "", ""), revision(2, superseded, "old", ""), revision(1, superseded, "old", "")}, 2, rollbackPlan{}, false},
		"first revision failed":         {plain, list{revision(1, failed, "new", "")}, 0, rollbackPlan{}, true},
		"only failures":                 {plain, list{revision(2, failed, "new", ""), revision(1, failed, "old", "")}, 0, rollbackPlan{}, true},
		"no release":                    {plain, nil, 0, rollbackPlan{}, true},
		"uninstalled":                   {plain, list{revision(2, rcommon.StatusUninstalled, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{}, true},
		"uninstalling":                  {plain, list{revision(2, rcommon.StatusUninstalling, "new", ""), revision(1, superseded, "old", "")}, 0, rollbackPlan{}, true},
		"given revision":                {with(func(s *RollbackSpec) { s.Revision = 1 }), list{revision(3, failed, "new", ""), revision(2, deployed, "old", ""), revision(1, superseded, "old", "")}, 1, rollbackPlan{}, false},
		"given revision is missing":     {with(func(s *RollbackSpec) { s.Revision = 1 }), list{revision(3, failed, "new", ""), revision(2, deployed, "old", "")}, 0, rollbackPlan{}, true},
		"given revision is the newest":  {with(func(s *RollbackSpec) { s.Revision = 3 }), list{revision(3, failed, "new", ""), revision(2, deployed, "old", "")}, 0, rollbackPlan{}, true},
		"given revision failed":         {with(func(s *RollbackSpec) { s.Revision = 2 }), list{revision(3, failed, "new", ""), revision(2, failed, "old", ""), revision(1, deployed, "old", "")}, 0, rollbackPlan{}, true},
		"given revision has others":     {with(func(s *RollbackSpec) { s.Revision = 1 }), list{revision(2, failed, "new", ""), revision(1, deployed, "older", "")}, 0, rollbackPlan{}, true},
		"no digests":                    {RollbackSpec{}, list{revision(3, deployed, "", ""), revision(2, failed, "", ""), revision(1, superseded, "", "")}, 1, rollbackPlan{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := (&Release{name: "web", namespace: "apps"}).planRollback(c.spec, c.revisions)
			if (err != nil) != c.fails || err != nil && failure.Classify(err).Category != failure.Conflict {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			if version := versionOf(got.target); version != c.target {
				t.Errorf("got revision %d, want %d", version, c.target)
			}
			if got.target = nil; got != c.plan {
				t.Errorf("got %+v, want %+v", got, c.plan)
			}
		})
	}
}

func versionOf(release *rspb.Release) int {
	if release == nil {
		return 0
	}
	return release.Version
}

// memory keeps Secrets.
type memory struct {
	typedcorev1.SecretInterface
	items map[string]corev1.Secret
}

func (m memory) List(context.Context, metav1.ListOptions) (*corev1.SecretList, error) {
	return &corev1.SecretList{Items: slices.Collect(maps.Values(m.items))}, nil
}

func (m memory) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	if _, exists := m.items[secret.Name]; exists {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), secret.Name)
	}
	m.items[secret.Name] = *secret
	return secret, nil
}

func (m memory) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	m.items[secret.Name] = *secret
	return secret, nil
}

// Helm must create the revision of a rollback with our labels and keep them, and a failed rollback must not make a failed
// revision look as if it had been deployed.
func TestHelmRollback(t *testing.T) {
	spec := RollbackSpec{InputDigest: "old", RolledBackDigest: "new"}
	printing := kubefake.PrintingKubeClient{Out: io.Discard}
	cases := map[string]struct {
		client kube.Interface
		fails  bool
		want   map[int]string
	}{
		"succeeds": {&printing, false, map[int]string{1: "superseded", 2: "failed", 3: "deployed"}},
		"fails": {
			&kubefake.FailingKubeClient{PrintingKubeClient: printing, UpdateError: errors.New("no network")},
			true, map[int]string{1: "deployed", 2: "failed", 3: "failed"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := memory{items: map[string]corev1.Secret{}}
			records := newRecords(cluster, "web")
			config := action.NewConfiguration()
			config.KubeClient = c.client
			config.Releases = storage.Init(driver.NewSecrets(records))
			for _, release := range []*rspb.Release{revision(1, rcommon.StatusDeployed, "old", ""), revision(2, rcommon.StatusFailed, "new", "")} {
				if err := config.Releases.Create(release); err != nil {
					t.Fatal(err)
				}
			}
			labels, err := rollbackLabels(spec, 3)
			if err != nil {
				t.Fatal(err)
			}
			records.setLabels(recordName("web", 3), labels)
			records.keepFailed = func() bool { return true }
			rollback := action.NewRollback(config)
			rollback.Version = 1
			rollback.WaitStrategy = kube.HookOnlyStrategy
			if err := rollback.Run("web"); (err != nil) != c.fails {
				t.Fatalf("got %v", err)
			}
			for version, status := range c.want {
				if got := cluster.items[recordName("web", version)].Labels["status"]; got != status {
					t.Errorf("revision %d is %q, want %q", version, got, status)
				}
			}
			created := cluster.items[recordName("web", 3)].Labels
			if created[inputLabel] != "old.3" || created[rolledBackLabel] != "new.3" {
				t.Errorf("got the labels %v", created)
			}
			if got := cluster.items[recordName("web", 1)].Labels[inputLabel]; got != "old.1" {
				t.Errorf("revision 1 has the input %q", got)
			}
		})
	}
}

func TestRollbackLabels(t *testing.T) {
	got, err := rollbackLabels(RollbackSpec{RolledBackDigest: "new"}, 12)
	if want := map[string]string{inputLabel: "", rolledBackLabel: "new.12"}; err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %v, %v", got, err)
	}
	if _, err := rollbackLabels(RollbackSpec{InputDigest: "sha256:x"}, 1); err == nil {
		t.Fatal("an invalid label value is accepted")
	}
	records := newRecords(nil, "web")
	records.setLabels("a", got)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{inputLabel: "copied.1", "other": "x"}}}
	if got, want := records.labeled(secret).Labels, map[string]string{rolledBackLabel: "new.12", "other": "x"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if secret.Labels[inputLabel] != "copied.1" {
		t.Error("the object of the caller was changed")
	}
}
