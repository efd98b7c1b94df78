package release

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// secrets keeps the last written Secret. Updates fail while err is set.
type secrets struct {
	typedcorev1.SecretInterface
	written *corev1.Secret
	err     error
}

func (s *secrets) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	s.written = secret
	return secret, nil
}

func (s *secrets) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	s.written = secret
	return secret, s.err
}

// Helm's storage driver must write Secrets as Records describes them.
func TestRecordsDescribeHelmSecrets(t *testing.T) {
	secrets := &secrets{}
	storage := storage.Init(driver.NewSecrets(secrets))
	release := &rspb.Release{Name: "web", Namespace: "apps", Version: 3, Info: &rspb.Info{Status: rcommon.StatusDeployed}}
	for operation, write := range map[string]func() error{
		"create": func() error { return storage.Create(release) },
		"update": func() error { return storage.Update(release) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		got, described := secrets.written, Records()
		if want := strings.NewReplacer("{release}", "web", "{revision}", "3").Replace(described.GetObjectName()); got.Name != want {
			t.Errorf("%s: got name %q, want %q", operation, got.Name, want)
		}
		if selector, err := labels.Parse(described.GetLabelSelector()); err != nil || !selector.Matches(labels.Set(got.Labels)) {
			t.Errorf("%s: %q does not select %v: %v", operation, described.GetLabelSelector(), got.Labels, err)
		}
		for label, want := range map[string]string{
			described.GetReleaseLabel():  "web",
			described.GetRevisionLabel(): "3",
			described.GetStatusLabel():   "deployed",
		} {
			if got.Labels[label] != want {
				t.Errorf("%s: label %s is %q, want %q", operation, label, got.Labels[label], want)
			}
		}
		if !slices.ContainsFunc(described.GetTimeLabels(), func(label string) bool { return got.Labels[label] != "" }) {
			t.Errorf("%s: no time label in %v", operation, got.Labels)
		}
	}
}

// stored is the Secret of one release on an API server: writes need its current resource version.
type stored struct {
	typedcorev1.SecretInterface
	secret *corev1.Secret
}

func newStored() *stored {
	meta := metav1.ObjectMeta{
		Name: "web.v1", UID: "1", ResourceVersion: "1", Labels: map[string]string{"name": "web", "owner": "helm"},
	}
	return &stored{secret: &corev1.Secret{ObjectMeta: meta}}
}

func (s *stored) List(context.Context, metav1.ListOptions) (*corev1.SecretList, error) {
	return &corev1.SecretList{Items: []corev1.Secret{*s.secret}}, nil
}

func (s *stored) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	if secret.ResourceVersion != "" && secret.ResourceVersion != s.secret.ResourceVersion {
		return nil, s.conflict()
	}
	written := shallowCopy(secret)
	written.UID, written.ResourceVersion = s.secret.UID, s.secret.ResourceVersion+"0"
	s.secret = written
	return written, nil
}

func (s *stored) Delete(_ context.Context, _ string, options metav1.DeleteOptions) error {
	if given := options.Preconditions; given != nil && *given.ResourceVersion != s.secret.ResourceVersion {
		return s.conflict()
	}
	s.secret = nil
	return nil
}

func (s *stored) conflict() error {
	return apierrors.NewConflict(corev1.Resource("secrets"), s.secret.Name, errors.New("it has been modified"))
}

func TestOvertakenWriterGetsAConflict(t *testing.T) {
	ctx := context.Background()
	release := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web.v1"}}
	for name, write := range map[string]func(*records) error{
		"update": func(r *records) error {
			_, err := r.Update(ctx, release, metav1.UpdateOptions{})
			return err
		},
		"delete": func(r *records) error { return r.Delete(ctx, "web.v1", metav1.DeleteOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newStored()
			zombie, successor := newRecords(cluster, "web"), newRecords(cluster, "web")
			for _, records := range []*records{zombie, successor} {
				if err := records.load(); err != nil {
					t.Fatal(err)
				}
			}
			// The successor may write as often as it likes.
			for range 2 {
				if _, err := successor.Update(ctx, release, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := write(zombie); !apierrors.IsConflict(err) {
				t.Fatalf("got %v", err)
			}
			if err := write(successor); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOnlyTheNewestAndTheDeployedRevisionAreDecoded(t *testing.T) {
	cases := map[string]struct {
		statuses []rcommon.Status
		want     []int
	}{
		"none":             {nil, nil},
		"deployed":         {[]rcommon.Status{rcommon.StatusSuperseded, rcommon.StatusDeployed}, []int{2}},
		"failed upgrades":  {[]rcommon.Status{rcommon.StatusSuperseded, rcommon.StatusDeployed, rcommon.StatusFailed, rcommon.StatusFailed}, []int{4, 2}},
		"nothing deployed": {[]rcommon.Status{rcommon.StatusFailed, rcommon.StatusFailed}, []int{2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRecords(&secrets{}, "web")
			r.loaded, r.items = true, map[string]*corev1.Secret{}
			stored := storage.Init(driver.NewSecrets(r))
			for i, status := range c.statuses {
				release := &rspb.Release{Name: "web", Namespace: "apps", Version: i + 1, Info: &rspb.Info{Status: status}}
				if err := stored.Create(release); err != nil {
					t.Fatal(err)
				}
			}
			found, err := r.newestAndDeployed()
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, release := range found {
				got = append(got, release.Version)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got revisions %v, want %v", got, c.want)
			}
		})
	}
}

func TestWriteErrorIsReportedUntilAWriteSucceeds(t *testing.T) {
	storage := &secrets{err: errors.New("no network")}
	records := newRecords(storage, "web")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web.v1"}}
	if _, err := records.Update(context.Background(), secret, metav1.UpdateOptions{}); err == nil {
		t.Fatal("the update did not fail")
	}
	if err := records.writeError(); !errors.Is(err, storage.err) {
		t.Fatalf("got %v", err)
	}
	storage.err = nil
	if _, err := records.Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := records.writeError(); err != nil {
		t.Fatalf("got %v", err)
	}
}
