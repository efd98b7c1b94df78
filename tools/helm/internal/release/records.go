package release

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// Records describes the Secrets in which Helm stores releases.
func Records() *toolv1.ReleaseRecords {
	return &toolv1.ReleaseRecords{
		ApiVersion:    "v1",
		Kind:          "Secret",
		Plural:        "secrets",
		LabelSelector: "owner=helm",
		ObjectName:    "sh.helm.release.v1.{release}.v{revision}",
		ReleaseLabel:  "name",
		RevisionLabel: "version",
		StatusLabel:   "status",
		TimeLabels:    []string{"modifiedAt", "createdAt"},

		ObjectLabelSelector: managedByLabel + "=" + managedByHelm,
	}
}

// records caches the Secrets of one release for Helm's storage driver, which lists them often. It reads them once per
// operation and updates the cache with the operation's writes. Creating a revision fails if another client has created
// it in the meantime; updating or deleting one fails if another client has changed it.
type records struct {
	typedcorev1.SecretInterface
	name string
	// finishCheck, if set, returns an error if a record must not be deleted or marked as uninstalled.
	finishCheck func() error
	// keepFailed, if set, reports whether failed revisions keep their status. Helm marks a failed revision as superseded if its
	// rollback fails, as if it had been deployed.
	keepFailed func() bool

	mu     sync.Mutex
	loaded bool
	items  map[string]*corev1.Secret
	// labels are set, by name, on Secrets that are written. Helm gives the revision of a rollback the labels of the revision
	// that it restores.
	labels map[string]map[string]string
	// writeErrors holds, by name, the error of the last update of a Secret if it failed.
	writeErrors map[string]error
}

func newRecords(secrets typedcorev1.SecretInterface, name string) *records {
	return &records{
		SecretInterface: secrets,
		name:            name,
		items:           map[string]*corev1.Secret{},
		labels:          map[string]map[string]string{},
		writeErrors:     map[string]error{},
	}
}

// load reads the Secrets unless they are cached.
func (r *records) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	selector := labels.Set{"name": r.name, "owner": "helm"}.AsSelector()
	list, err := r.SecretInterface.List(context.Background(), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.items[list.Items[i].Name] = &list.Items[i]
	}
	r.loaded = true
	return nil
}

// newest returns up to limit revisions, newest first. Zero means all.
func (r *records) newest(limit int) ([]*rspb.Release, error) {
	secrets, err := r.sorted()
	if err != nil {
		return nil, err
	}
	if limit > 0 && len(secrets) > limit {
		secrets = secrets[:limit]
	}
	return r.decode(secrets)
}

// newestAndDeployed returns the newest revision, and the newest deployed one if that is another. A revision may be large, so the
// others are not decoded.
func (r *records) newestAndDeployed() ([]*rspb.Release, error) {
	secrets, err := r.sorted()
	if err != nil {
		return nil, err
	}
	if len(secrets) == 0 {
		return nil, nil
	}
	chosen := secrets[:1:1]
	isDeployed := func(secret *corev1.Secret) bool { return secret.Labels["status"] == rcommon.StatusDeployed.String() }
	if deployed := slices.IndexFunc(secrets, isDeployed); deployed > 0 {
		chosen = append(chosen, secrets[deployed])
	}
	return r.decode(chosen)
}

// sorted returns the records, newest first.
func (r *records) sorted() ([]*corev1.Secret, error) {
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	secrets := slices.Collect(maps.Values(r.items))
	r.mu.Unlock()
	slices.SortFunc(secrets, func(a, b *corev1.Secret) int { return cmp.Compare(revisionOf(b), revisionOf(a)) })
	return secrets, nil
}

func (r *records) decode(secrets []*corev1.Secret) ([]*rspb.Release, error) {
	stored := driver.NewSecrets(r)
	releases := make([]*rspb.Release, 0, len(secrets))
	for _, secret := range secrets {
		found, err := stored.Get(secret.Name)
		if err != nil {
			return nil, err
		}
		if release, ok := found.(*rspb.Release); ok {
			releases = append(releases, release)
		}
	}
	return releases, nil
}

func revisionOf(secret *corev1.Secret) int {
	revision, err := strconv.Atoi(secret.Labels["version"])
	if err != nil {
		return 0
	}
	return revision
}

func (r *records) List(_ context.Context, options metav1.ListOptions) (*corev1.SecretList, error) {
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := &corev1.SecretList{}
	for _, name := range slices.Sorted(maps.Keys(r.items)) {
		if secret := r.items[name]; selector.Matches(labels.Set(secret.Labels)) {
			list.Items = append(list.Items, *shallowCopy(secret))
		}
	}
	return list, nil
}

func (r *records) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if secret, ok := r.items[name]; ok {
		return shallowCopy(secret), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (r *records) Create(ctx context.Context, secret *corev1.Secret, options metav1.CreateOptions) (*corev1.Secret, error) {
	if err := checkSecret(secret); err != nil {
		return nil, err
	}
	created, err := r.SecretInterface.Create(ctx, r.labeled(secret), options)
	r.cache(created, err)
	return created, err
}

func (r *records) Update(ctx context.Context, secret *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error) {
	if secret.Labels["status"] == "uninstalled" {
		if err := r.checkFinish(); err != nil {
			return nil, err
		}
	}
	if known := r.cached(secret.Name); known != nil {
		if isSuperseded(known, secret) && r.keepFailed != nil && r.keepFailed() {
			return shallowCopy(known), nil
		}
		secret = shallowCopy(secret)
		secret.ResourceVersion = known.ResourceVersion
	}
	secret = r.labeled(secret)
	updated, err := r.SecretInterface.Update(ctx, secret, options)
	r.cache(updated, err)
	r.recordUpdate(secret.Name, err)
	return updated, err
}

// isSuperseded reports whether a failed revision is to be marked as superseded.
func isSuperseded(known, next *corev1.Secret) bool {
	return known.Labels["status"] == "failed" && next.Labels["status"] == "superseded"
}

func (r *records) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if err := r.checkFinish(); err != nil {
		return err
	}
	if known := r.cached(name); known != nil {
		options.Preconditions = &metav1.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion}
	}
	err := r.SecretInterface.Delete(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.items, name)
	delete(r.writeErrors, name)
	return nil
}

// recordName returns the name of the Secret of a revision (makeKey in Helm's package storage).
func recordName(release string, revision int) string {
	return fmt.Sprintf("%s.%s.v%d", storage.HelmStorageType, release, revision)
}

// setLabels sets labels of a Secret with its next writes. An empty value removes the label.
func (r *records) setLabels(name string, labels map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.labels[name] = labels
}

// labeled returns the Secret with the labels that were set.
func (r *records) labeled(secret *corev1.Secret) *corev1.Secret {
	r.mu.Lock()
	defer r.mu.Unlock()
	labels := r.labels[secret.Name]
	if len(labels) == 0 {
		return secret
	}
	secret = shallowCopy(secret)
	for label, value := range labels {
		if value == "" {
			delete(secret.Labels, label)
			continue
		}
		secret.Labels[label] = value
	}
	return secret
}

func (r *records) recordUpdate(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.writeErrors, name)
		return
	}
	r.writeErrors[name] = err
}

// writeError returns the error of a failed update, or nil. Helm ignores such errors and reports success even if it
// could not store the result of the operation.
func (r *records) writeError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, err := range r.writeErrors {
		return fmt.Errorf("storing the result of the operation in Secret %s: %w", name, err)
	}
	return nil
}

func (r *records) cache(secret *corev1.Secret, err error) {
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items[secret.Name] = secret
}

// cached returns the Secret as this operation has last read or written it, or nil.
func (r *records) cached(name string) *corev1.Secret {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.items[name]
}

func (r *records) checkFinish() error {
	if r.finishCheck == nil {
		return nil
	}
	return r.finishCheck()
}

// shallowCopy copies the Secret and its labels, which Helm changes. Nothing changes the data.
func shallowCopy(secret *corev1.Secret) *corev1.Secret {
	copied := *secret
	copied.Labels = maps.Clone(secret.Labels)
	return &copied
}

// isLoaded reports whether the Secrets are cached.
func (r *records) isLoaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loaded
}
